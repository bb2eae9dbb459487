//! What `caldera why` answers, and how that reads: where a job stands, the reason, and what is known of it.

use std::fmt::Write as _;

use caldera_controller::explain::{Basis, Explanation, Pods, RunLimitView, TenantTurn, Verdict};
use caldera_core::{run_limit::RunTime, text::count_noun};
use serde::Serialize;

use super::{
    object_words::is_not_looked_at,
    tables::{append_queue_path, build_placed_row, format_pending_jobs, parse_epoch_seconds, write_clusters},
};
use crate::{
    console_starts::ViewGap,
    expected_start::ExpectedStart,
    live::Gap,
    output::{self, format_columns, format_duration},
};

/// The JSON and YAML form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    #[serde(flatten)]
    pub(super) explanation: Explanation,
    /// When it is expected to start, if it waits and can start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expected_start: Option<ExpectedStart>,
    /// What could not be seen.
    pub(super) missing: Vec<Gap>,
    /// What of that hides its expected start.
    #[serde(skip)]
    pub(super) view_gap: Option<ViewGap>,
}

fn name_standing(job: &Explanation) -> &'static str {
    if is_not_looked_at(job) { "IS NOT LOOKED AT YET" } else { name_verdict(job.verdict) }
}

pub(super) fn name_verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Waiting => "WAITS",
        Verdict::MayStart => "MAY START NOW",
        Verdict::CanNeverStart => "CAN NEVER START as it is",
        Verdict::Blocked => "DOES NOT START until somebody changes something",
        Verdict::Admitted => "IS ADMITTED, not placed yet",
        Verdict::Placed => "IS PLACED, does not run yet",
        Verdict::Running => "RUNS",
        Verdict::Finished => "HAS ENDED",
        Verdict::NotQueued => "IS IN NO QUEUE",
        Verdict::NoBinding => "IS NOT PROPAGATED",
    }
}

pub(super) fn format_answer(answer: &Answer, wide: bool) -> String {
    let job = &answer.explanation;
    let mut text = format!("{} {}  [{}]\n", job.workload, name_standing(job), job.token);
    let _ = writeln!(text, "  {}\n", job.sentence);
    write_facts(&mut text, answer);
    if !job.path.is_empty() && !matches!(job.verdict, Verdict::Finished) {
        append_queue_path(&mut text, job, wide);
    }
    if !job.ahead.is_empty() {
        let more = job.position.unwrap_or(1).saturating_sub(1).saturating_sub(job.ahead.len());
        let shown = if wide { job.ahead.len() } else { job.ahead.len().min(3) };
        let more = more + job.ahead.len() - shown;
        let _ = writeln!(text, "\nAhead of it in queue {}:", job.queue.as_ref().map_or("", |queue| queue.as_str()));
        text += &format_pending_jobs(&job.ahead[..shown], compute_answer_time(job));
        if more > 0 {
            let _ = writeln!(text, "... and {more} more");
        }
    }
    if !job.clusters.is_empty() {
        write_clusters(&mut text, job, wide);
    }
    if !job.placed.is_empty() {
        text.push('\n');
        text += &format_columns(["CLUSTER", "PODS", "ON NODES", "TASKS"], job.placed.iter().map(build_placed_row));
    }
    for note in &job.notes {
        let _ = writeln!(text, "\nNote: {note}");
    }
    if job.basis == Basis::PodGroup {
        text += "\nYour credentials do not show everything that decides: what it says of the queue is what the controller \
                 last wrote.\n";
    }
    text + &output::format_gaps(&answer.missing, wide)
}

/// Seconds since 1970, from when the job was made and how old it is.
fn compute_answer_time(job: &Explanation) -> i64 {
    parse_epoch_seconds(job.created.as_deref()).unwrap_or(0).saturating_add(job.age_seconds)
}

fn write_facts(text: &mut String, answer: &Answer) {
    let job = &answer.explanation;
    let mut fact = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {value}");
    };
    if let Some(created) = &job.created {
        fact("Created", format!("{created}, {} ago", format_duration(job.age_seconds)));
    }
    if let Some(asks) = &job.asks {
        let copies = if asks.copies > 1 { format!(", {} copies", asks.copies) } else { String::new() };
        fact("Needs", format!("at least {} ({}{copies})", asks.minimum, count_noun(asks.min_pods, "pod")));
        if asks.full != asks.minimum {
            fact("Wants", format!("{} ({}{copies})", asks.full, count_noun(asks.pods, "pod")));
        }
    }
    if let Some(queue) = &job.queue {
        let gained = match job.priority_gained {
            0 => String::new(),
            gained => format!(" and {gained} more for its time in line"),
        };
        let place = job.position.zip(job.of).map(|(place, of)| format!(", position {place} of {of}"));
        fact("Queue", format!("{queue}{}, priority {}{gained}", place.unwrap_or_default(), job.priority));
    }
    if let Some(turn) = &job.turn {
        let lately = match turn {
            TenantTurn { with_history: true, .. } => " with what it used lately",
            TenantTurn { lacks_history: true, .. } => "; what was used lately is not known, and places may be others",
            _ => "",
        };
        fact("Turn", format!("{} has {} % of the queue{lately}: who has less goes first", turn.tenant, turn.percent));
    }
    if let Some(deadline) = &job.deadline {
        fact("Deadline", format!("should have started by {deadline}"));
    }
    if let Some(kept) = &job.reservation {
        let what = match (&kept.resource, &kept.bound) {
            (Some(resource), Some(bound)) => format!("{resource} within {bound}"),
            _ => "capacity".to_owned(),
        };
        let names: Vec<&str> = kept.clusters.iter().map(|name| name.as_str()).collect();
        let on = if names.is_empty() { String::new() } else { format!(" on {}", names.join(", ")) };
        let since = kept.since.as_deref().unwrap_or("now");
        fact("Reserved", format!("{what}{on} is reserved for it since {since}"));
    }
    if let Some(expected) = &answer.expected_start {
        fact("Expected", format!("to start {}", expected.describe()));
    }
    // What is known for certain; that nothing is certain is of no use beside what is expected.
    if let Some(eta) = job.eta.as_ref().filter(|eta| eta.at.is_some() || answer.expected_start.is_none()) {
        fact("Starts", format!("{}: {}", eta.at.as_deref().unwrap_or("nobody can say when"), eta.basis));
    }
    if let Some(admission) = &job.admission {
        fact("Admitted", format!("queue {} for {}", admission.queue, admission.charged));
    }
    if let Some(limit) = &job.run_limit {
        fact("May run", describe_run_limit(limit));
    }
    if let Some(at) = &job.placed_at {
        fact("Placed", format!("last at {at}"));
    }
    if let Some(until) = &job.ready_by {
        fact("Ready by", format!("{until}, or it is taken off all clusters and put in line again"));
    }
    if job.pods != Default::default() {
        let pods = &job.pods;
        let so_far = if pods.failed > 0 && job.verdict != Verdict::Finished { " so far" } else { "" };
        let Pods { running, succeeded, failed } = pods;
        fact("Pods", format!("{running} running, {succeeded} succeeded, {failed} failed{so_far}"));
    }
    if let Some(reported) =
        job.pod_group.as_ref().filter(|reported| reported.token == job.token && !reported.since.is_empty())
    {
        fact("Since", format!("{}, as its PodGroup says ({})", reported.since, reported.phase));
    }
}

fn describe_run_limit(limit: &RunLimitView) -> String {
    let whole = RunTime(limit.seconds);
    match (&limit.ends, limit.left_seconds) {
        (Some(ends), Some(left)) => format!("{whole}, is ended at {ends}, in {}", format_duration(left)),
        _ => format!("{whole} from its release on, then it is ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_job_that_runs_it_is_said_when_it_is_ended_and_of_one_that_waits_how_long_it_may_run() {
        let waits = RunLimitView { seconds: 14_400, ends: None, left_seconds: None };
        assert_eq!(describe_run_limit(&waits), "4h from its release on, then it is ended");
        let runs = RunLimitView { ends: Some("2026-01-01T04:00:00Z".to_owned()), left_seconds: Some(5_400), ..waits };
        assert_eq!(describe_run_limit(&runs), "4h, is ended at 2026-01-01T04:00:00Z, in 1h30m");
    }
}
