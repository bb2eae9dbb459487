//! Batch Jobs (`pkg/controller/job`): `parallelism` pods at a time until `completions` succeeded or `backoffLimit` is
//! exceeded.
//!
//! The status passes a real API server's validation: `startTime` is set once, counters never fall, the interim
//! conditions (SuccessCriteriaMet, FailureTarget) come no later than the final ones, and those only when no pod is left
//! that is active or terminating.

use caldera_runtime::clock::format_time;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{build_pod, count_pods, is_ready, name_suffix, status_change, with_condition};
use crate::member::{
    facts::Phase,
    object::{deleting, list, name, number, text, uid},
    world::{Kind, Want, World, want_create, want_delete},
};

pub(super) fn job_changes(world: &World, job: &Value, now: Timestamp) -> (Vec<Want>, Option<Timestamp>) {
    if is_true(job, "Complete") || is_true(job, "Failed") {
        return after_end(job, now);
    }
    let pods: Vec<&Value> = world.pods_of(uid(job)).collect();
    let tally = Tally::of(job, &pods);
    let parallelism = integer_field(job, "parallelism").unwrap_or(1);
    let completions = integer_field(job, "completions");
    let failing = is_true(job, "FailureTarget") || tally.failed > integer_field(job, "backoffLimit").unwrap_or(6);
    let succeeding = !failing
        && (is_true(job, "SuccessCriteriaMet")
            || match completions {
                Some(completions) => tally.succeeded >= completions,
                // A work queue is done when one pod succeeded and none is left.
                None => tally.succeeded > 0 && tally.active == 0,
            });
    let suspended = job.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true);
    let mut wants = Vec::new();
    if failing || succeeding || suspended {
        let active = pods.iter().filter(|pod| !deleting(pod) && !Phase::of(pod).is_finished());
        wants.extend(active.map(|pod| want_delete(Kind::Pod, pod)));
    } else {
        wants.extend(missing_pods(job, &pods, &tally, parallelism, completions));
    }
    let created = i64::try_from(wants.iter().filter(|want| !want.is_deletion()).count()).unwrap_or(i64::MAX);
    let status = job_status(job, &tally, created, (failing, succeeding, suspended), now);
    wants.extend(status_change(Kind::BatchJob, job, status));
    (wants, None)
}

struct Tally {
    active: i64,
    ready: i64,
    terminating: i64,
    succeeded: i64,
    failed: i64,
}

impl Tally {
    fn of(job: &Value, pods: &[&Value]) -> Self {
        let ended = |phase: Phase| count_pods(pods, |pod| Phase::of(pod) == phase);
        Self {
            active: count_pods(pods, |pod| !deleting(pod) && !Phase::of(pod).is_finished()),
            ready: count_pods(pods, is_ready),
            terminating: count_pods(pods, |pod| deleting(pod) && !Phase::of(pod).is_finished()),
            // What was counted once stays counted, should its pod be deleted.
            succeeded: ended(Phase::Succeeded).max(number(job, "/status/succeeded")),
            failed: ended(Phase::Failed).max(number(job, "/status/failed")),
        }
    }
}

fn missing_pods(job: &Value, pods: &[&Value], tally: &Tally, parallelism: i64, completions: Option<i64>) -> Vec<Want> {
    let left = match completions {
        Some(completions) => completions - tally.succeeded,
        None if tally.succeeded > 0 => 0,
        None => parallelism,
    };
    let wanted = parallelism.min(left) - tally.active;
    let indexed = text(job, "/spec/completionMode") == "Indexed";
    let free = |index: &i64| {
        let of_index = pods.iter().filter(|pod| completion_index(pod) == Some(*index));
        of_index.into_iter().all(|pod| Phase::of(pod) == Phase::Failed)
    };
    let indices = (0..completions.unwrap_or(parallelism)).filter(free);
    let mut indices = if indexed { indices.map(Some).collect::<Vec<_>>() } else { vec![None; 1] }.into_iter().cycle();
    let mut names = (0..).map(|attempt| name_suffix(&format!("{}/{attempt}", uid(job)), 5));
    let mut wants = Vec::new();
    for _ in 0..wanted.max(0) {
        let Some(index) = indices.next() else { break };
        let infix = index.map(|index| format!("-{index}")).unwrap_or_default();
        let taken = |pod_name: &String| pods.iter().any(|pod| name(pod) == pod_name);
        let mut candidates = names.by_ref().map(|suffix| format!("{}{infix}-{suffix}", name(job)));
        let Some(pod_name) = candidates.find(|candidate| !taken(candidate)) else { break };
        wants.push(want_create(Kind::Pod, own_pod(job, &pod_name, index)));
    }
    wants
}

fn completion_index(pod: &Value) -> Option<i64> {
    crate::member::object::annotation(pod, INDEX).parse().ok()
}

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

fn own_pod(job: &Value, pod_name: &str, index: Option<i64>) -> Value {
    let mut pod = build_pod(job, pod_name);
    for (label, value) in [
        ("batch.kubernetes.io/job-name", name(job)),
        ("job-name", name(job)),
        ("batch.kubernetes.io/controller-uid", uid(job)),
        ("controller-uid", uid(job)),
    ] {
        pod["metadata"]["labels"][label] = value.into();
    }
    if let Some(index) = index {
        pod["metadata"]["labels"][INDEX] = index.to_string().into();
        pod["metadata"]["annotations"][INDEX] = index.to_string().into();
    }
    pod
}

fn job_status(
    job: &Value,
    tally: &Tally,
    created: i64,
    (failing, succeeding, suspended): (bool, bool, bool),
    now: Timestamp,
) -> Value {
    let time = format_time(now);
    let mut conditions = list(job, "/status/conditions").to_vec();
    let mut say = |kind: &str, met: bool, reason: &str, message: &str| {
        with_condition(
            &mut conditions,
            json!({
                "type": kind, "status": if met { "True" } else { "False" }, "reason": reason, "message": message,
                "lastProbeTime": time, "lastTransitionTime": time,
            }),
        );
    };
    let ended = tally.active == 0 && tally.terminating == 0;
    let mut completed = Value::Null;
    if failing {
        let (reason, message) = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        say("FailureTarget", true, reason, message);
        if ended {
            say("Failed", true, reason, message);
        }
    } else if succeeding {
        let (reason, message) = ("CompletionsReached", "Reached expected number of succeeded pods");
        say("SuccessCriteriaMet", true, reason, message);
        if ended {
            say("Complete", true, reason, message);
            completed = time.as_str().into();
        }
    }
    if suspended {
        say("Suspended", true, "JobSuspended", "Job suspended");
    } else if is_true(job, "Suspended") {
        say("Suspended", false, "JobResumed", "Job resumed");
    }
    let start = match text(job, "/status/startTime") {
        _ if suspended => Value::Null,
        "" => time.as_str().into(),
        start => start.into(),
    };
    let active = if failing || succeeding || suspended { tally.active } else { tally.active + created };
    json!({
        "startTime": start, "active": active, "ready": tally.ready.min(active), "succeeded": tally.succeeded,
        "failed": tally.failed, "terminating": tally.terminating, "uncountedTerminatedPods": {},
        "completionTime": completed, "conditions": conditions,
    })
}

/// The TTL controller.
fn after_end(job: &Value, now: Timestamp) -> (Vec<Want>, Option<Timestamp>) {
    let Some(ttl) = integer_field(job, "ttlSecondsAfterFinished") else { return (Vec::new(), None) };
    let ended = list(job, "/status/conditions")
        .iter()
        .filter(|condition| matches!(text(condition, "/type"), "Complete" | "Failed"))
        .find_map(|condition| text(condition, "/lastTransitionTime").parse::<Timestamp>().ok());
    let Some(at) = ended.and_then(|ended| ended.checked_add(SignedDuration::from_secs(ttl)).ok()) else {
        return (Vec::new(), None);
    };
    if at <= now { (vec![want_delete(Kind::BatchJob, job)], None) } else { (Vec::new(), Some(at)) }
}

fn is_true(job: &Value, kind: &str) -> bool {
    let holds = |condition: &Value| text(condition, "/type") == kind && text(condition, "/status") == "True";
    list(job, "/status/conditions").iter().any(holds)
}

fn integer_field(job: &Value, name: &str) -> Option<i64> {
    job.pointer(&format!("/spec/{name}")).and_then(Value::as_i64)
}
