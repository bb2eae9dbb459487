//! Checks the lifecycle policies of a job or a task, as Volcano's `validatePolicies` does: known events and actions,
//! either an event or an exit code, and none of them twice.

use std::collections::BTreeSet;

use caldera_core::text::count_noun;
use serde_json::{Map, Value};

use super::{Refusal, read_text};

/// Events a policy may name.
const EVENTS: [&str; 8] =
    ["*", "JobUpdated", "PodEvicted", "PodFailed", "PodPending", "TaskCompleted", "TaskFailed", "Unknown"];
/// Actions a policy may name.
const ACTIONS: [&str; 8] = [
    "AbortJob",
    "CompleteJob",
    "RestartJob",
    "RestartPartition",
    "RestartPod",
    "RestartTask",
    "ResumeJob",
    "TerminateJob",
];

/// What is wrong with a list of policies. `volcano_path` is how Volcano names the list, `field` how we do.
pub(super) fn check_policies(
    policies: Option<&Value>,
    volcano_path: &str,
    field: impl FnOnce() -> String,
) -> Option<Refusal> {
    let policies = policies.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    let mut seen = SeenPolicies::default();
    let mut errors = Vec::new();
    for policy in policies {
        if let Err(error) = seen.check_policy(policy, volcano_path) {
            errors.push(error);
            break;
        }
    }
    if seen.events.contains("*") && seen.events.len() > 1 {
        errors.push("if there's * here, no other policy should be here".to_owned());
    }
    if errors.is_empty() {
        return None;
    }
    let listed: String = errors.iter().map(|error| format!("\n\t* {error}")).collect();
    let number = count_noun(errors.len(), "error");
    let volcano = format!(
        "{number} occurred:{listed}\n\n valid events are [{}], valid actions are [{}]",
        EVENTS.join(" "),
        ACTIONS.join(" ")
    );
    let why = format!("{}; events: {}; actions: {}", errors.join("; "), EVENTS.join(", "), ACTIONS.join(", "));
    Some(Refusal::new(field(), volcano, why))
}

#[derive(Default)]
struct SeenPolicies<'a> {
    events: BTreeSet<&'a str>,
    exit_codes: BTreeSet<i64>,
}

impl<'a> SeenPolicies<'a> {
    fn check_policy(&mut self, policy: &'a Map<String, Value>, path: &str) -> Result<(), String> {
        let events = list_events(policy);
        let exit_code = policy.get("exitCode").and_then(Value::as_i64);
        match (events.is_empty(), exit_code) {
            (false, Some(_)) => Err("must not specify event and exitCode simultaneously".into()),
            (true, None) => Err("either event and exitCode should be specified".into()),
            (true, Some(0)) => Err("0 is not a valid error code".into()),
            (true, Some(code)) if !self.exit_codes.insert(code) => Err(format!("duplicate exitCode {code}")),
            (true, Some(_)) => Ok(()),
            (false, None) => events.into_iter().try_for_each(|event| self.add_event(event, policy, path)),
        }
    }

    fn add_event(&mut self, event: &'a str, policy: &Map<String, Value>, path: &str) -> Result<(), String> {
        let action = read_text(policy, "action");
        if !EVENTS.contains(&event) {
            return Err(format!("{path}: Invalid value: \"{event}\": invalid policy event"));
        }
        if !ACTIONS.contains(&action) {
            return Err(format!("{path}: Invalid value: \"{action}\": invalid policy action"));
        }
        if !self.events.insert(event) {
            return Err(format!("duplicate event {event}  across different policy"));
        }
        Ok(())
    }
}

/// `events` and `event` together, each once.
fn list_events(policy: &Map<String, Value>) -> Vec<&str> {
    let listed = policy.get("events").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let single = Some(read_text(policy, "event")).filter(|event| !event.is_empty());
    let mut seen = BTreeSet::new();
    listed.chain(single).filter(|event| seen.insert(*event)).collect()
}
