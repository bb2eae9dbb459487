//! What the policies of a Volcano Job do when a pod of it fails.
//!
//! Rule: Volcano's `applyPolicies` (`pkg/controllers/job/job_controller_util.go`). The first policy of the pod's task
//! that names the event, any event or the exit code decides; then the first of the job. Without one nothing is done.

use serde_json::Value;

use crate::job_admission::DEFAULT_MAX_RETRY;

/// Whether a failed pod restarts the whole job, whichever pod it is and however it failed. `false` where an exit code
/// decides: of a copy that has failed nobody knows it any more.
#[must_use]
pub fn restarts_when_a_pod_fails(job: &Value) -> bool {
    let spec = &job["spec"];
    let of_job = find_action(&spec["policies"]);
    let tasks = spec["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    !tasks.is_empty() && tasks.iter().all(|task| find_action(&task["policies"]).or(of_job) == Some("RestartJob"))
}

/// How often its policies may restart a Volcano Job before it fails. Volcano's default is 3.
#[must_use]
pub fn read_max_retry(job: &Value) -> u32 {
    let most = job["spec"]["maxRetry"].as_i64().filter(|most| *most > 0).unwrap_or(DEFAULT_MAX_RETRY);
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// The action of the first policy that a failed pod may meet; empty where that depends on its exit code.
fn find_action(policies: &Value) -> Option<&str> {
    policies.as_array().into_iter().flatten().find_map(|policy| {
        let events = policy["events"].as_array().into_iter().flatten().chain([&policy["event"]]);
        let mut events = events.filter_map(Value::as_str);
        match events.any(|event| matches!(event, "PodFailed" | "*")) {
            true => policy["action"].as_str(),
            false => policy["exitCode"].is_number().then_some(""),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failed_pod_restarts_the_job_if_the_first_policy_of_each_task_or_else_of_the_job_says_so() {
        let restart = json!({"event": "PodFailed", "action": "RestartJob"});
        let any = json!({"events": ["PodEvicted", "*"], "action": "RestartJob"});
        let abort = json!({"event": "PodFailed", "action": "AbortJob"});
        let evicted = json!({"event": "PodEvicted", "action": "RestartJob"});
        let coded = json!({"exitCode": 3, "action": "RestartJob"});
        for (of_job, of_task, wanted) in [
            (json!([restart]), json!([]), true),
            (json!([any]), json!(null), true),
            (json!([evicted, restart]), json!([]), true),
            (json!([]), json!([restart]), false),
            (json!([abort, restart]), json!([]), false),
            (json!([restart]), json!([abort]), false),
            (json!([coded, restart]), json!([]), false),
            (json!([restart]), json!([coded]), false),
            (json!([evicted]), json!([]), false),
            (json!(null), json!([]), false),
        ] {
            let tasks = json!([{"name": "a", "policies": of_task}, {"name": "b"}]);
            let job = json!({"spec": {"policies": of_job, "tasks": tasks}});
            assert_eq!(restarts_when_a_pod_fails(&job), wanted, "{job}");
        }
        let own = json!({"spec": {"policies": [abort], "tasks": [{"policies": [restart]}]}});
        assert!(restarts_when_a_pod_fails(&own));
    }
}
