//! The adapter of the queue engine: what it was told of each binding, the releases that the watch has not shown yet,
//! smaller records that are to be written, and bindings that are to be looked at again.
//!
//! Between a release and its appearance in the watch the binding is *assumed* admitted, for the version that the
//! decision was made for: an event of that version changes nothing, so a release is neither repeated nor forgotten in
//! between. A release of which nobody knows whether it was stored is sent again, less and less often. One that the API
//! server refuses is given up, and its job is out of line for ten seconds.
//!
//! A binding that holds quota and wants more waits with the difference as a second job of the engine ([`Increase`]).
//! That is charged beside the first from its release until the binding shows the larger record. Its age is what the
//! PodGroup says since when it asks for more, so a restart keeps it.
//!
//! A job of a HyperJob is told to [`job_gangs`](super::job_gangs), which says who is in line, before each decision.

mod gangs;
mod state;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    gang::QueueName,
    queue::{Ask, Counted, Engine, Job, JobId, Release},
    reason::Reason,
    time::EpochSeconds,
};
use jiff::{SignedDuration, Timestamp};

pub(crate) use self::state::{Assumed, JobPhase, JobState, PendingIncrease};
use super::{
    binding_state::BindingState,
    copy_cleanup::CopyCleanups,
    grant_history::GrantHistory,
    job_gangs::JobGangs,
    resize::{Increase, IncreaseKind, Resize, add_grant},
    run_terms::RunTerms,
};
use crate::{
    decide::deadlines::add_wait,
    observe::{Binding, Key, Objects},
    write::Decision,
};

/// What became of the write of a release.
pub(crate) enum ReleaseOutcome {
    /// Whether it was stored is not known.
    Unknown,
    /// The binding has changed, maybe by this very release sent before.
    Conflict,
    /// The API server will not have it.
    Refused(String),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) engine: Engine,
    pub(crate) states: BTreeMap<Key, Box<JobState>>,
    /// Bindings by their names in the engine, increases included.
    pub(crate) keys: BTreeMap<JobId, Key>,
    /// Under which lease this replica grants; `None` without one.
    pub(crate) epoch: Option<Arc<str>>,
    /// Jobs that start together.
    pub(crate) gangs: JobGangs,
    /// Old copies that members do not forget at once.
    pub(crate) cleanups: CopyCleanups,
    /// The bindings that are told now are those that the first list has.
    pub(crate) in_first_list: bool,
    /// Smaller records to be written.
    smaller_records: BTreeMap<Key, Admission>,
    /// Bindings to be looked at later: releases to be sent again, refusals and backoffs that end.
    retries: BTreeSet<(Timestamp, Key)>,
    /// Of a controller that only says what it would do: the jobs that it has said it would evict others for.
    pub(crate) shadow: Option<BTreeSet<JobId>>,
    /// Charges or queues changed since this was last asked.
    pub(crate) changed: bool,
    freed: bool,
}

/// Bindings come and go.
impl Jobs {
    /// Takes in a binding that is new.
    pub(crate) fn add_binding(&mut self, binding: &Binding) {
        if self.states.contains_key(&binding.key) {
            return;
        }
        self.keys.insert(binding.id.clone(), binding.key.clone());
        let (id, phase) = (binding.id.clone(), JobPhase::OutOfScope);
        let grant = GrantHistory::default();
        let state =
            JobState { id, phase, assumed: None, is_eviction_sent: false, refused: None, increase: None, grant };
        self.states.insert(binding.key.clone(), Box::new(state));
    }

    /// Forgets a binding that is gone.
    pub(crate) fn remove_binding(&mut self, key: &Key) {
        self.cancel_increase(key);
        self.smaller_records.remove(key);
        self.gangs.forget(key);
        let Some(state) = self.states.remove(key) else { return };
        self.freed |= state.assumed.is_some() || matches!(state.phase, JobPhase::Holding { .. });
        self.changed = true;
        self.engine.remove_job(state.id.as_str());
        self.keys.remove(&state.id);
    }

    /// Gives an assumed release up if the watch has shown a newer version. `None` while it has not; else whether it was
    /// the release of a job.
    pub(crate) fn drop_assumed_if_newer(&mut self, key: &Key, resource_version: &str) -> Option<bool> {
        let state = self.states.get_mut(key)?;
        if state.assumed.as_ref().is_some_and(|assumed| *assumed.resource_version == *resource_version) {
            return None;
        }
        Some(state.assumed.take().is_some_and(|assumed| !assumed.resizes))
    }

    /// Tells the engine what a binding waits for or holds; `ends` is when it ends at the latest, if it says so. Gives
    /// back what should become of its record, and the queue that is charged for it.
    pub(crate) fn apply_state(
        &mut self,
        objects: &Objects,
        binding: &Binding,
        state: BindingState,
        ends: Option<EpochSeconds>,
    ) -> Option<(QueueName, Option<Resize>)> {
        let gang = self.update_gang_state(objects, binding, &state);
        let job = self.states.get_mut(&binding.key)?;
        let id = &job.id;
        let before = self.engine.charge_of(id.as_str());
        let (mut holds, was_pending, mut is_news) = (None, job.phase == JobPhase::Pending, true);
        job.phase = match state {
            BindingState::OutOfScope => {
                self.engine.remove_job(id.as_str());
                JobPhase::OutOfScope
            }
            BindingState::Blocked(reason) => {
                self.engine.remove_job(id.as_str());
                JobPhase::Blocked(Box::new(reason))
            }
            BindingState::BackingOff(_, reason, _) if gang => {
                self.engine.remove_job(id.as_str());
                JobPhase::Blocked(Box::new(reason))
            }
            BindingState::BackingOff(job, reason, since) => {
                self.engine.back_off_job(job, since);
                JobPhase::Blocked(Box::new(reason))
            }
            // Whether it is in line is decided with the others.
            BindingState::Pending(_) if gang => {
                is_news = false;
                if before.is_some() {
                    self.engine.remove_job(id.as_str());
                }
                match std::mem::replace(&mut job.phase, JobPhase::OutOfScope) {
                    JobPhase::Pending => JobPhase::Pending,
                    // Together they may ask for too much.
                    JobPhase::Blocked(why)
                        if why.is_about_other_jobs()
                            || matches!(*why, Reason::Invalid { .. } | Reason::ExceedsLargestJob { .. }) =>
                    {
                        JobPhase::Blocked(why)
                    }
                    _ => {
                        let detail = "the others are looked at next".to_owned();
                        JobPhase::Blocked(Box::new(Reason::JobsMissing { detail }))
                    }
                }
            }
            BindingState::Pending(job) => {
                is_news = self.engine.enqueue_job(job) || !was_pending;
                JobPhase::Pending
            }
            BindingState::Holding { queue, charge, reason, resize } => {
                // The queues above it at that time; what its queue says now counts more.
                let record = binding.admission.as_ref().filter(|record| record.queue == queue);
                let above = record.map_or(&[][..], |record| &record.above);
                let counted = objects.classify_for_running_limits(&queue, binding);
                self.engine.charge_job_with_ancestors(id, &queue, above, &charge.amount, &counted);
                self.engine.set_expected_end(id.as_str(), ends);
                holds = Some((queue, resize));
                JobPhase::Holding { stage: charge.stage, reason: Box::new(reason) }
            }
        };
        // That a job says why it waits, for instance, is nothing that others wait for.
        self.changed |= is_news;
        let after = self.engine.charge_of(id.as_str()).unwrap_or_default();
        self.freed |= before.is_some_and(|before| !before.fits_in(&after));
        holds
    }

    /// True once after quota came free.
    pub(crate) fn take_quota_freed(&mut self) -> bool {
        mem::take(&mut self.freed)
    }
}

/// Resizes.
impl Jobs {
    /// Follows what should become of a binding's record. `evicted` says that surplus was taken from it a short time
    /// ago: then it does not ask for surplus again before `asks_again`.
    pub(crate) fn apply_resize(
        &mut self,
        objects: &Objects,
        binding: &Binding,
        holds: Option<(QueueName, Option<Resize>)>,
        evicted: bool,
        asks_again: Option<Timestamp>,
        now: Timestamp,
    ) {
        let key = &binding.key;
        let Some((queue, resize)) = holds else { return self.cancel_increase(key) };
        self.smaller_records.remove(key);
        match resize {
            None => self.cancel_increase(key),
            Some(Resize::Shrink(record)) => {
                self.cancel_increase(key);
                self.smaller_records.insert(key.clone(), record);
            }
            Some(Resize::Grow(increase)) => {
                let refused = self.states.get(key).is_some_and(|state| state.refusal(now).is_some());
                if refused || (increase.kind == IncreaseKind::Surplus && evicted) {
                    self.cancel_increase(key);
                    self.retries.extend(asks_again.filter(|at| *at > now).map(|at| (at, key.clone())));
                } else {
                    self.enqueue_increase(objects, binding, &queue, increase, now);
                }
            }
        }
    }

    fn enqueue_increase(
        &mut self,
        objects: &Objects,
        binding: &Binding,
        queue: &QueueName,
        increase: Increase,
        now: Timestamp,
    ) {
        let Some(state) = self.states.get_mut(&binding.key) else { return };
        let priority = match increase.kind {
            // After everybody who needs something.
            IncreaseKind::Surplus => i32::MIN,
            IncreaseKind::Needed | IncreaseKind::Copies | IncreaseKind::Requests => {
                objects.workload_of(binding).map_or(0, |workload| objects.priority_of_class(&workload.class))
            }
        };
        let id: JobId = format!("{}+more", binding.id.as_str()).as_str().into();
        let known = state.increase.as_ref().map(|pending| pending.since);
        let since = known.or_else(|| read_increase_start(objects, binding)).unwrap_or_else(|| now.into());
        let tenants = objects.classify_for_running_limits(queue, binding).tenants().into();
        let ask = Arc::new(Ask { counted: Counted::More(tenants), ..increase.ask.clone() });
        self.engine.enqueue_job(Job {
            id: id.clone(),
            queue: queue.clone(),
            priority,
            created: since.into(),
            deadline: None,
            ask,
        });
        self.engine.mark_as_resize_of(&id, &binding.id);
        self.keys.insert(id.clone(), binding.key.clone());
        state.increase = Some(Box::new(PendingIncrease { id, since, increase }));
    }

    fn cancel_increase(&mut self, key: &Key) {
        let Some(pending) = self.states.get_mut(key).and_then(|state| state.increase.take()) else { return };
        self.engine.remove_job(pending.id.as_str());
        self.keys.remove(&pending.id);
    }

    /// Other amounts are kept for a time.
    pub(crate) fn follow_capacity_reservations(&mut self, objects: &Objects) {
        self.engine.set_capacity_reservations(objects.capacity_reservations.list_kept());
        self.changed = true;
    }

    /// Why a pending binding waits.
    pub(crate) fn explain_pending(&self, key: &Key) -> Option<Reason> {
        self.engine.explain_pending(self.find_queued_job_id(key)?.as_str())
    }

    /// What a binding that holds quota needs on top, and why that waits.
    pub(crate) fn describe_increase(&self, state: &JobState) -> Option<String> {
        let pending = state.needed_increase()?;
        let why = self.engine.explain_pending(pending.id.as_str())?;
        let waits = if matches!(why, Reason::ExceedsLimit { .. }) { "" } else { "waits: " };
        Some(format!("the rest, {}, {waits}{why}", pending.increase.ask.minimum()))
    }

    /// Why a binding that holds quota can never have what it needs on top, if so.
    pub(crate) fn find_impossible_increase(&self, state: &JobState) -> Option<Reason> {
        let pending = state.needed_increase()?;
        self.engine.explain_pending(pending.id.as_str()).filter(|why| matches!(why, Reason::ExceedsLimit { .. }))
    }

    /// The reason of a binding that holds quota; that it can never have what it needs on top comes first.
    pub(crate) fn holding_reason<'a>(&self, state: &JobState, reason: &'a Reason) -> Cow<'a, Reason> {
        let never = self.find_impossible_increase(state).filter(|_| matches!(reason, Reason::ScaledUp { .. }));
        never.map_or(Cow::Borrowed(reason), Cow::Owned)
    }

    /// Has a smaller record written with the next decisions.
    pub(crate) fn schedule_smaller_record(&mut self, key: Key, record: Admission) {
        self.smaller_records.insert(key, record);
    }

    /// Writes the smaller records.
    pub(crate) fn write_smaller_records(&mut self, objects: &Objects) -> Vec<Decision> {
        let records = mem::take(&mut self.smaller_records);
        let mut decisions = Vec::new();
        for (key, record) in records.into_iter() {
            let Some(binding) = self.find_confirmed(objects, &key) else { continue };
            decisions.extend(self.assume_record(binding, record, true));
        }
        decisions
    }
}

/// Releases.
impl Jobs {
    /// Whether no release of a binding is assumed, and no eviction of it unanswered.
    pub(crate) fn is_confirmed(&self, key: &Key) -> bool {
        self.states.get(key).is_some_and(|state| state.is_confirmed())
    }

    /// Whether an eviction may be sent: another one of the same binding is answered first. Else what is not answered
    /// for minutes is sent again every few seconds.
    pub(crate) fn begin_eviction(&mut self, key: &Key) -> bool {
        self.states.get_mut(key).is_none_or(|state| !std::mem::replace(&mut state.is_eviction_sent, true))
    }

    pub(crate) fn end_eviction(&mut self, key: &Key) {
        if let Some(state) = self.states.get_mut(key) {
            state.is_eviction_sent = false;
        }
    }

    /// A binding of which nothing is assumed or unanswered: what is decided of it is decided of what is written.
    pub(crate) fn find_confirmed<'a>(&self, objects: &'a Objects, key: &Key) -> Option<&'a Binding> {
        self.is_confirmed(key).then(|| objects.bindings.get(key).map(AsRef::as_ref))?
    }

    /// What a release of the engine makes us write: the job's record, or a larger one where the release is an increase.
    /// `terms` are those of a run that begins now: one that goes on with more keeps its own.
    pub(crate) fn assume_release(&mut self, binding: &Binding, release: Release, terms: RunTerms) -> Option<Decision> {
        let RunTerms { run, nodes, clusters, data } = terms;
        let granted = Admission { data, ..release.admission };
        let increase = self.states.get(&binding.key)?.increase_named(&release.id);
        let Some(kind) = increase.map(|increase| increase.kind) else {
            return self.assume_record(binding, Admission { run, nodes, clusters, ..granted }, false);
        };
        let record = add_grant(binding.admission.as_deref()?, kind, &granted);
        self.assume_record(binding, record, true)
    }

    /// Takes a binding to have this record until the watch shows it, and writes that.
    pub(crate) fn assume_record(&mut self, binding: &Binding, admission: Admission, resizes: bool) -> Option<Decision> {
        // Without a lease the epoch of an earlier one is wiped out: nobody holds that.
        let epoch = self.epoch.clone().or_else(|| binding.epoch.is_some().then(|| Arc::from("")));
        let state = self.states.get_mut(&binding.key)?;
        let resource_version = Arc::clone(&binding.resource_version);
        state.grant.remember_sent(&admission, epoch.as_ref());
        let assumed = Assumed { resource_version, admission, resizes, epoch, retry: None, attempts: 0 };
        let decision = assumed.to_decision(&binding.key);
        state.assumed = Some(Box::new(assumed));
        Some(decision)
    }

    /// Takes in that a release failed; true if the binding is to be assessed anew. The answer to a release that was
    /// overtaken says nothing about the one under way. A release that may have been stored keeps its charge until the
    /// watch shows what became of it: the same patch is sent again, which its precondition lets succeed once only.
    pub(crate) fn apply_failed_release(
        &mut self,
        binding: &Binding,
        version: &str,
        outcome: ReleaseOutcome,
        now: Timestamp,
    ) -> bool {
        let Some(state) = self.states.get_mut(&binding.key) else { return false };
        let current = state.assumed.as_mut().filter(|assumed| *assumed.resource_version == *version);
        let Some(assumed) = current else { return false };
        let (at, gives_up) = match outcome {
            ReleaseOutcome::Unknown => {
                assumed.attempts += 1;
                (add_wait(now, SignedDuration::from_millis(100 << assumed.attempts.min(7))), false)
            }
            ReleaseOutcome::Conflict if assumed.resource_version == binding.resource_version => {
                assumed.attempts += 1;
                (add_wait(now, SignedDuration::from_secs(5 << (assumed.attempts - 1).min(4))), false)
            }
            ReleaseOutcome::Conflict => {
                state.assumed = None;
                return true;
            }
            ReleaseOutcome::Refused(error) => {
                let at = add_wait(now, SignedDuration::from_secs(10));
                state.refused = Some((error.into(), at));
                (at, true)
            }
        };
        if gives_up {
            state.assumed = None;
        } else {
            assumed.retry = Some(at);
        }
        self.retries.insert((at, binding.key.clone()));
        gives_up
    }

    /// Whether the answer to a release is about the one under way.
    pub(crate) fn is_assumed_at(&self, key: &Key, version: &str) -> bool {
        let assumed = self.states.get(key).and_then(|state| state.assumed.as_ref());
        assumed.is_some_and(|assumed| *assumed.resource_version == *version)
    }
}

/// Retries.
impl Jobs {
    /// Looks at a binding again at this time.
    pub(crate) fn retry_at(&mut self, at: Timestamp, key: &Key) {
        self.retries.insert((at, key.clone()));
    }

    pub(crate) fn next_retry(&self) -> Option<Timestamp> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Takes one binding whose time has come: what to send again, and whether it is to be assessed anew.
    pub(crate) fn take_retry(&mut self, objects: &Objects, now: Timestamp) -> Option<(Key, Option<Decision>, bool)> {
        self.retries.first().filter(|(at, _)| *at <= now)?;
        let (_, key) = self.retries.pop_first()?;
        let evicted = objects.bindings.get(&key).is_some_and(|binding| binding.eviction.is_some());
        let Some(state) = self.states.get_mut(&key) else { return Some((key, None, false)) };
        let (mut resend, mut assess) = (None, false);
        match &mut state.assumed {
            Some(assumed) if assumed.retry.is_some_and(|at| at <= now) => {
                assumed.retry = None;
                resend = Some(assumed.to_decision(&key));
            }
            Some(_) => {}
            None if state.refused.as_ref().is_some_and(|(_, until)| *until <= now) => {
                state.refused = None;
                assess = true;
            }
            // A binding that surplus was taken from may ask for it again. One that was never evicted waits maybe.
            None => {
                let waits = matches!(&state.phase, JobPhase::Blocked(why) if matches!(**why, Reason::Requeued { .. }));
                assess = state.increase.is_none() && (evicted || waits);
            }
        }
        Some((key, resend, assess))
    }
}

/// Since when the PodGroup of a binding says that it asks for more.
fn read_increase_start(objects: &Objects, binding: &Binding) -> Option<EpochSeconds> {
    let group = objects.pod_groups.find(objects.workload_of(binding)?)?;
    let says = [Reason::SCALED_UP, "ExceedsCapability", "ExceedsFleet"].contains(&&*group.status.reason);
    let since: Timestamp = group.status.since.parse().ok().filter(|_| says)?;
    Some(EpochSeconds::from(since))
}
