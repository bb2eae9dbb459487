//! volcano-global 0.3 as published: its dispatcher, then karmada-scheduler, then each member's Volcano.
//!
//! Dispatcher (`pkg/dispatcher`): once a second; queues by priority, age, name, round robin, one job a turn; a job is
//! let go if its queue's own sum stays within `min(all clusters' allocatable, capability)`, without looking at other
//! queues, parents, or where it would fit. A job is charged its *first* task alone (what its resource interpreter
//! says). karmada-scheduler: divides the first task's replicas by the clusters' resource summaries, blind to nodes; the
//! other tasks go whole to every cluster that got replicas; what does not fit the sums is tried again after five
//! minutes, when a flusher passes every thirty seconds. Member: a part that does not fit its nodes waits there, and its
//! queue stays charged.
//!
//! In its favour: finished jobs are deleted at once (it charges them until somebody does), summaries are never stale,
//! members accept the parts' minimums (the webhook refuses most), patches take no time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use caldera_core::{
    gang::{Gang, QueueName},
    inventory::Capacity,
    place::{self, Cluster},
    plan::PinnedDomains,
    quantity::Quantity,
    resources::{Limits, ResourceName, Resources},
};

use super::Policy;
use crate::{
    members::Part,
    site::Site,
    time::Millis,
    world::{Job, World},
};

/// `--dispatch-period`.
const TICK: Millis = Millis(1_000);
/// How long karmada-scheduler leaves what it could not place, and how often it looks for such.
const UNSCHEDULABLE: Millis = Millis(300_000);
const FLUSH: Millis = Millis(30_000);

#[derive(Debug, Default)]
struct Queue {
    capability: Limits,
    allocated: Resources,
    /// Suspended bindings, in order.
    line: BTreeSet<(Reverse<i32>, u64, usize)>,
}

#[derive(Debug, Clone, Copy)]
struct Unplaced {
    job: usize,
    /// When karmada-scheduler tries next.
    at: Millis,
    /// [`VolcanoGlobal::returns`] when it last tried.
    tried: Option<u64>,
}

impl Unplaced {
    /// Passes over the tries before `now` that would have failed as the last one did.
    fn skip_failed_tries(&mut self, now: Millis) {
        while self.tried.is_some() && self.at < now {
            self.at = next_flush_after(self.at);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct VolcanoGlobal {
    /// In the dispatcher's order.
    queues: Vec<Queue>,
    index: BTreeMap<QueueName, usize>,
    total: Resources,
    /// Let go and not placed, in the order of trying.
    released: VecDeque<Unplaced>,
    /// How often something was given back: between two of those karmada-scheduler's answer stays the same.
    returns: u64,
    /// Something changed since the last tick: without, a tick decides the same again.
    changed: bool,
}

impl VolcanoGlobal {
    /// With the world's queues; those of one priority in the order in which they are written (as if created so).
    #[must_use]
    pub fn new(world: &World) -> Self {
        let mut order: Vec<usize> = (0..world.queues.len()).collect();
        order.sort_by_key(|i| Reverse(world.queues[*i].priority));
        let queue = |i: &usize| Queue { capability: world.queues[*i].capability.clone(), ..Queue::default() };
        Self {
            queues: order.iter().map(queue).collect(),
            index: order.iter().enumerate().map(|(place, i)| (world.queues[*i].name.clone(), place)).collect(),
            total: world.total(),
            released: VecDeque::new(),
            returns: 0,
            changed: false,
        }
    }

    fn queue(&mut self, job: &Job) -> Option<&mut Queue> {
        self.index.get(&job.queue).map(|place| &mut self.queues[*place])
    }

    /// One run of the dispatcher.
    fn dispatch(&mut self, site: &Site<'_>) {
        let mut lines: Vec<Vec<usize>> =
            self.queues.iter().map(|queue| queue.line.iter().rev().map(|(_, _, job)| *job).collect()).collect();
        let mut turn: VecDeque<usize> = (0..lines.len()).filter(|queue| !lines[*queue].is_empty()).collect();
        while let Some(place) = turn.pop_front() {
            let Some(index) = lines[place].pop() else { continue };
            let (job, queue) = (site.job(index), &mut self.queues[place]);
            let asked = charge(job);
            if asked.iter().all(|(name, asked)| is_within_capability(queue, &self.total, name, asked)) {
                queue.allocated.add(&asked);
                queue.line.remove(&key(index, job));
                self.released.push_back(Unplaced { job: index, at: site.now(), tried: None });
            }
            if !lines[place].is_empty() {
                turn.push_back(place);
            }
        }
    }

    /// karmada-scheduler, for what was let go.
    fn schedule(&mut self, site: &mut Site<'_>) {
        let now = site.now();
        if site.take_growth().is_some() {
            self.released.iter_mut().for_each(|one| one.skip_failed_tries(now));
            self.returns += 1;
        }
        for _ in 0..self.released.len() {
            let Some(one) = self.released.pop_front() else { return };
            if one.at > now || one.tried == Some(self.returns) {
                self.released.push_back(one);
                continue;
            }
            match divide_by_summaries(site, one.job) {
                Some(parts) => site.send_job(one.job, parts),
                None => {
                    self.released.push_back(Unplaced { at: next_flush_after(now), tried: Some(self.returns), ..one });
                }
            }
        }
    }
}

impl Policy for VolcanoGlobal {
    fn arrived(&mut self, site: &mut Site<'_>, job: usize) {
        let of = site.job(job);
        if let Some(queue) = self.queue(of) {
            queue.line.insert(key(job, of));
        }
        self.changed = true;
    }

    fn resumed(&mut self, site: &mut Site<'_>, job: usize) {
        let of = site.job(job);
        if let Some(queue) = self.queue(of) {
            queue.allocated.add(&charge(of));
        }
    }

    fn ended(&mut self, site: &mut Site<'_>, job: usize) {
        let of = site.job(job);
        if let Some(queue) = self.queue(of) {
            queue.allocated.saturating_sub(&charge(of));
        }
        self.changed = true;
    }

    fn decide(&mut self, site: &mut Site<'_>) {
        if self.changed && site.now().up_to(TICK) == site.now() {
            self.changed = false;
            self.dispatch(site);
        }
        self.schedule(site);
    }

    fn due(&self, now: Millis) -> Option<Millis> {
        let tick = self.changed.then(|| now.plus(Millis(1)).up_to(TICK));
        let hopeful = self.released.iter().filter(|one| one.tried != Some(self.returns));
        let retry = hopeful.map(|one| one.at).min();
        [tick, retry].into_iter().flatten().min()
    }
}

/// When the flusher tries again what was last tried at `at`.
const fn next_flush_after(at: Millis) -> Millis {
    at.plus(UNSCHEDULABLE).up_to(FLUSH)
}

fn key(index: usize, job: &Job) -> (Reverse<i32>, u64, usize) {
    (Reverse(job.priority), job.arrival.seconds(), index)
}

/// `NewResource(replicaRequirements.resourceRequest) * replicas`: the first task, and no pods.
fn charge(job: &Job) -> Resources {
    let Some(task) = job.shape.gang.tasks.first() else { return Resources::new() };
    let mut charge = task.request.times(u64::from(task.replicas));
    charge.set(ResourceName::PODS, Quantity::ZERO);
    charge
}

fn is_within_capability(queue: &Queue, total: &Resources, name: &ResourceName, asked: Quantity) -> bool {
    let name = name.as_str();
    // For cpu and memory zero means no limit.
    let plain = matches!(name, ResourceName::CPU | ResourceName::MEMORY);
    let limit = queue.capability.get(name).filter(|limit| !plain || *limit > Quantity::ZERO);
    let most = limit.map_or(total.get(name), |limit| limit.min(total.get(name)));
    queue.allocated.get(name).saturating_add(asked) <= most
}

/// Replicas of the first task by the clusters' summaries; all pods of the others with them.
fn divide_by_summaries(site: &mut Site<'_>, index: usize) -> Option<Vec<Part>> {
    let shape = &site.job(index).shape;
    let first = shape.gang.tasks.first()?;
    let single = Gang { tasks: vec![first.clone()], ..Gang::clone(&shape.gang) };
    let binding = place::Binding { replicas: i64::from(first.replicas), ..shape.binding.clone() };
    let summaries = site.members().summaries();
    let clusters: Vec<(&Cluster, &Capacity)> =
        site.world().clusters.iter().map(|one| &one.cluster).zip(&summaries).collect();
    let request = place::Request {
        binding: &binding,
        gang: &single,
        whole: false,
        previous: None,
        clusters,
        linked: &[],
        run: None,
    };
    let decision = place::place_binding(&request).ok()?;
    let part = |target: &place::Target| {
        let mut pods: Vec<u32> = shape.gang.tasks.iter().map(|task| task.replicas).collect();
        *pods.first_mut()? = u32::try_from(target.replicas).unwrap_or(u32::MAX);
        let cluster = site.members().index(&target.cluster)?;
        Some(Part { job: index, cluster, pods, gang: Arc::clone(&shape.gang), within: PinnedDomains::default() })
    };
    Some(decision.targets.iter().filter_map(part).collect())
}
