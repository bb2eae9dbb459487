//! Copies that Karmada lists in clusters where their binding is not any more.
//!
//! Rule: Karmada takes the Works of such clusters away when the binding's spec changes (`removeOrphanWorks`,
//! `pkg/controllers/binding/binding_controller.go`), and finds them in its cache. A Work that it wrote a moment before
//! may not be there yet, and nobody looks again: the copy runs on, nobody is charged for it, and its job waits for its
//! end. Where one is listed for some seconds the binding is touched: `suspension.dispatching: false` is set, or taken
//! away again, which says the same and has Karmada look. That does no harm to a copy that only takes its time. It is
//! tried again, less and less often, for ten minutes: by then Karmada has what it wrote in its cache. A tenant may
//! write such a status, and it may stay: so it costs no write for ever.

use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::{
        bindings::jobs::Jobs,
        deadlines::{Deadlines, add_wait},
    },
    observe::{Binding, Objects},
    write::Decision,
};

/// How long a copy may take to go.
const GOES_WITHIN: SignedDuration = SignedDuration::from_secs(5);

/// Touches of a binding: the last is ten minutes after its copies were first listed.
const MOST_TOUCHES: u32 = 8;

/// Bindings with copies where they are not any more: when they are touched, and how often they were.
#[derive(Debug, Default)]
pub(crate) struct OrphanCopies(pub(crate) Deadlines<u32>);

impl OrphanCopies {
    /// Takes in the state of a binding.
    pub(crate) fn observe_binding(&mut self, binding: &Binding, now: Timestamp) {
        let is_ours = binding.gate.is_some() && binding.suspension && !binding.deleting;
        self.0.start_or_end(&binding.key, is_ours && !binding.orphan_copies.is_empty(), add_wait(now, GOES_WITHIN));
    }

    /// Has Karmada look at bindings whose copies stay.
    pub(crate) fn touch_bindings(&mut self, objects: &Objects, jobs: &Jobs, now: Timestamp) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for key in self.0.list_due(now) {
            self.0.postpone(&key, add_wait(now, GOES_WITHIN));
            let Some(binding) = jobs.find_confirmed(objects, &key) else { continue };
            // Its user's own word stays.
            if binding.dispatching == Some(true) {
                continue;
            }
            if self.0.record_try(&key, GOES_WITHIN, now) == MOST_TOUCHES {
                self.0.clear_deadline(&key);
            }
            decisions.push(Decision::TouchBinding {
                key,
                resource_version: binding.resource_version.clone(),
                adds: binding.dispatching.is_none(),
            });
        }
        decisions
    }
}
