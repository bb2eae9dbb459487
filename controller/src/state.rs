//! What the controller says of its state at `/debug/state`.
//!
//! It is worked out when it is asked for, in the loop: each list takes one look at all jobs or bindings, to count them,
//! as a sample of the metrics does, and describes the first entries only. Names are of queues, bindings and clusters;
//! nothing of what tenants wrote into their objects is told but what the API server said of a release that it refused.

use caldera_core::time::EpochSeconds;
use std::cmp::Reverse;

use caldera_runtime::{clock::format_time, debug_state::list_first};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    decide::Controller,
    measure::{STATES, count_jobs},
};

/// The state, beside how the writes that were decided wait, and when the next decision is due.
pub(crate) fn describe_state(controller: &Controller, writes: Value, next: Option<Timestamp>) -> Value {
    let objects = &controller.objects;
    let deadlines = controller.deadlines.list_next_due().into_iter();
    let pod_groups = controller.pod_groups.count_left().into_iter();
    json!({
        "time": format_time(controller.now),
        "epoch": controller.jobs.epoch.as_deref(),
        "unlistedKinds": controller.list_unlisted_kinds().iter().map(|kind| format!("{kind:?}")).collect::<Vec<_>>(),
        "paused": controller.pause_reason(),
        "settingsRefused": controller.settings_refused,
        "nextDecision": next.map(format_time),
        "bindings": objects.bindings.len(),
        "workloads": objects.workloads.len(),
        "queues": describe_queues(controller),
        "unansweredReleases": describe_unanswered_releases(controller),
        "refusedReleases": describe_refused_releases(controller),
        "reservations": describe_reservations(controller),
        "deadlines": deadlines.map(|(kind, at)| (kind.to_owned(), json!(at.map(format_time)))).collect::<Map<_, _>>(),
        "podGroups": pod_groups.map(|(what, count)| (what.to_owned(), json!(count))).collect::<Map<_, _>>(),
        "writes": writes,
    })
}

/// Those with the longest lines first.
fn describe_queues(controller: &Controller) -> Value {
    let mut all: Vec<_> = count_jobs(controller).into_iter().collect();
    all.sort_by_key(|(_, (states, _))| Reverse(states[0]));
    list_first(all.into_iter(), |(queue, (states, reservations))| {
        let mut reported = json!({"name": queue.as_str(), "reservations": reservations});
        for (state, count) in STATES.into_iter().zip(states) {
            reported[state] = count.into();
        }
        reported
    })
}

/// Releases that were sent and are counted as if they were there: neither an answer nor the watch has shown them.
fn describe_unanswered_releases(controller: &Controller) -> Value {
    let sent = controller.jobs.states.iter().filter_map(|(key, state)| Some((key, state.assumed.as_ref()?)));
    list_first(sent, |(key, assumed)| {
        let (version, tries, again) = assumed.describe_tries();
        let again = again.map(format_time);
        json!({"binding": key.to_string(), "resourceVersion": version, "triesInVain": tries, "again": again})
    })
}

fn describe_refused_releases(controller: &Controller) -> Value {
    let states = controller.jobs.states.iter();
    let refused = states.filter_map(|(key, state)| Some((key, state.refusal(controller.now)?)));
    list_first(refused, |(key, why)| json!({"binding": key.to_string(), "why": why}))
}

fn describe_reservations(controller: &Controller) -> Value {
    let engine = &controller.jobs.engine;
    let reserving = controller.objects.bindings.values().filter(|binding| engine.has_reservation(binding.id.as_str()));
    let second = |at: EpochSeconds| at.to_timestamp().map(format_time);
    list_first(reserving, |binding| {
        let mut reported = json!({"binding": binding.key.to_string()});
        if let Some(kept) = engine.reservation_of(binding.id.as_str()) {
            reported["since"] = second(kept.since).into();
            reported["lacks"] = kept.short.map(|(bound, resource)| format!("{resource}: {bound}")).into();
            reported["clusters"] = kept.clusters.iter().map(ToString::to_string).collect::<Vec<_>>().into();
            reported["startsAtTheLatest"] = kept.start.ok().and_then(second).into();
        }
        reported
    })
}
