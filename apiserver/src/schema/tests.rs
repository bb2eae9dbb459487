//! The rules of this module together, and against recordings of a real API server where these are at hand.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn recordings() -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/conformance");
    let dir = std::env::var_os("CALDERA_CONFORMANCE_DIR").map_or_else(|| PathBuf::from(default), PathBuf::from);
    if dir.join("crd_validation.jsonl").exists() {
        return Some(dir);
    }
    println!("skipped: no recordings at {}", dir.display());
    None
}

fn lines(path: &std::path::Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sorted_causes(causes: impl IntoIterator<Item = Value>) -> Vec<String> {
    let mut texts: Vec<String> = causes.into_iter().map(|cause| cause.to_string()).collect();
    texts.sort();
    texts
}

#[test]
fn recorded_creations_are_judged_as_recorded() {
    let Some(dir) = recordings() else { return };
    let crds = lines(&dir.join("fixtures/crds.jsonl"));
    let version = |crd: &Value| crd["body"]["spec"]["versions"][0].clone();
    let widget = crds.iter().find(|crd| crd["name"] == "widgets.conf.example.io").map(version).unwrap();
    let schema = TypeSchema::from_crd(&widget["schema"]["openAPIV3Schema"], false);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for case in lines(&dir.join("crd_validation.jsonl")) {
        for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let request = &step["request"];
            let (body, response) = (&request["body"], &step["response"]);
            if request["method"] != "POST" || body["kind"] != "Widget" || response["status"] == 400 {
                continue;
            }
            seen += 1;
            let mut object = body.clone();
            let unknown: Vec<String> = schema
                .prune(&mut object)
                .iter()
                .map(|path| format!("299 - \"unknown field \\\"{path}\\\"\""))
                .collect();
            object.as_object_mut().unwrap().remove("status");
            schema.default(&mut object);
            let before = scale_errors(&object, &widget["subresources"]["scale"], true);
            let errors = schema.validate_after(before, &object, None);
            let got = sorted_causes(errors.iter().map(FieldError::cause));
            let wanted = response["body"]["details"]["causes"].as_array().cloned().unwrap_or_default();
            let wanted = sorted_causes(wanted);
            if got != wanted {
                wrong.push(format!("{} {index}\n   got    {got:#?}\n   wanted {wanted:#?}", case["id"]));
            } else if wanted.is_empty() && object["spec"] != response["body"]["spec"] {
                wrong.push(format!("{} {index}: {} is not {}", case["id"], object["spec"], response["body"]["spec"]));
            } else if wanted.is_empty()
                && json!(unknown) != response["headers"].get("warning").cloned().unwrap_or(json!([]))
            {
                wrong.push(format!("{} {index}: warned {unknown:?}", case["id"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {seen} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(seen > 50, "only {seen} creations found");
}
