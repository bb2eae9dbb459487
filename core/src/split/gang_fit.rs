//! How many of a gang's pods fit one capacity, and how many are enough.
//!
//! Rule: the gang's minimum counts, and each task's own where the job's is their sum at least. Of a partition all pods
//! count or none.

use std::cell::Cell;

use super::{PACKING_STEPS, exact_packing, node_scope::NodeScope, packing::GangRequests, sum_pods};
use crate::{
    gang::{Gang, Task},
    inventory::Capacity,
};

/// How many pods fit a capacity: of the task for a gang of one, of the whole gang else, by the best of several orders.
#[must_use]
pub fn count_pods_that_fit(gang: &Gang, capacity: &Capacity) -> u64 {
    let requests = GangRequests::with_topology(gang, &[]);
    let free_nodes = requests.free_nodes(capacity, NodeScope::Cluster);
    if requests.count_tasks() == 1 {
        return free_nodes.max_pods(&requests, 0);
    }
    let whole: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
    let wanted = sum_pods(&whole);
    let mut most = 0;
    for order in requests.list_task_orders(&[&free_nodes]) {
        most = most.max(sum_pods(&free_nodes.clone().fill_in_order(&requests, &whole, &order)));
        if most == wanted {
            break;
        }
    }
    most
}

/// Whether a whole gang fits a capacity: by some order, or (a few pods on a few nodes) by trying.
#[must_use]
pub fn gang_fits(gang: &Gang, capacity: &Capacity) -> bool {
    let requests = GangRequests::new(gang);
    let whole: Vec<u32> = gang.tasks.iter().map(|task| task.replicas).collect();
    count_pods_that_fit(gang, capacity) >= sum_pods(&whole)
        || exact_packing::pack_pods(
            &requests,
            &requests.free_nodes(capacity, NodeScope::Cluster),
            &whole,
            &Cell::new(PACKING_STEPS),
        )
        .is_some()
}

/// How many pods of each task find a place in a capacity, each task alone.
#[must_use]
pub fn most_of_each_task(gang: &Gang, capacity: &Capacity) -> Vec<u64> {
    let requests = GangRequests::new(gang);
    let free_nodes = requests.free_nodes(capacity, NodeScope::Cluster);
    (0..requests.count_tasks()).map(|task| free_nodes.max_pods(&requests, task)).collect()
}

/// False only if so many pods of each task can not be the gang's minimum.
#[must_use]
pub fn might_hold_minimum(gang: &Gang, most: &[u64]) -> bool {
    let all = gang.tasks.iter().zip(most).map(|(task, most)| u64::from(task.replicas).min(*most));
    task_minimums(gang).iter().zip(most).all(|(need, most)| u64::from(*need) <= *most)
        && all.fold(0, u64::saturating_add) >= minimum_pods(gang)
}

/// Each task's own minimum, where it counts.
pub(super) fn task_minimums(gang: &Gang) -> Vec<u32> {
    let binds = gang.enforces_task_minimums();
    let need = |task: &Task| {
        let least = if binds { task.min_available.min(task.replicas) } else { 0 };
        // A partition is placed whole.
        least.next_multiple_of(task.partition_size())
    };
    gang.tasks.iter().map(need).collect()
}

/// Pods that must be placed in all.
pub(super) fn minimum_pods(gang: &Gang) -> u64 {
    u64::from(gang.min_available.min(gang.replicas())).max(sum_pods(&task_minimums(gang))).max(1)
}
