//! The orders of Kueue and of Armada, each with the same places and limits as the other policies.
//!
//! *Kueue* (`pkg/scheduler/scheduler.go`, `makeClassicalIterator`): in a cycle the first job of each queue is looked
//! at: those that stay within what their queue deserves (`nominalQuota`) before those that borrow, then by priority and
//! age.
//! *Kueue with fair sharing* (`fair_sharing_iterator.go`): the job goes first after which its queue has borrowed the
//! smallest part of all. In both, what does not fit is put aside until something ends (`BestEffortFIFO`), and all heads
//! of a cycle are looked at before the next ones.
//!
//! *Armada* (`internal/scheduler/scheduling/queue_scheduler.go`, `fairness/fairness.go`): by priority, then the job
//! goes first after which its queue has the least cost: its dominant share of everything by its weight, here what the
//! queue deserves; then by the queue's name. What does not fit is passed over, and the queue's next job takes its
//! place.
//!
//! In their favour: a job starts only where it fits, for neither of them looks at nodes of members before it admits
//! (Kueue), or they look at one cluster's (Armada); cycles take no time. Not played: preemption, cohorts below cohorts,
//! flavours, limits of rounds.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use caldera_core::{
    gang::QueueName,
    quantity::Quantity,
    queue::{FitClass, QueueSpec},
    resources::{Limits, Resources},
};

use super::Policy;
use crate::{site::Site, world::World};

/// Whose order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadOrder {
    /// Kueue's without fair sharing.
    Kueue,
    /// Kueue's with it.
    KueueFair,
    /// Armada's.
    Armada,
}

/// Shares are so many parts of a whole.
const WHOLE: i128 = 1_000_000_000;

/// What decides among the first jobs of queues; the smallest goes first.
type Turn = (bool, Reverse<i32>, i128, Reverse<i32>, usize);

#[derive(Debug)]
struct HeadQueue {
    /// The queue and those above it, each with its ceilings.
    path: Vec<(QueueName, Limits)>,
    /// What it deserves.
    nominal: Resources,
    /// The dominant part of everything that this is.
    weight: i128,
    line: BTreeSet<(Reverse<i32>, usize)>,
    /// Those that did not fit since something ended.
    inadmissible: BTreeSet<(Reverse<i32>, usize)>,
}

/// See the module.
#[derive(Debug)]
pub struct QueueHeads {
    order: HeadOrder,
    queues: BTreeMap<QueueName, HeadQueue>,
    total: Resources,
    /// Classes that found no place since something ended.
    refused: BTreeSet<FitClass>,
}

impl QueueHeads {
    /// With the world's queues.
    #[must_use]
    pub fn new(world: &World, order: HeadOrder) -> Self {
        let total = world.total();
        let weights: u64 = world.queues.iter().map(|queue| u64::from(queue.weight.max(1))).sum();
        let queue = |spec: &QueueSpec| {
            let nominal: Resources = if spec.deserved.is_unlimited() {
                let part = |amount: Quantity| {
                    let nano = amount.as_nano() * i128::from(spec.weight.max(1)) / i128::from(weights.max(1));
                    Quantity::from_nano(nano)
                };
                total.iter().map(|(name, amount)| (name.clone(), part(amount))).collect()
            } else {
                spec.deserved.iter().map(|(name, amount)| (name.clone(), amount)).collect()
            };
            let weight = dominant_part(&nominal, &total).max(1);
            let (line, inadmissible) = Default::default();
            (spec.name.clone(), HeadQueue { path: list_path(spec, &world.queues), nominal, weight, line, inadmissible })
        };
        Self { order, queues: world.queues.iter().map(queue).collect(), total, refused: BTreeSet::new() }
    }

    /// The place of a queue's first job among those of the other queues.
    fn find_turn(&self, site: &Site<'_>, name: &QueueName, job: usize) -> Turn {
        let queue = &self.queues[name];
        let priority = Reverse(site.job(job).priority);
        let mut after = site.books().used(name);
        let asked = &site.job(job).shape.least;
        after.add(asked);
        match self.order {
            HeadOrder::Kueue => {
                let borrows = asked.iter().any(|(name, _)| after.get(name.as_str()) > queue.nominal.get(name.as_str()));
                (borrows, priority, 0, priority, job)
            }
            HeadOrder::KueueFair => {
                after.saturating_sub(&queue.nominal);
                (false, Reverse(0), dominant_part(&after, &self.total), priority, job)
            }
            HeadOrder::Armada => {
                let cost = dominant_part(&after, &self.total).saturating_mul(WHOLE) / queue.weight;
                // By the name where they are equal, and a queue has one first job.
                let place = self.queues.keys().position(|other| other == name).unwrap_or_default();
                (false, priority, cost, Reverse(0), place)
            }
        }
    }

    /// The first job of each queue.
    fn list_heads(&self) -> Vec<(QueueName, usize)> {
        let first = |(name, queue): (&QueueName, &HeadQueue)| Some((name.clone(), queue.line.first()?.1));
        self.queues.iter().filter_map(first).collect()
    }

    /// Takes the head whose turn it is out of these.
    fn take_next(&self, site: &Site<'_>, heads: &mut Vec<(QueueName, usize)>) -> Option<(QueueName, usize)> {
        let turns = heads.iter().enumerate().map(|(i, (name, job))| (self.find_turn(site, name, *job), i));
        let (_, next) = turns.min()?;
        Some(heads.swap_remove(next))
    }

    /// Starts the first job of a queue, or puts it aside.
    fn start_or_set_inadmissible(&mut self, site: &mut Site<'_>, name: &QueueName, job: usize) {
        let started = self.start(site, name, job);
        if let Some(queue) = self.queues.get_mut(name) {
            let key = (Reverse(site.job(job).priority), job);
            queue.line.remove(&key);
            if !started {
                queue.inadmissible.insert(key);
            }
        }
    }

    fn start(&mut self, site: &mut Site<'_>, name: &QueueName, job: usize) -> bool {
        let shape = &site.job(job).shape;
        if self.refused.contains(&shape.class) || !self.stays_within(site, name, &shape.least) {
            return false;
        }
        let parts = if self.stays_within(site, name, &shape.gang.sum_full_charge()) {
            site.find(job, None, &[]).ok()
        } else {
            let least = shape.gang.tasks.iter().map(|task| (task.name.clone(), task.min_available)).collect();
            site.find_granted(job, None, &least).ok()
        };
        let Some(parts) = parts else {
            self.refused.insert(shape.class);
            return false;
        };
        site.send_job(job, parts);
        true
    }

    /// Whether no ceiling on the way up is broken.
    fn stays_within(&self, site: &Site<'_>, name: &QueueName, asked: &Resources) -> bool {
        self.queues[name].path.iter().all(|(at, ceilings)| {
            let used = site.books().used(at);
            asked.iter().all(|(name, asked)| {
                let name = name.as_str();
                ceilings.get(name).is_none_or(|most| used.get(name).saturating_add(asked) <= most)
            })
        })
    }
}

/// The largest part that this is of everything.
fn dominant_part(amounts: &Resources, total: &Resources) -> i128 {
    let part = |(name, amount): (_, Quantity)| {
        let name: &caldera_core::resources::ResourceName = name;
        (amount.as_nano() * WHOLE).checked_div(total.get(name.as_str()).as_nano())
    };
    amounts.iter().filter_map(part).max().unwrap_or(0)
}

/// A queue and those above it. Parents may lead in a circle.
fn list_path(spec: &QueueSpec, all: &[QueueSpec]) -> Vec<(QueueName, Limits)> {
    let mut path: Vec<(QueueName, Limits)> = Vec::new();
    let mut next = Some(spec);
    while let Some(at) = next.filter(|at| path.iter().all(|(known, _)| *known != at.name)) {
        path.push((at.name.clone(), crate::metrics::books::ceilings(at)));
        next = at.parent.as_ref().and_then(|parent| all.iter().find(|other| other.name == *parent));
    }
    path
}

impl Policy for QueueHeads {
    fn arrived(&mut self, site: &mut Site<'_>, job: usize) {
        let of = site.job(job);
        if let Some(queue) = self.queues.get_mut(&of.queue) {
            queue.line.insert((Reverse(of.priority), job));
        }
    }

    fn resumed(&mut self, _: &mut Site<'_>, _: usize) {}

    fn ended(&mut self, _: &mut Site<'_>, _: usize) {
        self.refused.clear();
        self.queues.values_mut().for_each(|queue| queue.line.append(&mut queue.inadmissible));
    }

    fn decide(&mut self, site: &mut Site<'_>) {
        loop {
            let mut heads = self.list_heads();
            if heads.is_empty() {
                return;
            }
            while let Some((name, job)) = self.take_next(site, &mut heads) {
                self.start_or_set_inadmissible(site, &name, job);
                // The next job of the queue comes at once.
                if self.order == HeadOrder::Armada {
                    break;
                }
            }
        }
    }
}
