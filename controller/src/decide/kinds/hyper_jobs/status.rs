//! The status of a HyperJob: its conditions, and the state and counts of its jobs.
//!
//! Rules:
//! - A job that ended stays in `jobStates` when it is gone: that is why it is not made again.
//! - `minAvailable` jobs are needed, all where it is absent. It is Completed once all jobs ended and enough of them are
//!   Completed, Failed if too few are; before that `Running` says whether enough run or are completed, with the
//!   numbers.
//! - `Admitted` says whether so many hold quota or have ended; while they do not, it says why the first waits, in the
//!   words of its PodGroup. It follows what PodGroups say, and so their budget.
//! - A job that is aborted has not ended: it may be resumed. volcano-global counts it as failed.
//! - `JobsCreated` is False while a job is not made yet, and says how many are; or while one can not be made or
//!   changed, and says which and why.
//! - Conditions of others stay; a time changes only with its status.

use caldera_core::text::count_noun;
use caldera_crds::hyper_job::{MOST_REPLICATED_JOBS, count_needed, list_replicated_jobs};
use caldera_runtime::clock::format_time;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::observe::{COUNTS, HyperJobFacts};

/// Conditions that are ours.
const CONDITIONS: [&str; 5] = ["JobsCreated", "Admitted", "Running", "Completed", "Failed"];

/// A job that there should be.
#[derive(Debug)]
pub(super) struct ChildState {
    /// Its name.
    pub(super) name: String,
    /// Which replicated job it is of.
    pub(super) replicated: usize,
    /// It is there, or was and ended.
    pub(super) is_made: bool,
    /// Why it holds no quota, by its PodGroup; nothing of one that does, or has ended.
    pub(super) waits: Option<String>,
    /// Its state: of the job that is there, or that ended. Nothing while none was made.
    pub(super) state: Value,
    /// As [`COUNTS`] has them.
    pub(super) counts: [i64; COUNTS.len()],
}

/// Whether a job in this state will never run again.
pub(super) fn is_final_state(state: &Value) -> bool {
    ["Completed", "Failed", "Terminated"].iter().any(|phase| state["phase"] == *phase)
}

/// What a job ended as, as its HyperJob says it. A tenant may write that: no more of it is read than we write.
pub(super) fn find_recorded_end<'a>(hyper_job: &'a Value, name: &str) -> Option<&'a Value> {
    let all = hyper_job["status"]["replicatedJobsStatus"].as_array()?;
    all.iter()
        .take(MOST_REPLICATED_JOBS)
        .filter_map(|one| one["jobStates"].get(name))
        .find(|state| is_final_state(state))
}

/// Whether it ended itself.
pub(super) fn has_hyper_job_ended(hyper_job: &Value) -> bool {
    ["Completed", "Failed"].iter().any(|kind| find_condition(hyper_job, kind).is_some_and(|it| it["status"] == "True"))
}

fn find_condition<'a>(hyper_job: &'a Value, kind: &str) -> Option<&'a Value> {
    hyper_job["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// The status that it should have; the first problem of its jobs is told.
pub(super) fn build_status(
    facts: &HyperJobFacts,
    children: &[ChildState],
    problem: Option<&str>,
    now: Timestamp,
) -> Value {
    let object = &*facts.object;
    let replicated = list_replicated_jobs(object).enumerate().map(|(at, replicated)| {
        let mut status = json!({"name": replicated.name});
        let of_it = || children.iter().filter(|child| child.replicated == at);
        for (index, field) in COUNTS.iter().enumerate() {
            status[*field] = of_it().map(|child| child.counts[index]).sum::<i64>().into();
        }
        let states = of_it().filter(|child| child.state.is_object());
        let states: Map<String, Value> = states.map(|child| (child.name.clone(), child.state.clone())).collect();
        status["jobStates"] = states.into();
        status
    });
    let conditions = build_conditions(facts, children, problem, now);
    let mut status = json!({
        "conditions": conditions, "splitCount": children.len(), "replicatedJobsStatus": replicated.collect::<Value>(),
    });
    // In a merge patch `null` is nothing.
    if let Some(generation) = object["metadata"].get("generation") {
        status["observedGeneration"] = generation.clone();
    }
    status
}

fn build_conditions(
    facts: &HyperJobFacts,
    children: &[ChildState],
    problem: Option<&str>,
    now: Timestamp,
) -> Vec<Value> {
    let object = &*facts.object;
    let count = |phases: &[&str]| {
        children.iter().filter(|child| phases.iter().any(|phase| child.state["phase"] == *phase)).count()
    };
    let all = children.len();
    let needed = usize::try_from(count_needed(object, i64::try_from(all).unwrap_or(i64::MAX))).unwrap_or(0);
    let (completed, failed) = (count(&["Completed"]), count(&["Failed", "Terminated"]));
    let running = count(&["Running", "Completing", "Terminating", "Aborting"]);
    let is_over = all > 0 && completed + failed == all;
    let are_enough = completed >= needed;
    let jobs = count_noun(all, "job");
    let numbers = format!("of {jobs} {running} running, {completed} completed, {failed} failed; {needed} needed");
    let run = match () {
        () if is_over => (false, "Ended"),
        () if all - failed < needed => (false, "TooFewLeft"),
        () if running > 0 && running + completed >= needed => (true, "EnoughRun"),
        () => (false, "TooFewRun"),
    };
    let waiting: Vec<&ChildState> = children.iter().filter(|child| child.waits.is_some()).collect();
    let admitted = all - waiting.len();
    let of_needed = format!("of {jobs} {admitted} with quota or ended; {needed} needed");
    let why = waiting.first().and_then(|child| Some((child, child.waits.as_deref().filter(|why| !why.is_empty())?)));
    let admission = match why.filter(|_| admitted < needed) {
        _ if admitted >= needed => (true, "Admitted", of_needed),
        Some((child, why)) => (false, "Waiting", format!("{of_needed}; {}: {why}", child.name)),
        None => (false, "Waiting", of_needed),
    };
    let made = children.iter().filter(|child| child.is_made).count();
    let created = match problem {
        Some(problem) => (false, "JobRefused", problem.to_owned()),
        None if made < all => (false, "Creating", format!("{made} of {jobs} made")),
        None => (true, "Created", "every job is as its template says, or has ended".to_owned()),
    };
    let reported = [
        Some(("JobsCreated", created.0, created.1, created.2)),
        Some(("Admitted", admission.0, admission.1, admission.2)),
        Some(("Running", run.0, run.1, numbers.clone())),
        (is_over && are_enough).then_some(("Completed", true, "EnoughCompleted", numbers.clone())),
        (is_over && !are_enough).then_some(("Failed", true, "TooFewCompleted", numbers)),
    ];
    let of_others = object["status"]["conditions"].as_array().into_iter().flatten();
    let of_others = of_others.filter(|condition| !CONDITIONS.iter().any(|kind| condition["type"] == *kind)).cloned();
    let ours = reported.into_iter().flatten().map(|(kind, is_true, reason, message)| {
        let status = if is_true { "True" } else { "False" };
        let before = find_condition(object, kind).filter(|before| before["status"] == status);
        let since = before.map_or_else(|| format_time(now).into(), |before| before["lastTransitionTime"].clone());
        json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
            "observedGeneration": object["metadata"]["generation"],
        })
    });
    ours.chain(of_others).collect()
}
