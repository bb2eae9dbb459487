//! Statuses that say "scheduled", from the decision until there is room to send them.
//!
//! Rule: a status is built when it is sent, of the binding as it is known then. Karmada touches a binding as soon as it
//! has clusters (its finalizer, the conditions of its Works), and a status that was built before it queued would be
//! refused for the version that it names. Which statuses may wait or are not needed is decided before
//! ([`first_status`](crate::decide::first_status)). One for a generation that is over says nothing: it is decided
//! again. While placements leave no room, each write that is answered lets one status go, and that one before all that
//! waits: built of what is known now, it is worth nothing in seconds.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use caldera_runtime::write::Write;
use jiff::Timestamp;

use super::binding_writes;
use crate::observe::binding::{Binding, BindingKey};

/// One that waits.
#[derive(Debug)]
struct Confirmation {
    key: BindingKey,
    uid: String,
    generation: i64,
    affinity: Option<String>,
    scheduled: Option<Timestamp>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Confirmations {
    waiting: VecDeque<Confirmation>,
    /// A write was answered, and none has gone in its place.
    owed: bool,
}

impl Confirmations {
    /// Puts a binding in line that is placed as it should be. `scheduled`: when, unless its status says that already.
    pub fn queue_confirmation(&mut self, binding: &Binding, affinity: Option<String>, scheduled: Option<Timestamp>) {
        let (key, uid) = (binding.key.clone(), binding.uid.clone());
        self.waiting.push_back(Confirmation { key, uid, generation: binding.generation, affinity, scheduled });
    }

    /// A write was answered.
    pub const fn note_answered_write(&mut self) {
        self.owed = true;
    }

    /// Takes the first one out that may be sent, with its write unless what it would confirm is not so any more.
    pub fn take_next(
        &mut self,
        bindings: &BTreeMap<BindingKey, Binding>,
        has_capacity: bool,
        now: Timestamp,
    ) -> Option<(BindingKey, Option<Write>)> {
        if !mem::take(&mut self.owed) && !has_capacity {
            return None;
        }
        let Confirmation { key, uid, generation, affinity, scheduled } = self.waiting.pop_front()?;
        let known = bindings.get(&key).filter(|known| known.uid == uid && known.generation == generation);
        let write = known
            .map(|binding| binding_writes::build_scheduled_status_write(binding, affinity.as_deref(), scheduled, now));
        Some((key, write))
    }
}
