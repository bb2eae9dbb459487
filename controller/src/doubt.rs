//! Grants of another epoch: what a replica that was active before granted, and of which something is not placed yet.
//!
//! A release is one patch of one binding, and the API has nothing that ties it to what other bindings hold. So a replica
//! that lost its lease without noticing can still grant what another has given away meanwhile. Each grant therefore says
//! under which lease it was made (`caldera.dev/epoch`), and the scheduler places nothing more of a grant unless it read,
//! after it had seen it, that this lease was still held: then whoever takes the lease later lists the grant and charges
//! it. What was granted under another lease is decided here, by the one replica that holds it now, which charges all of it:
//! it is granted anew where every queue above it is within its limit, and else taken back, the newest first.

use std::{cmp::Reverse, collections::BTreeMap};

use caldera_core::{gang::QueueName, queue::ledger::Stage, resources::Resources};
use jiff::{SignedDuration, Timestamp};

use crate::{
    facts::Key,
    give_back,
    index::{Index, State, Tag},
    plan::Plan,
    unplaced,
};

/// What is said to whom it is taken back.
const WHY: &str = "another replica of the controller granted it beyond a limit";
/// After a write that may have failed.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// Bindings that are in doubt, and when to decide about each.
#[derive(Debug, Default)]
pub(crate) struct Doubts(BTreeMap<Key, Timestamp>);

impl Doubts {
    /// When somebody is to be decided about.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.0.values().min().copied()
    }

    /// The binding is gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

impl Index {
    /// Where a binding stands now.
    pub(crate) fn observe_epoch(&mut self, key: &Key) {
        let doubted = self.entries.get(key).is_some_and(|entry| {
            let binding = &entry.binding;
            let other = binding.epoch.is_some() && binding.epoch != self.epoch;
            let unplaced = || match &entry.state {
                State::Holding { stage: Stage::Admitted, .. } => true,
                State::Holding { stage: Stage::Placed, .. } => self.unused.is_spare(key),
                _ => false,
            };
            other && binding.admission.is_some() && !binding.deleting && unplaced()
        });
        if doubted {
            self.doubts.0.entry(key.clone()).or_insert(self.now);
        } else {
            self.doubts.forget(key);
        }
    }
}

/// Decides about those that are due.
pub(crate) fn turn(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    let mut due: Vec<(Reverse<i64>, Key)> = Vec::new();
    for (key, at) in &index.doubts.0 {
        let entry = index.entries.get(key).filter(|entry| *at <= now && entry.assumed.is_none());
        due.extend(entry.map(|entry| (Reverse(entry.binding.created), key.clone())));
    }
    if due.is_empty() {
        return;
    }
    index.engine.resolve_quota();
    due.sort();
    let mut taken: BTreeMap<QueueName, Resources> = BTreeMap::new();
    for (_, key) in due {
        index.doubts.0.insert(key.clone(), now.saturating_add(AGAIN).unwrap_or(now));
        let Some(entry) = index.entries.get(&key) else { continue };
        let Some(record) = entry.binding.admission.clone() else { continue };
        let path = give_back::path(index, &record.queue);
        let over = path.iter().any(|name| is_over(index, name, taken.get(name)));
        if !over {
            plan.effects.extend(index.assume(&key, (*record).clone(), true));
            continue;
        }
        tracing::warn!(binding = %key, queue = %record.queue, "granted by another replica beyond a limit; taken back");
        let mut freed = index.engine.charge_of(entry.binding.id.as_str()).unwrap_or_default();
        if entry.binding.clusters.is_empty() {
            let effect =
                unplaced::put_back(&entry.binding, unplaced::NOT_PLACED, WHY.to_owned(), Vec::new(), now.as_second());
            plan.effects.push((Tag::Evict(key), effect));
        } else if let Some(less) = index.placed_of(&key) {
            // It keeps what it has.
            freed.saturating_sub(&less.charged);
            plan.effects.extend(index.assume(&key, less, true));
        }
        path.into_iter().for_each(|name| taken.entry(name).or_default().add(&freed));
    }
}

/// More is charged than it may have, without what was taken back just now.
fn is_over(index: &Index, queue: &QueueName, taken: Option<&Resources>) -> bool {
    let is = index.engine.entitlement_of(queue);
    let taken = |name: &str| taken.map(|taken| taken.get(name)).unwrap_or_default();
    is.real.iter().any(|(name, most)| is.used.get(name.as_str()).minus(taken(name.as_str())) > most)
}
