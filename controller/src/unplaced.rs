//! Jobs that were admitted and found no place: they do not keep their quota for ever.
//!
//! Whoever the scheduler finds no place for within a minute gives its quota back, in the patch that makes others give way,
//! and goes back in line with its age, after a wait that doubles each time. A scheduler that says nothing at all may be
//! away and come back: that takes ten minutes. The wait stands on the binding: a restart
//! forgets it as little as the admission. Only since when it has been without a place is kept in memory, so that a
//! restart gives it another minute.

use std::collections::BTreeMap;

use caldera_core::{
    queue::{ledger::Stage, preemption::EvictionRecord},
    reason::Reason,
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    effect::Effect,
    facts::{Binding, Key},
    index::{Index, State, Tag},
    plan::Plan,
    unstarted::PODS_READY_TIMEOUT,
};

/// What such a record gives as its reason.
pub(crate) const NOT_PLACED: &str = "NotPlaced";
/// From the release, or from the scheduler's first refusal, on.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// The same where the scheduler says nothing.
const SILENCE: SignedDuration = SignedDuration::from_secs(600);
/// The first wait, and the longest, in seconds.
const WAIT: i64 = 30;
const LONGEST_WAIT: i64 = 900;

/// Bindings that are admitted and not placed: whether the scheduler has refused them, and until when they have time.
#[derive(Debug, Default)]
pub(crate) struct Unplaced(BTreeMap<Key, (bool, Timestamp)>);

impl Unplaced {
    /// Where a binding stands now.
    pub(crate) fn observe(&mut self, key: &Key, state: Option<&State>, now: Timestamp) {
        match state {
            Some(State::Holding { stage: Stage::Admitted, reason }) if !matches!(**reason, Reason::Suspended) => {
                let refused = matches!(**reason, Reason::NotPlaced { .. });
                let until = now.saturating_add(if refused { PATIENCE } else { SILENCE }).unwrap_or(now);
                match self.0.get_mut(key) {
                    Some(known) if known.0 == refused => {}
                    Some(known) => *known = (refused, until),
                    None => drop(self.0.insert(key.clone(), (refused, until))),
                }
            }
            _ => drop(self.0.remove(key)),
        }
    }

    /// When somebody's time is over.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.0.values().map(|(_, until)| *until).min()
    }
}

/// Takes the quota back from those whose time is over.
pub(crate) fn turn(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    let over: Vec<Key> =
        index.unplaced.0.iter().filter(|(_, (_, until))| *until <= now).map(|(key, _)| key.clone()).collect();
    for key in over {
        if let Some((_, until)) = index.unplaced.0.get_mut(&key) {
            // Another minute, should the write fail.
            *until = now.saturating_add(PATIENCE).unwrap_or(now);
        }
        let Some(entry) = index.entries.get(&key).filter(|entry| entry.assumed.is_none()) else { continue };
        let why = entry.binding.refused.as_deref().unwrap_or("the scheduler said nothing").to_owned();
        let effect = put_back(&entry.binding, NOT_PLACED, why, Vec::new(), now.as_second());
        plan.effects.push((Tag::Evict(key), effect));
    }
}

/// The patch by which a binding gives its quota and its clusters back and waits, twice as long each time.
pub(crate) fn put_back(binding: &Binding, reason: &str, message: String, avoid: Vec<String>, now: i64) -> Effect {
    Effect::Evict {
        key: binding.key.clone(),
        id: binding.id.clone(),
        resource_version: binding.resource_version.to_string(),
        suspension: binding.suspension,
        planned: binding.plan.is_some(),
        eviction: Box::new(record(binding, reason, message, avoid, now)),
    }
}

fn record(binding: &Binding, reason: &str, message: String, avoid: Vec<String>, now: i64) -> EvictionRecord {
    let before = binding.eviction.as_deref();
    let gave_way = before.map(EvictionRecord::eviction_history).unwrap_or_default();
    let requeues = before.map_or(0, |before| before.requeues).saturating_add(1);
    let wait = WAIT.saturating_mul(1 << requeues.min(10)).min(LONGEST_WAIT);
    EvictionRecord {
        count: gave_way.count,
        last: gave_way.last,
        requeues,
        at: now,
        until: now.saturating_add(wait),
        preemptor: String::new(),
        reason: reason.to_owned(),
        message,
        avoid,
    }
}

/// Why a binding that was not placed in time is not in line yet.
pub(crate) fn sits_out(binding: &Binding, now: i64) -> Option<Reason> {
    let record = binding.eviction.as_ref().filter(|record| is_ours(record) && record.until > now)?;
    let placed = record.reason == PODS_READY_TIMEOUT;
    Some(Reason::Requeued { times: record.requeues, placed, detail: record.message.clone() })
}

/// Whether a record is of a job that found no place, or did not start there, and not of one that gave way for another.
pub(crate) fn is_ours(record: &EvictionRecord) -> bool {
    record.reason == NOT_PLACED || record.reason == PODS_READY_TIMEOUT
}
