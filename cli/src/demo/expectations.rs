//! What the demo must show, act by act, checked against what was observed.
//!
//! Rule: of an act that was not begun before the time was over nothing is known: it did not fail. No I/O.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    acts::DemoAct,
    observed::{DemoJob, ForecastOutcome, Observed},
};

/// Something that the demo must show.
#[derive(Debug, Clone, Serialize)]
pub struct Expectation {
    pub act: DemoAct,
    /// In words.
    pub what: &'static str,
    /// Whether it was seen.
    pub held: bool,
    /// Whether its act was begun: of one that was not nothing is known.
    pub played: bool,
}

/// Checks what the demo must show against what was observed, act by act.
pub fn check_expectations(observed: &Observed) -> Vec<Expectation> {
    let seen = [check_gangs, check_line, check_start, check_lent, check_lost].map(|check| check(observed));
    let acts = DemoAct::ALL.into_iter().zip(seen);
    let expect = |act| move |(what, held)| Expectation { act, what, held, played: observed.begun.contains(&act) };
    acts.flat_map(|(act, seen)| seen.into_iter().map(expect(act))).collect()
}

fn count_pods(job: &DemoJob) -> u32 {
    job.clusters.values().flat_map(BTreeMap::values).sum()
}

fn check_gangs(observed: &Observed) -> Vec<(&'static str, bool)> {
    let (split, gpu) = (observed.job("mindspore-cpu"), observed.job("pytorch-gpu"));
    vec![
        (
            "mindspore-cpu was split over two clusters, 10 pods in all",
            split.clusters.len() == 2 && count_pods(&split) == 10,
        ),
        (
            "mindspore-cpu completed, and was not called Completed before it ran",
            split.is_completed() && split.started.is_some(),
        ),
        (
            "pytorch-gpu ran whole in one cluster",
            gpu.clusters.len() == 1 && count_pods(&gpu) == 4 && gpu.is_completed(),
        ),
    ]
}

fn check_line(observed: &Observed) -> Vec<(&'static str, bool)> {
    let [big, low, urgent] = ["too-big", "low-priority", "urgent-report"].map(|name| observed.job(name));
    let read = |text: &str| text.parse::<caldera_core::quantity::Quantity>().unwrap_or_default();
    let is_empty = |name: &str| {
        let queue = observed.queues.get(name);
        queue.is_some_and(|queue| queue.resources.values().all(|(_, used, _)| read(used).is_zero()))
    };
    let mut rows = observed.queues.values().flat_map(|queue| queue.resources.values());
    vec![
        (
            "too-big was never released, and its PodGroup says why with numbers",
            big.released.is_none() && big.message.contains("48") && big.message.contains("20"),
        ),
        (
            "urgent-report overtook low-priority, which was submitted first",
            low.seen < urgent.seen
                && matches!((urgent.released, low.released), (Some(urgent), Some(low)) if urgent < low),
        ),
        ("low-priority and urgent-report completed", low.is_completed() && urgent.is_completed()),
        ("no queue ever used more than its capability", rows.all(|(most, _, limit)| read(most) <= read(limit))),
        ("what the completed jobs held went back to queue research", is_empty("research")),
    ]
}

fn check_start(observed: &Observed) -> Vec<(&'static str, bool)> {
    let outcome = observed.compare_forecast("low-priority");
    vec![("low-priority started when it was expected to", outcome.is_some_and(ForecastOutcome::came_true))]
}

fn check_lent(observed: &Observed) -> Vec<(&'static str, bool)> {
    let [one, two, owner] = ["speech-1", "speech-2", "vision"].map(|name| observed.job(name));
    let web = observed.job("web");
    // They begin in the same second: which one uses what is lent is not told beforehand.
    let evicted: Vec<&str> = [&one, &two].into_iter().flat_map(|job| &job.evictions).map(String::as_str).collect();
    vec![
        (
            "one of the speech jobs gave lent quota back, and vision ran",
            evicted == ["Reclaimed"] && owner.started.is_some(),
        ),
        ("all three completed once there was room again", [one, two, owner].iter().all(DemoJob::is_completed)),
        ("web had its three replicas, released by its queue", web.started.is_some() && web.released.is_some()),
    ]
}

fn check_lost(observed: &Observed) -> Vec<(&'static str, bool)> {
    let job = observed.job("survivor");
    let moved = DemoJob { clusters: observed.moved_to.clone(), ..DemoJob::default() };
    let has_left = observed.drained.as_ref().is_some_and(|drained| !moved.clusters.contains_key(drained));
    vec![
        (
            "survivor left the drained cluster, and ran whole in another one",
            has_left && moved.clusters.len() == 1 && count_pods(&moved) == 4,
        ),
        (
            "survivor was withdrawn from the lost cluster, and does not run twice",
            observed.lost.is_some() && job.is_withdrawn("MemberLost") && job.message.contains("not known to be gone"),
        ),
    ]
}
