//! Bounds the memory that published parts take once they are decoded: a few words may stand for a hundred thousand
//! nodes with all their labels.
//!
//! Rule: the bytes of the decoded nodes and pods are estimated from the text alone, in one pass, before it is decoded.
//! A member whose parts exceed [`MOST_BYTES`] together is not read at all. No real member has so many nodes and pods,
//! and whoever writes an inventory is not trusted with the readers' memory.

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
/// What a node reports of its NUMA nodes beside its name.
const NUMA: usize = 192;

/// Checks what these parts stand for.
///
/// # Errors
/// [`Malformed::Bytes`] if it is too much; what else is wrong with a range.
pub(super) fn check_decoded_size<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Result<(), Malformed> {
    let mut sum = 0_usize;
    for part in parts {
        sum = sum.saturating_add(estimate_part_bytes(part)?);
        if sum > MOST_BYTES {
            return Err(Malformed::Bytes(MOST_BYTES));
        }
    }
    Ok(())
}

fn estimate_part_bytes(part: &Part) -> Result<usize, Malformed> {
    let (mut sum, mut longest) = (0_usize, 0);
    let mut add = |times: usize, each: usize| sum = sum.saturating_add(times.saturating_mul(each));
    for shape in &part.shapes {
        let names = ranges::measure_names(&shape.names)?;
        longest = longest.max(names.longest);
        // Its name is in a label too, and where it is known by.
        add(names.count, NODE + 3 * names.longest + estimate_node_bytes(shape));
        add(1, shape.own_labels.values().flatten().map(|value| value.len()).sum());
    }
    for held in &part.held {
        add(ranges::count_numbers(&held.nodes)?, POD + 2 * longest + estimate_amounts_bytes(&held.amounts));
    }
    for workload in &part.workloads {
        for bound in &workload.bound {
            let request = part.requests.get(bound.request as usize).map_or(0, estimate_amounts_bytes);
            let task = bound.task.as_ref().map_or(0, String::len);
            add(count_bound_pods(bound)?, POD + longest + estimate_owner_bytes(workload) + task + request);
        }
        for finished in &workload.finished {
            let task = finished.task.as_ref().map_or(0, String::len);
            add(finished.pods as usize, POD + estimate_owner_bytes(workload) + task);
        }
    }
    for report in &part.numa {
        add(ranges::count_numbers(&report.nodes)?, NUMA + longest);
    }
    for domain in &part.domains {
        let names = ranges::measure_names(&domain.nodes)?;
        add(names.count, ENTRY + names.longest);
    }
    Ok(sum)
}

fn estimate_node_bytes(shape: &NodeShape) -> usize {
    let pairs = |labels: &BTreeMap<String, String>| {
        labels.iter().map(|(key, value)| ENTRY + key.len() + value.len()).sum::<usize>()
    };
    let taint = |key: &str, value: Option<&String>| ENTRY + key.len() + value.map_or(0, String::len);
    pairs(&shape.labels)
        + shape.own_labels.keys().map(|key| ENTRY + key.len()).sum::<usize>()
        + shape.taints.iter().map(|one| taint(&one.key, one.value.as_ref()) + one.effect.len()).sum::<usize>()
        + estimate_amounts_bytes(&shape.allocatable)
}

fn estimate_amounts_bytes(amounts: &ResourceList) -> usize {
    amounts.keys().map(|name| ENTRY + name.len()).sum()
}

fn estimate_owner_bytes(workload: &Workload) -> usize {
    // Its namespace is with the pod and where it is known by.
    workload.group.len() + workload.kind.len() + 2 * workload.namespace.len() + workload.name.len()
}

/// Pods of a text such as `0:4-7 5*2`.
fn count_bound_pods(bound: &Bound) -> Result<usize, Malformed> {
    let malformed = || Malformed::Range(bound.on.clone());
    let mut sum = 0_usize;
    for place in bound.on.split(' ').filter(|place| !place.is_empty()) {
        let pods = match place.split_once([':', '*']).ok_or_else(malformed)? {
            (node, numbers) if place.as_bytes().get(node.len()) == Some(&b':') => ranges::count_numbers(numbers)?,
            (_, count) => count.parse().map_err(|_| malformed())?,
        };
        sum = sum.saturating_add(pods);
    }
    Ok(sum)
}
