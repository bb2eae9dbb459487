//! One status for a job that runs in several clusters, from the members' statuses.
//!
//! Rule: Volcano's job state machine (`pkg/controllers/job/state`) read over the union of the copies. Counters and
//! `taskStatusCount` are sums; `minAvailable` is the template's; `retryCount` and `version` never go back; the phase is
//! a lattice ([`phase`]); times come from the members, so that the same input gives the same output at any hour. No
//! cluster wins for being last, and nothing is Completed while a pod runs anywhere. What is said of a job that waits
//! stays while no cluster has it, and so does that its user suspended it: the controller says it. Once enough pods of a
//! split job have succeeded the status says so, and counts none of them less while the copies are taken away.

pub mod duration;
pub mod phase;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{gang::ClusterName, reason::Reason};
pub use phase::Phase;

/// Reason in the status of a split job: as many pods succeeded, over all clusters, as its `minSuccess` wants.
pub const MIN_SUCCESS_REACHED: &str = "MinSuccessReached";
/// The same as a sentence.
pub const ENOUGH_SUCCEEDED: &str = "as many pods succeeded, over all clusters, as minSuccess wants";

/// `status` of `batch.volcano.sh/v1alpha1 Job`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Phase now.
    pub state: JobState,
    /// Pods needed.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_available: u32,
    /// By task: pods by pod phase.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read_null_as_default")]
    pub task_status_count: BTreeMap<String, TaskState>,
    /// Pods by phase.
    #[serde(skip_serializing_if = "is_zero")]
    pub pending: u32,
    /// See `pending`.
    #[serde(skip_serializing_if = "is_zero")]
    pub running: u32,
    /// See `pending`.
    #[serde(skip_serializing_if = "is_zero")]
    pub succeeded: u32,
    /// See `pending`.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: u32,
    /// See `pending`.
    #[serde(skip_serializing_if = "is_zero")]
    pub terminating: u32,
    /// See `pending`.
    #[serde(skip_serializing_if = "is_zero")]
    pub unknown: u32,
    /// Rises with every restart.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: u32,
    /// Restarts so far.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_count: u32,
    /// How long it ran, as Go writes durations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_duration: Option<String>,
    /// Objects that job plugins made.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read_null_as_default")]
    pub controlled_resources: BTreeMap<String, String>,
    /// The phases so far.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "read_null_as_default")]
    pub conditions: Vec<JobCondition>,
}

/// `status.state`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobState {
    /// Absent before the member's job controller has seen the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// In a word.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "read_null_as_default")]
    pub reason: String,
    /// In a sentence.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "read_null_as_default")]
    pub message: String,
    /// RFC 3339, whole seconds, UTC: texts sort by time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

impl JobState {
    /// Whether its user suspended the job, and no cluster has it: the controller says so.
    fn is_suspended(&self) -> bool {
        self.phase == Some(Phase::Aborted) && self.reason == Reason::SUSPENDED_BY_USER
    }

    /// Whether it completes because enough of its pods succeeded, over all copies.
    fn has_enough_successes(&self) -> bool {
        matches!(self.phase, Some(Phase::Completing | Phase::Completed)) && self.reason == MIN_SUCCESS_REACHED
    }
}

/// `status.taskStatusCount[*]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskState {
    /// Pods by pod phase.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read_null_as_default")]
    pub phase: BTreeMap<String, u32>,
}

/// `status.conditions[*]`: a phase, and when it began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobCondition {
    /// The phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Phase>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

/// What of the template's spec the merge needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Template {
    /// The job's minimum, defaults applied.
    pub min_available: u32,
    /// `minSuccess` of a split job, where the user says so: Volcano itself counts for one copy.
    pub min_success: Option<u32>,
    /// Times that the job restarted as a whole; copies made anew count from 0.
    pub restarts: u32,
    /// `maxRetry` where it is split and its policies restart all of it for each pod that fails: a copy that failed
    /// after fewer restarts restarts it.
    pub restarts_failed_copies: Option<u32>,
}

/// What is known of the job in one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// Absent: the cluster should hold a share, and nothing was heard from it.
    pub status: Option<JobStatus>,
    /// The share's minimum, where a plan tells: 0 is a cluster that the gang does not need.
    pub share_minimum: Option<u32>,
}

impl MemberStatus {
    fn phase(&self) -> Option<Phase> {
        self.status.as_ref().and_then(|status| status.state.phase)
    }

    /// Whether the gang can do without this cluster's pods.
    fn is_surplus(&self) -> bool {
        self.share_minimum == Some(0)
    }

    /// Whether a copy that failed has only run to its end, with fewer successes than it could have had, and the job
    /// counts those of all copies. One that restarted before has failed as often as it may.
    fn has_run_to_its_end(&self, template: Template) -> bool {
        let restarted = self.status.as_ref().is_some_and(|status| status.retry_count > 0);
        template.min_success.is_some() && template.restarts_failed_copies.is_none() && !restarted
    }

    /// Whether its Volcano forgot what its pods did when it failed (volcano#4616).
    fn has_lost_pod_counts(&self) -> bool {
        let forgot = |status: &JobStatus| status.succeeded == 0 && status.failed == 0;
        self.phase() == Some(Phase::Failed) && self.status.as_ref().is_some_and(forgot)
    }
}

/// The template's next status. `previous` is its status now; `members` are all clusters that hold a share or reported.
#[must_use]
pub fn merge_statuses(
    template: Template,
    previous: &JobStatus,
    members: &BTreeMap<ClusterName, MemberStatus>,
) -> JobStatus {
    let heard: BTreeMap<&ClusterName, &JobStatus> =
        members.iter().filter_map(|(cluster, member)| Some((cluster, member.status.as_ref()?))).collect();
    if phase::is_settled(previous, members) {
        return JobStatus { retry_count: previous.retry_count.max(template.restarts), ..previous.clone() };
    }
    let sum = |field: fn(&JobStatus) -> u32| heard.values().fold(0u32, |sum, s| sum.saturating_add(field(s)));
    let highest = |field: fn(&JobStatus) -> u32| heard.values().fold(field(previous), |max, s| max.max(field(s)));
    let mut merged = JobStatus {
        state: JobState::default(),
        min_available: template.min_available,
        task_status_count: sum_task_status_count(heard.values().copied()),
        pending: sum(|s| s.pending),
        running: sum(|s| s.running),
        succeeded: sum(|s| s.succeeded),
        failed: sum(|s| s.failed),
        terminating: sum(|s| s.terminating),
        unknown: sum(|s| s.unknown),
        version: highest(|s| s.version),
        retry_count: heard
            .values()
            .fold(template.restarts, |most, status| most.max(template.restarts.saturating_add(status.retry_count)))
            .max(previous.retry_count),
        running_duration: duration::find_longest_duration(
            heard.values().copied().chain([previous]).filter_map(|s| s.running_duration.as_deref()),
        ),
        controlled_resources: merge_controlled_resources(heard.values().copied()),
        conditions: Vec::new(),
    };
    if template.min_success.is_some() && members.values().any(MemberStatus::has_lost_pod_counts) {
        merged.succeeded = merged.succeeded.max(previous.succeeded);
    }
    let is_enough = phase::have_enough_succeeded(template, previous, &merged, members);
    if is_enough && previous.succeeded > merged.succeeded {
        merged.succeeded = previous.succeeded;
        merged.task_status_count.clone_from(&previous.task_status_count);
    }
    let phase = if is_enough {
        phase::decide_completion_phase(&merged, members)
    } else if members.is_empty() && previous.state.is_suspended() {
        Phase::Aborted
    } else {
        phase::merge_phases(template, &merged, members)
    };
    merged.state = merge_state(phase, previous, &heard);
    if is_enough {
        MIN_SUCCESS_REACHED.clone_into(&mut merged.state.reason);
        ENOUGH_SUCCEEDED.clone_into(&mut merged.state.message);
    }
    if members.is_empty() && previous.state.phase == Some(phase) {
        merged.state.reason.clone_from(&previous.state.reason);
        merged.state.message.clone_from(&previous.state.message);
    }
    merged.conditions = merge_conditions(&merged.state, previous, &heard);
    merged
}

/// Phase, since when, and what the clusters in that phase say about it.
fn merge_state(phase: Phase, previous: &JobStatus, heard: &BTreeMap<&ClusterName, &JobStatus>) -> JobState {
    let same = || heard.iter().filter(|(_, status)| status.state.phase == Some(phase));
    let mut message: Vec<String> = Vec::new();
    for (cluster, status) in same().filter(|(_, status)| !status.state.message.is_empty()) {
        message.push(format!("{cluster}: {}", status.state.message));
    }
    let reason = same().map(|(_, status)| &status.state.reason).find(|reason| !reason.is_empty());
    let last_transition_time = if previous.state.phase == Some(phase) && previous.state.last_transition_time.is_some() {
        previous.state.last_transition_time.clone()
    } else {
        let latest = heard.values().filter_map(|status| status.state.last_transition_time.as_ref()).max().cloned();
        // A phase can not begin before the one it follows.
        latest.max(previous.state.last_transition_time.clone())
    };
    JobState {
        phase: Some(phase),
        reason: reason.cloned().unwrap_or_default(),
        message: message.join("; "),
        last_transition_time,
    }
}

/// The phases that the job or any copy went through, each with the last time it began; final phases only if the job is
/// in them, since a copy's end is not the job's.
fn merge_conditions(
    state: &JobState,
    previous: &JobStatus,
    heard: &BTreeMap<&ClusterName, &JobStatus>,
) -> Vec<JobCondition> {
    let mut last: BTreeMap<Phase, Option<String>> = BTreeMap::new();
    let all = heard.values().copied().chain([previous]).flat_map(|status| &status.conditions);
    for (phase, time) in all.filter_map(|condition| Some((condition.status?, &condition.last_transition_time))) {
        if !phase.is_final() {
            let known = last.entry(phase).or_default();
            if *time > *known {
                known.clone_from(time);
            }
        }
    }
    if let Some(phase) = state.phase {
        last.insert(phase, state.last_transition_time.clone());
    }
    let mut conditions: Vec<JobCondition> = last
        .into_iter()
        .map(|(phase, time)| JobCondition { status: Some(phase), last_transition_time: time })
        .collect();
    // The phase of now is the last entry, as in Volcano's history.
    conditions.sort_by(|a, b| {
        let key = |c: &JobCondition| (c.status == state.phase, c.last_transition_time.clone(), c.status);
        key(a).cmp(&key(b))
    });
    conditions
}

fn sum_task_status_count<'a>(heard: impl Iterator<Item = &'a JobStatus>) -> BTreeMap<String, TaskState> {
    let mut sums: BTreeMap<String, TaskState> = BTreeMap::new();
    for (task, state) in heard.flat_map(|status| &status.task_status_count) {
        let sum = sums.entry(task.clone()).or_default();
        for (phase, pods) in &state.phase {
            let pods_so_far = sum.phase.entry(phase.clone()).or_default();
            *pods_so_far = pods_so_far.saturating_add(*pods);
        }
    }
    sums
}

/// All members' entries; where two differ, the smaller text, so that the order of members does not matter.
fn merge_controlled_resources<'a>(heard: impl Iterator<Item = &'a JobStatus>) -> BTreeMap<String, String> {
    let all: BTreeSet<(&String, &String)> = heard.flat_map(|status| &status.controlled_resources).collect();
    all.into_iter().rev().map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// `null` reads as the default.
fn read_null_as_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
