//! Which pods are assumed for each binding, and in which clusters. The rule is in [`super`].

use std::collections::BTreeMap;

use super::{AssumedEntry, AssumedPods, Fleet, unseen_pods::count_unseen};
use crate::resources::Resources;

impl Fleet {
    /// Assumes the pods of the binding `key`; returns the clusters where other pods of it were assumed before.
    pub fn assume_pods(&mut self, key: &str, assumed: AssumedPods) -> Vec<String> {
        self.replace_assumed(key, assumed, true)
    }

    /// The same for a binding of no queue: its place is kept, and its pods are not those that queues are charged for
    /// (`Fleet::offer`).
    pub fn assume_unqueued_pods(&mut self, key: &str, assumed: AssumedPods) -> Vec<String> {
        self.replace_assumed(key, assumed, false)
    }

    fn replace_assumed(&mut self, key: &str, assumed: AssumedPods, queued: bool) -> Vec<String> {
        if self.entries.get(key).is_some_and(|entry| entry.assumed == assumed && entry.queued == queued) {
            return Vec::new();
        }
        let replaced = self.remove_assumed(key);
        for cluster in assumed.pods.keys() {
            // A cluster that is not known yet is remembered: its object may come later than the binding.
            let member = self.members.entry(cluster.clone()).or_default();
            member.assumed_keys.insert(key.to_owned());
            if assumed.pods[cluster].iter().all(|pods| *pods == 0) {
                member.retired.insert(key.to_owned());
            }
            if count_unseen(member, cluster, key, Some((&assumed, queued))) {
                // Pods that are there already were somebody else's until now.
                self.others_moved = true;
                member.emptied = None;
            }
            if member.unseen.contains_key(key) {
                member.added.push(key.to_owned());
            }
        }
        self.by_workload.entry(assumed.workload.clone()).or_default().insert(key.to_owned());
        self.next_age += 1;
        self.entries.insert(key.to_owned(), AssumedEntry { assumed, age: self.next_age, queued });
        replaced
    }

    /// Assumes no pods of the binding `key` any more.
    pub fn forget_assumed(&mut self, key: &str) {
        self.remove_assumed(key);
    }

    /// Returns the clusters where pods of it were assumed.
    fn remove_assumed(&mut self, key: &str) -> Vec<String> {
        let Some(AssumedEntry { assumed: old, .. }) = self.entries.remove(key) else { return Vec::new() };
        for cluster in old.pods.keys() {
            if let Some(member) = self.members.get_mut(cluster) {
                member.assumed_keys.remove(key);
                member.dirty |= member.unseen.remove(key).is_some();
                self.others_moved |= member.bound.set_bound_amount(key, Resources::new());
                member.emptied = None;
                member.retired.remove(key);
            }
        }
        if let Some(keys) = self.by_workload.get_mut(&old.workload) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_workload.remove(&old.workload);
            }
        }
        old.pods.into_keys().collect()
    }

    /// Assumes no more pods of the binding `key`; pods of it that are still there stay its own. Returns the clusters
    /// where pods of it were assumed.
    pub fn forget_unbound_assumed(&mut self, key: &str) -> Vec<String> {
        let Some(AssumedEntry { assumed: old, .. }) = self.entries.get(key).cloned() else { return Vec::new() };
        let stays = |(name, pods): (&String, &Vec<u32>)| {
            let member = self.members.get(name)?;
            member.bound.is_bound(key).then(|| (name.clone(), vec![0; pods.len()]))
        };
        let left: BTreeMap<String, Vec<u32>> = old.pods.iter().filter_map(stays).collect();
        let was_in = self.remove_assumed(key);
        if !left.is_empty() {
            self.assume_pods(key, AssumedPods { pods: left, pinned: BTreeMap::new(), ..old });
        }
        was_in
    }

    /// Clusters in which pods of a binding are assumed.
    #[must_use]
    pub fn list_clusters_with_assumed_pods(&self, key: &str) -> Vec<String> {
        let pods = self.entries.get(key).into_iter().flat_map(|entry| &entry.assumed.pods);
        pods.filter(|(_, pods)| pods.iter().any(|pods| *pods > 0)).map(|(cluster, _)| cluster.clone()).collect()
    }

    /// Whether pods that are assumed in a cluster are not seen there yet, so that their nodes are a guess.
    #[must_use]
    pub fn has_unseen_pods(&self, cluster: &str) -> bool {
        self.members.get(cluster).is_some_and(|member| !member.unseen.is_empty())
    }

    /// Pods of each task that are assumed in a cluster for bindings other than `key` and are not seen there.
    pub fn list_pods_assumed_by_others(
        &self,
        cluster: &str,
        key: &str,
    ) -> impl Iterator<Item = (&AssumedPods, &[u32])> {
        let unseen = self.members.get(cluster).into_iter().flat_map(|member| &member.unseen);
        let others = unseen.filter(move |(other, _)| *other != key);
        others.filter_map(|(other, pods)| Some((&self.entries.get(other)?.assumed, pods.as_slice())))
    }
}
