//! What is measured of the state: gauges of queues and clusters, and how long jobs waited and took to start.
//!
//! The loop calls this after each decision; the results go straight into [`Metrics`]. Waits, evictions and requeues are
//! counted from the decisions. Starts are looked for once a second while any is awaited. Gauges are worked out anew and
//! all at once, every five seconds at most, so that a queue that is gone leaves nothing behind; before that the free
//! capacity of clusters is brought up to date. Queues and clusters are what admins create, resources what nodes and
//! queues name: no label is a job's. A queue that a job names and that is not there is none.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    fleet::Origin,
    gang::{ClusterName, QueueName},
    inventory::{MEASURED, MemberLoad, Source},
    quantity::Quantity,
    queue::ledger::AdmissionStage,
    resources::ResourceName,
    time::EpochSeconds,
};
use caldera_runtime::metric::{Counters, Metric, Sample};
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{Controller, bindings::jobs::JobPhase, is_requeue, preemption::load_aware::list_cluster_reservations},
    explain::list_amounts,
    metrics::{
        BORROWED, CAPABILITY, CLUSTER_ALLOCATED, CLUSTER_CAPACITY, CLUSTER_FRAGMENTATION, CLUSTER_READY,
        CLUSTER_RESERVED_IDLE, CLUSTER_USED, CLUSTER_USED_READ, DESERVED, EVICTED, INVENTORY_KNOWN, INVENTORY_SEEN,
        JOBS, LAST_EVENT, Metrics, PAUSED, QUEUE_RESERVED_IDLE, REQUEUED, RESERVATIONS, SETTINGS_REFUSED, START,
        STARTED_GANGS, STOCK_SCHEDULER, USED, WAIT,
    },
    observe::{Input, Key},
    write::{Decision, pod_group::phase_of},
};

/// Between two workings out of the gauges.
const SAMPLE_EVERY: SignedDuration = SignedDuration::from_secs(5);
/// Between two looks at jobs that start.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// What was released and does not run yet, and when the state was last looked at.
#[derive(Debug, Default)]
pub(crate) struct Measures {
    starting: BTreeMap<Key, (QueueName, Timestamp)>,
    queues: BTreeSet<QueueName>,
    /// Queues and reasons that evictions and requeues were counted by.
    evictions: BTreeSet<(QueueName, String)>,
    looked: Option<Timestamp>,
    sampled: Option<Timestamp>,
    /// When something of a watched kind was last told.
    reported: BTreeMap<&'static str, Timestamp>,
}

impl Measures {
    /// Takes in that something is told.
    pub(crate) fn observe_input(&mut self, input: &Input, now: Timestamp) {
        self.reported.extend(input.watched_kind().map(|kind| (kind, now)));
    }

    /// Counts what was decided.
    pub(crate) fn observe_decisions(
        &mut self,
        controller: &Controller,
        writes: &[Decision],
        metrics: &Metrics,
        now: Timestamp,
    ) {
        for write in writes {
            match write {
                Decision::Release { key, .. } => {
                    let Some((queue, waited)) = compute_wait(controller, key, now) else { continue };
                    metrics.wait.get_or_create(&WAIT.build_labels([queue.as_str()])).observe(waited);
                    self.queues.insert(queue.clone());
                    self.starting.insert(key.clone(), (queue, now));
                }
                Decision::Evict { key, eviction, .. } => {
                    self.starting.remove(key);
                    let (counters, metric) = match is_requeue(eviction) {
                        true => (&metrics.requeued, REQUEUED),
                        false => (&metrics.evicted, EVICTED),
                    };
                    self.count_eviction(controller, key, &eviction.reason, (counters, metric));
                }
                Decision::Shrink { key, eviction, .. } => {
                    self.count_eviction(controller, key, &eviction.reason, (&metrics.evicted, EVICTED));
                }
                _ => {}
            }
        }
    }

    fn count_eviction(
        &mut self,
        controller: &Controller,
        key: &Key,
        reason: &str,
        (counters, metric): (&Counters, Metric),
    ) {
        let queue = find_charged_queue(controller, key).cloned().unwrap_or_else(|| "".into());
        counters.get_or_create(&metric.build_labels([queue.as_str(), reason])).inc();
        self.evictions.insert((queue, reason.to_owned()));
    }

    /// Looks at the state where it is time, and says when to look again if nothing happens.
    pub(crate) fn update_metrics_if_due(
        &mut self,
        controller: &mut Controller,
        metrics: &Metrics,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let left = |last: Option<Timestamp>, every: SignedDuration| {
            last.and_then(|last| last.checked_add(every).ok()).filter(|at| *at > now)
        };
        let (to_look, to_sample) = (left(self.looked, LOOK_EVERY), left(self.sampled, SAMPLE_EVERY));
        if to_look.is_none() {
            self.looked = Some(now);
            for (queue, clusters, took) in self.take_started(controller, now) {
                metrics.start.get_or_create(&START.build_labels([queue.as_str()])).observe(took);
                metrics.started_gangs.get_or_create(&STARTED_GANGS.build_labels([clusters])).inc();
            }
        }
        if to_sample.is_none() {
            self.sampled = Some(now);
            controller.capacity.refresh();
            let mut samples = list_samples(controller);
            let reported = self.reported.iter();
            samples.extend(reported.map(|(kind, at)| Sample::new(&LAST_EVENT, [kind], at.as_second() as f64)));
            metrics.samples.replace(samples);
            self.forget_queues(controller, metrics);
        }
        to_look.filter(|_| !self.starting.is_empty()).into_iter().chain(to_sample).min()
    }

    /// Those whose minimum runs now, in how many clusters, and how long that took. Those that ended before they were
    /// seen to run are forgotten.
    fn take_started(&mut self, controller: &Controller, now: Timestamp) -> Vec<(QueueName, &'static str, f64)> {
        let mut started = Vec::new();
        self.starting.retain(|key, (queue, released)| match find_queue_and_phase(controller, key) {
            Some("Running") => {
                let clusters = controller.objects.bindings.get(key).map_or(0, |binding| binding.clusters.len());
                let took = now.duration_since(*released).as_secs_f64();
                let clusters = ["1", "2", "3"].get(clusters.max(1) - 1).copied().unwrap_or("more");
                started.push((queue.clone(), clusters, took));
                false
            }
            // Its release may not be seen yet.
            phase => phase.is_some_and(|phase| phase != "Completed"),
        });
        started
    }

    /// Series of queues that are gone.
    fn forget_queues(&mut self, controller: &Controller, metrics: &Metrics) {
        self.queues.retain(|queue| {
            let is_there = controller.objects.queues.contains_key(queue);
            if !is_there {
                metrics.wait.remove(&WAIT.build_labels([queue.as_str()]));
                metrics.start.remove(&START.build_labels([queue.as_str()]));
            }
            is_there
        });
        self.evictions.retain(|(queue, reason)| {
            let is_there = queue.as_str().is_empty() || controller.objects.queues.contains_key(queue);
            if !is_there {
                let labels = [queue.as_str(), reason.as_str()];
                metrics.evicted.remove(&EVICTED.build_labels(labels));
                metrics.requeued.remove(&REQUEUED.build_labels(labels));
            }
            is_there
        });
    }
}

/// The queue that is charged for a binding, or that it is of; none where there is no such queue.
fn find_charged_queue<'a>(controller: &'a Controller, key: &Key) -> Option<&'a QueueName> {
    let binding = controller.objects.bindings.get(key)?;
    let charged = binding.admission.as_ref().map(|admission| &admission.queue);
    let queue = charged.or_else(|| controller.objects.queue_of(binding))?;
    controller.objects.queues.contains_key(queue).then_some(queue)
}

/// The queue of a binding that is released, and for how many seconds it waited.
fn compute_wait(controller: &Controller, key: &Key, now: Timestamp) -> Option<(QueueName, f64)> {
    let binding = controller.objects.bindings.get(key)?;
    let since = binding.eviction.as_deref().map_or(binding.created, |eviction| eviction.at.max(binding.created));
    let waited = SignedDuration::from_secs(EpochSeconds::from(now).seconds_since(since).max(0));
    Some((controller.objects.queue_of(binding)?.clone(), waited.as_secs_f64()))
}

fn find_queue_and_phase(controller: &Controller, key: &Key) -> Option<&'static str> {
    let (binding, state) = (controller.objects.bindings.get(key)?, controller.jobs.states.get(key)?);
    Some(phase_of(controller.objects.workload_of(binding)?, state.stage()))
}

/// All gauges.
fn list_samples(controller: &Controller) -> Vec<Sample> {
    let (mut samples, idle) = sample_clusters(controller);
    samples.extend(sample_amounts(controller, idle));
    samples.extend(sample_jobs(controller));
    samples.push(Sample::new(&SETTINGS_REFUSED, [], f64::from(u8::from(controller.settings_refused))));
    samples.push(Sample::new(&PAUSED, [], f64::from(u8::from(controller.pause_reason().is_some()))));
    samples.push(Sample::new(&STOCK_SCHEDULER, [], f64::from(u8::from(controller.objects.admits_whole_gangs))));
    samples
}

fn to_number(amount: Quantity) -> f64 {
    amount.as_nano() as f64 / 1e9
}

/// Free in clusters that jobs of a queue reserve, by queue and resource.
type ReservedIdle = BTreeMap<(QueueName, ResourceName), f64>;

fn sample_amounts(controller: &Controller, mut idle: ReservedIdle) -> Vec<Sample> {
    let mut samples = Vec::new();
    for queue in controller.objects.queues.keys() {
        for amounts in list_amounts(controller, queue, None) {
            let labels = [queue.as_str(), amounts.resource.as_str()];
            samples.push(Sample::new(&USED, labels, to_number(amounts.used)));
            samples.push(Sample::new(&DESERVED, labels, to_number(amounts.deserved)));
            samples.push(Sample::new(&BORROWED, labels, to_number(amounts.borrowed)));
            // Where nothing is reserved that is shown too, or an average over time would leave those times out.
            idle.entry((queue.clone(), amounts.resource.clone())).or_default();
            samples.extend(amounts.capability.map(|amount| Sample::new(&CAPABILITY, labels, to_number(amount))));
        }
    }
    samples.extend(idle.iter().map(|((queue, resource), amount)| {
        Sample::new(&QUEUE_RESERVED_IDLE, [queue.as_str(), resource.as_str()], *amount)
    }));
    samples
}

/// The states that jobs of a queue are counted by.
pub(crate) const STATES: [&str; 5] = ["waiting", "inadmissible", "held", "admitted", "running"];

/// Jobs of each queue by state, and reservations.
pub(crate) fn count_jobs(controller: &Controller) -> BTreeMap<&QueueName, ([u32; 5], u32)> {
    let mut counts: BTreeMap<&QueueName, ([u32; 5], u32)> =
        controller.objects.queues.keys().map(|queue| (queue, ([0; 5], 0))).collect();
    for (key, state) in &controller.jobs.states {
        let Some(binding) = controller.objects.bindings.get(key) else { continue };
        let Some(count) = controller.objects.queue_of(binding).and_then(|queue| counts.get_mut(queue)) else {
            continue;
        };
        let at = match (&state.assumed, &state.phase) {
            (_, JobPhase::OutOfScope) | (None, JobPhase::Holding { stage: AdmissionStage::Finished, .. }) => continue,
            (None, JobPhase::Blocked(reason)) if reason.is_unsatisfiable() => 1,
            (None, JobPhase::Pending) if controller.jobs.engine.is_unsatisfiable(binding.id.as_str()) => 1,
            (None, JobPhase::Blocked(reason)) if reason.needs_user_action() => 2,
            (None, JobPhase::Holding { stage, .. }) => {
                let workload = controller.objects.workload_of(binding);
                if workload.map(|workload| phase_of(workload, Some(*stage))) == Some("Running") { 4 } else { 3 }
            }
            (Some(_), _) | (None, JobPhase::Pending | JobPhase::Blocked(_)) => 0,
        };
        count.0[at] += 1;
        count.1 += u32::from(at == 0 && controller.jobs.engine.has_reservation(binding.id.as_str()));
    }
    counts
}

fn sample_jobs(controller: &Controller) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (queue, (states, reservations)) in count_jobs(controller) {
        for (state, count) in STATES.into_iter().zip(states) {
            samples.push(Sample::new(&JOBS, [queue.as_str(), state], count.into()));
        }
        samples.push(Sample::new(&RESERVATIONS, [queue.as_str()], reservations.into()));
    }
    samples
}

/// What nodes really use, and when that was read.
fn sample_load(cluster: &str, load: &MemberLoad) -> Vec<Sample> {
    let used = |resource: &str| Sample::new(&CLUSTER_USED, [cluster, resource], to_number(load.used.get(resource)));
    let read = Sample::new(&CLUSTER_USED_READ, [cluster], load.read_at.as_seconds() as f64);
    MEASURED.into_iter().map(used).chain([read]).collect()
}

/// Whether a member's nodes are known, and since when its collector was not heard of.
fn sample_inventory(controller: &Controller, cluster: &str) -> Vec<Sample> {
    let origin = controller.capacity.fleet().inventory_origin(cluster);
    let seen = match origin {
        Some(Origin::Published { seen_at, .. }) => seen_at.parse::<Timestamp>().ok(),
        Some(Origin::Member) | None => None,
    };
    let known = Sample::new(&INVENTORY_KNOWN, [cluster], f64::from(u8::from(origin.is_some())));
    let seen = seen.map(|seen| Sample::new(&INVENTORY_SEEN, [cluster], seen.as_second() as f64));
    [known].into_iter().chain(seen).collect()
}

/// Clusters that are reserved, each with the queue of every job that reserves it.
fn list_reserving_queues(controller: &Controller) -> BTreeMap<ClusterName, Vec<&QueueName>> {
    let mut queues: BTreeMap<ClusterName, Vec<&QueueName>> = BTreeMap::new();
    for (binding, clusters) in list_cluster_reservations(&controller.objects, &controller.jobs) {
        let queue = controller.objects.queue_of(binding).filter(|queue| controller.objects.queues.contains_key(*queue));
        let Some(queue) = queue else { continue };
        clusters.into_iter().for_each(|cluster| queues.entry(cluster).or_default().push(queue));
    }
    queues
}

/// What is sampled of clusters, and what of them is idle for the jobs of which queue.
fn sample_clusters(controller: &Controller) -> (Vec<Sample>, ReservedIdle) {
    let (mut samples, mut reserved_idle) = (Vec::new(), ReservedIdle::new());
    let reserving = list_reserving_queues(controller);
    for (cluster, capacity) in controller.capacity.fleet().clusters() {
        let name = cluster.name.as_str();
        samples.push(Sample::new(&CLUSTER_READY, [name], f64::from(u8::from(cluster.ready))));
        samples.extend(sample_inventory(controller, name));
        let queues = reserving.get(name).map_or(&[][..], Vec::as_slice);
        samples
            .extend(controller.capacity.fleet().member_load(name).into_iter().flat_map(|load| sample_load(name, load)));
        let (all, free) = (capacity.sum_allocatable(), capacity.sum_free());
        for (resource, amount) in all.iter() {
            let labels = [name, resource.as_str()];
            let held = amount.saturating_sub(free.get(resource.as_str()));
            samples.push(Sample::new(&CLUSTER_CAPACITY, labels, to_number(amount)));
            samples.push(Sample::new(&CLUSTER_ALLOCATED, labels, to_number(held)));
            let idle = if queues.is_empty() { Quantity::ZERO } else { amount.saturating_sub(held) };
            samples.push(Sample::new(&CLUSTER_RESERVED_IDLE, labels, to_number(idle)));
            for queue in queues {
                let part = to_number(idle) / queues.len() as f64;
                *reserved_idle.entry(((*queue).clone(), resource.clone())).or_default() += part;
            }
            if capacity.source != Source::Nodes {
                continue;
            }
            let (mut with, mut partly) = (0_u32, 0_u32);
            for shape in &capacity.shapes {
                let of =
                    |amounts: &caldera_core::inventory::Amounts| amounts.get(resource).copied().unwrap_or_default();
                let (all, free) = (of(&shape.allocatable), of(&shape.free));
                let nodes = u32::try_from(shape.nodes.len()).unwrap_or(u32::MAX);
                with += if all > Quantity::ZERO { nodes } else { 0 };
                partly += if free > Quantity::ZERO && free < all { nodes } else { 0 };
            }
            if with > 0 {
                samples.push(Sample::new(&CLUSTER_FRAGMENTATION, labels, f64::from(partly) / f64::from(with)));
            }
        }
    }
    (samples, reserved_idle)
}
