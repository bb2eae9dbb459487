//! Which tasks of a job want to be together and which apart, and how many pairs of pods are not as they want.
//!
//! Rule: Volcano's plugin `task-topology` (`pkg/scheduler/plugins/task-topology/manager.go`), with a cluster where it
//! has a node. A group of several tasks is about pods of different ones of them, a group of one task about its own
//! pods. Two affine pods in two clusters are a pair that is not met, and so are two anti-affine pods in one cluster. A
//! pair counts once for each group that names it.

use serde::{Deserialize, Serialize};

/// Groups of tasks, by their places in the gang.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskTopology {
    /// Together.
    pub affine: Vec<Vec<usize>>,
    /// Apart.
    pub anti_affine: Vec<Vec<usize>>,
}

impl TaskTopology {
    /// No wish.
    #[must_use]
    pub const fn none() -> Self {
        Self { affine: Vec::new(), anti_affine: Vec::new() }
    }

    /// Whether no task wants anything.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.affine.is_empty() && self.anti_affine.is_empty()
    }

    /// Pairs that are not met by so many pods of each task in each cluster.
    #[must_use]
    pub fn count_unmet(&self, clusters: &[Vec<u32>]) -> u64 {
        let pods_of = |pods: &Vec<u32>, task: usize| u64::from(pods.get(task).copied().unwrap_or_default());
        let together = |group: &Vec<usize>| {
            clusters.iter().map(|pods| count_pairs(group, |task| pods_of(pods, task))).fold(0, u64::saturating_add)
        };
        let all = |group: &Vec<usize>| {
            count_pairs(group, |task| clusters.iter().map(|pods| pods_of(pods, task)).fold(0, u64::saturating_add))
        };
        let cut = self.affine.iter().map(|group| all(group).saturating_sub(together(group)));
        cut.chain(self.anti_affine.iter().map(together)).fold(0, u64::saturating_add)
    }
}

/// Pairs among so many pods of a group's tasks: half of what the square of their sum is above the sum of their squares.
fn count_pairs(group: &[usize], pods: impl Fn(usize) -> u64) -> u64 {
    let pods = |task: &usize| u128::from(pods(*task));
    let pairs = match group {
        [own] => pods(own) * pods(own).saturating_sub(1) / 2,
        _ => {
            let sum: u128 = group.iter().map(pods).sum();
            sum.saturating_mul(sum).saturating_sub(group.iter().map(|task| pods(task) * pods(task)).sum()) / 2
        }
    };
    u64::try_from(pairs).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_group_of_one_task_is_about_its_own_pods_and_a_larger_one_about_pods_of_different_tasks() {
        let of = |affine: &[&[usize]], anti_affine: &[&[usize]]| TaskTopology {
            affine: affine.iter().map(|group| group.to_vec()).collect(),
            anti_affine: anti_affine.iter().map(|group| group.to_vec()).collect(),
        };
        // Two ps and eight workers: all ps here and all workers there cuts every pair.
        assert_eq!(of(&[&[0, 1]], &[]).count_unmet(&[vec![2, 0], vec![0, 8]]), 16);
        assert_eq!(of(&[&[0, 1]], &[]).count_unmet(&[vec![1, 4], vec![1, 4]]), 8);
        assert_eq!(of(&[&[0, 1]], &[]).count_unmet(&[vec![2, 8]]), 0);
        assert_eq!(of(&[&[0]], &[]).count_unmet(&[vec![2, 8], vec![1, 0]]), 2);
        assert_eq!(of(&[], &[&[0]]).count_unmet(&[vec![2, 8], vec![1, 0]]), 1);
        assert_eq!(of(&[], &[&[0, 1]]).count_unmet(&[vec![2, 0], vec![0, 8]]), 0);
    }

    fn any_groups() -> impl Strategy<Value = Vec<Vec<usize>>> {
        prop::collection::vec(prop::sample::subsequence(vec![0_usize, 1, 2], 1..=3), 0..3)
    }

    proptest! {
        #[test]
        fn pairs_that_are_not_met_are_those_that_counting_pod_by_pod_finds(
            affine in any_groups(), anti_affine in any_groups(),
            clusters in prop::collection::vec(prop::collection::vec(0..5_u32, 3), 1..4),
        ) {
            let mut pods: Vec<(usize, usize)> = Vec::new();
            for (cluster, tasks) in clusters.iter().enumerate() {
                for (task, count) in tasks.iter().enumerate() {
                    pods.extend(vec![(cluster, task); *count as usize]);
                }
            }
            let mut unmet = 0;
            for (at, (cluster, task)) in pods.iter().enumerate() {
                for (other_cluster, other) in &pods[..at] {
                    let named = |group: &&Vec<usize>| match group.as_slice() {
                        [own] => task == own && other == own,
                        _ => task != other && group.contains(task) && group.contains(other),
                    };
                    let groups = if cluster == other_cluster { &anti_affine } else { &affine };
                    unmet += groups.iter().filter(named).count() as u64;
                }
            }
            prop_assert_eq!(TaskTopology { affine, anti_affine }.count_unmet(&clusters), unmet);
        }
    }
}
