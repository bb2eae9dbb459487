//! Which tasks' completion completes a Volcano Job.
//!
//! Rule (Volcano `pkg/controllers/job/job_controller_util.go`, `applyPolicies`): a task's own policies come before the
//! job's; the first that names the event `TaskCompleted`, or any, decides.

use std::collections::BTreeSet;

use caldera_core::gang::TaskName;
use serde_json::Value;

use super::WorkloadKind;
use crate::job_admission::default_task_name;

/// Tasks whose completion has the action `CompleteJob`; none for other kinds.
#[must_use]
pub fn list_completing_tasks(object: &Value) -> BTreeSet<TaskName> {
    if WorkloadKind::of_object(object) != Some(WorkloadKind::VolcanoJob) {
        return BTreeSet::new();
    }
    let spec = &object["spec"];
    let of_job = find_completion_action(&spec["policies"]);
    let tasks = spec["tasks"].as_array().into_iter().flatten().enumerate();
    let completes =
        tasks.filter(|(_, task)| find_completion_action(&task["policies"]).or(of_job) == Some("CompleteJob"));
    let name = |(index, task): (usize, &Value)| match task["name"].as_str() {
        None | Some("") => TaskName::from(default_task_name(index)),
        Some(name) => TaskName::from(name),
    };
    completes.map(name).collect()
}

/// The action of the first policy for the event `TaskCompleted`.
fn find_completion_action(policies: &Value) -> Option<&str> {
    let names = |policy: &&Value| {
        let events = policy["events"].as_array().into_iter().flatten();
        events.chain([&policy["event"]]).any(|event| matches!(event.as_str(), Some("TaskCompleted" | "*")))
    };
    policies.as_array()?.iter().find(names)?["action"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(policies: &Value, tasks: &Value) -> Vec<String> {
        let object = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "spec": {"policies": policies, "tasks": tasks}});
        list_completing_tasks(&object).into_iter().map(|task| task.to_string()).collect()
    }

    #[test]
    fn a_tasks_own_policy_comes_before_the_jobs() {
        let complete = json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
        assert_eq!(of(&json!(null), &json!([{"name": "a"}, {"policies": complete}])), ["default1"]);
        assert_eq!(of(&complete, &json!([{"name": "a"}, {"name": "b"}])), ["a", "b"]);
        let restart = json!([{"events": ["PodFailed", "TaskCompleted"], "action": "RestartTask"}]);
        assert_eq!(of(&complete, &json!([{"name": "a", "policies": restart}, {"name": "b"}])), ["b"]);
    }

    #[test]
    fn other_events_and_other_kinds_complete_nothing() {
        let failed = json!([{"event": "PodFailed", "action": "CompleteJob"}]);
        assert_eq!(of(&failed, &json!([{"name": "a"}])), Vec::<String>::new());
        assert_eq!(list_completing_tasks(&json!({"apiVersion": "apps/v1", "kind": "Deployment"})), BTreeSet::new());
        assert_eq!(of(&json!("odd"), &json!("odd")), Vec::<String>::new());
    }
}
