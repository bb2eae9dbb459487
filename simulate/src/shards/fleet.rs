//! The members' truth: which job's pods run on which node until when, and the leases.

use std::collections::BTreeMap;

use caldera_core::{
    gang::{ClusterName, QueueName},
    quantity::Quantity,
    queue::shard::{NodeName, lease::ClusterLeases},
    resources::{ResourceName, Resources},
    time::EpochSeconds,
};

use super::ShardedWorld;

/// So many cpus, as resources.
pub(super) fn cpus(amount: u64) -> Resources {
    let amount = Quantity::from_units(i64::try_from(amount).unwrap_or(i64::MAX));
    [(ResourceName::from(ResourceName::CPU), amount)].into_iter().collect()
}

/// Where a node is: its cluster and its number there.
pub(super) type NodePlace = (usize, usize);

/// A cluster's name.
pub(super) fn name_cluster(cluster: usize) -> ClusterName {
    format!("m{cluster}").into()
}

/// A job is where its workload says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShardedState {
    /// It has no pods: it has not come yet, or it waits.
    Waiting,
    /// Its pods run there until then.
    Running { since: i64, until: i64, pods: BTreeMap<NodePlace, u32> },
    /// It has ended.
    Ended,
}

/// See the module.
#[derive(Debug)]
pub(super) struct SharedFleet<'w> {
    pub(super) world: &'w ShardedWorld,
    pub(super) leases: Vec<ClusterLeases>,
    pub(super) jobs: Vec<ShardedState>,
    /// What each shard last said that its jobs ask for, and when.
    pub(super) demands: Vec<(Resources, i64)>,
    /// Cpus that are free on each node.
    pub(super) free: Vec<Vec<u32>>,
    names: Vec<Vec<NodeName>>,
}

impl<'w> SharedFleet<'w> {
    pub(super) fn new(world: &'w ShardedWorld) -> Self {
        Self {
            world,
            leases: vec![ClusterLeases::default(); world.clusters.len()],
            jobs: vec![ShardedState::Waiting; world.jobs.len()],
            demands: vec![(Resources::new(), i64::MIN); world.shards.len()],
            free: world.clusters.iter().map(|nodes| vec![world.node_cpus; *nodes]).collect(),
            names: (world.clusters.iter())
                .map(|nodes| (0..*nodes).map(|node| format!("n{node:04}").into()).collect())
                .collect(),
        }
    }

    /// Every node.
    pub(super) fn list_nodes(&self) -> impl Iterator<Item = NodePlace> + use<> {
        let sizes: Vec<usize> = self.world.clusters.clone();
        sizes.into_iter().enumerate().flat_map(|(cluster, nodes)| (0..nodes).map(move |node| (cluster, node)))
    }

    pub(super) fn name_of(&self, (cluster, node): NodePlace) -> &NodeName {
        &self.names[cluster][node]
    }

    pub(super) fn is_in_use(&self, (cluster, node): NodePlace) -> bool {
        self.free[cluster][node] < self.world.node_cpus
    }

    /// The jobs with pods on a node.
    pub(super) fn list_jobs_on(&self, node: NodePlace) -> impl Iterator<Item = usize> {
        let runs_there =
            move |state: &ShardedState| matches!(state, ShardedState::Running { pods, .. } if pods.contains_key(&node));
        (0..self.jobs.len()).filter(move |job| runs_there(&self.jobs[*job]))
    }

    pub(super) fn start_job(&mut self, job: usize, now: i64, pods: BTreeMap<NodePlace, u32>) {
        for ((cluster, node), count) in &pods {
            self.free[*cluster][*node] -= count * self.world.jobs[job].cpus;
        }
        self.jobs[job] = ShardedState::Running { since: now, until: now + self.world.jobs[job].run, pods };
    }

    /// Takes the pods of a job away.
    pub(super) fn stop_job(&mut self, job: usize, then: ShardedState) {
        if let ShardedState::Running { pods, .. } = std::mem::replace(&mut self.jobs[job], then) {
            for ((cluster, node), count) in pods {
                self.free[cluster][node] += count * self.world.jobs[job].cpus;
            }
        }
    }

    /// Those whose time has come have ended.
    pub(super) fn end_jobs(&mut self, now: i64) -> Vec<usize> {
        let is_over = |state: &ShardedState| matches!(state, ShardedState::Running { until, .. } if *until <= now);
        let over: Vec<usize> = (0..self.jobs.len()).filter(|job| is_over(&self.jobs[*job])).collect();
        over.iter().for_each(|job| self.stop_job(*job, ShardedState::Ended));
        over
    }

    /// Cpus that these jobs use.
    pub(super) fn sum_used(&self, jobs: &[usize]) -> u64 {
        let running = jobs.iter().filter(|job| matches!(self.jobs[**job], ShardedState::Running { .. }));
        running.map(|job| u64::from(self.world.jobs[*job].pods * self.world.jobs[*job].cpus)).sum()
    }

    /// Cpus that are used, and those that nobody uses though a job waits whose pod would fit on that node.
    pub(super) fn count_cpus(&self, now: i64) -> (u64, u64) {
        let waits = |job: &usize| self.jobs[*job] == ShardedState::Waiting && self.world.jobs[*job].arrival <= now;
        let smallest = (0..self.jobs.len()).filter(waits).map(|job| self.world.jobs[job].cpus).min();
        let all = self.free.iter().flatten();
        let used = all.clone().map(|free| u64::from(self.world.node_cpus - free)).sum();
        let idle = all.filter(|free| smallest.is_some_and(|cpus| cpus <= **free)).map(|free| u64::from(*free)).sum();
        (used, idle)
    }
}

/// What the rules promise, whoever is lost.
impl SharedFleet<'_> {
    pub(super) fn list_broken_promises(&self, now: i64) -> Vec<String> {
        let mut broken = self.list_shared_nodes(EpochSeconds::new(now));
        broken.extend(self.list_queues_over_capability());
        broken.iter_mut().for_each(|what| *what = format!("second {now}: {what}"));
        broken
    }

    /// A node runs pods of one shard alone, which is the one that holds its lease, if any does.
    fn list_shared_nodes(&self, now: EpochSeconds) -> Vec<String> {
        let mut shard_on: BTreeMap<NodePlace, usize> = BTreeMap::new();
        let mut broken = Vec::new();
        for (job, shard) in self.list_running() {
            let ShardedState::Running { pods, .. } = &self.jobs[job] else { continue };
            for node in pods.keys() {
                let first = *shard_on.entry(*node).or_insert(shard);
                let holder = self.leases[node.0].find_holder(self.name_of(*node), now);
                if first != shard {
                    broken.push(format!("shards {first} and {shard} on node {node:?}"));
                } else if holder.is_some_and(|holder| *holder != self.world.shards[shard][0].name) {
                    broken.push(format!("node {node:?} is leased to {holder:?}, with pods of shard {shard}"));
                }
            }
        }
        broken
    }

    /// Jobs that run, with their shards.
    fn list_running(&self) -> impl Iterator<Item = (usize, usize)> {
        let runs = |job: &usize| matches!(self.jobs[*job], ShardedState::Running { .. });
        let running = (0..self.jobs.len()).filter(runs);
        running.filter_map(|job| Some((job, self.world.find_shard(&self.world.jobs[job].queue)?)))
    }

    /// No queue has more than its capability, with all below it.
    fn list_queues_over_capability(&self) -> Vec<String> {
        let mut used: BTreeMap<&QueueName, i64> = BTreeMap::new();
        for (job, shard) in self.list_running() {
            let job = &self.world.jobs[job];
            let mut at = Some(&job.queue);
            while let Some(name) = at {
                *used.entry(name).or_default() += i64::from(job.pods * job.cpus);
                let spec = self.world.shards[shard].iter().find(|spec| spec.name == *name);
                at = spec.and_then(|spec| spec.parent.as_ref());
            }
        }
        let all = self.world.shards.iter().flatten();
        let most = all.filter_map(|spec| Some((&spec.name, spec.capability.get(ResourceName::CPU)?)));
        let over = most.filter_map(|(name, most)| Some((name, most, *used.get(name)?)));
        let over = over.filter(|(_, most, used)| Quantity::from_units(*used) > *most);
        over.map(|(name, most, used)| format!("queue {name} has {used} of {most}")).collect()
    }
}
