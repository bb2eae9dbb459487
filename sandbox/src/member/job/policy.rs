//! Lifecycle policies: which action the pods' fates ask for (`applyPolicies`, `job_controller_handler.go`).
//!
//! A task's policies come before the job's; in each list the first that names the event or the exit code wins. Pods of
//! an earlier version of the job, and pods that the controller itself kills, are no events. `PodPending` needs a
//! timeout; with a timeout an action waits that long from the event, if it is still true then.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::task_named;
use crate::member::{
    facts::{JOB_VERSION, Phase, TASK_SPEC},
    object::{Key, annotation, deleting, key, label, list, number, text, uid},
    world::{PARTITION, World},
};

/// What is done with a job or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// The whole job again.
    Restart,
    /// These pods again.
    Target(BTreeSet<Key>),
    Abort,
    Complete,
    Terminate,
    Resume,
}

impl Act {
    /// The act of a `bus.volcano.sh` Command; it names no pods.
    pub(super) fn of_command(action: &str) -> Option<Self> {
        Some(match action {
            "RestartJob" => Self::Restart,
            "RestartTask" | "RestartPod" | "RestartPartition" => Self::Target(BTreeSet::new()),
            "AbortJob" => Self::Abort,
            "CompleteJob" => Self::Complete,
            "TerminateJob" => Self::Terminate,
            "ResumeJob" => Self::Resume,
            _ => return None,
        })
    }
}

/// What is due, and when the next thing will be.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) act: Option<Act>,
    pub(super) at: Option<Timestamp>,
}

struct Event<'a> {
    name: &'static str,
    task: &'a str,
    pod: Option<Key>,
    partition: &'a str,
    exit_code: i64,
    at: Timestamp,
}

/// What the policies ask for now.
pub(super) fn due_action(world: &World, job: &Value, pods: &[&Value], now: Timestamp) -> Due {
    let mut due = Due::default();
    let has_policies = !list(job, "/spec/policies").is_empty()
        || list(job, "/spec/tasks").iter().any(|task| !list(task, "/policies").is_empty());
    if !has_policies {
        return due;
    }
    for event in job_events(world, job, pods, now) {
        let Some(policy) = matching_policy(job, &event) else { continue };
        let at = event.at.checked_add(policy_timeout(policy).unwrap_or_default()).unwrap_or(Timestamp::MAX);
        if at > now {
            due.at = Some(due.at.map_or(at, |known| known.min(at)));
        } else if let Some(act) = action_of_policy(policy, &event, pods) {
            due.act = Some(act);
            break;
        }
    }
    due
}

fn job_events<'a>(world: &'a World, job: &'a Value, pods: &[&'a Value], now: Timestamp) -> Vec<Event<'a>> {
    let version = number(job, "/status/version");
    let mut events = Vec::new();
    let current = |pod: &&&'a Value| {
        !deleting(pod) && !world.is_killed(pod) && annotation(pod, JOB_VERSION).parse().unwrap_or(0) >= version
    };
    for pod in pods.iter().filter(current) {
        events.extend(pod_event(pod, now));
    }
    for ((namespace, name), gone) in world.evicted(uid(job)).filter(|(_, gone)| gone.version >= version) {
        // A pod beyond the task's replicas went because of them.
        let index = name.rsplit('-').next().and_then(|index| index.parse::<i64>().ok());
        let wanted = task_named(job, &gone.task).map_or(0, |task| number(task, "/replicas"));
        if index.is_some_and(|index| index < wanted) {
            let pod = Some((namespace.clone(), name.clone()));
            let (task, partition) = (gone.task.as_str(), gone.partition.as_str());
            events.push(Event { name: "PodEvicted", task, pod, partition, exit_code: 0, at: gone.at });
        }
    }
    for task in list(job, "/spec/tasks") {
        let own = |pod: &&&Value| annotation(pod, TASK_SPEC) == text(task, "/name");
        let own: Vec<&Value> = pods.iter().filter(current).filter(own).copied().collect();
        events.extend(task_event(task, &own, now));
    }
    events
}

fn pod_event<'a>(pod: &'a Value, now: Timestamp) -> Option<Event<'a>> {
    let time = |pointer: &str| text(pod, pointer).parse::<Timestamp>().ok();
    let ended = "/status/containerStatuses/0/state/terminated";
    let (name, at, exit_code) = match Phase::of(pod) {
        Phase::Failed => ("PodFailed", time(&format!("{ended}/finishedAt")), number(pod, &format!("{ended}/exitCode"))),
        Phase::Pending => ("PodPending", time("/metadata/creationTimestamp"), 0),
        _ => return None,
    };
    let (task, partition) = (annotation(pod, TASK_SPEC), label(pod, PARTITION));
    Some(Event { name, task, pod: Some(key(pod)), partition, exit_code, at: at.unwrap_or(now) })
}

fn task_event<'a>(task: &'a Value, pods: &[&Value], now: Timestamp) -> Option<Event<'a>> {
    let replicas = number(task, "/replicas");
    if replicas <= 0 {
        return None;
    }
    let succeeded = pods.iter().filter(|pod| Phase::of(pod) == Phase::Succeeded).count();
    let retried: i64 = pods
        .iter()
        .filter(|pod| matches!(Phase::of(pod), Phase::Running | Phase::Pending))
        .flat_map(|pod| list(pod, "/status/initContainerStatuses").iter().chain(list(pod, "/status/containerStatuses")))
        .map(|container| number(container, "/restartCount"))
        .sum();
    let most = match number(task, "/maxRetry") {
        0 => 3,
        most => most,
    };
    let name = if i64::try_from(succeeded).is_ok_and(|succeeded| succeeded >= replicas) {
        "TaskCompleted"
    } else if most != -1 && retried >= most {
        "TaskFailed"
    } else {
        return None;
    };
    Some(Event { name, task: text(task, "/name"), pod: None, partition: "", exit_code: 0, at: now })
}

fn matching_policy<'a>(job: &'a Value, event: &Event<'_>) -> Option<&'a Value> {
    let of_task = task_named(job, event.task).map(|task| list(task, "/policies")).unwrap_or_default();
    of_task.iter().chain(list(job, "/spec/policies")).find(|policy| {
        let is_named = |name: &str| name == event.name || name == "*";
        let named =
            is_named(text(policy, "/event")) || list(policy, "/events").iter().filter_map(Value::as_str).any(is_named);
        let may = event.name != "PodPending" || policy_timeout(policy).is_some();
        let by_code = event.exit_code != 0 && number(policy, "/exitCode") == event.exit_code;
        (named && may) || by_code
    })
}

fn action_of_policy(policy: &Value, event: &Event<'_>, pods: &[&Value]) -> Option<Act> {
    let chosen = |which: &dyn Fn(&Value) -> bool| {
        let pods = pods.iter().filter(|pod| annotation(pod, TASK_SPEC) == event.task && which(pod));
        Act::Target(pods.map(|pod| key(pod)).collect())
    };
    Some(match text(policy, "/action") {
        "RestartTask" => chosen(&|_| true),
        "RestartPod" => chosen(&|pod| Some(key(pod)) == event.pod),
        "RestartPartition" => chosen(&|pod| label(pod, PARTITION) == event.partition && !event.partition.is_empty()),
        other => Act::of_command(other).filter(|act| *act != Act::Resume)?,
    })
}

/// A Go duration such as `90s` or `1h30m`.
fn policy_timeout(policy: &Value) -> Option<SignedDuration> {
    let text = text(policy, "/timeout");
    (!text.is_empty()).then(|| text.parse::<SignedDuration>().ok()).flatten()
}
