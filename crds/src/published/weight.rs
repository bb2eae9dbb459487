//! How much a part stands for, before it is unfolded: a few words may name a hundred thousand nodes with all their
//! labels.
//!
//! Rule: bytes that nodes and pods will take are counted from the text alone, in one pass and about as memory holds
//! them. A member that stands for more than [`MOST_BYTES`] is not read at all: no member has so many nodes and pods,
//! and whoever writes its inventory is not trusted with the readers' memory.

use std::collections::BTreeMap;

use super::{Bound, Malformed, NodeShape, Part, Workload, ranges};
use crate::wire::ResourceList;

/// Bytes that all parts of a member may stand for.
const MOST_BYTES: usize = 256 << 20;
/// A node, and an entry of one of its maps, beside their texts.
const NODE: usize = 400;
const ENTRY: usize = 64;
/// A pod beside its texts; it is kept by its name too.
const POD: usize = 400;

/// Checks what these parts stand for.
///
/// # Errors
/// [`Malformed::Bytes`] if it is too much; what else is wrong with a range.
pub(super) fn check_weight<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Result<(), Malformed> {
    let mut sum = 0_usize;
    for part in parts {
        sum = sum.saturating_add(weigh_part(part)?);
        if sum > MOST_BYTES {
            return Err(Malformed::Bytes(MOST_BYTES));
        }
    }
    Ok(())
}

fn weigh_part(part: &Part) -> Result<usize, Malformed> {
    let (mut sum, mut longest) = (0_usize, 0);
    let mut add = |times: usize, each: usize| sum = sum.saturating_add(times.saturating_mul(each));
    for shape in &part.shapes {
        let names = ranges::measure_names(&shape.names)?;
        longest = longest.max(names.longest);
        // Its name is in a label too, and where it is known by.
        add(names.count, NODE + 3 * names.longest + weigh_node(shape));
        add(1, shape.own_labels.values().flatten().map(|value| value.len()).sum());
    }
    for held in &part.held {
        add(ranges::count_ranges(&held.nodes)?, POD + 2 * longest + weigh_amounts(&held.amounts));
    }
    for workload in &part.workloads {
        for bound in &workload.bound {
            let request = part.requests.get(bound.request as usize).map_or(0, weigh_amounts);
            let task = bound.task.as_ref().map_or(0, String::len);
            add(count_bound(bound)?, POD + longest + weigh_owner(workload) + task + request);
        }
        for finished in &workload.finished {
            let task = finished.task.as_ref().map_or(0, String::len);
            add(finished.pods as usize, POD + weigh_owner(workload) + task);
        }
    }
    for domain in &part.domains {
        let names = ranges::measure_names(&domain.nodes)?;
        add(names.count, ENTRY + names.longest);
    }
    Ok(sum)
}

fn weigh_node(shape: &NodeShape) -> usize {
    let pairs = |labels: &BTreeMap<String, String>| {
        labels.iter().map(|(key, value)| ENTRY + key.len() + value.len()).sum::<usize>()
    };
    let taint = |key: &str, value: Option<&String>| ENTRY + key.len() + value.map_or(0, String::len);
    pairs(&shape.labels)
        + shape.own_labels.keys().map(|key| ENTRY + key.len()).sum::<usize>()
        + shape.taints.iter().map(|one| taint(&one.key, one.value.as_ref()) + one.effect.len()).sum::<usize>()
        + weigh_amounts(&shape.allocatable)
}

fn weigh_amounts(amounts: &ResourceList) -> usize {
    amounts.keys().map(|name| ENTRY + name.len()).sum()
}

fn weigh_owner(workload: &Workload) -> usize {
    // Its namespace is with the pod and where it is known by.
    workload.group.len() + workload.kind.len() + 2 * workload.namespace.len() + workload.name.len()
}

/// Pods of a text such as `0:4-7 5*2`.
fn count_bound(bound: &Bound) -> Result<usize, Malformed> {
    let malformed = || Malformed::Range(bound.on.clone());
    let mut sum = 0_usize;
    for place in bound.on.split(' ').filter(|place| !place.is_empty()) {
        let pods = match place.split_once([':', '*']).ok_or_else(malformed)? {
            (node, numbers) if place.as_bytes().get(node.len()) == Some(&b':') => ranges::count_ranges(numbers)?,
            (_, count) => count.parse().map_err(|_| malformed())?,
        };
        sum = sum.saturating_add(pods);
    }
    Ok(sum)
}
