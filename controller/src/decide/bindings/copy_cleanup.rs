//! Until when a new copy of a Volcano Job would be forgotten by a member's Volcano together with the old one.
//!
//! Rule: Volcano's job controller takes a deleted job out of its cache by name, and tries again until its pods are
//! gone, each time after twice the wait (`retryDeleteJob` in `pkg/controllers/cache/cache.go`). A try that was asked
//! for before they were gone comes later all the same, and takes out what is there by then: a new job of that name gets
//! no pods, or its end is never told (volcano#3968, volcano#5973). It comes before twice the time has passed that the
//! pods took. So a job whose old copies took so long to go waits as long again and a second more, and no longer than
//! Volcano's longest wait; whatever it left its clusters for, and also if its user deleted it and made it anew.
//!
//! Of what was taken off its clusters a moment after it was placed no copy is listed yet, and Karmada may make one all
//! the same ([`LISTED_WITHIN`]): until then it is not taken to be gone. Else the job could be placed anew before
//! Karmada saw that it had left, which would then move the old copy's pods instead of ending them.
//!
//! Kept in memory: after a restart what is gone by then is taken to be forgotten. That Volcano tries no more than ten
//! jobs in a second is not counted: where hundreds go at once from one member, a few may be forgotten there.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{gang::WorkloadRef, time::EpochSeconds};
use caldera_crds::workload::WorkloadKind;
use jiff::{SignedDuration, Timestamp};

use crate::observe::{Binding, Key};

/// Volcano's longest wait between two tries, in seconds.
const LONGEST_RETRY: i64 = 180;
/// Pods that are still not gone after so many seconds keep their job out of its queue no longer.
pub(super) const LONGEST_TERMINATION: i64 = 600;
/// Karmada lists a copy so many seconds after it began to make it.
pub(super) const LISTED_WITHIN: i64 = 5;
/// How often the pods of deleted jobs are looked for.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// Jobs whose old copies go, or went a short time ago.
#[derive(Debug, Default)]
pub(crate) struct CopyCleanups {
    of: BTreeMap<Key, Cleanup>,
    /// Jobs that were deleted, under the names of their bindings.
    deleted: BTreeMap<Key, DeletedJob>,
    /// Jobs whose copies were left in lost clusters, and when these were asked to go after all.
    left: BTreeMap<Key, Option<EpochSeconds>>,
    /// When their pods were last looked for.
    looked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
enum Cleanup {
    /// Copies are listed, or pods of them run.
    Terminating,
    /// They are gone, and forgotten from then on.
    ForgottenAt(EpochSeconds),
}

#[derive(Debug)]
struct DeletedJob {
    workload: Arc<WorkloadRef>,
    /// When its copies were asked to go.
    asked_at: EpochSeconds,
}

impl CopyCleanups {
    /// Takes in whether old copies of a job are there, which were asked to go at that time; and when the job was taken
    /// off its clusters, if it was. Gives back from when on they are forgotten, where they went a short time ago.
    pub(crate) fn observe_copies(
        &mut self,
        key: &Key,
        terminates: bool,
        (asked_at, withdrawn_at): (EpochSeconds, Option<EpochSeconds>),
        now: Timestamp,
    ) -> Option<Timestamp> {
        if terminates {
            self.of.insert(key.clone(), Cleanup::Terminating);
            return None;
        }
        let second = EpochSeconds::from(now);
        let listed_at = withdrawn_at.filter(|at| *at <= second).map(|at| at.saturating_add(LISTED_WITHIN));
        let listed_at = listed_at.filter(|at| second < *at);
        match self.of.get(key) {
            None => {
                let listed_at = listed_at?;
                self.of.insert(key.clone(), Cleanup::ForgottenAt(listed_at));
                listed_at.to_timestamp()
            }
            Some(Cleanup::ForgottenAt(at)) if *at > second => at.to_timestamp(),
            // That they are gone is known.
            Some(Cleanup::ForgottenAt(_)) if listed_at.is_some() => None,
            Some(Cleanup::ForgottenAt(_)) => {
                self.forget(key);
                None
            }
            Some(Cleanup::Terminating) => {
                let took = second.seconds_since(asked_at);
                if took >= LONGEST_TERMINATION {
                    self.forget(key);
                    return None;
                }
                let at = second.saturating_add(took.saturating_add(1).clamp(1, LONGEST_RETRY));
                self.of.insert(key.clone(), Cleanup::ForgottenAt(at));
                at.to_timestamp()
            }
        }
    }

    /// Takes in whether copies of a job are left in lost clusters ([`held_copy`](crate::decide::copies::held_copy)).
    pub(crate) fn observe_hold(&mut self, key: &Key, is_held: bool, now: Timestamp) {
        if is_held {
            self.left.insert(key.clone(), None);
        } else if let Some(asked_at @ None) = self.left.get_mut(key) {
            *asked_at = Some(now.into());
        }
    }

    /// When copies that were left were asked to go.
    pub(crate) fn get_drop_time(&self, key: &Key) -> Option<EpochSeconds> {
        self.left.get(key).copied().flatten()
    }

    /// Takes in that a binding is gone, and its job with it: another of its name may come.
    pub(crate) fn observe_deleted_binding(&mut self, binding: &Binding, now: Timestamp) {
        let WorkloadRef { group, kind, .. } = &*binding.workload;
        if WorkloadKind::from_group_and_kind(group, kind) != Some(WorkloadKind::VolcanoJob) {
            return self.forget(&binding.key);
        }
        let asked_at = match (binding.clusters.is_empty(), &binding.eviction) {
            (false, _) => now.into(),
            (true, Some(record)) if self.of.contains_key(&binding.key) => record.at,
            // It was in no cluster.
            (true, _) => {
                self.left.remove(&binding.key);
                return;
            }
        };
        if !binding.clusters.is_empty() {
            self.of.insert(binding.key.clone(), Cleanup::Terminating);
        }
        self.deleted.insert(binding.key.clone(), DeletedJob { workload: Arc::clone(&binding.workload), asked_at });
    }

    /// Looks for the pods of deleted jobs.
    pub(crate) fn observe_deleted_jobs(&mut self, runs: impl Fn(&WorkloadRef) -> bool, now: Timestamp) {
        if self.next_look().is_none_or(|next| next > now) {
            return;
        }
        self.looked_at = Some(now);
        let found: Vec<(Key, bool, EpochSeconds)> = self
            .deleted
            .iter()
            .map(|(key, DeletedJob { workload, asked_at })| {
                let counts = asked_at.saturating_add(LONGEST_TERMINATION) > EpochSeconds::from(now);
                (key.clone(), counts && runs(workload), *asked_at)
            })
            .collect();
        for (key, terminates, asked_at) in found {
            self.observe_copies(&key, terminates, (asked_at, None), now);
        }
    }

    /// When their pods are to be looked for again.
    pub(crate) fn next_look(&self) -> Option<Timestamp> {
        let soon = self.looked_at.map_or(Timestamp::MIN, |at| at.checked_add(LOOK_EVERY).unwrap_or(Timestamp::MAX));
        (!self.deleted.is_empty()).then_some(soon)
    }

    /// When the copies of a job that was deleted under this name a short time ago were asked to go.
    pub(crate) fn get_deletion_time(&self, key: &Key) -> Option<EpochSeconds> {
        self.deleted.get(key).map(|deleted| deleted.asked_at)
    }

    /// Whether a new copy might be forgotten with the old one.
    pub(crate) fn is_under_way(&self, key: &Key, now: EpochSeconds) -> bool {
        matches!(self.of.get(key), Some(Cleanup::ForgottenAt(at)) if *at > now)
    }

    /// Whether old copies were there when they were last looked at.
    pub(crate) fn is_terminating(&self, key: &Key) -> bool {
        matches!(self.of.get(key), Some(Cleanup::Terminating))
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.of.remove(key);
        self.deleted.remove(key);
        self.left.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Taken off its clusters, and so were its copies, at that time.
    fn asked(second: i64) -> (EpochSeconds, Option<EpochSeconds>) {
        (EpochSeconds::new(second), Some(EpochSeconds::new(second)))
    }

    #[test]
    fn what_took_so_long_to_go_is_forgotten_after_as_long_again() {
        let key = Key::new("ns", "a-job");
        let at = |second| Timestamp::from_second(second).unwrap();
        for (gone, forgotten) in [(100, 101), (101, 103), (130, 161), (600, 780)] {
            let mut cleanups = CopyCleanups::default();
            assert_eq!(cleanups.observe_copies(&key, true, asked(100), at(100)), None);
            assert_eq!(cleanups.observe_copies(&key, false, asked(100), at(gone)), Some(at(forgotten)));
            assert_eq!(cleanups.observe_copies(&key, false, asked(100), at(forgotten - 1)), Some(at(forgotten)));
            assert!(
                cleanups.is_under_way(&key, EpochSeconds::new(forgotten - 1))
                    && !cleanups.is_under_way(&key, EpochSeconds::new(forgotten))
            );
            for second in [forgotten, forgotten.max(105)] {
                assert_eq!(cleanups.observe_copies(&key, false, asked(100), at(second)), None);
            }
            assert!(cleanups.of.is_empty());
        }
        // Nobody waits for such pods, and it may be in line again for long.
        let mut cleanups = CopyCleanups::default();
        cleanups.observe_copies(&key, true, asked(100), at(100));
        assert_eq!(cleanups.observe_copies(&key, false, asked(100), at(700)), None);
        assert!(!cleanups.is_under_way(&key, EpochSeconds::new(700)));
    }

    #[test]
    fn what_was_never_listed_may_be_made_yet_for_as_long_as_karmada_takes() {
        let key = Key::new("ns", "a-job");
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut cleanups = CopyCleanups::default();
        assert_eq!(cleanups.observe_copies(&key, false, asked(100), at(101)), Some(at(105)));
        assert!(cleanups.is_under_way(&key, EpochSeconds::new(104)));
        assert!(!cleanups.is_under_way(&key, EpochSeconds::new(105)));
        assert_eq!(cleanups.observe_copies(&key, false, asked(100), at(105)), None);
        assert!(cleanups.of.is_empty());
        assert_eq!(cleanups.observe_copies(&key, false, asked(100), at(106)), None, "nothing was there");
        // A clock that is behind the record's writer keeps nobody waiting.
        assert_eq!(cleanups.observe_copies(&key, false, asked(110), at(106)), None);
        // Copies in a lost cluster are gone long after the job was placed.
        let in_lost = (EpochSeconds::new(500), Some(EpochSeconds::new(100)));
        assert_eq!(cleanups.observe_copies(&key, false, in_lost, at(501)), None);
        // Nor did a job that was deleted leave a copy to be made.
        assert_eq!(cleanups.observe_copies(&key, false, (EpochSeconds::new(500), None), at(501)), None);
    }
}
