//! Making room for jobs that wait: which job claims when, and what its claim makes us write.
//!
//! The decision is `caldera_core::queue::preemption`; [`scene`] fills in what it looks at. Here is when it is asked: once
//! nothing more can be released, after something changed, at most once a second, for the first jobs of each queue that
//! wait for quota or room, the most important first; and not while an earlier claim is open. A claim is open from its
//! first eviction until the claimant is released or its hold is over. Until then, and until its own pods are gone, a job
//! that gave way stays out of line, so that it does not take back what it just gave. All of that is read from the
//! victims' bindings, so a restart goes on where it was; only how often a claimant failed is kept in memory.

mod scene;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    queue::{
        JobId,
        preemption::{
            self, AttemptRefusal, EvictedPart, EvictionBudget, EvictionHistory, EvictionRecord, FailedAttempts,
            NoEvictions, PreemptionInput, PreemptionPolicy, RemovedPods, Victim,
        },
    },
    reason::{EvictionCause, Reason},
    resources::Resources,
};
use caldera_runtime::event::EventType;
use jiff::{SignedDuration, Timestamp};

pub(crate) use self::scene::{path, placed};

use self::scene::Head;
use crate::{
    effect::Effect,
    facts::{Binding, Key},
    index::{Index, State, Tag},
    plan::{Plan, tell},
    unplaced,
};

/// Between two looks.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// Jobs of one queue that may claim in one look, and of all queues.
const HEADS: usize = 4;
const CLAIMS: usize = 8;
/// Between two looks at a job whose claim came to nothing, and only if something changed.
const AGAIN: i64 = 5;
/// Pods that are still not gone after so many seconds do not keep their job out of line any longer.
const GOING: i64 = 600;

/// Claims, and what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) policy: PreemptionPolicy,
    budget: Option<EvictionBudget>,
    /// Evictions that are not answered yet, with what to tell the user then.
    under_way: BTreeMap<Key, (String, String)>,
    /// Bindings that gave way a short time ago.
    recent: BTreeSet<Key>,
    /// Whose claim is open, and until when.
    open: Option<(JobId, i64)>,
    attempts: BTreeMap<JobId, FailedAttempts>,
    /// Why the last claims came to nothing.
    pub(crate) notes: BTreeMap<JobId, String>,
    /// Jobs whose claims came to nothing: not before then, and not before something changed.
    refused: BTreeMap<JobId, (i64, u64)>,
    /// Changes seen.
    changes: u64,
    /// There is cause to look.
    stirred: bool,
    looked: Option<Timestamp>,
    /// Look again then.
    pub(crate) due: Option<Timestamp>,
}

impl Claims {
    /// Look again at this second.
    fn again(&mut self, at: i64) {
        let at = Timestamp::from_second(at).ok();
        self.due = [self.due, at].into_iter().flatten().min();
    }

    /// Whether a job may claim in this look.
    fn may_ask(&mut self, id: &JobId, now: i64) -> bool {
        match self.refused.get(id).copied() {
            Some((_, changes)) if changes == self.changes => false,
            Some((until, _)) if until > now => {
                self.again(until);
                false
            }
            _ => true,
        }
    }
}

/// Closes claims that are over, and makes a new one if there is cause.
pub(crate) fn turn(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    if index.moved {
        index.claims.changes += 1;
        index.claims.stirred = true;
    }
    close(index, now.as_second());
    // What others give goes to nobody else meanwhile.
    index.engine.set_preemptor(index.claims.open.as_ref().map(|(claimant, _)| claimant.clone()));
    let claims = &mut index.claims;
    if let Some((_, until)) = &claims.open {
        claims.due = Timestamp::from_second(*until).ok();
        return;
    }
    if claims.due.is_some_and(|due| due <= now) {
        (claims.stirred, claims.due) = (true, None);
    }
    if plan.releases > 0 || !claims.under_way.is_empty() || !claims.stirred {
        return;
    }
    let next = claims.looked.and_then(|looked| looked.saturating_add(PAUSE).ok()).unwrap_or(now);
    if next > now {
        claims.due = Some(claims.due.map_or(next, |due| due.min(next)));
        return;
    }
    (claims.looked, claims.stirred, claims.due) = (Some(now), false, None);
    look(index, now, plan);
}

/// Ends the open claim if its claimant was released, is gone, or its time is over, and lets those back into line who
/// need not wait for it.
fn close(index: &mut Index, now: i64) {
    if let Some((claimant, until)) = index.claims.open.clone() {
        let waits = index.engine.is_pending(claimant.as_str());
        if !waits {
            index.claims.attempts.remove(&claimant);
            index.claims.open = None;
        } else if until <= now {
            let attempts = index.claims.attempts.entry(claimant.clone()).or_default();
            *attempts = attempts.failed_at(now);
            tracing::warn!(claimant = %claimant, failed = attempts.failed, "a claim came to nothing");
            index.claims.open = None;
        }
    }
    let recent: Vec<Key> = index.claims.recent.iter().cloned().collect();
    for key in recent {
        let Some(entry) = index.entries.get(&key) else {
            index.claims.recent.remove(&key);
            continue;
        };
        let out = index.sits_out(&entry.binding).is_some();
        let gave_way = |reason: &Reason| matches!(reason, Reason::Evicted { .. } | Reason::Requeued { .. });
        let is_out = matches!(&entry.state, State::Blocked(reason) if gave_way(reason));
        let holds = matches!(entry.state, State::Holding { .. });
        // As long as `note_eviction` would remember it.
        let until = |eviction: &EvictionRecord| if holds { gone_by(eviction) } else { eviction.until };
        let over = entry.binding.eviction.as_deref().is_none_or(|eviction| until(eviction) <= now);
        if !out && over {
            index.claims.recent.remove(&key);
        }
        // Who was taken surplus from may ask for it again.
        if if holds { !out && over } else { out != is_out } {
            index.restand(&key);
        }
    }
}

/// When, in seconds since 1970, nothing of an eviction counts any more.
pub(crate) fn gone_by(eviction: &EvictionRecord) -> i64 {
    eviction.at.saturating_add(GOING).max(eviction.until)
}

impl Index {
    /// Remembers a binding that gave way, and whose claim that was.
    pub(crate) fn note_eviction(&mut self, key: &Key) {
        let Some(eviction) = self.entries.get(key).and_then(|entry| entry.binding.eviction.clone()) else { return };
        let now = self.now.as_second();
        if gone_by(&eviction) <= now {
            return;
        }
        self.claims.recent.insert(key.clone());
        if unplaced::is_ours(&eviction) {
            if let Some(until) = Timestamp::from_second(eviction.until).ok().filter(|until| *until > self.now) {
                self.timers.insert((until, key.clone()));
            }
        } else if eviction.until > now && self.claims.open.is_none() {
            self.claims.open = Some((eviction.preemptor.as_str().into(), eviction.until));
        }
    }

    /// Why a binding that gave way is not in line yet.
    pub(crate) fn sits_out(&self, binding: &Binding) -> Option<Reason> {
        let eviction = binding.eviction.as_ref()?;
        let now = self.now.as_second();
        if unplaced::is_ours(eviction) {
            return unplaced::sits_out(binding, now);
        }
        // Before all is listed nobody can say that the claimant is gone.
        let open = || eviction.until > now && (!self.is_complete() || self.engine.is_pending(&eviction.preemptor));
        let going = || eviction.at.saturating_add(GOING) > now && self.room.runs_anywhere(&binding.workload);
        if !open() && !going() {
            return None;
        }
        let queue = self.workload_of(binding).map(|workload| workload.queue.clone())?;
        let cause = EvictionCause::parse_token(&eviction.reason).unwrap_or(EvictionCause::Preempted);
        Some(Reason::Evicted { queue, cause, detail: eviction.message.clone() })
    }

    /// The answer to an eviction.
    pub(crate) fn eviction_answered(&mut self, key: &Key, made: bool) {
        let Some((reason, message)) = self.claims.under_way.remove(key) else { return };
        if made {
            let workload = self.entries.get(key).and_then(|entry| self.workload_of(&entry.binding));
            let event = workload.map(|workload| tell(workload, EventType::Normal, &reason, message));
            self.tells.extend(event);
        } else {
            // What it was decided on has changed, or nobody knows: the next look decides anew.
            self.claims.open = None;
            self.claims.stirred = true;
        }
    }
}

/// Claims for the first jobs in line, one after the other, until one is met.
fn look(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    let second = now.as_second();
    index.claims.notes.retain(|id, _| index.engine.is_pending(id.as_str()));
    index.claims.attempts.retain(|id, _| index.engine.is_pending(id.as_str()));
    index.claims.refused.retain(|id, _| index.engine.is_pending(id.as_str()));
    let rate = index.claims.policy.bounds.rate;
    let bucket = *index.claims.budget.get_or_insert_with(|| EvictionBudget::start_empty(second));
    let (mut heads, young) = scene::heads(index, HEADS, index.claims.policy.bounds.patience);
    if let Some(at) = young {
        index.claims.again(at);
    }
    heads.retain(|head| index.claims.may_ask(&head.id, second));
    heads.truncate(CLAIMS);
    if heads.is_empty() {
        return;
    }
    let queues = scene::accounts(index);
    let running = scene::holders(index);
    let fleet = index.room.total().ready;
    let policy = index.claims.policy.clone();
    let scene = PreemptionInput {
        queues: &queues,
        running: &running,
        fleet: &fleet,
        policy: &policy,
        budget: &bucket,
        now: second,
    };
    for head in heads {
        let attempts = index.claims.attempts.get(&head.id).copied().unwrap_or_default();
        let claim = scene::claim(index, &head, attempts);
        let Some(mut after) = scene::After::new(index, &head) else { continue };
        match preemption::plan_evictions(&scene, &claim, |victims| after.fits(victims)) {
            Ok(decided) => {
                index.claims.notes.remove(&head.id);
                index.claims.budget.get_or_insert(bucket).take_evictions(rate, decided.victims.len(), second);
                carry_out(index, &head, &running, decided, plan);
                return;
            }
            Err(why) => note(index, &head, &why, second),
        }
    }
}

fn note(index: &mut Index, head: &Head, why: &NoEvictions, now: i64) {
    if why.refused == AttemptRefusal::Unneeded {
        index.claims.notes.remove(&head.id);
        return;
    }
    tracing::debug!(job = %head.id, reason = why.token(), "{why}");
    index.claims.notes.insert(head.id.clone(), why.to_string());
    let changes = index.claims.changes;
    match why.again_at().filter(|again| *again > now) {
        // Until then next to nothing else helps, and to work it out again for each change would cost more than it gives.
        Some(again) if matches!(why.refused, AttemptRefusal::Backoff { .. } | AttemptRefusal::Rate { .. }) => {
            index.claims.refused.insert(head.id.clone(), (again, changes.wrapping_sub(1)));
            index.claims.again(again);
        }
        Some(again) => {
            index.claims.refused.insert(head.id.clone(), (now.saturating_add(AGAIN), changes.wrapping_sub(1)));
            index.claims.again(again);
        }
        None => {
            // To find that it takes too many costs the most, and seldom changes soon.
            let too_many = matches!(why.refused, AttemptRefusal::TooMany { .. });
            let pause = if too_many { index.claims.policy.bounds.hold.max(AGAIN) } else { AGAIN };
            index.claims.refused.insert(head.id.clone(), (now.saturating_add(pause), changes));
        }
    }
}

/// Writes the evictions, and opens the claim.
fn carry_out(
    index: &mut Index,
    head: &Head,
    running: &[preemption::RunningJob],
    decided: preemption::EvictionPlan,
    plan: &mut Plan,
) {
    let now = index.now.as_second();
    let (jobs, frees) = (decided.victims.len(), decided.frees);
    tracing::info!(job = %head.id, queue = %head.queue, jobs, %frees, "jobs are evicted");
    for victim in decided.victims {
        let Some(key) = index.ids.get(&victim.id).cloned() else { continue };
        let Some(entry) = index.entries.get(&key) else { continue };
        let Some(holder) = running.iter().find(|holder| holder.id == victim.id) else { continue };
        let bounds = &index.claims.policy.bounds;
        let before = entry.binding.eviction.as_deref().filter(|_| !bounds.has_progressed(holder, now));
        let eviction = EvictionRecord {
            count: EvictionHistory::after_eviction(holder, bounds, now).count,
            last: None,
            requeues: before.map_or(0, |before| before.requeues),
            at: now,
            until: decided.hold.until,
            preemptor: head.id.to_string(),
            reason: victim.why.token().to_owned(),
            message: victim.why.to_string(),
            avoid: Vec::new(),
        };
        let Some(effect) = effect(&entry.binding, index, &victim, &eviction) else { continue };
        let said = match victim.taken {
            EvictedPart::Whole => "it waits again with its age",
            EvictedPart::Surplus(_) => "it goes on with its minimum or more",
        };
        index.claims.under_way.insert(key.clone(), (eviction.reason, format!("{}; {said}", eviction.message)));
        plan.effects.push((Tag::Evict(key), effect));
        plan.evictions += 1;
    }
    index.claims.open = Some((head.id.clone(), decided.hold.until));
    index.engine.set_preemptor(Some(head.id.clone()));
    index.claims.due = Timestamp::from_second(decided.hold.until).ok();
    let entry = index.ids.get(&head.id).and_then(|key| index.entries.get(key));
    if let Some(workload) = entry.and_then(|entry| index.workload_of(&entry.binding)) {
        let jobs = if jobs == 1 { "one job is".to_owned() } else { format!("{jobs} jobs are") };
        let message = format!("{jobs} evicted for it: {frees} come free");
        plan.effects.push((Tag::Tell, tell(workload, EventType::Normal, "PreemptionSucceeded", message)));
    }
}

fn effect(binding: &Binding, index: &Index, victim: &Victim, eviction: &EvictionRecord) -> Option<Effect> {
    let (key, id) = (binding.key.clone(), binding.id.clone());
    let resource_version = binding.resource_version.to_string();
    match &victim.taken {
        EvictedPart::Whole => Some(Effect::Evict {
            key,
            id,
            resource_version,
            suspension: binding.suspension,
            planned: binding.planned,
            eviction: Box::new(eviction.clone()),
        }),
        EvictedPart::Surplus(less) => {
            let gang = index.workload_of(binding)?.gang.as_ref().ok()?;
            let admission = Box::new(shrunk(binding.admission.as_ref()?, gang, binding, less));
            Some(Effect::Shrink { key, id, resource_version, admission, eviction: Box::new(eviction.clone()) })
        }
    }
}

/// The record of a gang that keeps what is placed of it, less these pods. The scheduler cuts the rest.
fn shrunk(
    admission: &Admission,
    gang: &Arc<caldera_core::gang::Gang>,
    binding: &Binding,
    less: &RemovedPods,
) -> Admission {
    let placed = scene::placed(binding, gang);
    let mut tasks = BTreeMap::new();
    let mut charged = Resources::new();
    for (task, placed) in gang.tasks.iter().zip(placed) {
        let there = placed.values().fold(0_u32, |sum, pods| sum.saturating_add(*pods));
        let keeps = there.saturating_sub(less.tasks.get(&task.name).copied().unwrap_or(0));
        charged.add(&task.request.times(u64::from(keeps)));
        tasks.insert(task.name.clone(), keeps);
    }
    Admission { tasks, charged, ..admission.clone() }
}
