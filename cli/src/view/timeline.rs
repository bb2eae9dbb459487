//! A job's history as far as its objects tell: created, gated, last evicted, last admitted, last placed, and how it
//! stands now; the oldest first. What no object keeps (earlier evictions, earlier placements) is not in it. How jobs
//! ended that are gone is told by `caldera history`.
//!
//! Rule: when a job was admitted is said by its PodGroup until it is placed, and then by its admission record where a
//! limit of its run counts from there. Of other jobs only an event tells it, as long as there is one.

use caldera_core::time::EpochSeconds;
use jiff::Timestamp;

use super::{job::JobView, state::State};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: Timestamp,
    /// In one word.
    pub what: &'static str,
    /// In a sentence.
    pub words: String,
}

/// Submitted, gated, evicted, admitted, placed, and where it stands now; the oldest first.
#[must_use]
pub fn list_steps(job: &JobView<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |at: Option<Timestamp>, what: &'static str, words: String| {
        steps.extend(at.map(|at| Step { at, what, words }));
    };
    add(job.created(), "Submitted", format!("to queue {}", job.queue()));
    add(job.bound_at(), "Gated", "Karmada made its binding; it waits until it is admitted".to_owned());
    if let Some(eviction) = job.eviction() {
        let at = eviction.at.to_timestamp().filter(|_| eviction.at > EpochSeconds::default());
        add(at, "Evicted", format!("{}: {}", eviction.reason, eviction.message));
    }
    let clusters: Vec<String> = job.clusters().iter().map(|(name, pods)| format!("{name}: {pods}")).collect();
    let admitted = job.admitted_at().filter(|_| job.state != State::Admitted);
    add(admitted, "Admitted", format!("queue {} is charged for it", job.queue()));
    let placed = if admitted.is_some() { "placed on" } else { "admitted and placed on" };
    add(job.placed_at(), "Placed", format!("{placed} {}", clusters.join(", ")));
    let now = match job.state {
        State::Waiting | State::Held | State::Suspended => "Waits",
        State::Admitted => "Admitted",
        State::Starting => "Starts",
        State::Running => "Runs",
        state if state.is_over() => "Done",
        _ => "Stands",
    };
    add(job.since(), now, job.message().to_owned());
    steps.sort_by_key(|step| step.at);
    steps
}
