//! A job's status (`JobStatus`), as `syncJob` and `killPods` write it.
//!
//! Every change, even of a count, moves `state.lastTransitionTime` and puts the phase's condition last with that time:
//! so does Volcano.

use std::collections::BTreeMap;

use caldera_runtime::clock::format_time;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::plugins;
use crate::member::{
    facts::{Phase, TASK_SPEC},
    object::{annotation, deleting, list, number, text},
    world::{Kind, Want, World, want_merge},
};

/// Pods of a job by what became of them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) pending: i64,
    pub(super) running: i64,
    pub(super) succeeded: i64,
    pub(super) failed: i64,
    pub(super) terminating: i64,
    unknown: i64,
    by_task: BTreeMap<String, BTreeMap<&'static str, i64>>,
}

impl Counts {
    pub(super) fn of(world: &World, pods: &[&Value]) -> Self {
        let mut counts = Self::default();
        for pod in pods {
            if deleting(pod) || world.is_killed(pod) {
                counts.terminating += 1;
                continue;
            }
            let phase = Phase::of(pod);
            match phase {
                Phase::Pending => counts.pending += 1,
                Phase::Running => counts.running += 1,
                Phase::Succeeded => counts.succeeded += 1,
                Phase::Failed => counts.failed += 1,
                Phase::Unknown => counts.unknown += 1,
            }
            let task = annotation(pod, TASK_SPEC).to_owned();
            *counts.by_task.entry(task).or_default().entry(phase.as_str()).or_default() += 1;
        }
        counts
    }

    /// The counts that the status tells, for where Volcano does not count again.
    pub(super) fn told(job: &Value) -> Self {
        let told = |field: &str| number(job, &format!("/status/{field}"));
        Self {
            pending: told("pending"),
            running: told("running"),
            succeeded: told("succeeded"),
            failed: told("failed"),
            terminating: told("terminating"),
            unknown: told("unknown"),
            by_task: BTreeMap::new(),
        }
    }

    /// Pods of a task in a phase; `None` for a task without pods.
    pub(super) fn in_task(&self, task: &str, phase: Phase) -> Option<i64> {
        Some(self.by_task.get(task)?.get(phase.as_str()).copied().unwrap_or_default())
    }
}

/// What changes besides the counts.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) phase: String,
    /// Written by `killPods`: the plugins are off, the running duration is told, and counts are forgotten.
    pub(super) killed: bool,
    /// A whole job is killed: its version moves.
    pub(super) bump: bool,
    /// One more retry.
    pub(super) retries: bool,
    /// Pods that are killed with this change.
    pub(super) killing: i64,
    /// Whether pods are counted again.
    pub(super) recount: bool,
}

impl Change {
    pub(super) fn to(phase: &str) -> Self {
        Self { phase: phase.to_owned(), killed: false, bump: false, retries: false, killing: 0, recount: true }
    }
}

/// The status patch, unless nothing changes.
pub(super) fn want_status(
    world: &World,
    job: &Value,
    counts: &Counts,
    change: &Change,
    now: Timestamp,
) -> Option<Want> {
    let old = job.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut new = old.clone();
    if change.recount {
        set_counts(&mut new, counts, change);
    }
    if !change.killed || old.get("minAvailable").is_none() {
        set_count(&mut new, "minAvailable", number(job, "/spec/minAvailable"));
    }
    if change.bump {
        set_count(&mut new, "version", number(job, "/status/version") + 1);
    }
    if change.retries {
        set_count(&mut new, "retryCount", number(job, "/status/retryCount") + 1);
    }
    let phase_changes = text(job, "/status/state/phase") != change.phase;
    let untimed = |status: &Map<String, Value>| {
        let mut status = status.clone();
        status.remove("controlledResources");
        status.remove("runningDuration");
        status
    };
    let closes = change.killed && !old.contains_key("runningDuration");
    if !phase_changes && !closes && untimed(&new) == untimed(&old) {
        return None;
    }
    // `killPods` moves the time only with the phase; `syncJob` with anything.
    let time = if phase_changes || !change.killed { now } else { phase_since(job).unwrap_or(now) };
    if phase_changes || !change.killed {
        let stamp = format_time(now);
        new.insert("state".to_owned(), json!({"phase": change.phase, "lastTransitionTime": stamp}));
        let mut conditions = list(job, "/status/conditions").to_vec();
        conditions.retain(|condition| text(condition, "/status") != change.phase);
        conditions.push(json!({"status": change.phase, "lastTransitionTime": stamp}));
        new.insert("conditions".to_owned(), conditions.into());
    }
    let mut controlled = plugins::controlled_metadata(world, job);
    if change.killed {
        controlled.retain(|name, _| !name.starts_with("plugin-"));
        new.insert("runningDuration".to_owned(), running_duration(job, time).into());
    } else {
        new.remove("runningDuration");
    }
    if controlled.is_empty() {
        new.remove("controlledResources");
    } else {
        new.insert("controlledResources".to_owned(), controlled.into());
    }
    Some(want_merge(Kind::VolcanoJob, job, Some("status"), json!({"status": merge_patch(&old, &new)})))
}

fn set_counts(new: &mut Map<String, Value>, counts: &Counts, change: &Change) {
    // Whoever kills counts no pod that it leaves where it is (volcano#4616).
    let told = |count: i64| if change.killed { 0 } else { count };
    set_count(new, "pending", told(counts.pending));
    set_count(new, "running", told(counts.running));
    set_count(new, "succeeded", told(counts.succeeded));
    set_count(new, "failed", told(counts.failed));
    set_count(new, "unknown", told(counts.unknown));
    set_count(new, "terminating", counts.terminating + change.killing);
    let by_task: Map<String, Value> =
        counts.by_task.iter().map(|(task, phases)| (task.clone(), json!({"phase": phases}))).collect();
    if by_task.is_empty() || change.killed {
        new.remove("taskStatusCount");
    } else {
        new.insert("taskStatusCount".to_owned(), by_task.into());
    }
}

fn set_count(status: &mut Map<String, Value>, field: &str, value: i64) {
    if value == 0 {
        status.remove(field);
    } else {
        status.insert(field.to_owned(), value.into());
    }
}

fn phase_since(job: &Value) -> Option<Timestamp> {
    text(job, "/status/state/lastTransitionTime").parse().ok()
}

/// From the job's creation to its last transition, as Go prints a duration of whole seconds.
fn running_duration(job: &Value, until: Timestamp) -> String {
    let created: Option<Timestamp> = text(job, "/metadata/creationTimestamp").parse().ok();
    let seconds = created.map_or(0, |created| (until.as_second() - created.as_second()).max(0));
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// The merge patch from `old` to `new`: merge patches only add to maps, so what goes is named as null.
fn merge_patch(old: &Map<String, Value>, new: &Map<String, Value>) -> Value {
    let mut patch = Map::new();
    for (key, value) in new {
        match (old.get(key), value) {
            (Some(before), after) if before == after => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(key.clone(), merge_patch(before, after));
            }
            (_, after) => drop(patch.insert(key.clone(), after.clone())),
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    patch.into()
}
