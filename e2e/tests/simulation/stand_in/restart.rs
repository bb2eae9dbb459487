//! Karmada begins anew, over what its host has by now: members went on meanwhile.

use std::collections::BTreeSet;

use super::{CopyKey, StandIn, key_of};

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
