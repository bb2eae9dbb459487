//! Admitted jobs that are not placed: they do not keep their quota for ever.
//!
//! Rule: as Kueue requeues an evicted workload with a backoff. A job that the scheduler refuses for a minute is
//! requeued: its quota is free for others, it keeps its age, and it is considered again after a backoff. A scheduler
//! that says nothing may be away and come back: that takes ten minutes. A binding that its user suspended has no
//! deadline. Since when a job is without a place is kept in memory alone: a restart gives it another minute, or ten
//! where the scheduler is silent.

use caldera_core::{queue::ledger::AdmissionStage, reason::Reason};
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::{
            eviction::{NOT_PLACED, requeue_binding},
            jobs::{JobPhase, Jobs},
        },
        deadlines::{Deadlines, add_wait},
    },
    observe::{Key, Objects},
    write::Decision,
};

/// From the release, or from the scheduler's first refusal, on.
const REFUSED_FOR: SignedDuration = SignedDuration::from_secs(60);
/// The same where the scheduler says nothing.
const SILENT_FOR: SignedDuration = SignedDuration::from_secs(600);

/// Bindings that are admitted and not placed: whether the scheduler has refused them, and until when they have time.
#[derive(Debug, Default)]
pub(crate) struct PlacementDeadlines(pub(crate) Deadlines<bool>);

impl PlacementDeadlines {
    /// Takes in the state of a binding.
    pub(crate) fn observe_phase(&mut self, key: &Key, phase: &JobPhase, now: Timestamp) {
        match phase {
            JobPhase::Holding { stage: AdmissionStage::Admitted, reason } if !matches!(**reason, Reason::Suspended) => {
                let refused = matches!(**reason, Reason::NotPlaced { .. });
                if self.0.get_mut(key).is_none_or(|(_, known)| *known != refused) {
                    self.0.set(key, add_wait(now, if refused { REFUSED_FOR } else { SILENT_FOR }), refused);
                }
            }
            _ => self.0.forget(key),
        }
    }

    /// Requeues those whose time is over.
    pub(crate) fn requeue_unplaced(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            // Another minute, should the write fail.
            self.0.postpone(&key, add_wait(now, REFUSED_FOR));
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            let why = binding.refused.as_deref().unwrap_or("the scheduler said nothing").to_owned();
            decisions.push(requeue_binding(binding, NOT_PLACED, why, Vec::new(), now));
        }
        decisions
    }
}
