//! A job's history as far as its objects tell: created, gated, last evicted, last placed, and how it stands now; the
//! oldest first. What no object keeps (earlier evictions, earlier placements) is not in it. How jobs ended that are
//! gone is told by `caldera history`.

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

/// Submitted, gated, evicted, placed, and where it stands now; the oldest first.
#[must_use]
pub fn list_steps(job: &JobView<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |at: Option<Timestamp>, what: &'static str, words: String| {
        steps.extend(at.map(|at| Step { at, what, words }));
    };
    add(job.created(), "Submitted", format!("to queue {}", job.queue()));
    add(job.bound_at(), "Gated", "Karmada made its binding; it waits until it is admitted".to_owned());
    if let Some(eviction) = job.eviction() {
        let at = Timestamp::from_second(eviction.at).ok().filter(|_| eviction.at > 0);
        add(at, "Evicted", format!("{}: {}", eviction.reason, eviction.message));
    }
    let clusters: Vec<String> = job.clusters().iter().map(|(name, pods)| format!("{name}: {pods}")).collect();
    add(job.placed_at(), "Placed", format!("admitted and placed on {}", clusters.join(", ")));
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
