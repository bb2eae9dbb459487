//! Clusters come, change and go: what of the controller's state is told of it.
//!
//! Rule: where a maintenance window, an autoscaled group or an exclusive cluster is the first or the last of all,
//! whoever waits is assessed anew: how long a job runs, or in which queue it is, matters from then on, or no longer.

use std::collections::BTreeSet;

use caldera_core::gang::ClusterName;
use caldera_runtime::watch::Event;

use super::Controller;
use crate::{
    decide::bindings::grant_history::count_placed,
    observe::{ClusterFacts, ObjectKind, Presence},
};

impl Controller {
    pub(super) fn observe_clusters(&mut self, event: Event<ClusterFacts>) {
        let is_first_list = matches!(event, Event::Reset(_)) && !self.objects.is_listed(ObjectKind::Clusters);
        let had_windows = self.capacity.next_maintenance_end(self.now).is_some();
        let had_groups = self.capacity.has_declared_groups();
        let was_exclusive = self.capacity.has_exclusive_clusters();
        match event {
            Event::Applied(cluster) => self.set_cluster(cluster),
            Event::Deleted(cluster) => self.remove_cluster(&cluster.cluster.name),
            Event::Reset(all) => {
                let there: BTreeSet<&str> = all.iter().map(|facts| facts.cluster.name.as_str()).collect();
                let known = self.capacity.list_cluster_names().into_iter();
                let gone: Vec<String> = known.filter(|name| !there.contains(name.as_str())).collect();
                gone.iter().for_each(|name| self.remove_cluster(name));
                all.into_iter().for_each(|cluster| self.set_cluster(cluster));
                self.objects.mark_listed(ObjectKind::Clusters);
            }
        }
        let has_windows = self.capacity.next_maintenance_end(self.now).is_some();
        let is_exclusive = self.capacity.has_exclusive_clusters();
        let has_first_groups = self.capacity.has_declared_groups() && !had_groups;
        if has_windows && !had_windows || has_first_groups || is_exclusive != was_exclusive {
            // From now on it matters how long each of them runs, or in which queue it is.
            self.reassess_bindings(|binding| binding.admission.is_none());
        }
        if is_first_list {
            // Pods beyond a record are charged in clusters that there are.
            self.reassess_bindings(|binding| {
                binding.admission.as_ref().is_some_and(|record| count_placed(binding) > record.count_pods())
            });
        }
    }

    fn set_cluster(&mut self, cluster: ClusterFacts) {
        let (name, presence) = (cluster.cluster.name.clone(), cluster.presence);
        self.outbox.extend(self.cluster_faults.observe_cluster(&cluster));
        self.capacity.set_cluster(cluster);
        self.update_presence(&name, Some(presence));
    }

    fn remove_cluster(&mut self, name: &str) {
        self.capacity.remove_cluster(name);
        self.cluster_faults.forget_cluster(name);
        self.load_aware.observe_load(name, None, self.now);
        self.update_presence(name, None);
    }

    fn update_presence(&mut self, name: &str, presence: Option<Presence>) {
        if self.objects.losses.set_cluster(name, presence) {
            self.member_loss.observe_clusters(self.now);
            self.objects.losses.list_affected_bindings(name).iter().for_each(|key| self.reassess_binding(key));
        }
    }

    /// Clusters whose Works are to be watched now.
    pub fn list_clusters_to_watch_works(&self) -> BTreeSet<ClusterName> {
        self.objects.losses.list_clusters_to_watch_works()
    }
}
