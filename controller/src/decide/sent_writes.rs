//! Which writes wait for the watch: what was sent for a version of an object is not sent again at once while that
//! version is the last one seen.
//!
//! Modules decide anew, every few seconds, what is not as it should be. Where nothing is seen of what was sent, since
//! writes queue up, the watch is late or the server takes them and does nothing, each would send the same write again
//! for ever. Rule: for one version it is sent again after 5 s, then after twice as long each time, up to five minutes.
//! Another version, and each new list of all objects, begin anew; so does a write that failed on its way, which its own
//! module puts off. One that was refused, or met another version, is sent again sooner: the first time after a second.
//! Evictions and Commands of queues wait for their answers ([`super::bindings::jobs`],
//! [`super::queues::queue_lifecycle`]), and a batch Job's failure has a backoff of its own
//! ([`super::lifecycle::failed_job`]).

use std::{collections::BTreeMap, sync::Arc};

use caldera_runtime::write::Failure;
use jiff::{SignedDuration, Timestamp};

use super::deadlines::{add_wait, compute_backoff};
use crate::write::{Decision, Tag};

/// Before the same is sent a second time.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(5);
/// The same, where the server did not take it.
const FIRST_WAIT_AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(1);
/// Nobody decides again for so long what was put off: it is not wanted any more.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// What was sent for a version, how often, and until when it is not sent again.
#[derive(Debug)]
struct SentWrite {
    decided_for: Arc<str>,
    times: u32,
    until: Timestamp,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SentWrites {
    sent: BTreeMap<Tag, SentWrite>,
    swept: Option<Timestamp>,
}

impl SentWrites {
    /// Whether a write is sent now.
    pub(crate) fn begin_write(&mut self, write: &Decision, now: Timestamp) -> bool {
        let Some(decided_for) = write.decided_for() else { return true };
        let tag = write.tag();
        let before = self.sent.get(&tag).filter(|sent| sent.decided_for == *decided_for);
        if before.is_some_and(|sent| sent.until > now) {
            return false;
        }
        let times = before.map_or(1, |sent| sent.times.saturating_add(1));
        let until = add_wait(now, compute_backoff(FIRST_WAIT, times));
        self.sent.insert(tag, SentWrite { decided_for: Arc::clone(decided_for), times, until });
        true
    }

    /// A write did not change its object: it may not have arrived, or the server did not take it.
    pub(crate) fn observe_failure(&mut self, tag: &Tag, failure: &Failure, now: Timestamp) {
        if matches!(failure, Failure::Transient(_)) {
            self.sent.remove(tag);
        } else if let Some(sent) = self.sent.get_mut(tag) {
            sent.until = add_wait(now, compute_backoff(FIRST_WAIT_AFTER_FAILURE, sent.times));
        }
    }

    /// All objects are listed anew.
    pub(crate) fn forget_all_writes(&mut self) {
        self.sent.clear();
    }

    /// Forgets what nobody wants any more.
    pub(crate) fn forget_old_writes(&mut self, now: Timestamp) {
        if self.swept.is_none_or(|swept| add_wait(swept, FORGOTTEN_AFTER) <= now) {
            self.swept = Some(now);
            self.sent.retain(|_, sent| add_wait(sent.until, FORGOTTEN_AFTER) > now);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }
}
