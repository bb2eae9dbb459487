//! Admitted jobs that are not placed: they do not keep their quota for ever.
//!
//! Rule: as Kueue requeues an evicted workload with a backoff. A job that the scheduler refuses for a minute is
//! requeued: its quota is free for others, it keeps its age, and it is considered again after a wait that doubles each
//! time. A scheduler that says nothing may be away and come back: that takes ten minutes. The backoff is on the
//! binding, so a restart forgets it as little as the admission. Only since when a job is without a place is kept in
//! memory: a restart gives it another minute.

use caldera_core::{
    queue::{ledger::AdmissionStage, preemption::EvictionRecord},
    reason::Reason,
};
use jiff::{SignedDuration, Timestamp};

use super::{
    deadlines::{Deadlines, after},
    eviction::{NOT_PLACED, POLICY_RESTARTED},
    jobs::{JobPhase, Jobs},
};
use crate::{
    observe::{Binding, Key, Objects},
    write::Decision,
};

/// From the release, or from the scheduler's first refusal, on.
const REFUSED_FOR: SignedDuration = SignedDuration::from_secs(60);
/// The same where the scheduler says nothing.
const SILENT_FOR: SignedDuration = SignedDuration::from_secs(600);
/// The first backoff, and the longest, in seconds.
const BACKOFF: i64 = 30;
const LONGEST_BACKOFF: i64 = 900;

/// Bindings that are admitted and not placed: whether the scheduler has refused them, and until when they have time.
#[derive(Debug, Default)]
pub(crate) struct PlacementDeadlines(Deadlines<bool>);

impl PlacementDeadlines {
    /// Takes in the state of a binding; `None` for one that is gone.
    pub(crate) fn observe_phase(&mut self, key: &Key, phase: Option<&JobPhase>, now: Timestamp) {
        match phase {
            Some(JobPhase::Holding { stage: AdmissionStage::Admitted, reason })
                if !matches!(**reason, Reason::Suspended) =>
            {
                let refused = matches!(**reason, Reason::NotPlaced { .. });
                if self.0.get_mut(key).is_none_or(|(_, known)| *known != refused) {
                    self.0.set(key, after(now, if refused { REFUSED_FOR } else { SILENT_FOR }), refused);
                }
            }
            _ => self.0.forget(key),
        }
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.0.next_due()
    }

    /// Requeues those whose time is over.
    pub(crate) fn requeue_unplaced(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            // Another minute, should the write fail.
            self.0.postpone(&key, after(now, REFUSED_FOR));
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            let why = binding.refused.as_deref().unwrap_or("the scheduler said nothing").to_owned();
            decisions.push(requeue(binding, NOT_PLACED, why, Vec::new(), now));
        }
        decisions
    }
}

/// Takes the quota and the clusters of a binding, and has it wait, twice as long each time.
pub(crate) fn requeue(
    binding: &Binding,
    reason: &str,
    message: String,
    avoid: Vec<String>,
    now: Timestamp,
) -> Decision {
    let now = now.as_second();
    let times = binding.eviction.as_deref().map_or(0, |before| before.requeues).saturating_add(1);
    let backoff = BACKOFF.saturating_mul(1 << times.min(10)).min(LONGEST_BACKOFF);
    let record =
        EvictionRecord { until: now.saturating_add(backoff), avoid, ..record_of(binding, reason, message, now) };
    evict(binding, EvictionRecord { requeues: times, ..record })
}

/// The same without a wait, for others to try first.
pub(crate) fn move_elsewhere(
    binding: &Binding,
    reason: &str,
    message: String,
    avoid: Vec<String>,
    now: Timestamp,
) -> Decision {
    evict(binding, EvictionRecord { avoid, ..record_of(binding, reason, message, now.as_second()) })
}

/// Takes the quota and the clusters of a binding because its user wants that: it gave way to nobody and failed nowhere,
/// so its next wait is no longer for it. `command` is the UID of the Command that asked for it, if one did.
pub(crate) fn withdraw(binding: &Binding, reason: &str, message: String, command: &str, now: Timestamp) -> Decision {
    let record = record_of(binding, reason, message, now.as_second());
    evict(binding, EvictionRecord { preemptor: command.to_owned(), ..record })
}

/// The same because its own policies restarted it, which is counted.
pub(crate) fn restart_by_policy(binding: &Binding, message: String, now: Timestamp) -> Decision {
    let record = record_of(binding, POLICY_RESTARTED, message, now.as_second());
    evict(binding, EvictionRecord { restarts: record.restarts.saturating_add(1), ..record })
}

/// A record of now that continues the one before.
fn record_of(binding: &Binding, reason: &str, message: String, now: i64) -> EvictionRecord {
    let before = binding.eviction.as_deref();
    let evictions = before.map(EvictionRecord::eviction_history).unwrap_or_default();
    EvictionRecord {
        count: evictions.count,
        last: evictions.last,
        requeues: before.map_or(0, |before| before.requeues),
        restarts: binding.restarts(),
        at: now,
        until: now,
        preemptor: String::new(),
        reason: reason.to_owned(),
        message,
        avoid: Vec::new(),
    }
}

fn evict(binding: &Binding, eviction: EvictionRecord) -> Decision {
    Decision::Evict {
        key: binding.key.clone(),
        resource_version: binding.resource_version.clone(),
        suspension: binding.suspension,
        recorded: binding.recorded,
        planned: binding.planned,
        eviction: Box::new(eviction),
    }
}
