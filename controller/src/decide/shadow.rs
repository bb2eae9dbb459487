//! What would be decided beside another scheduler, of which nothing is written, and how that compares.
//!
//! Rules:
//! 1. Each decision is made on the fleet as it is, which the other scheduler fills: what it placed holds quota and
//!    nodes, whether or not we would have admitted it.
//! 2. What has no clusters counts as gated: a suspension of scheduling is the other scheduler's own queue.
//! 3. What is told with clusters when it is first seen is decided on once as if it had none. The other scheduler was
//!    faster than the watch. What is placed in the first moments, before each ready cluster was heard of, is compared
//!    with nothing, as what was placed before.
//! 4. What would be released gets its record here alone, and is charged by it from then on. What was placed before the
//!    shadow began has none, so that it is never evicted, as after an adoption.
//! 5. Of evictions one attempt is told for each job. None is carried out, so the job goes on waiting, and its victims
//!    may be another job's after [`EVICTION_COUNTS`].
//! 6. Only releases, reservations, reclaim and preemption are decided: nothing of queues' states, PodGroups, Commands
//!    or deadlines.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    queue::{JobId, preemption::EvictionRecord},
    reason::{EvictionCause, Reason},
};
use caldera_runtime::watch::Event;
use jiff::{SignedDuration, Timestamp};

use super::{Controller, Decisions, bindings::jobs::JobPhase, deadlines::add_wait};
use crate::{
    observe::{Binding, Input, Key},
    shadow::{MOST_EVICTED, MOST_JOBS, ShadowJob, ShadowReport, ShadowVerdict, Totals, join_names},
    write::{Decision, Tag},
};

/// For how long an eviction that nobody carries out counts as under way.
const EVICTION_COUNTS: SignedDuration = SignedDuration::from_secs(5);
/// How long a binding that was placed before it was seen waits for its workload to be told.
const WAITS_FOR_WORKLOAD: SignedDuration = SignedDuration::from_secs(5);
/// How long after the host was listed it is waited for word of clusters.
const WAITS_FOR_CAPACITY: SignedDuration = SignedDuration::from_secs(30);

/// Something that a person would ask about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShadowNote {
    /// It would be released.
    Released { binding: Key, queue: String, clusters: String },
    /// It would be evicted.
    Evicted { binding: Key, by: String, reason: String, why: String },
    /// The other scheduler placed it.
    Placed { binding: Key, verdict: ShadowVerdict, clusters: String, would_be_in: String, why: String },
}

/// A record that is nowhere but here.
#[derive(Debug)]
struct Granted {
    admission: Arc<Admission>,
    /// The binding is told as another version with each.
    turn: u32,
}

/// What the first decision waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// What the host has.
    Lists,
    /// Word of each ready cluster, until then at most.
    Clusters(Timestamp),
    /// Nothing.
    Over,
}

/// What is known of both schedulers' jobs.
#[derive(Debug)]
pub(crate) struct Shadow {
    since: Timestamp,
    beginning: Beginning,
    totals: Totals,
    granted: BTreeMap<JobId, Granted>,
    /// All bindings that are known: those that were placed when the shadow began are followed no further.
    known: BTreeMap<JobId, Option<ShadowJob>>,
    /// Those without clusters.
    unplaced: BTreeSet<Key>,
    /// Placed when they were first seen: as they are, and since when they are told without their clusters.
    held: BTreeMap<JobId, (Timestamp, Box<Binding>)>,
    /// Jobs that are gone.
    gone: VecDeque<ShadowJob>,
    /// What an earlier shadow told of jobs that waited.
    earlier: BTreeMap<String, ShadowJob>,
    evicted: Vec<(Timestamp, Key)>,
    notes: Vec<ShadowNote>,
    is_listed: bool,
}

impl Shadow {
    /// Goes on with what an earlier one reported, if there is that.
    pub(crate) fn new(earlier: Option<ShadowReport>, now: Timestamp) -> Self {
        let (since, totals, jobs) = match earlier {
            Some(report) => (report.since, report.totals, report.jobs),
            None => (now, Totals::default(), Vec::new()),
        };
        let (gone, waited): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.placed.is_some());
        Self {
            since,
            beginning: Beginning::Lists,
            totals,
            granted: BTreeMap::new(),
            known: BTreeMap::new(),
            unplaced: BTreeSet::new(),
            held: BTreeMap::new(),
            // The newest is told first.
            gone: gone.into_iter().rev().collect(),
            earlier: waited.into_iter().map(|job| (job.uid.clone(), job)).collect(),
            evicted: Vec::new(),
            notes: Vec::new(),
            is_listed: false,
        }
    }

    /// Takes in what a watch tells of bindings, and tells the controller what is to be made of it.
    pub(crate) fn observe_bindings(&mut self, controller: &mut Controller, event: Event<Binding>, now: Timestamp) {
        match event {
            Event::Reset(all) => {
                let there: BTreeSet<JobId> = all.iter().map(|binding| binding.id.clone()).collect();
                let gone: Vec<JobId> = self.known.keys().filter(|id| !there.contains(*id)).cloned().collect();
                gone.iter().for_each(|id| self.forget_binding(controller, id));
                let all =
                    all.into_iter().filter_map(|binding| self.hold_or_pass_binding(controller, binding, now)).collect();
                controller.observe(Input::Bindings(Event::Reset(all)), now);
                self.is_listed = true;
            }
            Event::Applied(binding) => {
                if let Some(reported) = self.hold_or_pass_binding(controller, binding, now) {
                    controller.observe(Input::Bindings(Event::Applied(reported)), now);
                }
            }
            Event::Deleted(binding) => {
                self.unplaced.remove(&binding.key);
                self.forget_binding(controller, &binding.id);
                controller.observe(Input::Bindings(Event::Deleted(binding)), now);
            }
        }
    }

    /// What the controller sees of a binding; nothing while it is held as it was.
    fn hold_or_pass_binding(&mut self, controller: &Controller, binding: Binding, now: Timestamp) -> Option<Binding> {
        if let Some((_, held)) = self.held.get_mut(&binding.id) {
            **held = binding;
            // A list must name it all the same.
            return controller.objects.bindings.get(&held.key).map(|reported| Binding::clone(reported));
        }
        let is_placed = !binding.clusters.is_empty();
        if is_placed && self.beginning != Beginning::Over {
            self.unplaced.remove(&binding.key);
            self.known.insert(binding.id.clone(), None);
        }
        if !self.known.contains_key(&binding.id) {
            self.known.insert(binding.id.clone(), None);
            if is_placed && self.is_listed {
                let reported = Binding { clusters: Vec::new(), ..binding.clone() };
                self.held.insert(binding.id.clone(), (now, Box::new(binding)));
                self.unplaced.insert(reported.key.clone());
                return Some(self.apply_shadow_grant(reported));
            }
        }
        if is_placed {
            self.compare_placement(controller, &binding, now);
        } else {
            self.unplaced.insert(binding.key.clone());
        }
        Some(self.apply_shadow_grant(binding))
    }

    /// The binding with our gate and our record, and with nobody else's.
    fn apply_shadow_grant(&self, binding: Binding) -> Binding {
        let granted = self.granted.get(&binding.id);
        let seen = binding.resource_version.split_once('+').map_or(&*binding.resource_version, |(seen, _)| seen);
        let resource_version = match granted {
            Some(granted) => format!("{seen}+{}", granted.turn).into(),
            None => Arc::from(seen),
        };
        Binding {
            resource_version,
            gate: None,
            suspended: false,
            suspension: false,
            recorded: granted.is_some(),
            admission: granted.map(|granted| Arc::clone(&granted.admission)),
            epoch: None,
            plan: None,
            planned: false,
            eviction: None,
            refused: None,
            ours: true,
            ..binding
        }
    }

    fn forget_binding(&mut self, controller: &mut Controller, id: &JobId) {
        controller.jobs.shadow.get_or_insert_default().remove(id);
        self.granted.remove(id);
        self.held.remove(id);
        if let Some(job) = self.known.remove(id).flatten() {
            self.gone.push_back(job);
            if self.gone.len() > MOST_JOBS {
                self.gone.pop_front();
            }
        }
    }

    /// The line of a binding that some queue counts.
    fn follow_job(&mut self, controller: &Controller, key: &Key) -> Option<&mut ShadowJob> {
        let (binding, state) = (controller.objects.bindings.get(key)?, controller.jobs.states.get(key)?);
        let queue = controller.objects.queue_of(binding).filter(|_| state.phase != JobPhase::OutOfScope)?;
        let uid = binding.id.to_string();
        let earlier = self.earlier.remove(&uid);
        let job = self.known.entry(binding.id.clone()).or_default();
        let job = job.get_or_insert_with(|| {
            let submitted = binding.created.to_timestamp().unwrap_or_default();
            earlier.unwrap_or_else(|| ShadowJob::new(&binding.workload, uid, queue.clone(), submitted))
        });
        Some(job)
    }

    /// The line of one that waits, with why it does.
    fn follow_wait(&mut self, controller: &Controller, key: &Key) -> Option<&mut ShadowJob> {
        let why = find_wait(controller, key);
        let job = self.follow_job(controller, key)?;
        if let Some(why) = why.filter(|_| job.admitted.is_none()) {
            job.set_reason(why.token(), &why.to_string());
        }
        Some(job)
    }

    /// Takes in that the other scheduler has placed something, before the controller is told.
    fn compare_placement(&mut self, controller: &Controller, binding: &Binding, now: Timestamp) {
        if !self.unplaced.remove(&binding.key) {
            return;
        }
        let Some(job) = self.follow_wait(controller, &binding.key).filter(|job| job.placed.is_none()) else { return };
        let at = binding.scheduled.and_then(|at| at.to_timestamp()).unwrap_or(now);
        job.placed = Some(at.max(job.submitted));
        job.placed_in = binding.clusters.iter().map(|(cluster, _)| cluster.to_string()).collect();
        let note = ShadowNote::Placed {
            binding: binding.key.clone(),
            verdict: job.verdict(),
            clusters: join_names(&job.placed_in),
            would_be_in: join_names(&job.clusters),
            why: job.message.clone().filter(|_| job.admitted.is_none()).unwrap_or_default(),
        };
        let job = job.clone();
        self.totals.count_placed(&job);
        self.notes.push(note);
    }

    fn grant(&mut self, controller: &mut Controller, key: &Key, admission: Admission, now: Timestamp) {
        let Some(binding) = controller.objects.bindings.get(key) else { return };
        let (binding, queue) = (Binding::clone(binding), admission.queue.to_string());
        let clusters = controller.capacity.list_assumed_clusters(binding.id.as_str());
        let turn = self.granted.get(&binding.id).map_or(1, |granted| granted.turn.wrapping_add(1));
        self.granted.insert(binding.id.clone(), Granted { admission: Arc::new(admission), turn });
        if let Some(job) = self.follow_job(controller, key).filter(|job| job.admitted.is_none()) {
            job.admitted = Some(now.max(job.submitted));
            job.clusters = clusters.into_iter().collect();
            (job.reason, job.message) = (None, None);
            let clusters = join_names(&job.clusters);
            self.notes.push(ShadowNote::Released { binding: key.clone(), queue, clusters });
        }
        controller.observe(Input::Bindings(Event::Applied(self.apply_shadow_grant(binding))), now);
    }

    fn note_eviction(&mut self, controller: &mut Controller, victim: &Key, record: &EvictionRecord, now: Timestamp) {
        self.evicted.push((add_wait(now, EVICTION_COUNTS), victim.clone()));
        if EvictionCause::parse_token(&record.reason).is_none() {
            return;
        }
        controller.jobs.shadow.get_or_insert_default().insert(record.preemptor.as_str().into());
        let controller = &*controller;
        let Some(preemptor) = controller.jobs.keys.get(record.preemptor.as_str()) else { return };
        let Some(job) = self.follow_wait(controller, preemptor) else { return };
        if job.evicts_at.is_some_and(|at| at != now) || job.evicts.len() == MOST_EVICTED {
            return;
        }
        job.evicts_at = Some(now);
        job.evicts.insert(victim.to_string());
        self.totals.evictions += 1;
        self.notes.push(ShadowNote::Evicted {
            binding: victim.clone(),
            by: preemptor.to_string(),
            reason: record.reason.clone(),
            why: record.message.clone(),
        });
    }

    /// Nobody carried these out.
    fn cancel_evictions(&mut self, controller: &mut Controller, now: Timestamp) {
        let (over, open) = mem::take(&mut self.evicted).into_iter().partition(|(at, _)| *at <= now);
        self.evicted = open;
        let over: Vec<(Timestamp, Key)> = over;
        for (_, key) in over {
            controller.jobs.end_eviction(&key);
            controller.preemption.apply_write_answer(&key, false);
        }
    }

    /// Lets the controller see where the bindings are that were placed before they were seen.
    fn release_held_bindings(&mut self, controller: &mut Controller, now: Timestamp) {
        let is_over = |since: Timestamp, binding: &Binding| {
            controller.objects.workload_of(binding).is_some() || add_wait(since, WAITS_FOR_WORKLOAD) <= now
        };
        let over = self.held.iter().filter(|(_, (since, binding))| is_over(*since, binding));
        let over: Vec<JobId> = over.map(|(id, _)| id.clone()).collect();
        for id in over {
            let Some((_, binding)) = self.held.remove(&id) else { continue };
            if let Some(reported) = self.hold_or_pass_binding(controller, *binding, now) {
                controller.observe(Input::Bindings(Event::Applied(reported)), now);
            }
        }
    }

    /// Until when nothing is decided, since some ready cluster was not heard of yet.
    fn wait_for_clusters(&mut self, controller: &Controller, now: Timestamp) -> Option<Timestamp> {
        if self.beginning == Beginning::Lists {
            self.beginning = Beginning::Clusters(add_wait(now, WAITS_FOR_CAPACITY));
        }
        let Beginning::Clusters(until) = self.beginning else { return None };
        if now >= until || controller.capacity.fleet().list_clusters_not_reported_yet().next().is_none() {
            self.beginning = Beginning::Over;
            return None;
        }
        Some(until)
    }

    fn next_due(&self) -> Option<Timestamp> {
        let held = self.held.values().map(|(since, _)| add_wait(*since, WAITS_FOR_WORKLOAD)).min();
        self.evicted.iter().map(|(at, _)| *at).chain(held).min()
    }

    /// All of it, the newest jobs first.
    pub(crate) fn build_report(&mut self, controller: &Controller, now: Timestamp) -> ShadowReport {
        for key in self.unplaced.clone() {
            self.follow_wait(controller, &key);
        }
        let followed = self.known.values().flatten().chain(&self.gone);
        let mut jobs: Vec<&ShadowJob> = followed.collect();
        jobs.sort_by(|a, b| b.submitted.cmp(&a.submitted).then_with(|| a.uid.cmp(&b.uid)));
        let jobs = jobs.into_iter().take(MOST_JOBS).cloned().collect();
        ShadowReport { since: self.since, written: now, totals: self.totals.clone(), jobs }
    }
}

/// Why a binding waits.
fn find_wait(controller: &Controller, key: &Key) -> Option<Reason> {
    match &controller.jobs.states.get(key)?.phase {
        JobPhase::Blocked(reason) => Some(Reason::clone(reason)),
        JobPhase::Pending => controller.jobs.explain_pending(key),
        JobPhase::OutOfScope | JobPhase::Holding { .. } => None,
    }
}

/// Decides what would be done now: what there is to say, and when to ask again if nothing happens.
pub(crate) fn decide_in_shadow(
    controller: &mut Controller,
    shadow: &mut Shadow,
    now: Timestamp,
) -> (Vec<ShadowNote>, Option<Timestamp>) {
    controller.now = now;
    if !controller.is_complete() {
        return (mem::take(&mut shadow.notes), None);
    }
    if let Some(until) = shadow.wait_for_clusters(controller, now) {
        return (mem::take(&mut shadow.notes), Some(until));
    }
    shadow.cancel_evictions(controller, now);
    let mut decisions = Decisions::default();
    controller.resume_deferred(&mut decisions);
    controller.update_engine_fleet();
    controller.release_jobs(&mut decisions);
    controller.preempt_jobs(&mut decisions);
    controller.take_deferred_decisions();
    let is_unfinished = decisions.is_unfinished;
    let goes_on = is_unfinished || decisions.releases > 0;
    for decision in decisions.writes {
        match decision {
            Decision::Release { key, admission, .. } | Decision::Resize { key, admission, .. } => {
                shadow.grant(controller, &key, admission, now);
            }
            Decision::Evict { ref key, ref eviction, .. } | Decision::Shrink { ref key, ref eviction, .. }
                if matches!(decision.tag(), Tag::Evict(_)) && controller.jobs.begin_eviction(key) =>
            {
                shadow.note_eviction(controller, key, eviction, now);
            }
            _ => {}
        }
    }
    let held = shadow.held.len();
    // Who was not looked at yet is not compared.
    if !is_unfinished {
        shadow.release_held_bindings(controller, now);
    }
    let goes_on = goes_on || shadow.held.len() < held;
    let next =
        if goes_on { Some(now) } else { controller.next_due_in_shadow().into_iter().chain(shadow.next_due()).min() };
    (mem::take(&mut shadow.notes), next)
}

impl Controller {
    /// When to decide again if nothing happens, of what is decided at all.
    fn next_due_in_shadow(&self) -> Option<Timestamp> {
        let reservation = self.jobs.engine.next_due().and_then(|due| due.to_timestamp());
        let due = [
            self.fleet_count.due,
            self.capacity.next_maintenance_end(self.now),
            self.jobs.next_retry(),
            self.jobs.cleanups.next_look(),
            self.preemption.next_due(),
            reservation,
        ];
        due.into_iter().flatten().min()
    }
}
