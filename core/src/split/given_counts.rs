//! The plan of a gang whose pods somebody else has counted out to clusters, and who knows of no tasks: a stock
//! karmada-scheduler.
//!
//! Rule: each cluster gets exactly as many pods as it was given. What it has of each task it keeps, as far as its
//! number goes; of what is too much the last tasks' pods go first. The rest is filled up task by task in the order of
//! the job's spec, in whole partitions, in the clusters by name: so pods of a task are together. What may not be split,
//! or moved once it is there, is not: then there is no plan. A partitioned task is not resized in a copy that is there:
//! its member's Volcano refuses another `partitionPolicy` (`validateJobUpdate`).

use std::collections::BTreeMap;

use super::{minimums::divide_minimums, sum_pods};
use crate::{
    gang::{ClusterName, Gang, Task},
    plan::Plan,
    text::count_noun,
    webster::Tie,
};

/// Why counts make no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CountsRefusal {
    /// Not all of its pods, or more.
    #[error("its clusters were given {}, and the job has {wanted}", count_noun(*.given, "pod"))]
    Number {
        /// In all clusters.
        given: u64,
        /// Of the job.
        wanted: u64,
    },
    /// All pods must be in one cluster.
    #[error("it was divided over clusters and must be in one ({0}): its policy has to say so, by a spread constraint")]
    OneCluster(String),
    /// What is in its copies can not be changed.
    #[error("its copies say of the whole job what nobody can change: none of them may grow or shrink alone")]
    Rigid,
    /// A partition would be cut.
    #[error("the {} of cluster {cluster} can not be made of whole partitions", count_noun(*.pods, "pod"))]
    Partition {
        /// That it was given.
        pods: u32,
        /// Which.
        cluster: ClusterName,
    },
    /// A partitioned task would be resized in a copy that is there.
    #[error("its partitioned tasks can not be resized in cluster {0}, where they are")]
    PartitionedCopy(ClusterName),
}

/// The plan by which each cluster has as many pods as `counts` says, and `previous` is kept.
///
/// # Errors
/// [`CountsRefusal`]
pub fn plan_given_counts(
    gang: &Gang,
    counts: &BTreeMap<ClusterName, u32>,
    previous: Option<&Plan>,
) -> Result<Plan, CountsRefusal> {
    let given: u64 = counts.values().copied().map(u64::from).sum();
    let wanted = u64::from(gang.replicas());
    if given != wanted {
        return Err(CountsRefusal::Number { given, wanted });
    }
    let counts: BTreeMap<&ClusterName, u32> =
        counts.iter().filter(|(_, pods)| **pods > 0).map(|(name, pods)| (name, *pods)).collect();
    if let Some(reason) = find_one_cluster_reason(gang).filter(|_| counts.len() > 1) {
        return Err(CountsRefusal::OneCluster(reason));
    }
    let had = |name: &ClusterName| previous.and_then(|plan| plan.clusters.get(name));
    let moves = |(name, pods): (&&ClusterName, &u32)| had(name).map_or(0, |share| share.replicas()) != *pods;
    if gang.rigid && previous.is_some_and(|plan| plan.clusters.len() > 1) && counts.iter().any(moves) {
        return Err(CountsRefusal::Rigid);
    }
    let names: Vec<&ClusterName> = counts.keys().copied().collect();
    let pods_had = |name: &ClusterName, task: &Task| {
        had(name).and_then(|share| share.tasks.get(&task.name)).map_or(0, |share| share.replicas)
    };
    let is_frozen = |name: &ClusterName, task: &Task| task.partition.is_some() && had(name).is_some();
    let mut pods: Vec<Vec<u32>> =
        names.iter().map(|name| gang.tasks.iter().map(|task| pods_had(name, task)).collect()).collect();
    for (index, task) in gang.tasks.iter().enumerate() {
        let mut left = task.replicas;
        for site in &mut pods {
            site[index] = whole_partitions(task, site[index].min(left));
            left -= site[index];
        }
    }
    for ((site, most), name) in pods.iter_mut().zip(counts.values()).zip(&names) {
        for (index, task) in gang.tasks.iter().enumerate().rev().filter(|(_, task)| !is_frozen(name, task)) {
            let beyond = sum_pods(site).saturating_sub(u64::from(*most));
            let goes = u32::try_from(beyond).unwrap_or(u32::MAX).next_multiple_of(task.partition_size());
            site[index] -= goes.min(site[index]);
        }
    }
    for (index, task) in gang.tasks.iter().enumerate() {
        let there: u32 = pods.iter().map(|site| site[index]).sum();
        let mut left = task.replicas - there;
        let sites = pods.iter_mut().zip(counts.values()).zip(&names);
        for ((site, most), _) in sites.filter(|(_, name)| !is_frozen(name, task)) {
            let more_pods = u64::from(*most).saturating_sub(sum_pods(site));
            let more = whole_partitions(task, left.min(u32::try_from(more_pods).unwrap_or(u32::MAX)));
            site[index] += more;
            left -= more;
        }
    }
    for ((name, most), site) in names.iter().zip(counts.values()).zip(&pods) {
        let mut frozen = gang.tasks.iter().zip(site).filter(|(task, _)| is_frozen(name, task));
        let differs = sum_pods(site) != u64::from(*most);
        if frozen.any(|(task, pods)| differs || *pods != pods_had(name, task)) {
            return Err(CountsRefusal::PartitionedCopy((*name).clone()));
        }
        if differs {
            return Err(CountsRefusal::Partition { pods: *most, cluster: (*name).clone() });
        }
    }
    Ok(divide_minimums(gang, &names, &pods, previous, Tie::default()))
}

fn whole_partitions(task: &Task, pods: u32) -> u32 {
    pods / task.partition_size() * task.partition_size()
}

/// Nobody chooses a domain for it: its member does, where all of it is there.
fn find_one_cluster_reason(gang: &Gang) -> Option<String> {
    let is_hard = gang.topology.as_ref().is_some_and(|topology| topology.hard) || gang.has_close_partitions();
    gang.one_cluster.clone().or_else(|| is_hard.then(|| "its networkTopology is hard".to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        gang::{Partition, Topology},
        split::tests::{gang, task},
    };

    fn counts(all: &[(&str, u32)]) -> BTreeMap<ClusterName, u32> {
        all.iter().map(|(name, pods)| ((*name).into(), *pods)).collect()
    }

    /// Pods by cluster and task, in the order of the alphabet.
    fn pods(plan: &Plan) -> Vec<Vec<u32>> {
        plan.clusters.values().map(|share| share.tasks.values().map(|task| task.replicas).collect()).collect()
    }

    #[test]
    fn tasks_are_kept_together_in_the_order_of_the_job() {
        let job = gang(vec![task("ps", 2, 2, 1, 0), task("worker", 5, 1, 1, 0)], 3);
        let plan = plan_given_counts(&job, &counts(&[("m1", 3), ("m2", 4), ("m3", 0)]), None).unwrap();
        assert_eq!(pods(&plan), [[2, 1], [0, 4]]);
        let minimums: Vec<u32> = plan.clusters.values().map(|share| share.min_available).collect();
        assert_eq!(minimums.iter().sum::<u32>(), 3);
    }

    #[test]
    fn what_is_there_stays_and_the_last_tasks_go_first() {
        let job = |workers| gang(vec![task("ps", 2, 2, 1, 0), task("worker", workers, 1, 1, 0)], 3);
        let before = plan_given_counts(&job(5), &counts(&[("m1", 3), ("m2", 4)]), None).unwrap();
        let more = plan_given_counts(&job(7), &counts(&[("m0", 1), ("m1", 4), ("m2", 4)]), Some(&before)).unwrap();
        assert_eq!(pods(&more), [[0, 1], [2, 2], [0, 4]]);
        let less = plan_given_counts(&job(2), &counts(&[("m1", 2), ("m2", 2)]), Some(&before)).unwrap();
        assert_eq!(pods(&less), [[2, 0], [0, 2]]);
    }

    #[test]
    fn what_may_not_be_split_is_refused_in_words() {
        let refuse =
            |job: &Gang, all: &[(&str, u32)]| plan_given_counts(job, &counts(all), None).unwrap_err().to_string();
        let mut job = gang(vec![task("w", 4, 4, 1, 0)], 4);
        assert_eq!(refuse(&job, &[("m1", 3)]), "its clusters were given 3 pods, and the job has 4");
        job.one_cluster = Some("plugin pytorch".into());
        assert!(refuse(&job, &[("m1", 3), ("m2", 1)]).contains("must be in one (plugin pytorch)"));
        assert!(plan_given_counts(&job, &counts(&[("m1", 4), ("m2", 0)]), None).is_ok());
        job.one_cluster = None;
        job.topology = Some(Topology { hard: true, highest_tier: Some(1), highest_tier_name: None });
        assert!(refuse(&job, &[("m1", 3), ("m2", 1)]).contains("networkTopology is hard"));
        let mut parts = gang(vec![task("w", 4, 4, 1, 0)], 4);
        parts.tasks[0].partition = Some(Partition { total: 2, size: 2, min: 2, topology: None });
        assert!(refuse(&parts, &[("m1", 3), ("m2", 1)]).contains("the 3 pods of cluster m1"));
        assert!(plan_given_counts(&parts, &counts(&[("m1", 2), ("m2", 2)]), None).is_ok());
    }

    #[test]
    fn a_job_whose_copies_can_not_be_changed_stays_as_it_is() {
        let mut job = gang(vec![task("w", 4, 4, 1, 0)], 4);
        job.rigid = true;
        let before = plan_given_counts(&job, &counts(&[("m1", 3), ("m2", 1)]), None).unwrap();
        let moved = plan_given_counts(&job, &counts(&[("m1", 2), ("m2", 2)]), Some(&before));
        assert_eq!(moved, Err(CountsRefusal::Rigid));
        assert_eq!(plan_given_counts(&job, &counts(&[("m1", 3), ("m2", 1)]), Some(&before)), Ok(before.clone()));
    }

    #[test]
    fn a_partitioned_task_of_a_copy_that_is_there_is_not_resized() {
        let mut parts = task("parts", 4, 4, 1, 0);
        parts.partition = Some(Partition { total: 2, size: 2, min: 2, topology: None });
        let job = gang(vec![parts.clone()], 4);
        let before = plan_given_counts(&job, &counts(&[("m1", 4)]), None).unwrap();
        let moved = plan_given_counts(&job, &counts(&[("m1", 2), ("m2", 2)]), Some(&before));
        assert_eq!(moved, Err(CountsRefusal::PartitionedCopy("m1".into())));
        // A copy that goes takes all its partitions along.
        let moved = plan_given_counts(&job, &counts(&[("m2", 2), ("m3", 2)]), Some(&before)).unwrap();
        assert_eq!(pods(&moved), [[2], [2]]);
        let grown = plan_given_counts(&job, &counts(&[("m2", 4)]), Some(&moved));
        assert_eq!(grown, Err(CountsRefusal::PartitionedCopy("m2".into())));
        // Pods of other tasks go first.
        let job = gang(vec![task("a", 2, 2, 1, 0), parts], 6);
        let before = plan_given_counts(&job, &counts(&[("m1", 6)]), None).unwrap();
        let moved = plan_given_counts(&job, &counts(&[("m1", 5), ("m2", 1)]), Some(&before)).unwrap();
        assert_eq!(pods(&moved), [[1, 4], [1, 0]]);
        // Nor where the task itself has fewer.
        let mut fewer = job.clone();
        (fewer.tasks[1].replicas, fewer.tasks[1].min_available) = (2, 2);
        let shrunk = plan_given_counts(&fewer, &counts(&[("m1", 4)]), Some(&before));
        assert_eq!(shrunk, Err(CountsRefusal::PartitionedCopy("m1".into())));
    }

    proptest! {
        #[test]
        fn every_cluster_has_what_it_was_given_and_every_task_all_its_pods(
            tasks in proptest::collection::vec((0_u32..6, 0_u32..6), 1..4),
            cuts in proptest::collection::vec(0_u32..20, 0..3),
            again in proptest::collection::vec(0_u32..20, 0..3),
        ) {
            let name = |index: usize| format!("t{index}");
            let all = tasks.iter().enumerate();
            let tasks: Vec<Task> =
                all.map(|(index, (pods, least))| task(&name(index), *pods, (*least).min(*pods), 1, 0)).collect();
            let total: u32 = tasks.iter().map(|task| task.replicas).sum();
            prop_assume!(total > 0);
            let least = total.min(3);
            let job = gang(tasks, least);
            let deal = |cuts: &[u32]| {
                let mut left = total;
                let mut cut_off = |most: &u32| {
                    let part = (*most).min(left);
                    left -= part;
                    part
                };
                let mut all: Vec<u32> = cuts.iter().map(&mut cut_off).collect();
                all.push(left);
                all.into_iter().enumerate().map(|(site, pods)| (format!("m{site}").as_str().into(), pods)).collect()
            };
            let (first, second): (BTreeMap<ClusterName, u32>, BTreeMap<ClusterName, u32>) = (deal(&cuts), deal(&again));
            let before = plan_given_counts(&job, &first, None).unwrap();
            for (counts, previous) in [(&first, None), (&second, Some(&before))] {
                let plan = plan_given_counts(&job, counts, previous).unwrap();
                for (cluster, pods) in counts {
                    prop_assert_eq!(plan.clusters.get(cluster).map_or(0, |share| share.replicas()), *pods);
                }
                for task in &job.tasks {
                    let of_task = plan.clusters.values().map(|share| share.tasks[&task.name].replicas);
                    prop_assert_eq!(of_task.sum::<u32>(), task.replicas);
                }
            }
            prop_assert_eq!(plan_given_counts(&job, &first, Some(&before)).unwrap(), before);
        }
    }
}
