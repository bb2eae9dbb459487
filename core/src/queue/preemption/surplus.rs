//! Pods that a gang can spare: those beyond its minimum, and the clusters that they are in.
//!
//! Rule: the safe bundle of Volcano's gang actions (`pkg/scheduler/actions/utils/bundle.go`): pods of the least
//! important tasks first, while the job keeps `minAvailable` and each task its own minimum. Which pods go is what the
//! scheduler does with a gang that may have less ([`crate::split::scale_down`]). A task with partitions spares none: a
//! member's Volcano lets nobody resize it (`admit_job.go`).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    gang::{ClusterName, TaskName},
    resources::Resources,
    split::{self, Strategy},
    webster::Tie,
};

/// A gang that is placed, as far as it can shrink. A gang that is placed in copies, or of which pods have finished, is
/// not given: which pods would go is not ours to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElasticGang {
    /// In the order of the job.
    pub tasks: Vec<PlacedTask>,
    /// Pods that it needs.
    pub min_available: u32,
    /// How it was divided.
    pub strategy: Strategy,
    /// Which of two equal clusters wins.
    pub tie: Tie,
}

/// One task's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedTask {
    /// Task.
    pub name: TaskName,
    /// What one pod asks for.
    pub request: Resources,
    /// Of its pods; lower ones go first.
    pub priority: i32,
    /// Pods that the task needs, where that counts ([`crate::gang::Gang::enforces_task_minimums`]), else 0.
    pub min: u32,
    /// It has partitions: all of its pods stay.
    pub fixed: bool,
    /// Where they are.
    pub placed: BTreeMap<ClusterName, u32>,
}

/// Pods to go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovedSurplus {
    /// By task; tasks that lose none are absent.
    pub tasks: BTreeMap<TaskName, u32>,
    /// By cluster and task: where the scheduler takes them.
    pub clusters: BTreeMap<ClusterName, BTreeMap<TaskName, u32>>,
}

/// Pods of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PodRun {
    task: usize,
    pods: u32,
}

/// What can be taken of an [`ElasticGang`] gang, one pod after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surplus {
    runs: Vec<PodRun>,
}

impl Surplus {
    pub(crate) fn from_gang(gang: &ElasticGang) -> Self {
        let placed = |task: &PlacedTask| task.placed.values().fold(0_u32, |sum, pods| sum.saturating_add(*pods));
        let all = gang.tasks.iter().fold(0_u32, |sum, task| sum.saturating_add(placed(task)));
        let mut spare = all.saturating_sub(gang.min_available);
        // The reverse of the order in which pods count as the minimum (`crate::podgroup`).
        let mut order: Vec<usize> = (0..gang.tasks.len()).rev().collect();
        order.sort_by_key(|task| gang.tasks[*task].priority);
        let mut runs = Vec::new();
        for task in order {
            let held = &gang.tasks[task];
            let pods = placed(held).saturating_sub(held.min).min(spare);
            if pods > 0 && !held.fixed {
                runs.push(PodRun { task, pods });
                spare -= pods;
            }
        }
        Self { runs }
    }

    /// What one pod frees, and how many such pods there are, in the order in which they go.
    pub(crate) fn list_removal_steps(&self, gang: &ElasticGang) -> Vec<(Resources, u32)> {
        self.runs.iter().map(|run| (gang.tasks[run.task].request.clone(), run.pods)).collect()
    }

    /// The first so many pods, by task.
    fn pods_by_task(&self, tasks: usize, mut first: u32) -> Vec<u32> {
        let mut pods = vec![0; tasks];
        for run in &self.runs {
            let here = run.pods.min(first);
            pods[run.task] += here;
            first -= here;
        }
        pods
    }

    /// What the first so many pods free.
    pub(crate) fn freed_resources(&self, gang: &ElasticGang, first: u32) -> Resources {
        let mut frees = Resources::new();
        for (task, pods) in gang.tasks.iter().zip(self.pods_by_task(gang.tasks.len(), first)) {
            frees.add(&task.request.times(u64::from(pods)));
        }
        frees
    }

    /// Which tasks' the first so many pods are, and where they are.
    pub(crate) fn removed_pods(&self, gang: &ElasticGang, first: u32) -> RemovedSurplus {
        let pods = self.pods_by_task(gang.tasks.len(), first);
        let names: BTreeSet<&ClusterName> = gang.tasks.iter().flat_map(|task| task.placed.keys()).collect();
        let names: Vec<&ClusterName> = names.into_iter().collect();
        let at = |name: &ClusterName| -> Vec<u32> {
            gang.tasks.iter().map(|task| task.placed.get(name).copied().unwrap_or(0)).collect()
        };
        let before: Vec<Vec<u32>> = names.iter().map(|name| at(name)).collect();
        let held = |task: usize| before.iter().map(|site| site[task]).fold(0, u32::saturating_add);
        let wanted: Vec<u32> = pods.iter().enumerate().map(|(task, less)| held(task).saturating_sub(*less)).collect();
        let mut after = before.clone();
        split::scale_down(gang.strategy, gang.tie, &names, &wanted, &mut after);
        let mut less = RemovedSurplus::default();
        for (task, pods) in gang.tasks.iter().zip(&pods).filter(|(_, pods)| **pods > 0) {
            less.tasks.insert(task.name.clone(), *pods);
        }
        for (site, name) in names.into_iter().enumerate() {
            for (task, held) in gang.tasks.iter().enumerate() {
                let gone = before[site][task].saturating_sub(after[site][task]);
                if gone > 0 {
                    less.clusters.entry(name.clone()).or_default().insert(held.name.clone(), gone);
                }
            }
        }
        less
    }
}
