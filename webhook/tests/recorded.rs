//! Our resource interpreter answers what a real Karmada asked one. The questions are in `fixtures/transcripts`, or in
//! the folder that `CALDERA_TRANSCRIPTS_DIR` names.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_crds::{job_admission::validate_update, workload};
use caldera_fixtures as fixtures;
use caldera_webhook::{
    decide::interpreter::{Interpretation, interpret_request},
    observe::cache::{Cache, LiveRead},
};
use serde_json::{Value, json};

/// The object with the answer's patch, if there is one.
fn patched(object: &Value, response: &Value) -> Value {
    let Some(patch) = response.get("patch") else {
        assert_eq!(response.get("patchType"), None, "a patch type without a patch");
        return object.clone();
    };
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = STANDARD.decode(patch.as_str().unwrap()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).unwrap();
    object
}

/// Counters over all members of a question, as a naive reader adds them up.
fn sum(request: &Value, counter: &str) -> u64 {
    let items = request["aggregatedStatus"].as_array().into_iter().flatten();
    items.filter_map(|item| item["status"][counter].as_u64()).sum()
}

/// What is wrong with our answer.
fn fault(request: &Value, recorded: &Value, response: &Value) -> Option<String> {
    let object = &request["object"];
    let wrong =
        |what: &str, got: &Value, want: &Value| (got != want).then(|| format!("{what}: {got}, recorded {want}"));
    if response["uid"] != request["uid"] || response["successful"] != true {
        return Some(format!("no answer: {response}"));
    }
    match request["operation"].as_str().unwrap() {
        "InterpretReplica" => wrong("replicas", &response["replicas"], &recorded["replicas"]).or_else(|| {
            let request = |response: &Value| response["replicaRequirements"]["resourceRequest"].clone();
            wrong("request", &request(response), &request(recorded))
        }),
        "InterpretComponent" => (!response["components"].is_array()).then(|| "no components".to_owned()),
        "ReviseReplica" => {
            let revised = workload::read_gang(&patched(object, response)).unwrap().replicas();
            wrong("replicas", &json!(revised), &request["replicas"])
        }
        "Retain" => {
            let kept = patched(object, response);
            validate_update(&request["observedObject"], &kept).pop()
        }
        "AggregateStatus" => {
            let status = &patched(object, response)["status"];
            ["pending", "running", "succeeded", "failed"].into_iter().find_map(|counter| {
                let (got, want) = (status[counter].as_u64().unwrap_or(0), sum(request, counter));
                wrong(counter, &json!(got), &json!(want))
            })
        }
        "InterpretStatus" => {
            let status = object.get("status").cloned().unwrap_or_else(|| json!({}));
            wrong("status", &response["rawStatus"], &status)
        }
        "InterpretHealth" => wrong(
            "health",
            &response["healthy"],
            &json!(matches!(object["status"]["state"]["phase"].as_str(), Some("Running" | "Completing" | "Completed"))),
        ),
        "InterpretDependency" => (!response["dependencies"].is_array()).then(|| "no dependencies".to_owned()),
        other => Some(format!("unknown operation {other}")),
    }
}

#[test]
fn every_recorded_question_is_answered() {
    let folder = fixtures::find_folder("CALDERA_TRANSCRIPTS_DIR", "transcripts");
    let mut tally: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut faults = Vec::new();
    for file in fixtures::list_files(&folder, "json") {
        let scenario: Value = serde_json::from_str(&fixtures::read_text(&file)).unwrap();
        for call in scenario["interpreter_calls"].as_array().into_iter().flatten() {
            let request = &call["request"]["request"];
            let is_volcano_job = request["kind"]["group"] == "batch.volcano.sh" && request["kind"]["kind"] == "Job";
            // Failures that the recorder staged are no answers to compare with.
            if !is_volcano_job || call["http_status"] != 200 || call["response"]["response"]["successful"] != true {
                continue;
            }
            let (body, no_binding) = (call["request"].to_string(), LiveRead::Binding(None));
            let answer = interpret_request(body.as_bytes(), &Cache::default(), Some(&no_binding));
            let Interpretation::Reply(reply) = answer else { panic!("{answer:?}") };
            assert_eq!(reply.status, 200);
            let answer: Value = serde_json::from_slice(&reply.body).unwrap();
            let (good, all) = tally.entry(request["operation"].as_str().unwrap().to_owned()).or_default();
            *all += 1;
            match fault(request, &call["response"]["response"], &answer["response"]) {
                None => *good += 1,
                Some(fault) => faults.push(format!("{} {}: {fault}", scenario["id"], request["operation"])),
            }
        }
    }
    for (operation, (good, all)) in &tally {
        println!("interpreter {operation}: {good} of {all}");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
