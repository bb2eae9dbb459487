//! What the schedulers say about what they did: PodGroup phases, conditions and events, pod conditions, queues.
//!
//! Texts are Volcano's (`plugins/gang`, `api/job_info.go`, `api/unschedule_info.go`). It writes them at the end of each
//! session, once a second; so that a pod that waits for a moment costs no write, here too only what has waited a second
//! is written, and a group's changed message waits a second for the next.

use std::collections::BTreeMap;

use caldera_core::{quantity::Quantity, resources::Resources};
use caldera_runtime::clock::format_time;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{Cycle, Group, gang::Outcome, ledger::Ledger, nodes::Nodes, set_sooner, with_condition};
use crate::member::{
    facts::{Phase, PodFacts},
    object::{Key, list, name, namespace, number, text, uid},
    world::{Kind, Want, World, want_create, want_merge},
};

/// A session of Volcano's scheduler.
const SESSION: SignedDuration = SignedDuration::from_secs(1);

/// A group that stays out of its queue: Pending, and an event that says why.
pub(super) fn not_enqueued(world: &World, group: &Group<'_>, why: &str, now: Timestamp, cycle: &mut Cycle) {
    if group.facts.phase.is_empty() {
        cycle.wants.push(want_merge(Kind::PodGroup, group.object, None, json!({"status": {"phase": "Pending"}})));
    }
    let time = format_time(now);
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "name": format!("{}.{}", name(group.object), crate::member::job::scramble_text(why, 12)),
            "namespace": namespace(group.object),
        },
        "involvedObject": {
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "name": name(group.object),
            "namespace": namespace(group.object), "uid": uid(group.object),
        },
        "type": "Normal", "reason": "Unschedulable", "message": why, "count": 1,
        "firstTimestamp": time, "lastTimestamp": time, "source": {"component": "volcano"},
    });
    let event = want_create(Kind::Event, event);
    if world.is_there(&event.about) != Some(true) {
        cycle.wants.push(event);
    }
}

/// `framework/session.go`, `jobStatus`: Completed if all that was scheduled is done, Running if the minimum is placed,
/// Unknown if a part runs and the rest can not be placed; Inqueue otherwise only if it was, else Pending again.
pub(super) fn report_phase(group: &Group<'_>, unschedulable: bool, now: Timestamp) -> Option<Want> {
    let counted = |phase: Phase| group.pods.iter().filter(|(_, pod)| pod.phase == phase && !pod.deleting).count();
    let (running, succeeded, failed) = (counted(Phase::Running), counted(Phase::Succeeded), counted(Phase::Failed));
    // Pods being deleted hold their node until they are gone.
    let scheduled = group.pods.iter().filter(|(_, pod)| pod.holds()).count() + succeeded + failed;
    let minimum = usize::try_from(group.facts.min_member).unwrap_or_default();
    let phase = if running > 0 && unschedulable {
        "Unknown"
    } else if group.pods.len() < minimum {
        // The job controller is about to make up for pods that went; a session once a second would not see the gap.
        group.facts.phase.as_str()
    } else if scheduled >= minimum {
        if scheduled == succeeded + failed { "Completed" } else { "Running" }
    } else if group.facts.phase == "Inqueue" {
        "Inqueue"
    } else {
        "Pending"
    };
    let told = |field: &str| usize::try_from(number(group.object, &format!("/status/{field}"))).unwrap_or_default();
    let same = phase == group.facts.phase
        && [("running", running), ("succeeded", succeeded), ("failed", failed)]
            .iter()
            .all(|(field, count)| told(field) == *count);
    if same {
        return None;
    }
    let mut status = json!({"phase": phase, "running": running, "succeeded": succeeded, "failed": failed});
    if phase == "Running" && group.facts.phase != "Running" {
        let condition = build_condition(group, "Scheduled", "tasks in gang are ready to be scheduled", "", now);
        status["conditions"] = with_condition(group.object, condition);
    }
    Some(want_merge(Kind::PodGroup, group.object, None, json!({"status": status})))
}

/// A gang that could not be placed: its condition, and those of its pods.
pub(super) fn report_unschedulable(
    world: &World,
    group: &Group<'_>,
    outcome: &Outcome,
    nodes: &Nodes<'_>,
    now: Timestamp,
    cycle: &mut Cycle,
) {
    let waiting = || group.pods.iter().filter(|(_, pod)| pod.waits());
    let youngest = waiting().filter_map(|(key, _)| created_at(world, Kind::Pod, key)).max();
    let ripe = youngest.map_or(now, |created| created.checked_add(SESSION).unwrap_or(Timestamp::MAX));
    if ripe > now {
        set_sooner(&mut cycle.at, ripe);
        return;
    }
    let message = unschedulable_message(group, outcome);
    let why = outcome.refused.as_ref().map_or_else(|| message.clone(), |(_, why)| why.clone());
    for (key, pod) in waiting() {
        let placed = outcome.bindings.iter().any(|want| want.about.1 == **key);
        let (reason, text) = if placed {
            (
                "Schedulable",
                format!("Pod {}/{} can possibly be assigned to a node, once minAvailable is satisfied", key.0, key.1),
            )
        } else if outcome.refused.is_some() && pod.claim.broken.is_none() {
            ("Unschedulable", why.clone())
        } else {
            ("Unschedulable", nodes.refusal(&pod.claim, "unavailable"))
        };
        pod_condition(world, key, reason, &text, cycle);
    }
    let known = list(group.object, "/status/conditions").iter().find(|known| text(known, "/type") == "Unschedulable");
    let is_known = known.is_some_and(|known| text(known, "/message") == message && text(known, "/status") == "True");
    let phase = report_phase(group, true, now);
    if is_known {
        cycle.wants.extend(phase);
        return;
    }
    let last: Option<Timestamp> = known.and_then(|known| text(known, "/lastTransitionTime").parse().ok());
    if let Some(next) = last.and_then(|last| last.checked_add(SESSION).ok()).filter(|next| *next > now) {
        set_sooner(&mut cycle.at, next);
        return;
    }
    let condition = build_condition(group, "Unschedulable", "NotEnoughResources", &message, now);
    let mut status = json!({"conditions": with_condition(group.object, condition)});
    if let Some(want) = phase
        && let caldera_runtime::write::Body::MergePatch(patch) = want.write.body
        && let (Some(status), Some(more)) = (status.as_object_mut(), patch["status"].as_object())
    {
        status.extend(more.iter().filter(|(field, _)| *field != "conditions").map(|(k, v)| (k.clone(), v.clone())));
    }
    cycle.wants.push(want_merge(Kind::PodGroup, group.object, None, json!({"status": status})));
}

fn build_condition(group: &Group<'_>, kind: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let mut condition = json!({
        "type": kind, "status": "True", "reason": reason,
        "transitionID": uid(group.object), "lastTransitionTime": format_time(now),
    });
    if !message.is_empty() {
        condition["message"] = message.into();
    }
    condition
}

/// `3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; Pending: 3 Unschedulable. ...`
fn unschedulable_message(group: &Group<'_>, outcome: &Outcome) -> String {
    let placed = outcome.bindings.len();
    let ready = group.ready().count();
    let minimum = usize::try_from(group.facts.min_member).unwrap_or_default();
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, pod) in &group.pods {
        *states.entry(pod_state(pod)).or_default() += 1;
    }
    let pending = states.get("Pending").copied().unwrap_or_default();
    states.insert("minAvailable", minimum);
    let mut fates: BTreeMap<&str, usize> = BTreeMap::new();
    for (fate, count) in [("Schedulable", placed), ("Unschedulable", pending.saturating_sub(placed))] {
        if count > 0 {
            fates.insert(fate, count);
        }
    }
    let mut text = format!(
        "{}/{} tasks in gang unschedulable: pod group is not ready, {}",
        minimum.saturating_sub(ready + placed),
        group.pods.len(),
        write_histogram(&states)
    );
    if !fates.is_empty() {
        text += &format!("; Pending: {}", write_histogram(&fates));
    }
    if let Some((pod, why)) = &outcome.refused {
        text += &format!(". Origin reason is {pod}: {why}");
    }
    text
}

fn write_histogram(counts: &BTreeMap<&str, usize>) -> String {
    let mut texts: Vec<String> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    texts.sort();
    texts.join(", ")
}

fn pod_state(pod: &PodFacts) -> &'static str {
    match pod.phase {
        _ if pod.deleting => "Releasing",
        Phase::Pending if !pod.node.is_empty() => "Bound",
        phase => phase.as_str(),
    }
}

/// A pod of a ready gang, or of none, that got no node.
pub(super) fn waiting_pod(world: &World, key: &Key, why: &str, now: Timestamp, cycle: &mut Cycle) {
    let ripe = created_at(world, Kind::Pod, key).and_then(|created| created.checked_add(SESSION).ok()).unwrap_or(now);
    if ripe > now {
        set_sooner(&mut cycle.at, ripe);
    } else {
        pod_condition(world, key, "Unschedulable", why, cycle);
    }
}

/// Says once that a pod is not scheduled; the text is not kept up to date.
fn pod_condition(world: &World, key: &Key, reason: &str, message: &str, cycle: &mut Cycle) {
    let Some(pod) = world.get(Kind::Pod, key) else { return };
    let told = list(pod, "/status/conditions").iter().any(|known| text(known, "/type") == "PodScheduled");
    if !told {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message});
        let status = json!({"status": {"conditions": with_condition(pod, condition)}});
        cycle.wants.push(want_merge(Kind::Pod, pod, Some("status"), status));
    }
}

fn created_at(world: &World, kind: Kind, key: &Key) -> Option<Timestamp> {
    text(world.get(kind, key)?, "/metadata/creationTimestamp").parse().ok()
}

/// `updateQueueStatus`: cpu and memory always, other names while held.
pub(super) fn report_queues(world: &World, ledger: &Ledger<'_>) -> Vec<Want> {
    ledger
        .allocated()
        .filter_map(|(queue, held)| {
            let queue = world.named(Kind::Queue, queue)?;
            let known = queue.pointer("/status/allocated").and_then(Value::as_object);
            let told: Option<Resources> = known.and_then(|all| serde_json::from_value(all.clone().into()).ok());
            if told.as_ref() == Some(held) {
                return None;
            }
            let gone = known.into_iter().flatten().map(|(name, _)| (name.clone(), Value::Null));
            let mut allocated: Map<String, Value> = gone.collect();
            for name in ["cpu", "memory"] {
                allocated.insert(name.to_owned(), Quantity::ZERO.to_string().into());
            }
            allocated.extend(held.iter().map(|(name, amount)| (name.to_string(), amount.to_string().into())));
            Some(want_merge(Kind::Queue, queue, Some("status"), json!({"status": {"allocated": allocated}})))
        })
        .collect()
}
