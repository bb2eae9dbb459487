//! Which pending PodGroups enter their queue (`actions/enqueue`, `plugins/{capacity,overcommit}`).
//!
//! A group that may not enter stays Pending without a condition: Volcano says why in an event of the group alone.

use caldera_core::{quantity::Quantity, resources::Resources};
use jiff::Timestamp;
use serde_json::json;

use super::{Cycle, Group, ledger::Ledger, nodes::Nodes, report};
use crate::member::world::{Kind, World, want_merge};

pub(super) fn enqueue_groups(
    world: &World,
    groups: &[Group<'_>],
    ledger: &mut Ledger<'_>,
    nodes: &Nodes<'_>,
    now: Timestamp,
    cycle: &mut Cycle,
) {
    for group in groups.iter().filter(|group| group.is_pending()) {
        let minimum = group.facts.minimum.clone().unwrap_or_default();
        if let Some(refusal) = enqueue_refusal(group, &minimum, ledger, nodes) {
            report::not_enqueued(world, group, &refusal, now, cycle);
            continue;
        }
        ledger.promise(&group.facts.queue, &minimum);
        cycle.wants.push(want_merge(Kind::PodGroup, group.object, None, json!({"status": {"phase": "Inqueue"}})));
    }
}

fn enqueue_refusal(group: &Group<'_>, minimum: &Resources, ledger: &Ledger<'_>, nodes: &Nodes<'_>) -> Option<String> {
    let queue = &group.facts.queue;
    match ledger.state(queue) {
        None => return Some(format!("queue {queue} does not exist")),
        Some("Open") => {}
        Some(state) => {
            return Some(format!("queue {queue} is {}", if state.is_empty() { "not open yet" } else { state }));
        }
    }
    group.facts.minimum.as_ref()?;
    let insufficient = ledger.keeps_out(queue, minimum);
    if !insufficient.is_empty() {
        return Some(format!(
            "queue resource quota insufficient: insufficient {}",
            insufficient.join(", insufficient ")
        ));
    }
    let overused: Vec<String> = minimum
        .iter()
        .filter(|(name, amount)| name.as_str() != "pods" && *amount > Quantity::ZERO)
        .filter(|(name, amount)| {
            // In tenths, so that the factor 1.2 stays a whole number.
            let name = name.as_str();
            let asked = ledger.promised.get(name).saturating_add(*amount).saturating_add(nodes.used().get(name));
            asked.times(10) > nodes.total().get(name).times(12)
        })
        .map(|(name, _)| name.to_string())
        .collect();
    (!overused.is_empty())
        .then(|| format!("resource in cluster is overused: overused {}", overused.join(", overused ")))
}
