//! The definitions that we generate equal the real ones in every keyword of every field, descriptions aside.
//!
//! The real ones are those that a kube-apiserver was given when `fixtures/conformance` was recorded.
//! `CALDERA_CONFORMANCE_DIR` may name another recording, `CALDERA_SHARED_DIR` a folder whose `crds` has the files that
//! the projects ship.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use caldera_crds::manifests;
use serde_json::Value;

/// The definitions as their projects ship them, by name.
fn read_shipped(folder: &Path, into: &mut BTreeMap<String, Value>) {
    for entry in fs::read_dir(folder).expect("a folder of definitions") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read_shipped(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = fs::read_to_string(path).expect("a definition");
            let definition: Value = serde_saphyr::from_str(&text).expect("YAML");
            into.insert(definition["metadata"]["name"].as_str().expect("a name").to_owned(), definition);
        }
    }
}

/// The real definitions by name.
fn read_definitions() -> BTreeMap<String, Value> {
    if let Some(shared) = std::env::var_os("CALDERA_SHARED_DIR") {
        let mut shipped = BTreeMap::new();
        read_shipped(&Path::new(&shared).join("crds"), &mut shipped);
        return shipped;
    }
    let folder = caldera_fixtures::find_folder("CALDERA_CONFORMANCE_DIR", "conformance");
    let text = caldera_fixtures::read_text(&folder.join("fixtures/crds.jsonl"));
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.map(|line| (line["name"].as_str().expect("a name").to_owned(), line["body"].clone())).collect()
}

/// Every leaf of a schema by its path; lists whose order means nothing are sorted.
fn leaves(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(object) => {
            if object.is_empty() {
                into.insert(path.into(), "{}".into());
            }
            for (key, value) in object {
                let is_property_map = path.ends_with("/properties");
                if key == "description" && !is_property_map {
                    continue;
                }
                if ["required", "enum", "x-kubernetes-validations"].contains(&key.as_str()) && !is_property_map {
                    let words: BTreeSet<String> =
                        value.as_array().into_iter().flatten().map(ToString::to_string).collect();
                    for word in words {
                        into.insert(format!("{path}/{key}={word}"), String::new());
                    }
                } else {
                    leaves(&format!("{path}/{key}"), value, into);
                }
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                leaves(&format!("{path}/{index}"), item, into);
            }
        }
        other => {
            into.insert(path.into(), other.to_string());
        }
    }
}

fn without_metadata(definition: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    leaves("", &definition["spec"], &mut all);
    all.insert("/metadata/name".into(), definition["metadata"]["name"].to_string());
    all
}

#[test]
fn generated_definitions_equal_the_real_ones() {
    let real_ones = read_definitions();
    let mut differences = Vec::new();
    for definition in manifests::build_karmada_crds().into_iter().chain(manifests::build_member_volcano_crds()) {
        let group = definition["spec"]["group"].as_str().expect("a group");
        let plural = definition["spec"]["names"]["plural"].as_str().expect("a plural");
        let real = &real_ones[&format!("{plural}.{group}")];
        let (ours, real) = (without_metadata(&definition), without_metadata(real));
        let same = real.iter().filter(|(path, value)| ours.get(*path) == Some(value)).count();
        println!("crds {plural}.{group}: {same} of {} fields", real.len());
        for path in ours.keys().chain(real.keys()).collect::<BTreeSet<_>>() {
            if ours.get(path) != real.get(path) {
                differences.push(format!("{plural}.{group} {path}: {:?}, not {:?}", ours.get(path), real.get(path)));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// The fields of `docs/deploy/crds` of volcano-global, and what is bounded beyond it.
#[test]
fn data_sources_and_claims_have_the_fields_of_the_peer_within_bounds() {
    let ours = |plural: &str| {
        let all = manifests::build_federation_crds();
        let found = all.into_iter().find(|definition| definition["spec"]["names"]["plural"] == plural);
        found.unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clone()
    };
    let names =
        |schema: &Value| schema["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let source = ours("datasources");
    assert_eq!(names(&source["spec"]), "attributes locality name reclaimPolicy system type");
    assert_eq!(source["spec"]["required"], serde_json::json!(["locality", "name", "system", "type"]));
    assert_eq!(names(&source["spec"]["properties"]["locality"]), "clusterNames");
    assert_eq!(names(&source["status"]), "boundClaims claimRefs conditions");
    let claim = ours("datasourceclaims");
    assert_eq!(names(&claim["spec"]), "attributes dataSourceName dataSourceType system workload");
    let workload = &claim["spec"]["properties"]["workload"];
    assert_eq!(names(workload), "apiVersion kind name namespace");
    assert_eq!(workload["required"], serde_json::json!(["apiVersion", "kind", "name"]));
    assert_eq!(names(&claim["status"]), "boundDataSource conditions phase");
    assert_eq!(claim["status"]["properties"]["phase"]["default"], "Pending");
    let spec = &source["spec"]["properties"];
    assert_eq!((&spec["system"]["minLength"], &spec["system"]["maxLength"]), (&1.into(), &1024.into()));
    assert_eq!(spec["reclaimPolicy"]["enum"], serde_json::json!(["Retain", "Delete"]));
    assert_eq!(spec["locality"]["properties"]["clusterNames"]["maxItems"], 5000);
}
