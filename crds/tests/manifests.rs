//! The generated definitions against the real ones: every keyword of every field, descriptions aside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use caldera_crds::manifests;
use serde_json::Value;

fn shared() -> PathBuf {
    std::env::var_os("CALDERA_SHARED_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from)
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
    let folder = shared().join("crds");
    if !folder.is_dir() {
        println!("skipped: {} is not there; set CALDERA_SHARED_DIR", folder.display());
        return;
    }
    let mut differences = Vec::new();
    for definition in manifests::upstream_crds() {
        let group = definition["spec"]["group"].as_str().expect("a group");
        let plural = definition["spec"]["names"]["plural"].as_str().expect("a plural");
        let file = match group.strip_suffix(".karmada.io") {
            Some(area) => folder.join(format!("karmada/{area}/{group}_{plural}.yaml")),
            None => folder.join(format!("volcano/{group}_{plural}.yaml")),
        };
        let text = fs::read_to_string(&file).expect("the real definition");
        let real: Value = serde_saphyr::from_str(&text).expect("YAML");
        let (ours, real) = (without_metadata(&definition), without_metadata(&real));
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
