//! Reads how far a workload is from the status that Karmada aggregated from its clusters.
//!
//! Rule: a Volcano Job has ended when it is Completed, Failed or Terminated
//! (`pkg/controllers/garbagecollector/garbagecollector.go:266-309`); Aborted has no pods and so holds nothing either,
//! as in Volcano, where its PodGroup is deleted; one that its user suspended has not ended. A batch Job has ended with
//! condition Complete or Failed, a Pod with phase Succeeded or Failed. A Deployment or StatefulSet never ends. Kinds of
//! other projects end as their table says ([`layouts`](super::layouts)).
//!
//! Pods that ended hold nothing any more only where nothing brings them back. Volcano's policies can
//! (`pkg/controllers/job/job_controller_util.go`, `applyPolicies`): a job that says `RestartJob` anywhere, or a task
//! that says `RestartTask`, `RestartPod` or `RestartPartition`, keeps its whole charge until it ends.
//!
//! Here is also whether a copy has begun, and how a batch Job failed over all of its copies.

use std::collections::BTreeMap;

use caldera_core::{
    gang::{Gang, TaskName},
    reason::Reason,
    status::MIN_SUCCESS_REACHED,
    time::EpochSeconds,
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    SOLE_TASK, WorkloadKind,
    layout::{Count, Layout, follow_path},
    layout_reader::read_pods_per_replica,
};

/// Actions of Volcano's policies that replace pods that ended.
const RESTARTS: [&str; 4] = ["RestartJob", "RestartTask", "RestartPod", "RestartPartition"];

/// The progress of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// How it ended, if it did.
    pub ended: Option<String>,
    /// When it ended, if it did and says so: its TTL is counted from then.
    pub ended_at: Option<EpochSeconds>,
    /// When it began to run, if it says so. A Volcano Job says a later time with each count that
    /// changes (`pkg/controllers/job/job_controller_actions.go`, `appendJobCondition`).
    pub started: Option<EpochSeconds>,
    /// Running pods.
    pub running: u32,
    /// Pods that succeeded.
    pub succeeded: u32,
    /// Pods that failed.
    pub failed: u32,
    /// Pods that have ended and will not be replaced, by task: they hold no quota any more.
    pub finished: BTreeMap<TaskName, u32>,
}

/// Reads the progress of a workload from its status.
#[must_use]
pub fn read_progress(kind: WorkloadKind, object: &Value, gang: Option<&Gang>) -> Progress {
    read_status(kind, object, &object["status"], gang)
}

/// Whether one cluster's copy says in its status that it has ended.
#[must_use]
pub fn has_copy_ended(kind: WorkloadKind, status: &Value) -> bool {
    read_status(kind, &Value::Null, status, None).ended.is_some()
}

/// Whether one cluster's copy says in its status that something of it ran: a Volcano Job is past Pending, a kind that
/// is read by a table counts pods. Other kinds do not say.
#[must_use]
pub fn has_copy_begun(kind: WorkloadKind, status: &Value) -> bool {
    if kind.layout().is_none() {
        return !matches!(status["state"]["phase"].as_str(), None | Some("" | "Pending"));
    }
    let progress = read_status(kind, &Value::Null, status, None);
    progress.ended.is_some() || [progress.running, progress.succeeded, progress.failed].iter().any(|pods| *pods > 0)
}

/// Pods that one cluster's copy, which goes on and was given so many, says in its status have ended, by task. It is
/// what that cluster adds to [`Progress::finished`] at most; kinds whose pods hold their quota until the end say
/// nothing. Of a batch Job it is what succeeded, and does not run any more: it may count more completions than pods.
#[must_use]
pub fn read_ended_pods(kind: WorkloadKind, status: &Value, replicas: u32) -> BTreeMap<TaskName, u32> {
    match kind {
        WorkloadKind::VolcanoJob => count_ended_pods(status).collect(),
        WorkloadKind::BatchJob => {
            let gone = replicas.saturating_sub(read_number(&status["active"]));
            map_to_sole_task(gone.min(read_number(&status["succeeded"])))
        }
        _ => BTreeMap::new(),
    }
}

/// Whether the status of a split Volcano Job says that enough of its pods succeeded, over all copies, and that some
/// have not ended.
#[must_use]
pub fn has_enough_successes(job: &Value) -> bool {
    let state = &job["status"]["state"];
    state["phase"] == "Completing" && state["reason"] == MIN_SUCCESS_REACHED
}

fn read_status(kind: WorkloadKind, object: &Value, status: &Value, gang: Option<&Gang>) -> Progress {
    match kind {
        WorkloadKind::VolcanoJob => read_volcano_job(object, status),
        WorkloadKind::BatchJob => read_batch_job(object, status, gang),
        WorkloadKind::Pod => read_pod(status),
        WorkloadKind::Deployment | WorkloadKind::StatefulSet => {
            Progress { running: read_number(&status["readyReplicas"]), ..Progress::default() }
        }
        _ => kind.layout().map(|layout| read_layout_progress(layout, object, status, gang)).unwrap_or_default(),
    }
}

fn read_volcano_job(object: &Value, status: &Value) -> Progress {
    let phase = status["state"]["phase"].as_str().unwrap_or("");
    // One cluster's copy may have failed for good while others still run. Those that run are charged.
    let stopped = phase != "Failed" || read_number(&status["running"]) == 0;
    // The controller says so of one that its user suspended: it goes on once it is resumed.
    let is_suspended = phase == "Aborted" && status["state"]["reason"] == Reason::SUSPENDED_BY_USER;
    let ended = stopped && !is_suspended && matches!(phase, "Completed" | "Failed" | "Terminated" | "Aborted");
    let finished =
        count_ended_pods(status).filter(|(task, _)| !may_restart_ended_pods(object, task.as_str())).collect();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    // Of a job that waits again, it is of an earlier run.
    let waits = phase == "Pending" || is_suspended;
    let began = conditions.rev().find(|condition| !waits && condition["status"] == "Running");
    Progress {
        ended: ended.then(|| phase.to_owned()),
        // An aborted job may be resumed.
        ended_at: read_time(&status["state"]["lastTransitionTime"]).filter(|_| ended && phase != "Aborted"),
        started: began.and_then(|began| read_time(&began["lastTransitionTime"])),
        running: read_number(&status["running"]),
        succeeded: read_number(&status["succeeded"]),
        failed: read_number(&status["failed"]),
        finished,
    }
}

/// Of a Volcano Job, by task.
fn count_ended_pods(status: &Value) -> impl Iterator<Item = (TaskName, u32)> {
    let tasks = status["taskStatusCount"].as_object().into_iter().flatten();
    let counted = tasks.map(|(task, state)| {
        let pods = |phase: &str| read_number(&state["phase"][phase]);
        (TaskName::from(task.as_str()), pods("Succeeded").saturating_add(pods("Failed")))
    });
    counted.filter(|(_, pods)| *pods > 0)
}

/// Whether a policy may replace pods of the task that ended.
fn may_restart_ended_pods(object: &Value, task: &str) -> bool {
    let says = |owner: &Value, actions: &[&str]| {
        let mut policies = owner["policies"].as_array().into_iter().flatten();
        policies.any(|policy| policy["action"].as_str().is_some_and(|action| actions.contains(&action)))
    };
    let spec = &object["spec"];
    let mut tasks = spec["tasks"].as_array().into_iter().flatten();
    let own = |one: &Value| one["name"].as_str().unwrap_or("") == task && says(one, &RESTARTS);
    says(spec, &RESTARTS) || tasks.any(|one| says(one, &["RestartJob"]) || own(one))
}

fn read_batch_job(object: &Value, status: &Value, gang: Option<&Gang>) -> Progress {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ended = conditions.filter(|condition| condition["status"] == "True").find_map(|condition| {
        match condition["type"].as_str() {
            Some("Complete") => Some("Completed".to_owned()),
            Some("Failed") => Some("Failed".to_owned()),
            _ => None,
        }
    });
    let succeeded = read_number(&status["succeeded"]);
    let ready = read_number(&status["ready"]);
    // Pods that ended are replaced until enough have succeeded, so at most the remaining completions run.
    let finished = object["spec"]["completions"].as_u64().map_or(0, |completions| {
        let left = u32::try_from(completions).unwrap_or(u32::MAX).saturating_sub(succeeded);
        gang.map_or(0, Gang::replicas).saturating_sub(left)
    });
    Progress {
        ended,
        // Karmada's control plane looks after the TTL of this kind.
        ended_at: None,
        started: read_time(&status["startTime"]),
        // Active pods are those that did not end: they may be pending, or on their way out. Not every host is told how
        // many are ready: stock Karmada's interpreter takes that out.
        running: read_number(&status["active"]).min(status["ready"].as_u64().map_or(u32::MAX, |_| ready)),
        succeeded,
        failed: read_number(&status["failed"]),
        finished: map_to_sole_task(finished),
    }
}

/// How a batch Job failed, as its clusters tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFailure {
    /// Token of the first cluster where it failed.
    pub reason: String,
    /// That cluster, and its sentence.
    pub message: String,
    /// Pods that succeeded, in all clusters.
    pub succeeded: u32,
    /// Pods that failed, in all clusters.
    pub failed: u32,
    /// When it began, in the first cluster where it did.
    pub started: Option<String>,
}

/// Reads it from the statuses of all copies; `None` if none failed.
#[must_use]
pub fn read_job_failure(copies: &[(&str, &Value)]) -> Option<JobFailure> {
    let (cluster, said) = copies.iter().find_map(|(cluster, status)| {
        let mut all = status["conditions"].as_array()?.iter();
        Some((cluster, all.find(|condition| condition["type"] == "Failed" && condition["status"] == "True")?))
    })?;
    let text = |field: &str| said[field].as_str().unwrap_or_default();
    let sum =
        |field: &str| copies.iter().fold(0, |sum: u32, (_, status)| sum.saturating_add(read_number(&status[field])));
    let is_time = |text: &&str| text.parse::<jiff::Timestamp>().is_ok();
    // All are of one form, in which an earlier time comes first in the alphabet.
    let starts = copies.iter().filter_map(|(_, status)| status["startTime"].as_str()).filter(is_time);
    Some(JobFailure {
        reason: Some(text("reason")).filter(|reason| !reason.is_empty()).unwrap_or("JobFailed").to_owned(),
        message: format!("failed in cluster {cluster}: {}", text("message")),
        succeeded: sum("succeeded"),
        failed: sum("failed"),
        started: starts.min().map(str::to_owned),
    })
}

fn read_pod(status: &Value) -> Progress {
    let phase = status["phase"].as_str().unwrap_or("");
    let is = |wanted: &str| u32::from(phase == wanted);
    Progress {
        ended: match phase {
            "Succeeded" => Some("Completed".to_owned()),
            "Failed" => Some("Failed".to_owned()),
            _ => None,
        },
        ended_at: None,
        started: read_time(&status["startTime"]),
        running: is("Running"),
        succeeded: is("Succeeded"),
        failed: is("Failed"),
        finished: BTreeMap::new(),
    }
}

fn map_to_sole_task(pods: u32) -> BTreeMap<TaskName, u32> {
    (pods > 0).then(|| (TaskName::from(SOLE_TASK), pods)).into_iter().collect()
}

pub(super) fn read_time(value: &Value) -> Option<EpochSeconds> {
    value.as_str()?.parse::<Timestamp>().ok().map(EpochSeconds::from)
}

pub(super) fn read_number(value: &Value) -> u32 {
    value.as_u64().map_or(0, |number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// Reads the progress of a job of another project by its table. It gives nothing back before it ended.
fn read_layout_progress(layout: &'static Layout, object: &Value, status: &Value, gang: Option<&Gang>) -> Progress {
    let units = read_pods_per_replica(layout, object);
    let sum = |counts: &[Count]| {
        counts.iter().fold(0_u32, |sum, count| sum.saturating_add(count_pods(count, status, &units, gang)))
    };
    let end = layout.ends.iter().find(|end| end.when.iter().all(|says| says.holds(status)));
    Progress {
        ended: end.map(|end| end.phase.to_owned()),
        ended_at: None,
        started: read_time(&status["startTime"]),
        running: if end.is_some() { 0 } else { sum(layout.running) },
        succeeded: sum(layout.succeeded),
        failed: sum(layout.failed),
        finished: BTreeMap::new(),
    }
}

fn count_pods(count: &Count, status: &Value, units: &BTreeMap<String, u32>, gang: Option<&Gang>) -> u32 {
    let unit = |name: &str| units.get(&name.to_lowercase()).or_else(|| units.get(name)).copied().unwrap_or(1);
    let add = |sum: u32, (number, pods): (u32, u32)| sum.saturating_add(number.saturating_mul(pods));
    match count {
        Count::Number(path) => read_number(follow_path(status, path)),
        Count::Each(path, field) => match follow_path(status, path) {
            Value::Object(map) => map.iter().map(|(name, one)| (read_number(&one[*field]), unit(name))).fold(0, add),
            Value::Array(list) => {
                let name = |one: &Value| unit(one["name"].as_str().unwrap_or_default());
                list.iter().map(|one| (read_number(&one[*field]), name(one))).fold(0, add)
            }
            _ => 0,
        },
        Count::Entries(path, value) => {
            let entries = follow_path(status, path).as_object().into_iter().flatten();
            u32::try_from(entries.filter(|(_, one)| *one == value).count()).unwrap_or(u32::MAX)
        }
        Count::Replicas(path) => {
            let of_one = units.values().fold(0, |sum: u32, pods| sum.saturating_add(*pods));
            read_number(follow_path(status, path)).saturating_mul(of_one)
        }
        Count::OneIf(says) => u32::from(says.holds(status)),
        Count::AllIf(says) if says.holds(status) => gang.map_or(0, Gang::replicas),
        Count::AllIf(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ended(kind: WorkloadKind, status: &Value) -> Option<String> {
        read_progress(kind, &json!({"status": status}), None).ended
    }

    #[test]
    fn each_kind_ends_in_its_own_way() {
        let job = |phase: &str| ended(WorkloadKind::VolcanoJob, &json!({"state": {"phase": phase}}));
        let failed = json!({"state": {"phase": "Failed"}, "running": 3});
        assert_eq!(ended(WorkloadKind::VolcanoJob, &failed), None, "a copy of it still runs");
        for phase in ["Completed", "Failed", "Terminated", "Aborted"] {
            assert_eq!(job(phase).as_deref(), Some(phase));
        }
        for phase in ["", "Pending", "Running", "Restarting", "Completing", "Terminating", "Aborting"] {
            assert_eq!(job(phase), None, "{phase}");
        }
        let batch = |condition: &str, status: &str| {
            ended(WorkloadKind::BatchJob, &json!({"conditions": [{"type": condition, "status": status}]}))
        };
        assert_eq!(batch("Complete", "True").as_deref(), Some("Completed"));
        assert_eq!(batch("Failed", "True").as_deref(), Some("Failed"));
        assert_eq!((batch("Complete", "False"), batch("Suspended", "True")), (None, None));
        assert_eq!(ended(WorkloadKind::Pod, &json!({"phase": "Succeeded"})).as_deref(), Some("Completed"));
        assert_eq!(ended(WorkloadKind::Pod, &json!({"phase": "Running"})), None);
        assert_eq!(ended(WorkloadKind::Deployment, &json!({"readyReplicas": 0})), None);
    }

    #[test]
    fn finished_pods_are_counted_by_task() {
        let status = json!({"running": 1, "taskStatusCount": {
            "a": {"phase": {"Succeeded": 2, "Failed": 1, "Running": 1}}, "b": {"phase": {"Pending": 1}},
        }});
        let progress = read_progress(WorkloadKind::VolcanoJob, &json!({"status": status}), None);
        assert_eq!(progress.finished, [("a".into(), 3)].into());
        assert_eq!(progress.running, 1);
    }

    #[test]
    fn pods_that_a_policy_can_bring_back_hold_what_they_held() {
        let ended = json!({"a": {"phase": {"Succeeded": 1, "Failed": 1}}, "b": {"phase": {"Succeeded": 2}}});
        let finished = |policies: Value, of_a: Value| {
            let spec = json!({"policies": policies, "tasks": [{"name": "a", "policies": of_a}, {"name": "b"}]});
            let object = json!({"spec": spec, "status": {"taskStatusCount": ended}});
            let finished = read_progress(WorkloadKind::VolcanoJob, &object, None).finished;
            ["a", "b"].map(|task| finished.get(&TaskName::from(task)).copied().unwrap_or(0))
        };
        let policy = |action: &str| json!([{"event": "PodFailed", "action": action}]);
        assert_eq!(finished(json!([]), json!(null)), [2, 2]);
        assert_eq!(finished(policy("AbortJob"), policy("CompleteJob")), [2, 2]);
        for action in RESTARTS {
            assert_eq!(finished(policy(action), json!(null)), [0, 0], "{action}");
            let others = if action == "RestartJob" { 0 } else { 2 };
            assert_eq!(finished(json!(null), policy(action)), [0, others], "{action}");
        }
    }

    #[test]
    fn a_batch_jobs_active_pods_are_not_running_before_they_are_ready_where_that_is_reported() {
        let running = |status: Value| read_progress(WorkloadKind::BatchJob, &json!({"status": status}), None).running;
        assert_eq!(running(json!({"active": 3})), 3, "nobody says how many are ready");
        assert_eq!(running(json!({"active": 3, "ready": 0})), 0);
        assert_eq!(running(json!({"active": 3, "ready": 2})), 2);
        assert_eq!(running(json!({"active": 1, "ready": 2, "terminating": 1})), 1);
    }

    #[test]
    fn garbage_in_a_status_is_nothing() {
        for status in [json!(null), json!([]), json!({"state": 3, "taskStatusCount": [], "running": -1}), json!("x")] {
            for kind in WorkloadKind::ALL {
                assert_eq!(read_progress(kind, &json!({"status": status}), None), Progress::default());
            }
        }
    }
}
