//! Reports for other programs: one JSON document, and CSV of every job and of the whole over time.

use serde::Serialize;

use crate::{
    metrics::Sample,
    report::{Report, class_of, is_starved, list_samples_with_durations, wait_of},
    run::Outcome,
    time::Millis,
    world::World,
};

/// The JSON document.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// That everything random followed from.
    pub seed: u64,
    /// What was left out or taken for something else.
    pub notes: Vec<String>,
    /// How many times its bound a job may wait before it counts as starved.
    pub starved_after: u32,
    /// By policy.
    pub policies: Vec<Report>,
}

impl Document {
    /// As text, with a newline at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Structs of numbers and texts always serialize.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// A row for each job. Empty where something has not happened.
#[must_use]
pub fn jobs_csv(world: &World, outcome: &Outcome, starved_after: u32) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = [
        "job",
        "queue",
        "priority",
        "class",
        "arrival_s",
        "sent_s",
        "started_s",
        "ended_s",
        "wait_s",
        "bound_s",
        "starved",
        "clusters",
        "evictions",
    ];
    let time = |time: Option<Millis>| time.map(|time| time.as_seconds().to_string()).unwrap_or_default();
    // Writing to memory does not fail.
    let _ = writer.write_record(header);
    for (i, (job, record)) in world.jobs.iter().zip(&outcome.jobs).enumerate() {
        let _ = writer.write_record([
            job.name.as_ref(),
            job.queue.as_str(),
            &job.priority.to_string(),
            class_of(world, outcome, i).as_str(),
            &time(Some(record.arrival)),
            &time(record.sent),
            &time(record.started),
            &time(record.ended),
            &time(Some(wait_of(outcome, record))),
            &time(Some(record.bound)),
            if is_starved(outcome, record, starved_after) { "true" } else { "false" },
            &record.clusters.to_string(),
            &record.evictions.to_string(),
        ]);
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Means over one of equal pieces of time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Piece {
    /// Where it begins.
    pub at: Millis,
    /// Units of the resource that nodes have.
    pub capacity: f64,
    /// Those of them that pods hold.
    pub allocated: f64,
    /// Of them, those of jobs that run.
    pub working: f64,
    /// Jobs in line.
    pub waiting: f64,
    /// Jobs in members that do not run yet.
    pub sent: f64,
    /// Jobs that run.
    pub running: f64,
    /// Nodes of which some but not all is free.
    pub fragmented: f64,
}

/// At most so many pieces of equal length from the beginning to `end`.
#[must_use]
pub fn split_into_pieces(outcome: &Outcome, end: Millis, most: u64) -> Vec<Piece> {
    let start = outcome.samples.first().map_or(Millis::ZERO, |sample| sample.at);
    let last = end.min(outcome.end);
    let step = last.since(start).0.div_ceil(most.max(1)).max(1);
    let mut pieces: Vec<Piece> = Vec::new();
    for (sample, time) in list_samples_with_durations(outcome) {
        let (mut at, end) = (sample.at.0, sample.at.plus(time).min(last).0);
        while at < end {
            let piece = (at - start.0) / step;
            while pieces.len() as u64 <= piece {
                let at = Millis(start.0 + pieces.len() as u64 * step);
                pieces.push(Piece { at, ..Piece::default() });
            }
            let until = end.min(start.0 + (piece + 1) * step);
            let last = pieces.len() - 1;
            add(&mut pieces[last], sample, (until - at) as f64);
            at = until;
        }
    }
    // The last piece may be shorter.
    for piece in &mut pieces {
        let length = last.0.min(piece.at.0 + step).saturating_sub(piece.at.0).max(1) as f64;
        for sum in sums(piece) {
            *sum /= length;
        }
    }
    pieces
}

fn add(piece: &mut Piece, sample: &Sample, millis: f64) {
    let tally = sample.tally;
    let now = [
        tally.capacity as f64,
        tally.allocated as f64,
        sample.working as f64,
        f64::from(sample.waiting),
        f64::from(sample.sent),
        f64::from(sample.running),
        tally.fragmented as f64,
    ];
    for (sum, now) in sums(piece).into_iter().zip(now) {
        *sum += now * millis;
    }
}

fn sums(piece: &mut Piece) -> [&mut f64; 7] {
    let Piece { at: _, capacity, allocated, working, waiting, sent, running, fragmented } = piece;
    [capacity, allocated, working, waiting, sent, running, fragmented]
}

/// A row for each of at most a thousand pieces of time.
#[must_use]
pub fn time_csv(outcome: &Outcome) -> String {
    let mut text =
        "time_s,allocated,working,capacity,waiting_jobs,sent_jobs,running_jobs,fragmented_nodes\n".to_owned();
    for piece in split_into_pieces(outcome, outcome.end, 1_000) {
        let Piece { at, capacity, allocated, working, waiting, sent, running, fragmented } = piece;
        let (at, capacity) = (at.as_seconds(), (capacity * 1_000.0).round() / 1_000.0);
        text += &format!(
            "{at},{allocated:.3},{working:.3},{capacity},{waiting:.3},{sent:.3},{running:.3},{fragmented:.3}\n"
        );
    }
    text
}
