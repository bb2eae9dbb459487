//! What was done in a burst, of which a recording gives only the number: read off the changes that came of it.

use caldera_sandbox::karmada::object::ObjectExt;
use serde_json::{Value, json};

use crate::recording::Action;

/// Who acts in a recording without being a part of Karmada.
const OUTSIDERS: [&str; 5] = ["user", "third-party", "cluster-admin", "member-user", "member-controller"];
/// A change shows in the watch within so many seconds of the action.
const SEEN_WITHIN: f64 = 1.0;

/// Changes by outsiders that none of the actions `told` explains, as actions.
pub fn implied_actions(told: &[Action], events: &[&Value]) -> Vec<Action> {
    let mut open: Vec<&Action> = told.iter().collect();
    let mut implied = Vec::new();
    for event in events {
        let (text, t) = (|field: &str| event[field].as_str().unwrap_or_default(), event["t"].as_f64().unwrap());
        let outsider = OUTSIDERS.contains(&text("writer"));
        let caused = |action: &&Action| {
            let close = (-0.1..SEEN_WITHIN).contains(&(t - action.t));
            close && action.who == text("writer") && action.at == text("at") && action.object == text("object")
        };
        match open.iter().position(caused) {
            _ if !outsider => {}
            Some(index) => drop(open.remove(index)),
            None => implied.extend(read_action(event, t)),
        }
    }
    implied
}

fn read_action(event: &Value, t: f64) -> Option<Action> {
    let (verb, body) = match event["event"].as_str()? {
        "ADDED" => ("create", Some(sent_object(&event["value"]))),
        "DELETED" => ("delete", None),
        _ => {
            let steps: Vec<&Value> = event["diff"].as_array().into_iter().flatten().collect();
            if steps.iter().any(|step| step["path"] == "/metadata/deletionTimestamp") {
                ("delete", None)
            } else {
                let kept = steps.into_iter().filter(|step| step["path"] != "/metadata/generation");
                ("json-patch", Some(kept.map(patch_step).collect()))
            }
        }
    };
    let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
    Some(Action {
        t,
        who: text("writer"),
        verb: verb.to_owned(),
        at: text("at"),
        object: text("object"),
        subresource: text("subresource"),
        body,
        code: 200,
        propagation: None,
        hurried: true,
    })
}

/// What was sent to get an object.
fn sent_object(created: &Value) -> Value {
    let mut object = created.clone();
    for field in ["uid", "creationTimestamp", "generation", "finalizers"] {
        object.remove_at(&["metadata", field]);
    }
    object.remove_at(&["status"]);
    object
}

fn patch_step(step: &Value) -> Value {
    let mut patch = json!({"op": step["op"], "path": step["path"]});
    if step["op"] != "remove" {
        patch["value"] = step["value"].clone();
    }
    patch
}
