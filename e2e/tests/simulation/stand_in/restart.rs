//! Karmada begins anew, over what its host has by now: members went on meanwhile.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{CopyKey, StandIn, jobs, key_of, links, text};
use crate::invariants::has_ended;

impl StandIn {
    /// It reads all, and applies each Work once more. A copy that the host has no Work of is nobody's until it has.
    pub fn restart(&mut self) {
        self.seen = 0;
        self.refused.clear();
        self.aggregated.clear();
        self.copies.values_mut().for_each(|copy| copy.is_known = false);
        self.links.iter_mut().for_each(super::Links::restart);
    }

    /// Deletes in the members what the host has no Work of, as an SRE does who restored a backup.
    pub async fn delete_unknown_copies(&mut self) {
        let known: BTreeSet<CopyKey> = self.history.all("host", "Work").iter().map(key_of).collect();
        let unknown: Vec<CopyKey> = self.copies.keys().filter(|key| !known.contains(*key)).cloned().collect();
        for key in unknown {
            self.delete_copy(&key).await;
        }
    }

    /// Deletes on the host the jobs that had ended, and of which a copy is gone, as that SRE does: they were deleted
    /// since, and Karmada would run them again. Their Works go first, before anybody applies them.
    pub async fn delete_ended_without_copies(&mut self) -> Vec<String> {
        let bindings = self.history.all("host", "ResourceBinding");
        let works = self.history.all("host", "Work");
        let is_missing = |work: &&Value| {
            let key = key_of(work);
            links::is_wanted(&key, &bindings) && !self.copies.contains_key(&key)
        };
        let missing: BTreeSet<String> = works.iter().filter(is_missing).map(|work| key_of(work).1).collect();
        let mut deleted = Vec::new();
        for job in self.history.all("host", "Job") {
            let uid = text(&job["metadata"]["uid"]);
            if missing.contains(&uid) && has_ended(&job) {
                for work in works.iter().filter(|work| key_of(work).1 == uid) {
                    self.delete(super::works(), work).await;
                }
                self.delete(jobs(), &job).await;
                deleted.push(text(&job["metadata"]["name"]));
            }
        }
        deleted
    }

    /// With its pods, and with what is known of it.
    pub(super) async fn delete_copy(&mut self, key: &CopyKey) {
        if let Some(links) = &mut self.links {
            links.forget(key);
        }
        if let Some(copy) = self.copies.remove(key) {
            for pod in copy.pods.keys() {
                self.delete_pod(&key.0, pod).await;
            }
        }
    }
}
