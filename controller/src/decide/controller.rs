//! The state of the controller: each concern owns its own, and this says who is told of what.
//!
//! Objects change ([`Objects`]), so bindings are assessed anew, the queue engine and the capacity follow, and each
//! concern that has a deadline for a binding looks at it. Answers to writes come back the same way. No I/O, no clock of
//! its own.

mod answers;
mod batch_job_pods;
mod binding_deadlines;
mod clusters;

use caldera_core::{
    data_source::DataIdentity,
    fleet::Update,
    gang::QueueName,
    place::spread_constraints::is_duplicated,
    queue::JobId,
    reason::{Position, QueueProblem},
    time::EpochSeconds,
};
use caldera_crds::{links::FederationTopologies, names::volcano::DEFAULT_QUEUE, workload::WorkloadKind};
use caldera_runtime::watch::Event;
use jiff::{SignedDuration, Timestamp};
use std::{
    collections::{BTreeSet, VecDeque},
    mem,
    sync::Arc,
};

use self::binding_deadlines::BindingDeadlines;
use super::{
    accounts::{ended_jobs::EndedJobs, recorded_actions::RecordedActions, usage_accounts::UsageAccounts},
    admission::{
        assess::{assess_with_admission_checks, estimate_end},
        assumed_place::update_assumed_place,
    },
    bindings::{
        eviction_wait::{compute_eviction_expiry, explain_eviction_wait, observe_old_copies},
        jobs::Jobs,
    },
    copies::member_loss::MemberLoss,
    deadlines::add_wait,
    fleet::{capacity::FleetCapacity, cluster_faults::ClusterFaults},
    kinds::{cron_jobs::CronJobs, data_catalogue::DataCatalogue, data_claims::DataClaims, hyper_jobs::HyperJobs},
    lifecycle::{job_commands::JobCommands, ttl::Expiries},
    preemption::{attempt::Preemption, load_aware::LoadAware},
    queues::{
        phase_counts::PhaseCounts, queue_annotations::QueueAnnotations, queue_lifecycle::QueueLifecycle,
        queue_numbers::QueueNumbersWrites,
    },
    sent_writes::SentWrites,
    status::{admission_events::AdmissionEvents, pod_groups::PodGroupWrites, waiting_state::WaitingStates},
};
use crate::{
    fair_history::EarlierHistory,
    observe::{Binding, Change, CommandFacts, Input, Key, ObjectKind, Objects, PodGroupFacts},
    write::Decision,
};

/// What is written on queues.
#[derive(Debug, Default)]
pub(crate) struct QueueWrites {
    pub(crate) counts: PhaseCounts,
    pub(crate) numbers: QueueNumbersWrites,
    pub(crate) annotations: QueueAnnotations,
    pub(crate) lifecycle: QueueLifecycle,
}

/// The reasons of all pending jobs, worked out anew after something moved.
#[derive(Debug, Default)]
pub(crate) struct ReasonSweep {
    pub(crate) left: VecDeque<(JobId, Position)>,
    pub(crate) due: Option<Timestamp>,
    pub(crate) last: Option<Timestamp>,
}

/// When what others use in the members was last counted, and when to do so again.
#[derive(Debug, Default)]
pub(crate) struct FleetCount {
    pub(crate) last: Option<Timestamp>,
    pub(crate) due: Option<Timestamp>,
}

/// Whether the default queue is still to be created, and when that is tried.
#[derive(Debug)]
pub(crate) struct DefaultQueueAsked {
    pub(crate) again: Option<Timestamp>,
    /// In a row.
    pub(crate) failures: u32,
}

impl Default for DefaultQueueAsked {
    fn default() -> Self {
        Self { again: Some(Timestamp::MIN), failures: 0 }
    }
}

/// How long first lists of declared kinds are waited for, after all others came.
const DECLARED_KINDS_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// See the module.
#[derive(Debug, Default)]
pub struct Controller {
    pub(crate) objects: Objects,
    links: FederationTopologies,
    pub(crate) jobs: Jobs,
    pub(crate) capacity: FleetCapacity,
    pub(crate) cluster_faults: ClusterFaults,
    pub(crate) fleet_count: FleetCount,
    pub(crate) preemption: Preemption,
    pub(crate) deadlines: BindingDeadlines,
    pub(crate) expiries: Expiries,
    pub(crate) commands: JobCommands,
    pub(crate) hyper_jobs: HyperJobs,
    pub(crate) cron_jobs: CronJobs,
    pub(crate) data_claims: DataClaims,
    pub(crate) data_catalogue: DataCatalogue,
    pub(crate) member_loss: MemberLoss,
    pub(crate) load_aware: LoadAware,
    pub(crate) pod_groups: PodGroupWrites,
    pub(crate) waiting_states: WaitingStates,
    pub(crate) admission_events: AdmissionEvents,
    pub(crate) reasons: ReasonSweep,
    pub(crate) queues: QueueWrites,
    pub(crate) usage: UsageAccounts,
    pub(crate) earlier_history: EarlierHistory,
    pub(crate) ended_jobs: EndedJobs,
    pub(crate) sent_writes: SentWrites,
    pub(crate) actions: RecordedActions,
    /// Events, and PodGroups to delete, that wait for the next decision.
    pub(crate) outbox: Vec<Decision>,
    pub(crate) default_queue: DefaultQueueAsked,
    /// The last decision sent releases and left the rest to this one.
    pub(crate) hurried: bool,
    /// Since when nothing but declared kinds is waited for.
    pub(crate) declared_kinds_since: Option<Timestamp>,
    /// What an admin chose last is not understood.
    pub(crate) settings_refused: bool,
    pub(crate) now: Timestamp,
}

/// Answers.
impl Controller {
    /// Why an admin has nothing released, if so.
    #[must_use]
    pub fn pause_reason(&self) -> Option<&str> {
        self.jobs.engine.pause_reason()
    }

    /// True once every kind has been listed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.objects.is_complete()
    }

    /// Kinds that have not been listed yet.
    #[must_use]
    pub fn list_unlisted_kinds(&self) -> BTreeSet<ObjectKind> {
        self.objects.list_unlisted_kinds()
    }

    /// Waits for the first lists of these kinds too, which are declared and followed.
    pub fn require_declared_kinds(&mut self, kinds: impl IntoIterator<Item = WorkloadKind>) {
        self.objects.require_kinds(kinds);
    }

    /// Waits no longer for declared kinds whose first lists are overdue; when that is, if any is waited for.
    pub fn give_up_overdue_lists(&mut self, now: Timestamp) -> Option<Timestamp> {
        if !self.objects.lacks_declared_kinds_alone() {
            return None;
        }
        let until = add_wait(*self.declared_kinds_since.get_or_insert(now), DECLARED_KINDS_WITHIN);
        if now < until {
            return Some(until);
        }
        let kinds = self.objects.give_up_unlisted();
        let kinds: Vec<&str> = kinds.into_iter().map(WorkloadKind::kind).collect();
        tracing::warn!(?kinds, "not listed in time: deciding without them; what their jobs hold stays charged");
        None
    }

    /// Data that a catalogue is to be asked for now: its answer is an input.
    pub fn take_question(&mut self, now: Timestamp) -> Option<Arc<DataIdentity>> {
        if !self.is_complete() {
            return None;
        }
        self.data_catalogue.take_question(&self.objects.data.index, now)
    }

    /// What tenants used lately is not known here: their shares are of what they have now.
    pub fn ignore_tenant_history(&mut self) {
        self.jobs.engine.ignore_tenant_history();
    }

    /// True once after quota came free.
    pub fn take_quota_freed(&mut self) -> bool {
        self.jobs.take_quota_freed()
    }
}

/// Objects in.
impl Controller {
    /// Takes in what happened, at this time.
    pub fn observe(&mut self, input: Input, now: Timestamp) {
        self.now = now;
        self.jobs.engine.set_now(EpochSeconds::from(now));
        if input.resets_written_kind() {
            self.sent_writes.forget_all_writes();
        }
        self.actions.observe_input(&input, now);
        let changes = match input {
            Input::Queues(event) => self.objects.apply_queues(event),
            Input::Bindings(event) => {
                self.jobs.in_first_list = !self.objects.is_listed(ObjectKind::Bindings);
                let changes = self.objects.apply_bindings(event);
                self.propagate_changes(changes);
                self.jobs.in_first_list = false;
                return;
            }
            Input::Workloads(kind, event) => self.objects.apply_workloads(kind, event),
            Input::PodGroups(event) => self.objects.apply_pod_groups(event),
            Input::Classes(event) => self.objects.apply_classes(event),
            Input::Namespaces(event) => {
                self.cron_jobs.observe_namespaces(&event, now);
                self.objects.apply_namespaces(event)
            }
            Input::DataSources(event) => self.objects.apply_data_sources(event),
            Input::DataClaims(event) => self.objects.apply_data_claims(event),
            Input::Clusters(event) => return self.observe_clusters(event),
            Input::Links(event) => {
                match event {
                    Event::Applied(object) => self.links.set(object),
                    Event::Deleted(object) => self.links.remove(object.metadata.name.as_deref().unwrap_or_default()),
                    Event::Reset(all) => self.links.replace(all),
                }
                return self.capacity.set_federation_topology(self.links.merge_topology());
            }
            Input::CapacityReservations(event) => self.objects.apply_capacity_reservations(event),
            Input::Commands(event) => {
                let of_queues = event.clone().filter_map(CommandFacts::for_queue);
                of_queues.into_iter().for_each(|event| self.queues.lifecycle.observe_commands(event));
                let of_jobs = event.filter_map(CommandFacts::for_job);
                return of_jobs.into_iter().for_each(|event| self.commands.observe_commands(event, now));
            }
            Input::HyperJobs(event) => {
                match &event {
                    Event::Applied(facts) | Event::Deleted(facts) => self.jobs.gangs.observe_hyper_job(&facts.key),
                    Event::Reset(_) => {
                        self.objects.mark_listed(ObjectKind::HyperJobs);
                        self.jobs.gangs.observe_all();
                    }
                }
                return self.hyper_jobs.observe_hyper_jobs(event, now);
            }
            Input::CronJobs(kind, event) => return self.cron_jobs.observe_cron_jobs(kind, event, now),
            Input::Policies(event) => return self.hyper_jobs.observe_policies(event, now),
            Input::Works(cluster, event) => {
                let concerned = self.objects.losses.apply_works(&cluster, event, now);
                return concerned.iter().for_each(|key| self.reassess_binding(key));
            }
            Input::WorksUnwatched(cluster) => return self.objects.losses.forget_works(&cluster),
            Input::Member(cluster, update) => {
                let batch_jobs = self.list_affected_batch_jobs(&cluster, &update);
                let reports_load = matches!(update, Update::NodeUse(..) | Update::Load(_) | Update::Down(_));
                self.capacity.apply_update(&cluster, update);
                if reports_load {
                    self.load_aware.observe_load(&cluster, self.capacity.fleet().member_load(&cluster), now);
                }
                for key in batch_jobs {
                    self.update_pods_on_nodes(&key);
                    self.pod_groups.mark_dirty(&key);
                    self.recount_phase(&key);
                }
                return;
            }
            Input::UsageHistory(read) => return self.usage.merge_history(read),
            Input::FairHistory(read) => {
                self.earlier_history.observe(read);
                return self.earlier_history.count_in(&mut self.jobs.engine);
            }
            Input::JobHistory(read) => return self.ended_jobs.merge_history(read),
            Input::Actions(read) => return self.actions.merge_history(read),
            Input::Located(answer) => {
                return self.outbox.extend(self.data_catalogue.apply_catalogue_answer(answer, now));
            }
            Input::Listed(kind) => return self.objects.mark_listed(kind),
        };
        self.propagate_changes(changes);
    }

    pub(crate) fn propagate_changes(&mut self, changes: Vec<Change>) {
        // Of these, and of those below them, other namespaces may have jobs now.
        let mut reopened = BTreeSet::new();
        for change in changes {
            match change {
                Change::Queue { name, spec, state, access } => {
                    self.queues.lifecycle.observe_queue(&name, state);
                    if spec {
                        self.queues.annotations.observe_tree(self.now);
                    }
                    // Its numbers alone, which follow the PodGroups that a sweep makes, are no reason for the next.
                    self.jobs.changed |= spec || state || access;
                    if let Some(queue) = self.objects.queues.get(&name) {
                        self.jobs.engine.set_queue(queue.spec.clone());
                        if name.as_str() == DEFAULT_QUEUE && self.jobs.engine.set_paused(queue.paused.clone()) {
                            self.jobs.changed = true;
                            tracing::info!(paused = queue.paused.as_deref(), "releases are paused, or go on");
                        }
                    }
                    reopened.extend(access.then_some(name));
                }
                Change::QueueGone(name, access) => {
                    self.jobs.engine.remove_queue(&name);
                    self.queues.numbers.forget(&name);
                    self.queues.lifecycle.forget_queue(&name);
                    self.queues.annotations.forget(&name, self.now);
                    self.jobs.changed = true;
                    reopened.extend(access.then_some(name));
                }
                Change::CapacityReservations => self.jobs.follow_capacity_reservations(&self.objects),
                Change::Binding(key) => {
                    self.reassess_binding(&key);
                    if let Some(binding) = self.objects.bindings.get(&key) {
                        self.commands.observe_job(&binding.workload, self.now);
                    }
                }
                Change::VolcanoJob(reference) => {
                    let job = self.objects.workloads.get(&reference).map(|job| &**job);
                    self.hyper_jobs.observe_job(&reference, job, self.now);
                    self.cron_jobs.observe_job(WorkloadKind::VolcanoJob, &reference, job, self.now);
                    self.expiries.observe_job(&reference, job);
                    self.commands.observe_job(&reference, self.now);
                }
                Change::BatchJob(reference) => {
                    let job = self.objects.workloads.get(&reference).map(|job| &**job);
                    self.cron_jobs.observe_job(WorkloadKind::BatchJob, &reference, job, self.now);
                }
                Change::BindingGone(binding) => self.forget_binding(&binding),
                Change::Data(changed) => {
                    self.data_catalogue.observe_claims(&self.objects.data.index, &changed.claims);
                    self.data_claims.observe(changed);
                }
                Change::PodGroup(key) => {
                    if let Some(binding) = self.objects.bindings.get(&key) {
                        self.hyper_jobs.observe_pod_group(&binding.workload, self.now);
                    }
                    self.pod_groups.mark_dirty(&key);
                    self.waiting_states.observe_binding(&self.objects, &self.jobs, &key, self.now);
                }
                Change::AllBindings => self.reassess_bindings(|_| true),
            }
        }
        if !reopened.is_empty() {
            let is_below =
                |queue: &QueueName| self.objects.queue_path(queue).iter().any(|name| reopened.contains(name));
            let queues = self.objects.bindings.values().filter_map(|binding| self.objects.queue_of(binding));
            let concerned: BTreeSet<QueueName> =
                queues.collect::<BTreeSet<_>>().into_iter().filter(|queue| is_below(queue)).cloned().collect();
            let is_there =
                |binding: &Binding| self.objects.queue_of(binding).is_some_and(|queue| concerned.contains(queue));
            let bindings = self.objects.bindings.values().filter(|binding| is_there(binding));
            let keys: Vec<Key> = bindings.map(|binding| binding.key.clone()).collect();
            keys.iter().for_each(|key| self.reassess_binding(key));
            // What a queue takes of them together may be more or less.
            self.jobs.gangs.observe_all();
        }
    }

    fn forget_binding(&mut self, binding: &Binding) {
        let key = &binding.key;
        self.jobs.remove_binding(key);
        self.jobs.cleanups.observe_deleted_binding(binding, self.now);
        let is_there = self.objects.workload_of(binding).is_some();
        self.ended_jobs.record_deleted_job(binding, self.usage.charge_of(key), is_there, self.now);
        self.usage.account_charge(key, None, None, binding.created, (false, false), self.now);
        self.capacity.forget_job(&binding.id);
        self.capacity.set_selected_labels(binding.id.as_str(), None, &[]);
        self.deadlines.forget_binding(key);
        self.data_claims.observe(self.objects.data.list_claims_of(&binding.workload));
        self.recount_phase(key);
        self.pod_groups.forget(key);
        self.waiting_states.observe_binding(&self.objects, &self.jobs, key, self.now);
        // Without its workload the garbage collector takes the PodGroup; otherwise it is ours to delete.
        if let Some(workload) = self.objects.workloads.get(&binding.workload).filter(|workload| !workload.deleting) {
            let owned = self.objects.pod_groups.list_owned(workload);
            let delete =
                |it: &PodGroupFacts| Decision::DeletePodGroup { key: it.key.clone(), uid: Arc::clone(&it.uid) };
            self.outbox.extend(owned.map(delete));
        }
    }

    /// Assesses anew the bindings that this is about.
    pub(crate) fn reassess_bindings(&mut self, which: impl Fn(&Binding) -> bool) {
        let bindings = self.objects.bindings.values().filter(|binding| which(binding));
        let keys: Vec<Key> = bindings.map(|binding| binding.key.clone()).collect();
        keys.iter().for_each(|key| self.reassess_binding(key));
    }

    /// Works out anew what a binding waits for or holds, and tells everybody whom it concerns.
    pub(crate) fn reassess_binding(&mut self, key: &Key) {
        self.update_pods_on_nodes(key);
        let Self { objects, jobs, capacity, now, .. } = self;
        let now = *now;
        let Some(binding) = objects.bindings.get(key) else { return };
        jobs.add_binding(binding);
        // By the answer or by the watch, whichever is first.
        let Some(released) = jobs.drop_assumed_if_newer(key, &binding.resource_version) else { return };
        if released {
            self.admission_events.observe_release(binding, now);
        }
        self.pod_groups.mark_dirty(key);
        if let Some(at) = self.preemption.observe_eviction(binding, now) {
            jobs.retry_at(at, key);
        }
        if let Some(at) = observe_old_copies(objects, jobs, capacity, binding, now) {
            jobs.retry_at(at, key);
        }
        if jobs.cleanups.is_terminating(key) {
            self.preemption.remember_returning_job(key);
        }
        let fault = jobs.judge_record(objects, capacity, binding, now);
        self.deadlines.forged.schedule_removal(binding, fault, now);
        let state = assess_with_admission_checks(objects, jobs, capacity, binding, now);
        let workload = objects.workloads.get(&binding.workload);
        // One that was released and does not run yet is taken to begin now.
        let began = workload.and_then(|workload| workload.progress.started).unwrap_or_else(|| now.into());
        let ends = workload.and_then(|workload| estimate_end(binding, workload, began));
        // Of what is taken away nothing is cut, granted anew or asked for. Nor is a stale grant cut: that would grant
        // the rest under our lease, and nobody asked whether it is within a limit.
        let is_unplaced = binding.clusters.is_empty() && binding.epoch.as_deref() != jobs.epoch.as_deref();
        let is_stale = is_unplaced || jobs.states.get(&binding.key).is_some_and(|state| state.grant.is_stale());
        let holds = jobs.apply_state(objects, binding, state, ends);
        let charged = holds
            .as_ref()
            .filter(|_| fault.is_none())
            .and_then(|(queue, _)| jobs.engine.charge_of(binding.id.as_str()).map(|amount| (queue.clone(), amount)));
        let is_old = !objects.is_complete();
        // A binding that outlives its job by a moment is charged until it goes; that is no new admission. Nor is what
        // the status of a job that ended says while the job is deleted and its copies go.
        let may_begin = workload.is_some_and(|workload| !workload.deleting);
        let charged = charged.filter(|_| may_begin || self.usage.charge_of(key).is_some());
        let user = workload.and_then(|workload| workload.submitter.as_ref());
        let (created, is_stored) = (binding.created, binding.admission.is_some());
        self.usage.account_charge(key, charged, user, created, (is_stored, is_old), now);
        if fault.is_none() {
            self.ended_jobs.observe_binding(binding, workload.map(|workload| &**workload), is_old, now);
        }
        let holds = holds.map(|(queue, resize)| (queue, resize.filter(|_| fault.is_none() && !is_stale)));
        let evicted = holds.is_some() && explain_eviction_wait(objects, jobs, capacity, binding, now).is_some();
        let again = binding.eviction.as_deref().and_then(|record| compute_eviction_expiry(record).to_timestamp());
        jobs.apply_resize(objects, binding, holds, evicted, again, now);
        update_assumed_place(objects, jobs, capacity, binding);
        let Some(state) = jobs.states.get(key) else { return };
        let (stage, workload) = (state.stage(), objects.workload_of(binding));
        let deadlines = &mut self.deadlines;
        deadlines.placement.observe_phase(key, &state.phase, now);
        deadlines.start.observe_binding(binding, workload, stage, now);
        deadlines.withdrawals.observe_binding(binding, workload, &state.phase, now);
        deadlines.run_limits.observe_binding(binding, workload, &state.phase, now);
        deadlines.refused.observe_binding(binding, workload, stage, now);
        deadlines.silent.observe_binding(binding, stage, now);
        deadlines.unreported.observe_binding(binding, stage, now);
        deadlines.orphans.observe_binding(binding, now);
        deadlines.held.observe_binding(binding, workload, now);
        deadlines.restarts.observe_binding(binding, workload, stage, now);
        deadlines.failed.observe_binding(binding, workload, stage, now);
        deadlines.successes.observe_binding(binding, workload, stage, now);
        self.member_loss.observe_binding(objects, binding, now);
        deadlines.unused.observe_binding(binding, workload, stage, now);
        let is_unused = deadlines.unused.is_unused(key);
        let stage = stage.filter(|_| fault.is_none());
        deadlines.stale.observe_binding(binding, stage, jobs.epoch.as_deref(), is_unused, now);
        self.waiting_states.observe_binding(objects, jobs, key, now);
        self.recount_phase(key);
    }

    /// Counts the PodGroup of a binding anew in the numbers of its queue.
    pub(crate) fn recount_phase(&mut self, key: &Key) {
        let QueueWrites { counts, annotations, .. } = &mut self.queues;
        for queue in counts.recount(&self.objects, &self.jobs, key) {
            if matches!(self.jobs.engine.queue_problem(&queue), Some(QueueProblem::NotLeaf(_))) {
                annotations.observe_tree(self.now);
            }
        }
    }

    /// Takes what was found in the answer to a write, as the watch would tell it.
    pub(crate) fn take_deferred_decisions(&mut self) -> Vec<Decision> {
        mem::take(&mut self.outbox)
    }

    /// Assesses duplicated jobs anew: they ask for as many copies as there are clusters for them, also while they run.
    pub(crate) fn reassess_duplicated_jobs(&mut self) {
        self.reassess_bindings(|binding| {
            let placement = binding.placement.as_deref();
            placement.is_some_and(|placement| is_duplicated(placement.placement.division.as_ref()))
        });
    }
}
