//! What a gang's PodGroup says: how many pods must start together, of which tasks, and what they ask for.
//!
//! Rule: Volcano's job controller, `createOrUpdatePodGroup` and `calcPGMinResources`
//! (`pkg/controllers/job/job_controller_actions.go:796-968`, `job_controller_util.go:337-404`). Where the job's minimum
//! is below the sum of its tasks' minimums, those do not count: the first `minAvailable` pods are taken, tasks with the
//! more important pods first. Otherwise each task's minimum is taken first, then what remains.

use std::collections::BTreeMap;

use crate::{
    gang::{Gang, TaskName},
    resources::Resources,
};

/// The part of a PodGroup's spec that follows from the gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodGroupMinimum {
    /// `spec.minMember`.
    pub min_member: u32,
    /// `spec.minTaskMember`.
    pub min_task_member: BTreeMap<TaskName, u32>,
    /// `spec.minResources`.
    pub min_resources: Resources,
    /// Pods of each task within the minimum, in the order of the gang's tasks.
    pub pods: Vec<u32>,
}

/// The minimum of a gang; `priority_of_class` gives a PriorityClass's value (0 where there is none).
pub fn compute_pod_group_minimum(gang: &Gang, priority_of_class: impl Fn(&str) -> i32) -> PodGroupMinimum {
    let pods = count_pods_within_minimum(gang, priority_of_class);
    let mut min_resources = Resources::new();
    for (task, count) in gang.tasks.iter().zip(&pods) {
        min_resources.add(&task.request.times(u64::from(*count)));
    }
    PodGroupMinimum {
        min_member: gang.min_available,
        min_task_member: gang.tasks.iter().map(|task| (task.name.clone(), task.min_available)).collect(),
        min_resources,
        pods,
    }
}

fn count_pods_within_minimum(gang: &Gang, priority_of_class: impl Fn(&str) -> i32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..gang.tasks.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(priority_of_class(&gang.tasks[*i].priority_class)));
    let mut pods = vec![0; gang.tasks.len()];
    let mut left = gang.min_available;
    if gang.enforces_task_minimums() {
        for &i in &order {
            pods[i] = gang.tasks[i].min_available.min(left);
            left -= pods[i];
        }
    }
    for &i in &order {
        let more = gang.tasks[i].replicas.saturating_sub(pods[i]).min(left);
        pods[i] += more;
        left -= more;
    }
    pods
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gang::{NodeClaim, Task},
        quantity::Quantity,
    };

    fn task(name: &str, replicas: u32, min_available: u32, cpu: i64, class: &str) -> Task {
        Task {
            name: name.into(),
            replicas,
            min_available,
            request: [("cpu", Quantity::from_units(cpu)), ("pods", Quantity::from_units(1))].into_iter().collect(),
            node: NodeClaim::default(),
            priority_class: class.into(),
            partition: None,
        }
    }

    fn gang(min_available: u32, tasks: Vec<Task>) -> Gang {
        Gang::new(tasks, min_available)
    }

    fn class(name: &str) -> i32 {
        if name == "high" { 10 } else { 0 }
    }

    #[test]
    fn a_minimum_below_the_tasks_minimums_takes_the_first_pods_by_priority() {
        let gang = gang(5, vec![task("a", 4, 4, 1, ""), task("b", 4, 4, 10, "high")]);
        let minimum = compute_pod_group_minimum(&gang, class);
        assert_eq!(minimum.pods, [1, 4]);
        assert_eq!(minimum.min_resources.get("cpu"), Quantity::from_units(41));
        assert_eq!(minimum.min_member, 5);
    }

    #[test]
    fn task_minimums_are_taken_first_then_the_rest_in_order() {
        let gang = gang(6, vec![task("a", 4, 1, 1, ""), task("b", 4, 2, 10, "high")]);
        let minimum = compute_pod_group_minimum(&gang, class);
        // 1 + 2, and the remaining three from b (two left) then a.
        assert_eq!(minimum.pods, [2, 4]);
        assert_eq!(minimum.min_resources.get("pods"), Quantity::from_units(6));
        assert_eq!(minimum.min_task_member, [("a".into(), 1), ("b".into(), 2)].into());
    }

    #[test]
    fn all_tasks_count_not_only_one() {
        let gang = gang(513, vec![task("launcher", 1, 1, 1, ""), task("worker", 512, 512, 8, "")]);
        assert_eq!(compute_pod_group_minimum(&gang, class).min_resources.get("cpu"), Quantity::from_units(1 + 512 * 8));
    }

    #[test]
    fn a_minimum_above_all_replicas_takes_all_there_are() {
        let gang = gang(9, vec![task("a", 4, 4, 1, "")]);
        assert_eq!(compute_pod_group_minimum(&gang, class).pods, [4]);
    }
}
