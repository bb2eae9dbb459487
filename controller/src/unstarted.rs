//! Gangs that were placed and do not start: all parts start together, or all are withdrawn.
//!
//! A member's Volcano starts a part of a gang once the part's own minimum can run; nobody there knows of the other parts.
//! Where one part finds no room after all (a queue of the member's own, capacity that was not what it seemed), the others
//! would hold theirs for nothing. So a gang of which some part has not had its minimum on nodes five minutes (the
//! controller's `pods_ready_timeout`) after it was placed gives all of it back, in the one patch that takes a binding's clusters, and goes back in line with its age after
//! a wait that doubles. The clusters that held it up are on the record: the scheduler tries others first. What runs is
//! left alone: a part that comes later, or that its member restarts, takes nothing from the gang.

use std::collections::BTreeMap;

use caldera_core::{gang::ClusterName, queue::ledger::Stage};
use caldera_runtime::event::EventType;
use jiff::{SignedDuration, Timestamp};

use crate::{
    facts::{Binding, Key, Workload},
    index::{Index, State, Tag},
    plan::{Plan, tell},
    unplaced,
};

/// What such a record gives as its reason.
pub(crate) const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
/// From the placement on, where the member's pods can be seen.
pub(crate) const PODS_READY_TIMEOUT_DEFAULT: SignedDuration = SignedDuration::from_secs(300);
/// So many times as long where only the job's phase is known, which says nothing of pods that pull their images.
const BLIND: u8 = 6;
/// Looked at again after so long at most.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// Gangs that are placed and were not seen to start, and when to look.
#[derive(Debug)]
pub(crate) struct Unstarted {
    looks: BTreeMap<Key, Timestamp>,
    /// How long a part has from the placement on.
    within: SignedDuration,
}

impl Default for Unstarted {
    fn default() -> Self {
        Self::new(PODS_READY_TIMEOUT_DEFAULT)
    }
}

impl Unstarted {
    /// Where a part has so long to start.
    pub(crate) fn new(within: SignedDuration) -> Self {
        Self { looks: BTreeMap::new(), within }
    }

    /// When somebody is to be looked at.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.looks.values().min().copied()
    }

    /// The binding is gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.looks.remove(key);
    }

    fn again(&self, now: Timestamp) -> Timestamp {
        now.saturating_add(self.within.min(LOOK_AGAIN)).unwrap_or(now)
    }
}

impl Index {
    /// Where a binding stands now.
    pub(crate) fn observe_start(&mut self, key: &Key) {
        let Some(entry) = self.entries.get(key) else { return };
        let binding = &entry.binding;
        let placed = matches!(entry.state, State::Holding { stage: Stage::Placed, .. });
        let may_be_late = placed && !binding.suspended && binding.plan.is_some();
        let workload = self.workload_of(binding).filter(|workload| may_be_late && !started(workload));
        if workload.is_none() {
            self.unstarted.looks.remove(key);
        } else if !self.unstarted.looks.contains_key(key) {
            let placed_at = binding.scheduled.and_then(|at| Timestamp::from_second(at).ok()).unwrap_or(self.now);
            // A restart gives another minute: nothing was seen yet.
            let look = placed_at.saturating_add(self.unstarted.within).unwrap_or(self.now);
            self.unstarted.looks.insert(key.clone(), look.max(self.unstarted.again(self.now)));
        }
    }

    /// The parts that have not started, with what is missing; empty where all is well.
    fn late(&self, binding: &Binding, now: Timestamp) -> Vec<(ClusterName, String)> {
        let Some(plan) = &binding.plan else { return Vec::new() };
        let since = binding.scheduled.and_then(|at| Timestamp::from_second(at).ok());
        let long = SignedDuration::from_secs(self.unstarted.within.as_secs().saturating_mul(BLIND.into()));
        let blind = since.is_some_and(|since| since.saturating_add(long).is_ok_and(|until| until <= now));
        let parts = plan.clusters.iter().filter(|(cluster, _)| !binding.begun.contains(*cluster));
        let late = parts.filter_map(|(cluster, share)| {
            let needs = share.min_available;
            match self.room.reached(cluster.as_str(), &binding.workload) {
                Some(pods) if pods < needs => {
                    Some((cluster.clone(), format!("{pods} of the {needs} pods needed in {cluster} are on nodes")))
                }
                None if blind => Some((cluster.clone(), format!("the part in {cluster} is still pending"))),
                _ => None,
            }
        });
        late.collect()
    }
}

/// Enough of it runs, ran or ended.
fn started(workload: &Workload) -> bool {
    let progress = &workload.progress;
    let needs = workload.gang.as_ref().map_or(0, |gang| gang.min_available);
    progress.ended.is_some() || progress.running.saturating_add(progress.succeeded) >= needs.max(1)
}

/// Withdraws those whose time is over.
pub(crate) fn turn(index: &mut Index, now: Timestamp, plan: &mut Plan) {
    let due: Vec<Key> =
        index.unstarted.looks.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
    for key in due {
        // It may yet become late, and a write may fail.
        let again = index.unstarted.again(now);
        index.unstarted.looks.insert(key.clone(), again);
        let Some(entry) = index.entries.get(&key).filter(|entry| entry.assumed.is_none()) else { continue };
        let late = index.late(&entry.binding, now);
        if late.is_empty() {
            continue;
        }
        let waited = entry.binding.scheduled.map_or(0, |at| now.as_second().saturating_sub(at));
        let missing: Vec<&str> = late.iter().map(|(_, what)| what.as_str()).collect();
        let message = format!("{} after {waited} s", missing.join(", "));
        tracing::warn!(binding = %key, %message, "a gang does not start; it is withdrawn");
        if let Some(workload) = index.workload_of(&entry.binding) {
            let told = format!("withdrawn from all clusters: {message}");
            plan.effects.push((Tag::Tell, tell(workload, EventType::Warning, PODS_READY_TIMEOUT, told)));
        }
        let avoid = late.iter().map(|(cluster, _)| cluster.to_string()).collect();
        let effect = unplaced::put_back(&entry.binding, PODS_READY_TIMEOUT, message, avoid, now.as_second());
        plan.effects.push((Tag::Evict(key), effect));
    }
}
