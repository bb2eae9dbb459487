//! Which pods of enqueued PodGroups get a node (`actions/allocate`, `plugins/gang`): first every gang's minimum, all of
//! it or nothing, then what is more. A gang with hard topology is tried in one HyperNode after the other.

use std::collections::{BTreeMap, BTreeSet};

use caldera_runtime::write::Body;
use jiff::Timestamp;

use super::{Cycle, Group, bind_pod, ledger::Ledger, nodes::Nodes, report, topology::HyperNodes};
use crate::member::{
    facts::PodFacts,
    object::{Key, text},
    world::{Want, World},
};

pub(super) fn allocate_gangs(
    world: &World,
    hyper_nodes: &HyperNodes,
    groups: &[Group<'_>],
    ledger: &mut Ledger<'_>,
    nodes: &mut Nodes<'_>,
    now: Timestamp,
    cycle: &mut Cycle,
) {
    let mut more: Vec<(&Group<'_>, Vec<(&Key, &PodFacts)>)> = Vec::new();
    for group in groups.iter().filter(|group| !group.is_pending()) {
        let waiting: Vec<(&Key, &PodFacts)> = group.pods.iter().copied().filter(|(_, pod)| pod.waits()).collect();
        if waiting.is_empty() {
            cycle.wants.extend(report::report_phase(group, false, now));
            continue;
        }
        if !ledger.is_open(&group.facts.queue) {
            report::report_unschedulable(world, group, &Outcome::default(), nodes, now, cycle);
            continue;
        }
        let outcome = in_one_domain(group, &waiting, hyper_nodes, ledger, nodes);
        if outcome.is_ready {
            cycle.wants.extend(report::report_phase(group, false, now));
            let placed: Vec<&Key> = outcome.bindings.iter().map(|want| &want.about.1).collect();
            let rest = waiting.into_iter().filter(|(key, _)| !placed.contains(key)).collect();
            cycle.wants.extend(outcome.bindings);
            more.push((group, rest));
        } else {
            report::report_unschedulable(world, group, &outcome, nodes, now, cycle);
        }
    }
    for (group, rest) in more {
        let mut used: BTreeSet<String> = group.allocated().map(|pod| pod.node.clone()).collect();
        used.extend(cycle.wants.iter().filter_map(|want| bound_node(want, group)));
        for (key, pod) in rest {
            let mut why = None;
            for only in hyper_nodes.candidates(group.object, &used) {
                nodes.look_at(only);
                match try_place(group, pod, ledger, nodes) {
                    Ok(node) => {
                        used.insert(node.to_owned());
                        cycle.wants.push(bind_pod(key, node));
                        why = None;
                        break;
                    }
                    Err(refusal) => drop(why.insert(refusal)),
                }
            }
            nodes.look_at(None);
            if let Some(why) = why {
                report::waiting_pod(world, key, &why, now, cycle);
            }
        }
    }
}

/// The node that a write binds a pod of this group to.
fn bound_node(want: &Want, group: &Group<'_>) -> Option<String> {
    let its = group.pods.iter().any(|(key, _)| **key == want.about.1);
    match &want.write.body {
        Body::Create(binding) if its && want.write.subresource == Some("binding") => {
            Some(text(binding, "/target/name").to_owned())
        }
        _ => None,
    }
}

/// The gang's minimum in the first HyperNode that holds it, or anywhere for a gang without hard topology.
fn in_one_domain(
    group: &Group<'_>,
    waiting: &[(&Key, &PodFacts)],
    hyper_nodes: &HyperNodes,
    ledger: &mut Ledger<'_>,
    nodes: &mut Nodes<'_>,
) -> Outcome {
    let used: BTreeSet<String> = group.allocated().map(|pod| pod.node.clone()).collect();
    let mut last = Outcome::default();
    for only in hyper_nodes.candidates(group.object, &used) {
        nodes.look_at(only);
        nodes.begin();
        let outcome = place_minimum(group, waiting, ledger, nodes);
        if outcome.is_ready {
            nodes.keep();
            nodes.look_at(None);
            return outcome;
        }
        nodes.take_back();
        for request in &outcome.charged {
            ledger.take_back(&group.facts.queue, request);
        }
        last = outcome;
    }
    nodes.look_at(None);
    last
}

/// What came of trying to place a gang's minimum.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) is_ready: bool,
    pub(super) bindings: Vec<Want>,
    charged: Vec<caldera_core::resources::Resources>,
    /// The first pod that got no node, and why.
    pub(super) refused: Option<(String, String)>,
}

fn place_minimum<'a>(
    group: &Group<'_>,
    waiting: &[(&Key, &PodFacts)],
    ledger: &mut Ledger<'_>,
    nodes: &mut Nodes<'a>,
) -> Outcome {
    let mut count = i64::try_from(group.ready().count()).unwrap_or(i64::MAX);
    let least = group.facts.min_tasks.iter().map(|(task, least)| (task.as_str(), *least));
    let mut lacking: BTreeMap<&str, i64> = least.collect();
    for pod in group.ready() {
        if let Some(least) = lacking.get_mut(pod.task.as_str()) {
            *least -= 1;
        }
    }
    let mut outcome = Outcome::default();
    let mut left = Vec::new();
    let mut place = |key: &Key, pod: &PodFacts, outcome: &mut Outcome| match try_place(group, pod, ledger, nodes) {
        Ok(node) => {
            outcome.bindings.push(bind_pod(key, node));
            outcome.charged.push(pod.claim.request.clone());
            true
        }
        Err(why) => {
            outcome.refused.get_or_insert((key.1.clone(), why));
            false
        }
    };
    for (key, pod) in waiting {
        let needed = lacking.get(pod.task.as_str()).is_some_and(|least| *least > 0);
        if !needed {
            left.push((*key, *pod));
        } else if place(key, pod, &mut outcome) {
            count += 1;
            lacking.entry(&pod.task).and_modify(|least| *least -= 1);
        }
    }
    for (key, pod) in left {
        if count >= group.facts.min_member {
            break;
        }
        if place(key, pod, &mut outcome) {
            count += 1;
        }
    }
    outcome.is_ready = count >= group.facts.min_member && lacking.values().all(|least| *least <= 0);
    outcome
}

fn try_place<'a>(
    group: &Group<'_>,
    pod: &PodFacts,
    ledger: &mut Ledger<'_>,
    nodes: &mut Nodes<'a>,
) -> Result<&'a str, String> {
    let over = ledger.refuses(&group.facts.queue, &pod.claim.request);
    if !over.is_empty() {
        return Err(format!("queue resource quota insufficient: insufficient {}", over.join(", insufficient ")));
    }
    let Some(node) = nodes.place(&pod.claim) else { return Err(nodes.refusal(&pod.claim, "unavailable")) };
    ledger.allocate(&group.facts.queue, &pod.claim.request);
    Ok(node)
}
