//! Which assumed pods of a binding are not seen in a member yet, and what the member has free beside them.
//!
//! Rule: assumed pods of a task minus its pods on nodes and those that have finished. Finished pods do not count where
//! the workload replaces them. The rest is taken off the free capacity in the order in which it was assumed, and off
//! nodes that may come ([`super::upcoming`]) where it does not fit.

use std::collections::BTreeMap;

use super::{AssumedEntry, AssumedPods, FleetMember};
use crate::{gang::TaskName, inventory::SeenPods, resources::Resources};

/// These keys with their assumed pods, in the order in which they were assumed.
pub(super) fn sort_by_age<'a, 'k>(
    entries: &'a BTreeMap<String, AssumedEntry>,
    keys: impl Iterator<Item = &'k String>,
) -> Vec<(&'a str, &'a AssumedPods)> {
    let mut found: Vec<(&String, &AssumedEntry)> = keys.filter_map(|key| entries.get_key_value(key.as_str())).collect();
    found.sort_unstable_by_key(|(_, entry)| entry.age);
    found.into_iter().map(|(key, entry)| (key.as_str(), &entry.assumed)).collect()
}

/// Counts which pods of an entry are not seen in this member, and what those hold that are there; true if the latter
/// changed.
pub(super) fn count_unseen(
    member: &mut FleetMember,
    name: &str,
    key: &str,
    assumed: Option<(&AssumedPods, bool)>,
) -> bool {
    let queued = assumed.is_some_and(|(_, queued)| queued);
    let there = assumed
        .and_then(|(assumed, _)| Some((assumed, assumed.pods.get(name)?, count_seen_pods_by_task(member, assumed))));
    let unseen: Option<Vec<u32>> = there.as_ref().map(|(_, planned, seen)| {
        let seen = seen.iter().map(|seen| seen.bound + seen.finished);
        planned.iter().zip(seen).map(|(planned, seen)| planned.saturating_sub(seen)).collect()
    });
    let bound = |(assumed, ..): &(&AssumedPods, _, _)| sum_requests_of_bound_pods(member, assumed);
    let held = there.as_ref().filter(|_| queued).map(bound).unwrap_or_default();
    let changed = member.bound.set_bound_amount(key, held);
    match unseen {
        Some(unseen) if unseen.iter().any(|pods| *pods > 0) => drop(member.unseen.insert(key.to_owned(), unseen)),
        _ => drop(member.unseen.remove(key)),
    }
    changed
}

/// What the pods of an entry hold that are on nodes.
fn sum_requests_of_bound_pods(member: &FleetMember, assumed: &AssumedPods) -> Resources {
    let by_task = member.inventory.held_by_pods(&assumed.workload);
    let is_sole = assumed.gang.tasks.len() == 1;
    let counts =
        |task: &Option<TaskName>| is_sole || assumed.gang.tasks.iter().any(|own| Some(&own.name) == task.as_ref());
    let mut sum = Resources::new();
    by_task.iter().filter(|(task, _)| counts(task)).for_each(|(_, held)| sum.add(held));
    sum
}

/// Works out anew what is free beside assumed pods that are not seen, and which nodes may come for them.
pub(super) fn refresh_free_capacity(
    member: &mut FleetMember,
    name: &str,
    ignores_upcoming: bool,
    entries: Vec<(&str, &AssumedPods)>,
) {
    member.capacity = if member.down.is_some() { member.summary.clone() } else { member.inventory.capacity() };
    member.refresh_upcoming_nodes(ignores_upcoming);
    for (key, assumed) in entries {
        let Some(planned) = assumed.pods.get(name) else { continue };
        let seen = count_seen_pods(member, assumed);
        let unseen: Vec<u32> = planned.iter().zip(&seen).map(|(planned, seen)| planned.saturating_sub(*seen)).collect();
        if unseen.iter().any(|pods| *pods > 0) {
            member.subtract_unseen_pods(name, key, assumed, &unseen);
        }
    }
    member.join_upcoming_nodes();
}

/// Pods of each task that are on nodes, or were and are not followed by others.
pub(super) fn count_seen_pods(member: &FleetMember, assumed: &AssumedPods) -> Vec<u32> {
    count_seen_pods_by_task(member, assumed).into_iter().map(|seen| seen.bound + seen.finished).collect()
}

pub(super) fn count_seen_pods_by_task(member: &FleetMember, assumed: &AssumedPods) -> Vec<SeenPods> {
    let by_task = member.inventory.count_seen_pods(&assumed.workload);
    let is_replaced = assumed.replaces_finished_pods();
    let count = |seen: &SeenPods| if is_replaced { SeenPods { finished: 0, ..*seen } } else { *seen };
    let sum =
        |sum: SeenPods, one: SeenPods| SeenPods { bound: sum.bound + one.bound, finished: sum.finished + one.finished };
    let of = |task: &crate::gang::Task| match by_task.get(&Some(task.name.clone())) {
        Some(seen) => count(seen),
        // Kinds without tasks have one, whose name their pods do not carry.
        None if assumed.gang.tasks.len() == 1 => by_task.values().map(count).fold(SeenPods::default(), sum),
        None => SeenPods::default(),
    };
    assumed.gang.tasks.iter().map(of).collect()
}
