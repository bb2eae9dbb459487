//! Karmada's built-in behaviour for `batch.volcano.sh/v1alpha1 Job`, flaws included.
//!
//! Rule: `pkg/resourceinterpreter/default/thirdparty/resourcecustomizations/batch.volcano.sh/v1alpha1/Job/
//! customizations.yaml`, re-expressed. There are no replicas, no revision and no retention: without a webhook a Volcano
//! Job goes whole into every target cluster.

use serde_json::{Map, Value, json};

use crate::karmada::object::ObjectExt;

/// Anything but Failed and nothing is healthy.
#[must_use]
pub fn is_healthy(observed: &Value) -> bool {
    matches!(
        observed.text("/status/state/phase"),
        "Running"
            | "Completed"
            | "Pending"
            | "Aborting"
            | "Aborted"
            | "Restarting"
            | "Completing"
            | "Terminating"
            | "Terminated"
    )
}

/// The part of a member's status that travels to the host.
#[must_use]
pub fn reflect_status(observed: &Value) -> Value {
    const FIELDS: [&str; 14] = [
        "minAvailable",
        "pending",
        "running",
        "succeeded",
        "failed",
        "terminating",
        "unknown",
        "version",
        "retryCount",
        "runningDuration",
        "taskStatusCount",
        "controlledResources",
        "state",
        "conditions",
    ];
    let mut status = Map::new();
    for field in FIELDS {
        // Empty tables do not survive the way out of Lua.
        if let Some(value) = observed.present(&format!("/status/{field}")).filter(|value| !is_empty(value)) {
            status.insert(field.to_owned(), value.clone());
        }
    }
    Value::Object(status)
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// The template's status from its members': one member's as it is, several ones' sums. No phase but Failed and
/// Completed, any failure in a member's history fails the whole, and the time of the verdict is always now.
#[must_use]
pub fn aggregate_status(items: &[Value], now: &str) -> Option<Value> {
    if let [only] = items {
        return only.get("status").cloned();
    }
    let statuses: Vec<(&str, &Value)> =
        items.iter().filter_map(|item| Some((item.text("/clusterName"), item.present("/status")?))).collect();
    let sum = |field: &str| -> i64 { statuses.iter().map(|(_, status)| status.number(&format!("/{field}"))).sum() };
    let mut status = json!({
        "minAvailable": sum("minAvailable"),
        "taskStatusCount": task_counts(&statuses),
        "pending": sum("pending"),
        "running": sum("running"),
        "succeeded": sum("succeeded"),
        "failed": sum("failed"),
        "terminating": sum("terminating"),
        "unknown": sum("unknown"),
        "version": statuses.iter().map(|(_, status)| status.number("/version")).max().unwrap_or_default().max(0),
        "retryCount": sum("retryCount"),
        "conditions": merge_conditions(&statuses),
        "runningDuration": find_longest_duration(&statuses),
    });
    for (_, one) in &statuses {
        for (key, value) in one.pointer("/controlledResources").and_then(Value::as_object).into_iter().flatten() {
            status.put(&["controlledResources", key], value.clone());
        }
    }
    let failed: Vec<&str> = statuses
        .iter()
        .filter(|(_, status)| matches!(status.text("/state/phase"), "Failed" | "Aborted"))
        .map(|(cluster, _)| *cluster)
        .collect();
    let completed = statuses.iter().filter(|(_, status)| status.text("/state/phase") == "Completed").count();
    if completed == items.len() && completed > 0 {
        status.put(
            &["state"],
            json!({"phase": "Completed", "reason": "Completed", "message": "Job completed successfully", "lastTransitionTime": now}),
        );
    } else if !failed.is_empty() {
        let message = format!("Job failed in clusters: {}", failed.join(","));
        status.put(
            &["state"],
            json!({"phase": "Failed", "reason": "VolcanoJobFailed", "message": message, "lastTransitionTime": now}),
        );
    }
    Some(omit_empty(&status).unwrap_or_else(|| json!({})))
}

fn task_counts(statuses: &[(&str, &Value)]) -> Value {
    let mut counts = json!({});
    for (_, status) in statuses {
        for (task, one) in status.pointer("/taskStatusCount").and_then(Value::as_object).into_iter().flatten() {
            for (phase, count) in one.pointer("/phase").and_then(Value::as_object).into_iter().flatten() {
                let so_far = counts.get(task).and_then(|one| one["phase"].get(phase)).and_then(Value::as_i64);
                let total = so_far.unwrap_or_default() + count.as_i64().unwrap_or_default();
                counts.put(&[task, "phase", phase], json!(total));
            }
        }
    }
    counts
}

/// The latest condition of each status; or, as soon as one member's history holds a failure, that member's alone.
fn merge_conditions(statuses: &[(&str, &Value)]) -> Vec<Value> {
    let mut latest: Vec<Value> = Vec::new();
    for (_, status) in statuses {
        for condition in status.items("/conditions") {
            let phase = condition.text("/status");
            if matches!(phase, "Failed" | "Aborted" | "Aborting" | "Terminated" | "Terminating") {
                return status.items("/conditions").to_vec();
            }
            match latest.iter_mut().find(|one| one.text("/status") == phase) {
                Some(one) if condition.text("/lastTransitionTime") > one.text("/lastTransitionTime") => {
                    *one = condition.clone();
                }
                Some(_) => {}
                None => latest.push(condition.clone()),
            }
        }
    }
    latest
}

fn find_longest_duration<'a>(statuses: &[(&'a str, &'a Value)]) -> &'a str {
    let mut longest = "0s";
    for (_, status) in statuses {
        let duration = status.text("/runningDuration");
        if parse_duration(duration) > parse_duration(longest) {
            longest = duration;
        }
    }
    longest
}

/// `1h2m3.5s` in milliseconds; units other than these do not count, as in the original.
fn parse_duration(duration: &str) -> u64 {
    let mut total = 0_u64;
    let mut number = String::new();
    for letter in duration.chars() {
        let unit = match letter {
            '0'..='9' | '.' => {
                number.push(letter);
                continue;
            }
            'h' => 3_600_000,
            'm' => 60_000,
            's' => 1_000,
            _ => 0,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        let thousandths: u64 = format!("{fraction:0<3}").get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0);
        total += whole.parse::<u64>().unwrap_or(0).saturating_mul(unit) + thousandths * unit / 1000;
        number.clear();
    }
    total
}

/// Zeros, empty texts, `0s` and whatever holds nothing else go.
fn omit_empty(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let kept: Map<String, Value> =
                fields.iter().filter_map(|(key, value)| Some((key.clone(), omit_empty(value)?))).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept: Vec<Value> = items.iter().filter_map(omit_empty).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::Null => None,
        Value::Number(number) if number.as_f64() == Some(0.0) => None,
        Value::String(text) if text.is_empty() || text == "0s" => None,
        other => Some(other.clone()),
    }
}

/// What each task asks for, of which the minimum counts, one pod where there is none.
#[must_use]
pub fn read_components(object: &Value, requirements: impl Fn(&Value) -> Option<Value>) -> Vec<Value> {
    object
        .items("/spec/tasks")
        .iter()
        .enumerate()
        .map(|(index, task)| {
            let name = match task.text("/name") {
                "" => format!("task-{index}"),
                name => name.to_owned(),
            };
            let mut component = json!({
                "name": name,
                "replicas": task.pointer("/minAvailable").and_then(Value::as_i64).unwrap_or(1),
            });
            component.put_or_remove(&["replicaRequirements"], task.get("template").and_then(&requirements));
            component
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(cluster: &str, status: &Value) -> Value {
        json!({"clusterName": cluster, "status": status})
    }

    #[test]
    fn one_member_is_copied() {
        assert_eq!(aggregate_status(&[item("m1", &json!({"pending": 0}))], "now"), Some(json!({"pending": 0})));
    }

    #[test]
    fn phases_of_running_members_are_missing() {
        let running = json!({"state": {"phase": "Running"}, "running": 2, "version": 1});
        let status = aggregate_status(&[item("m1", &running), item("m2", &running)], "now");
        assert_eq!(status, Some(json!({"running": 4, "version": 1})));
    }

    #[test]
    fn a_failure_in_one_members_history_takes_its_conditions_alone() {
        let bad = json!({"state": {"phase": "Failed"}, "conditions": [{"status": "Running"}, {"status": "Failed"}]});
        let good = json!({"state": {"phase": "Running"}, "conditions": [{"status": "Running"}]});
        let status = aggregate_status(&[item("m1", &good), item("m2", &bad)], "now").unwrap();
        assert_eq!(status["conditions"], json!([{"status": "Running"}, {"status": "Failed"}]));
        assert_eq!(status["state"]["message"], "Job failed in clusters: m2");
    }

    #[test]
    fn durations_compare_by_length() {
        assert!(parse_duration("1h") > parse_duration("59m59s"));
        assert_eq!(parse_duration("1.5s"), 1500);
    }
}
