//! Until when a new copy of a Volcano Job would be forgotten by a member's Volcano together with the old one.
//!
//! Rule: Volcano's job controller takes a deleted job out of its cache by name, and tries again until its pods are
//! gone, each time after twice the wait (`retryDeleteJob` in `pkg/controllers/cache/cache.go`). A try that was asked
//! for before they were gone comes later all the same, and takes out what is there by then: a new job of that name gets
//! no pods, or its end is never told (volcano#3968, volcano#5973). It comes before twice the time has passed that the
//! pods took. So a job whose old copies took so long to go waits as long again and a second more, and no longer than
//! Volcano's longest wait.
//!
//! Kept in memory: after a restart what is gone by then is taken to be forgotten.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::observe::Key;

/// Volcano's longest wait between two tries, in seconds.
const LONGEST_RETRY: i64 = 180;
/// Pods that are still not gone after so many seconds keep their job out of its queue no longer.
pub(super) const LONGEST_TERMINATION: i64 = 600;

/// Jobs whose old copies go, or went a short time ago.
#[derive(Debug, Default)]
pub(crate) struct CopyCleanups(BTreeMap<Key, Cleanup>);

#[derive(Debug, Clone, Copy)]
enum Cleanup {
    /// Copies are listed, or pods of them run.
    Terminating,
    /// They are gone, and forgotten from then on, in seconds since 1970.
    ForgottenAt(i64),
}

impl CopyCleanups {
    /// Takes in whether old copies of a job are there, which were asked to go at that time. Gives back from when on
    /// they are forgotten, where they went just now.
    pub(crate) fn observe_copies(
        &mut self,
        key: &Key,
        terminates: bool,
        asked_at: i64,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if terminates {
            self.0.insert(key.clone(), Cleanup::Terminating);
            return None;
        }
        let seconds = now.as_second();
        match self.0.get(key)? {
            Cleanup::ForgottenAt(at) if *at > seconds => None,
            Cleanup::ForgottenAt(_) => {
                self.forget(key);
                None
            }
            Cleanup::Terminating => {
                let took = seconds.saturating_sub(asked_at);
                if took >= LONGEST_TERMINATION {
                    self.forget(key);
                    return None;
                }
                let at = seconds.saturating_add(took.saturating_add(1).clamp(1, LONGEST_RETRY));
                self.0.insert(key.clone(), Cleanup::ForgottenAt(at));
                Timestamp::from_second(at).ok()
            }
        }
    }

    /// Whether a new copy might be forgotten with the old one.
    pub(crate) fn is_under_way(&self, key: &Key, now: i64) -> bool {
        matches!(self.0.get(key), Some(Cleanup::ForgottenAt(at)) if *at > now)
    }

    /// Whether old copies were there when they were last looked at.
    pub(crate) fn is_terminating(&self, key: &Key) -> bool {
        matches!(self.0.get(key), Some(Cleanup::Terminating))
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_so_long_to_go_is_forgotten_after_as_long_again() {
        let key = Key::new("ns", "a-job");
        let at = |second| Timestamp::from_second(second).unwrap();
        for (gone, forgotten) in [(100, 101), (101, 103), (130, 161), (600, 780)] {
            let mut cleanups = CopyCleanups::default();
            assert_eq!(cleanups.observe_copies(&key, false, 100, at(100)), None, "nothing was there");
            assert!(!cleanups.is_under_way(&key, 100));
            assert_eq!(cleanups.observe_copies(&key, true, 100, at(100)), None);
            assert_eq!(cleanups.observe_copies(&key, false, 100, at(gone)), Some(at(forgotten)));
            assert_eq!(cleanups.observe_copies(&key, false, 100, at(gone)), None, "that is said once");
            assert!(cleanups.is_under_way(&key, forgotten - 1) && !cleanups.is_under_way(&key, forgotten));
            assert_eq!(cleanups.observe_copies(&key, false, 100, at(forgotten)), None);
            assert!(cleanups.0.is_empty());
        }
        // Nobody waits for such pods, and it may be in line again for long.
        let mut cleanups = CopyCleanups::default();
        cleanups.observe_copies(&key, true, 100, at(100));
        assert_eq!(cleanups.observe_copies(&key, false, 100, at(700)), None);
        assert!(!cleanups.is_under_way(&key, 700));
    }
}
