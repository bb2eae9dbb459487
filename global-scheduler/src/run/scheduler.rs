//! The scheduler between two awaits: it applies events and outcomes to the cache, decides what is due, and queues the
//! writes.
//!
//! Rules:
//! - Nothing is decided before bindings, clusters and the data that workloads claim were listed. Members that have not
//!   reported yet, and topologies that were not listed, are waited for only for [`GRACE_PERIOD`].
//! - A binding with a write in flight is not decided again before the outcome. What failed is decided again from fresh
//!   state, after a wait that doubles.
//! - A placement is written only under the lease that its grant names ([`LeaseFence`]), once all is seen here that the
//!   controller knew of the job's data when it granted, and for a while only once the members that get a new part have
//!   the job's queue.
//! - The status that says "scheduled" follows the clusters when it is its time ([`first_status`]) and there is room.
//! - A refusal of which only the text changed is written once a minute at most.

mod outcomes;
mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use caldera_core::{place::Decision, text::name_some};
use caldera_runtime::{
    clock::SharedClock,
    lease::LeaseRecord,
    members::{MemberEvent, Members},
    serve::Ready,
    watch::Event,
    write::{Write, Writer},
};
use tokio::time::Instant;
use tracing::field::Empty;

use crate::{
    decide::{
        first_status::{self, StatusTiming},
        lease_fence::LeaseFence,
        placement::{self, Step, Verdict},
    },
    metrics::Metrics,
    observe::{
        binding::BindingKey,
        cache::{Cache, data_arrival::DataWait},
        host_watch::HostEvent,
        ranking::WeightsFault,
    },
    run::{
        Config,
        estimators::{
            gather_estimates,
            pool::{EstimatorPool, Reply},
        },
    },
    write::{
        binding_writes, confirmations::Confirmations, event_budget::EventBudget, fault_reports::FaultReports,
        first_statuses::FirstStatuses, retries::Retries, topology_status::TopologyStatusWriter,
    },
};

/// What a write was for.
#[derive(Debug, Clone)]
pub(crate) enum Tag {
    Place(BindingKey, Decision),
    Clear(BindingKey, &'static str, String),
    Status(BindingKey),
    /// The status of a FederationTopology.
    Topology(String),
    Event,
}

/// A refusal of which only the text changed is written at most this often.
const REFUSAL_PERIOD: Duration = Duration::from_secs(60);
/// What is said of a binding whose data the controller knew more of than is seen here.
const UNSEEN_DATA: &str = "it was admitted by DataSourceClaims or DataSources that the scheduler does not see yet";
/// So long after the start decisions wait for members that have not reported yet.
const GRACE_PERIOD: Duration = Duration::from_secs(2);
/// How often bindings are decided again that wait for capacity which only an estimator knows, and topology statuses
/// written again that failed: neither makes an event.
const RECHECK_PERIOD: Duration = Duration::from_secs(30);

pub(crate) struct Scheduler {
    cache: Cache,
    members: Members,
    writer: Writer<Tag>,
    clock: SharedClock,
    metrics: Metrics,
    /// Bindings with a write in flight, the version it was decided on, and since when. Its outcome makes them due
    /// again.
    in_flight: BTreeMap<BindingKey, (String, Instant)>,
    /// Those of them whose status waits until there is room for it.
    confirmations: Confirmations,
    /// Bindings that are placed, whose status is not due yet.
    first_statuses: FirstStatuses,
    /// Bindings whose writes failed.
    retries: Retries,
    fence: LeaseFence,
    /// The estimators of members whose nodes can not be read.
    estimators: EstimatorPool,
    /// See [`RECHECK_PERIOD`].
    recheck_at: Option<Instant>,
    topology_status: TopologyStatusWriter,
    /// When a refusal was last written.
    refused_at: BTreeMap<BindingKey, Instant>,
    event_budget: EventBudget,
    fault_reports: FaultReports,
    /// Lists that did not arrive yet: nothing is decided before they do.
    unlisted: BTreeSet<&'static str>,
    /// FederationTopologies were listed. Not every host has them, so they are waited for only as long as members are.
    topologies_listed: bool,
    /// End of the [`GRACE_PERIOD`]; `None` once it is over.
    grace_end: Option<Instant>,
    ready: Ready,
}

impl Scheduler {
    pub(crate) fn new(config: Config, members: Members, writer: Writer<Tag>, estimators: EstimatorPool) -> Self {
        let mut cache = Cache::default();
        cache.empty_workloads = config.empty_workloads;
        Self {
            cache,
            members,
            writer,
            clock: config.clock,
            metrics: Metrics::register_metrics(&config.registry),
            in_flight: BTreeMap::new(),
            confirmations: Confirmations::default(),
            first_statuses: FirstStatuses::default(),
            retries: Retries::default(),
            fence: LeaseFence::new(config.grants.is_some()),
            estimators,
            recheck_at: None,
            topology_status: TopologyStatusWriter::default(),
            refused_at: BTreeMap::new(),
            event_budget: EventBudget::new(Instant::now()),
            fault_reports: FaultReports::default(),
            unlisted: ["bindings", "clusters", "data sources", "data claims"].into_iter().collect(),
            topologies_listed: false,
            grace_end: Some(Instant::now() + GRACE_PERIOD),
            ready: config.ready,
        }
    }

    /// When something is due because of the time.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let expiry = self.cache.next_deadline().map(|at| {
            let left = at.duration_since(self.clock.now());
            Instant::now() + Duration::try_from(left).unwrap_or_default()
        });
        let own = [self.retries.next_due(), self.first_statuses.next_due(), self.grace_end, self.recheck_at, expiry];
        own.into_iter().flatten().min()
    }

    pub(crate) fn mark_expired_waits_due(&mut self) {
        let now = Instant::now();
        self.retries.take_due(now).iter().for_each(|key| self.cache.mark_due(key));
        self.first_statuses.take_due(now).iter().for_each(|key| self.cache.mark_due(key));
        if self.recheck_at.is_some_and(|at| at <= now) {
            self.recheck_at = None;
            self.cache.requeue_unschedulable();
            self.cache.mark_topology_changed();
        }
    }

    pub(crate) fn apply_host_event(&mut self, event: HostEvent) {
        self.metrics.observe_event(event.kind(), self.clock.now());
        match event {
            HostEvent::Bindings(global, event) => {
                let event = *event;
                if matches!(event, Event::Reset(_)) && !global {
                    self.note_listed("bindings");
                }
                let faults = self.fault_reports.take_new_faults(global, &event);
                self.report_faults(&faults);
                let gone = self.cache.apply_bindings(global, event);
                gone.iter().for_each(|key| self.forget_binding(key));
                if !gone.is_empty() {
                    self.show_unschedulable();
                }
            }
            HostEvent::Workloads(kind, event) => self.cache.apply_workloads(kind, event),
            HostEvent::Policies(global, event) => {
                let faults = self.fault_reports.take_new_faults(global, &event);
                self.report_faults(&faults);
                self.cache.rankings.apply_policies(global, event);
            }
            HostEvent::DataSources(event) => {
                let is_list = matches!(event, Event::Reset(_));
                self.cache.apply_versioned_sources(event);
                if is_list {
                    self.note_listed("data sources");
                }
            }
            HostEvent::DataClaims(event) => {
                let is_list = matches!(event, Event::Reset(_));
                self.cache.apply_versioned_claims(event);
                if is_list {
                    self.note_listed("data claims");
                }
            }
            HostEvent::Scores(event) => self.cache.rankings.apply_scores(event),
            HostEvent::Links(event) => {
                self.topologies_listed |= matches!(*event, Event::Reset(_));
                self.cache.apply_topologies(*event);
            }
            HostEvent::Clusters(event) => {
                self.members.apply_cluster_event(&event);
                match &*event {
                    Event::Reset(all) => all.iter().for_each(|cluster| self.estimators.observe_cluster(cluster)),
                    Event::Applied(cluster) => self.estimators.observe_cluster(cluster),
                    Event::Deleted(cluster) => {
                        self.estimators.forget_cluster(cluster.metadata.name.as_deref().unwrap_or_default());
                    }
                }
                let is_list = matches!(*event, Event::Reset(_));
                self.cache.apply_clusters(*event);
                if is_list {
                    self.note_listed("clusters");
                }
            }
        }
    }

    pub(crate) fn apply_member_event(&mut self, event: MemberEvent) {
        self.cache.apply_member(&event.cluster, event.update);
    }

    pub(crate) fn store_estimate_and_mark_due(&mut self, answer: Reply) {
        let key = self.estimators.store_estimate(answer);
        if let Some((namespace, name)) = key.split_once('/') {
            self.cache.mark_due(&BindingKey { namespace: namespace.to_owned(), name: name.to_owned() });
        }
    }

    pub(crate) fn mark_valid_grants_due(&mut self, lease: Option<&LeaseRecord>) {
        for key in self.fence.apply_read(lease) {
            self.cache.mark_due(&key);
        }
    }

    pub(crate) fn begin_lease_read(&mut self) -> bool {
        self.fence.begin_read()
    }

    /// Records faults of stated weights as Events.
    fn report_faults(&self, faults: &[WeightsFault]) {
        for fault in faults {
            let (kind, name) = (&fault.on.kind, &fault.on.name);
            tracing::warn!(kind, namespace = fault.on.namespace, name, why = fault.why, "weights are ignored");
            self.writer.queue_write(Tag::Event, binding_writes::ignored_weights_event(fault, self.clock.now()));
        }
    }

    fn note_listed(&mut self, list: &'static str) {
        if self.unlisted.remove(list) && self.unlisted.is_empty() {
            self.ready.set_ready(true);
            tracing::info!(bindings = self.cache.bindings.len(), "the first view is complete");
        }
    }

    fn forget_binding(&mut self, key: &BindingKey) {
        self.fence.forget_binding(key);
        self.retries.forget(key);
        self.refused_at.remove(key);
        self.first_statuses.forget(key);
        self.estimators.forget_binding(&key.to_string());
    }

    fn show_unschedulable(&self) {
        let to_number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.unschedulable.set(to_number(self.cache.count_unschedulable()));
        self.metrics.pending_estimates.set(to_number(self.estimators.count_pending()));
    }

    /// Decides about every binding that is due, unless the first view is not complete yet.
    pub(crate) fn decide_due(&mut self) {
        self.cache.advance_time(self.clock.now());
        if self.grace_end.is_some_and(|end| end <= Instant::now() || self.has_first_view()) {
            self.grace_end = None;
        }
        if !self.unlisted.is_empty() || self.grace_end.is_some() {
            return;
        }
        if self.cache.take_topology_change() {
            self.write_topology_statuses();
        }
        if self.cache.is_idle() {
            return;
        }
        for key in self.cache.take_due_bindings() {
            if !self.retries.must_wait(&key) && !self.in_flight.contains_key(&key) {
                self.decide_and_write_binding(&key);
            }
        }
        self.show_unschedulable();
    }

    fn decide_and_write_binding(&mut self, key: &BindingKey) {
        self.cache.fleet.refresh_capacities();
        let Some(binding) = self.cache.bindings.get(key) else { return };
        let span = tracing::debug_span!(
            "decide",
            binding = %key,
            queue = binding.admission.as_ref().map(|record| display(&record.queue)),
            workload_uid = binding.workload_uid,
            clusters = Empty
        )
        .entered();
        let started = std::time::Instant::now();
        let (request, fleet) = (self.cache.request_of(binding), &self.cache.fleet);
        // While it waits for estimators others go on; an answer makes it due again.
        let Some(estimated) = gather_estimates(&mut self.estimators, binding, request, fleet) else { return };
        let context = self.cache.context_of(binding, self.clock.now());
        let Verdict { step, awaits_capacity } = placement::decide_binding(binding, request, context, fleet, &estimated);
        self.metrics.count_decision(&step, started.elapsed());
        if let Step::Place(decision) = &step
            && !span.is_disabled()
        {
            span.record("clusters", name_some(decision.targets.iter().map(|target| &target.cluster)));
        }
        let may_carry_out = match &step {
            Step::Place(decision) => {
                let replicas = decision.targets.iter().map(|target| target.replicas).sum();
                self.fence.may_place(binding, replicas)
            }
            _ => true,
        };
        if awaits_capacity {
            if !estimated.is_empty() {
                self.recheck_at.get_or_insert_with(|| Instant::now() + RECHECK_PERIOD);
            }
            self.cache.add_unschedulable(key);
        }
        if may_carry_out && let Step::Place(decision) = &step {
            match self.cache.start_or_check_data_wait(key, &decision.targets) {
                DataWait::Over => {}
                DataWait::Silent => return,
                DataWait::Reported => return self.write_refusal(key, placement::UNSCHEDULABLE, UNSEEN_DATA),
            }
        }
        if may_carry_out
            && let Step::Place(decision) = &step
            && self.cache.start_or_check_queue_wait(key, &decision.targets)
        {
            tracing::debug!(binding = %key, "its queue is on its way to a member");
            self.cache.add_unschedulable(key);
            return;
        }
        if may_carry_out {
            self.carry_out(key, step);
        }
    }

    /// Whether everything has reported that is waited for in the grace period.
    fn has_first_view(&self) -> bool {
        self.unlisted.is_empty()
            && self.topologies_listed
            && self.cache.fleet.list_clusters_not_reported_yet().next().is_none()
    }

    fn write_topology_statuses(&mut self) {
        self.cache.fleet.refresh_capacities();
        let (topology, fleet) = (&self.cache.topology, &self.cache.fleet);
        for (name, write) in self.topology_status.take_status_writes(topology, fleet, self.clock.now()) {
            self.writer.queue_write(Tag::Topology(name), write);
        }
    }

    fn carry_out(&mut self, key: &BindingKey, step: Step) {
        let Some(binding) = self.cache.bindings.get(key) else { return };
        match step {
            Step::Rest => {}
            Step::Place(decision) => {
                let write = binding_writes::build_placement_write(binding, &decision);
                self.cache.assume_decision(key, &decision.targets, decision.plan.as_ref());
                self.write_binding(key, Tag::Place(key.clone(), decision), write);
            }
            Step::Confirm { anew } => self.queue_scheduled_status(key, None, anew),
            Step::Refuse { reason, message, clear: true } => {
                let write = binding_writes::build_clearing_write(binding);
                self.write_binding(key, Tag::Clear(key.clone(), reason, message), write);
            }
            Step::Refuse { reason, message, clear: false } => self.write_refusal(key, reason, &message),
        }
    }

    fn write_binding(&mut self, key: &BindingKey, tag: Tag, write: Write) {
        self.mark_in_flight(key);
        self.writer.queue_write(tag, write);
    }

    /// Has the status written that says that a binding is scheduled, when it is due.
    fn queue_scheduled_status(&mut self, key: &BindingKey, affinity: Option<String>, anew: bool) {
        let Some(binding) = self.cache.bindings.get(key) else { return };
        let now = self.clock.now();
        match first_status::decide_status_timing(binding, self.cache.request_of(binding)) {
            StatusTiming::Never => return self.first_statuses.forget(key),
            StatusTiming::Later if !self.first_statuses.is_wait_over(binding, now, Instant::now()) => return,
            StatusTiming::Later | StatusTiming::Now => {}
        }
        let scheduled = anew.then(|| self.first_statuses.get_placement_time(binding).unwrap_or(now));
        self.confirmations.queue_confirmation(binding, affinity, scheduled);
        self.mark_in_flight(key);
    }

    fn mark_in_flight(&mut self, key: &BindingKey) {
        let version = self.cache.bindings.get(key).map(|binding| binding.resource_version.clone()).unwrap_or_default();
        self.in_flight.insert(key.clone(), (version, Instant::now()));
    }

    /// Sends the statuses that wait, as far as there is room. Whether any is to be decided again.
    pub(crate) fn send_confirmations(&mut self) -> bool {
        let mut is_due = false;
        while let Some((key, write)) =
            self.confirmations.take_next(&self.cache.bindings, self.writer.has_capacity(), self.clock.now())
        {
            match write {
                Some(write) => {
                    self.mark_in_flight(&key);
                    self.writer.queue_write_first(Tag::Status(key), write);
                }
                None => {
                    self.in_flight.remove(&key);
                    self.cache.mark_due(&key);
                    is_due = true;
                }
            }
        }
        is_due
    }

    fn write_events(&self, events: Vec<Write>) {
        events.into_iter().for_each(|event| self.writer.queue_write(Tag::Event, event));
    }

    /// Writes the condition, if it says something new, and Events if the reason is new.
    fn write_refusal(&mut self, key: &BindingKey, reason: &'static str, message: &str) {
        let Some(binding) = self.cache.bindings.get(key) else { return };
        let now = self.clock.now();
        let same_reason = match binding.status.scheduled_condition() {
            Some(("False", old, text)) if old == reason && text == message => return,
            Some(("False", old, _)) => old == reason,
            _ => false,
        };
        if same_reason && self.refused_at.get(key).is_some_and(|at| at.elapsed() < REFUSAL_PERIOD) {
            return;
        }
        self.refused_at.insert(key.clone(), Instant::now());
        let write = binding_writes::build_refused_status_write(binding, reason, message, now);
        let events = (!same_reason).then(|| binding_writes::build_schedule_events(binding, false, message, now));
        self.write_binding(key, Tag::Status(key.clone()), write);
        self.write_events(events.unwrap_or_default());
    }
}
