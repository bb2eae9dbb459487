//! All members together: what each can take now, beside the pods that are assumed there and not seen yet.
//!
//! Rule: kube-scheduler's cache of assumed pods (`pkg/scheduler/backend/cache`). Between a decision and its reflection
//! in a member's inventory the capacity counts as taken, or the next decision would give it away again. What is assumed
//! follows from API objects (plans on bindings) and from what is seen in the members, so it survives a restart and
//! needs no deadline: pods that run, or have finished and are not followed by others, are seen, the rest is assumed.
//!
//! A member whose nodes can not be read falls back to Karmada's resource summary, and says so; with neither it offers
//! nothing. While it is still being asked it offers nothing either: a first guess would outlive its reason.
//!
//! | module | decides |
//! |---|---|
//! | `assumed_pods` | which pods are assumed for each binding, and where |
//! | `unseen_pods` | which assumed pods are not seen yet, and what is free beside them |
//! | `queue_capacity` | what queued workloads can hold in each cluster: the capacity of the root queue |
//! | `eviction` | what an eviction would free, and whether pods of a workload are still on nodes |
//! | `reserved_clusters` | which clusters are reserved for a job that does not fit now |
//! | `selected_labels` | which node labels gangs select on, so that shapes carry them |
//! | `load` | what the nodes of each cluster really use |
//! | `images` | which images the nodes of each cluster have |
//! | `upcoming` | nodes that may still come: which pods wait for them, and what is left of them |

mod assumed_pods;
mod eviction;
mod images;
mod load;
mod queue_capacity;
mod reserved_clusters;
mod selected_labels;
#[cfg(test)]
mod tests;
mod unseen_pods;
mod upcoming;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use crate::place::{MemberVolcanoQueue, Queues};
pub use eviction::EvictedPods;
use images::ImagesOnNodes;
pub use queue_capacity::{AWAY, takes_jobs};
pub use reserved_clusters::{ReservableCluster, choose_reserved_clusters, list_clusters_reserved_against};
use selected_labels::SelectedLabels;
use unseen_pods::{count_seen_pods, count_unseen, refresh_free_capacity, sort_by_age};
pub use upcoming::AwaitedNodes;
use upcoming::UpcomingNodes;

use crate::{
    gang::{ClusterName, Gang, Requirement, WorkloadRef},
    image_locality::ClusterImages,
    inventory::{Capacity, Change, Inventory, MemberLoad, NodeUse, Source},
    place::Cluster,
    plan::PinnedDomains,
    split::{FederationTopology, LinkedGroups, MeasuredLink, add_measured_links},
    time::EpochSeconds,
};

/// What a member's watcher reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// Nodes or pods changed.
    Change(Change),
    /// The member answers, and what was reported since is what it has.
    Up,
    /// The member does not answer, and why. Its last inventory is not trusted any more: after [`Self::Up`] only what
    /// was listed since counts. Pods that were seen stay seen, so that they are not assumed again.
    Down(String),
    /// Where the nodes and pods that are told come from, from now on.
    From(Origin),
    /// These are all queues of the member's own Volcano now.
    Queues(Queues),
    /// What its nodes measured, and when that was read.
    NodeUse(Vec<NodeUse>, EpochSeconds),
    /// Its load, as its collector summed it up.
    Load(Option<MemberLoad>),
    /// Its images, as its collector summed them up.
    Images(ClusterImages),
    /// Its ways to other clusters, as its collector measured them.
    Links(Vec<MeasuredLink>),
}

/// Where a member's nodes and pods were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Origin {
    /// In the member.
    #[default]
    Member,
    /// In what its collector published.
    Published {
        /// When the collector last saw the member, as it wrote it.
        seen_at: String,
        /// Why there is nothing newer, where there should be.
        late: Option<String>,
    },
}

/// Pods that are assumed for a workload, by cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumedPods {
    /// Whose pods.
    pub workload: WorkloadRef,
    /// Its pods' requests, by task as in `pods`.
    pub gang: Arc<Gang>,
    /// Pods of each task (as in the gang) by cluster. A cluster where the workload has ended is left out.
    pub pods: BTreeMap<String, Vec<u32>>,
    /// Where they are kept, for clusters where it is smaller than the cluster.
    pub pinned: BTreeMap<String, PinnedDomains>,
}

impl AssumedPods {
    /// Whether pods that have finished are followed by others: always, or until more have succeeded than run at once. A
    /// Volcano Job makes no others; where it restarts, the old ones are gone.
    fn replaces_finished_pods(&self) -> bool {
        match (self.workload.group.as_str(), self.workload.kind.as_str()) {
            ("apps", _) => true,
            ("batch", "Job") => self.gang.min_success.is_some_and(|wanted| wanted > self.gang.replicas()),
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Default)]
struct FleetMember {
    cluster: Cluster,
    /// A Cluster object exists (updates may arrive before it).
    known: bool,
    summary: Capacity,
    inventory: Inventory,
    origin: Origin,
    queues: Queues,
    load: Option<MemberLoad>,
    images: ImagesOnNodes,
    measured_links: Vec<MeasuredLink>,
    down: Option<String>,
    /// Keys of the entries that name this cluster.
    assumed_keys: BTreeSet<String>,
    /// Those of them with pods that were not seen here, and how many of each task.
    unseen: BTreeMap<String, Vec<u32>>,
    /// What assumed pods that are bound already hold on nodes here.
    bound: queue_capacity::AssumedOnNodes,
    /// Those of the entries that assume nothing any more ([`Fleet::forget_unbound_assumed`]).
    retired: BTreeSet<String>,
    /// Without any pods of the entries; `None` after anything changed.
    emptied: Option<Capacity>,
    /// All of `unseen` is to be counted anew.
    recount: bool,
    /// What is free; stale while `dirty`.
    capacity: Capacity,
    /// What may come beside it; `None` where nodes become no more. Stale while `dirty`.
    upcoming: Option<UpcomingNodes>,
    dirty: bool,
    /// Promises that `capacity` does not show yet, the last to be made last.
    added: Vec<String>,
}

/// The assumed pods of a binding, with their place in the order in which they were assumed.
#[derive(Debug, Clone)]
struct AssumedEntry {
    assumed: AssumedPods,
    age: u64,
    /// Some queue is charged for it.
    queued: bool,
}

/// The members, and the pods that are assumed in them.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    members: BTreeMap<String, FleetMember>,
    entries: BTreeMap<String, AssumedEntry>,
    by_workload: BTreeMap<WorkloadRef, BTreeSet<String>>,
    next_age: u64,
    declared: FederationTopology,
    /// What is declared, and what was measured beside it; stale while `relink`.
    links: FederationTopology,
    /// What the links make of the clusters that there are; stale while `relink`.
    near: Vec<LinkedGroups>,
    /// Clusters or links are others than when `near` was worked out.
    relink: bool,
    selected: SelectedLabels,
    /// Nodes changed, or pods that belong to no entry.
    others_moved: bool,
    /// Nodes that may come count for nothing.
    ignores_upcoming: bool,
}

impl Fleet {
    /// Takes in a cluster and what its resource summary offers; true if that may change a decision.
    pub fn set_cluster(&mut self, mut cluster: Cluster, summary: Capacity) -> bool {
        let member = self.members.entry(cluster.name.clone()).or_default();
        let falls_back = member.down.is_some();
        // Published numbers change with every heartbeat. No decision goes by them where the nodes can be read.
        let published = cluster.published.take();
        member.cluster.published = None;
        // Links are declared elsewhere, and images are on nodes.
        cluster.bandwidths = Arc::clone(&member.cluster.bandwidths);
        cluster.images = Arc::clone(&member.cluster.images);
        let changed = !member.known || member.cluster != cluster || (falls_back && member.summary != summary);
        member.dirty |= falls_back && member.summary != summary || !member.known;
        member.dirty |= member.cluster.autoscaling != cluster.autoscaling;
        self.relink |= !member.known;
        (member.cluster, member.summary, member.known) = (Cluster { published, ..cluster }, summary, true);
        changed
    }

    /// Forgets a cluster; what is assumed there stays, in case the cluster comes back.
    pub fn remove_cluster(&mut self, name: &str) {
        self.relink = true;
        let assumed_keys = self.members.remove(name).map(|member| member.assumed_keys).unwrap_or_default();
        if !assumed_keys.is_empty() {
            self.members.insert(
                name.to_owned(),
                FleetMember { assumed_keys, dirty: true, recount: true, ..FleetMember::default() },
            );
        }
    }

    /// Takes in the links between clusters that are declared; true if they are others than before.
    pub fn set_federation_topology(&mut self, links: FederationTopology) -> bool {
        let changed = self.declared != links;
        self.declared = links;
        self.merge_links(changed);
        changed
    }

    /// The links between clusters, as they are declared and measured.
    #[must_use]
    pub const fn links(&self) -> &FederationTopology {
        &self.links
    }

    /// Takes in what a member's watcher reports; true if that may change a decision.
    pub fn apply_update(&mut self, cluster: &str, update: Update) -> bool {
        let Some(member) = self.members.get_mut(cluster) else { return false };
        let changed = match update {
            Update::Change(change) => {
                // A pod changes what was seen of its own workload only: the other entries need no look.
                let workloads = match &change {
                    Change::Pod(pod) => {
                        let now = pod.owner.as_ref().map(|owner| owner.workload(&pod.namespace));
                        Some([now, member.inventory.workload_of(&pod.namespace, &pod.name)])
                    }
                    Change::PodGone(namespace, name) => Some([None, member.inventory.workload_of(namespace, name)]),
                    Change::Node(_)
                    | Change::NodeGone(_)
                    | Change::Nodes(_)
                    | Change::HyperNodes(_)
                    | Change::HyperNode(_)
                    | Change::HyperNodeGone(_)
                    | Change::NumaTopologies(_)
                    | Change::NumaTopology(..)
                    | Change::NumaTopologyGone(_)
                    | Change::AllDevices(_)
                    | Change::Devices(..) => Some([None, None]),
                    Change::Pods(_) => None,
                };
                member.images.observe_change(&change);
                let changed = member.inventory.apply_change(change);
                match workloads {
                    Some(workloads) if changed => {
                        let mut ours = false;
                        for key in workloads.iter().flatten().filter_map(|one| self.by_workload.get(one)).flatten() {
                            let entry = self.entries.get(key);
                            count_unseen(member, cluster, key, entry.map(|entry| (&entry.assumed, entry.queued)));
                            // Where none of it are assumed its pods are others', as they are in `bound`.
                            ours |= entry.is_some_and(|entry| entry.queued && entry.assumed.pods.contains_key(cluster));
                        }
                        self.others_moved |= !ours;
                    }
                    Some(_) => {}
                    None => (member.recount, self.others_moved) = (true, true),
                }
                changed
            }
            Update::Up => member.down.take().is_some(),
            Update::Down(why) => {
                member.inventory.mark_unlisted();
                let is_new = member.down.replace(why).is_none();
                let forgets = !member.measured_links.is_empty();
                member.measured_links.clear();
                member.dirty |= is_new;
                self.merge_links(forgets);
                return is_new || forgets;
            }
            Update::From(origin) => {
                // Who measured the way to others does not say any more that it is as it was.
                let forgets = origin == Origin::Member && !member.measured_links.is_empty();
                if forgets {
                    member.measured_links.clear();
                }
                member.origin = origin;
                member.images.mark_changed();
                self.merge_links(forgets);
                return forgets;
            }
            // What is free does not depend on them.
            Update::Queues(queues) => {
                let changed = member.queues != queues;
                member.queues = queues;
                return changed;
            }
            Update::NodeUse(measured, read_at) => return member.update_measured_load(&measured, read_at),
            Update::Load(load) => return member.set_load(load),
            Update::Images(images) => {
                member.images.set_published(images);
                return false;
            }
            Update::Links(measured) => {
                let changed = member.measured_links != measured;
                member.measured_links = measured;
                self.merge_links(changed);
                return changed;
            }
        };
        member.dirty |= changed;
        changed
    }

    /// Brings the links up to date: what is declared, and what members measured of their ways to others that there are.
    fn merge_links(&mut self, changed: bool) {
        if !changed {
            return;
        }
        self.relink = true;
        let is_known = |name: &str| self.members.get(name).is_some_and(|member| member.known);
        let measured = self.members.iter().filter(|(_, member)| member.known && !member.measured_links.is_empty());
        let measured = measured.map(|(name, member)| {
            let links = member.measured_links.iter().filter(|link| is_known(link.to.as_str()));
            (name.as_str().into(), links.cloned().collect())
        });
        self.links = add_measured_links(&self.declared, &measured.collect());
    }

    /// Whoever `asks` (a workload, a binding) selects nodes as this gang does, or none do any more. Labels that gangs
    /// select on tell a member's shapes apart; any other is looked up node by node, which takes longer and gives the
    /// same.
    pub fn set_selected_labels(&mut self, asks: &str, gang: Option<&Gang>) {
        self.set_restricted_labels(asks, gang, &[]);
    }

    /// The same of a gang that is to be kept on nodes with these labels.
    pub fn set_restricted_labels(&mut self, asks: &str, gang: Option<&Gang>, nodes: &[Requirement]) {
        self.selected.set_labels_of(asks, gang, nodes);
    }

    /// Brings every capacity and the linked groups up to date. Call before [`Self::clusters`]. Pods that are newly
    /// assumed are taken from what earlier ones left, as in their decision. Only when anything else changed all are
    /// taken anew, in the order in which they were assumed.
    pub fn refresh_capacities(&mut self) {
        if std::mem::take(&mut self.relink) {
            let known = self.members.values().filter(|member| member.known);
            let names: Vec<ClusterName> = known.map(|member| member.cluster.name.as_str().into()).collect();
            let names: Vec<&ClusterName> = names.iter().collect();
            self.merge_links(true);
            self.relink = false;
            self.near = self.links.group_by_links(&names);
            let mut bandwidths = self.links.list_bandwidths(&names);
            for (name, member) in &mut self.members {
                member.cluster.bandwidths = Arc::new(bandwidths.remove(name).unwrap_or_default());
            }
        }
        let selected = self.selected.labels();
        for (name, member) in &mut self.members {
            member.refresh_images();
            member.dirty |= member.inventory.set_carried_labels(selected);
            if std::mem::take(&mut member.recount) {
                member.dirty = true;
                for key in member.assumed_keys.clone() {
                    let entry = self.entries.get(&key).map(|entry| (&entry.assumed, entry.queued));
                    count_unseen(member, name, &key, entry);
                }
            }
            let added = std::mem::take(&mut member.added);
            if std::mem::take(&mut member.dirty) {
                member.emptied = None;
                let entries = sort_by_age(&self.entries, member.unseen.keys());
                refresh_free_capacity(member, name, self.ignores_upcoming, entries);
                continue;
            }
            let takes_more = !added.is_empty();
            for key in added {
                if let (Some(entry), Some(unseen)) = (self.entries.get(&key), member.unseen.get(&key).cloned()) {
                    member.subtract_unseen_pods(name, &key, &entry.assumed, &unseen);
                }
            }
            if takes_more {
                member.join_upcoming_nodes();
            }
        }
    }

    /// All clusters with what is free in each.
    pub fn clusters(&self) -> impl Iterator<Item = (&Cluster, &Capacity)> {
        self.members.values().filter(|member| member.known).map(|member| (&member.cluster, &member.capacity))
    }

    /// When the next maintenance window of a cluster ends, after that time.
    #[must_use]
    pub fn next_maintenance_end(&self, after: EpochSeconds) -> Option<EpochSeconds> {
        let known = self.members.values().filter(|member| member.known);
        known.filter_map(|member| member.cluster.maintenance.next_end(after)).min()
    }

    /// Which clusters are close by declared links, from near to far.
    #[must_use]
    pub fn linked_groups(&self) -> &[LinkedGroups] {
        &self.near
    }

    /// A cluster by its name.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.members.get(name).filter(|member| member.known).map(|member| &member.cluster)
    }

    /// The same as if the binding `key` held nothing: what it could have if it started afresh.
    #[must_use]
    pub fn compute_capacities_without_binding(&self, key: &str) -> BTreeMap<String, Capacity> {
        self.compute_capacities_after_eviction(&[(key.to_owned(), EvictedPods::All)].into())
    }

    /// Ready clusters of which nothing was heard yet: neither their nodes nor why these can not be read.
    pub fn list_clusters_not_reported_yet(&self) -> impl Iterator<Item = &str> {
        let silent = |member: &&FleetMember| {
            let expected = member.known && member.cluster.ready && !member.cluster.deleting;
            expected && member.down.is_none() && !member.inventory.is_complete()
        };
        self.members.values().filter(silent).map(|member| member.cluster.name.as_str())
    }

    /// Ready clusters whose nodes can not be read.
    pub fn list_unreadable_clusters(&self) -> impl Iterator<Item = &Cluster> {
        let can_not = |member: &&FleetMember| {
            member.known && member.cluster.ready && !member.cluster.deleting && member.down.is_some()
        };
        self.members.values().filter(can_not).map(|member| &member.cluster)
    }

    /// Where a cluster's nodes and pods were read, while they are what counts.
    #[must_use]
    pub fn inventory_origin(&self, cluster: &str) -> Option<&Origin> {
        let member = self.members.get(cluster)?;
        (member.down.is_none() && member.inventory.is_complete()).then_some(&member.origin)
    }

    /// A queue of a cluster's own Volcano, where it was seen.
    #[must_use]
    pub fn member_queue(&self, cluster: &str, queue: &str) -> Option<&MemberVolcanoQueue> {
        self.members.get(cluster)?.queues.get(queue)
    }

    /// Why a cluster's numbers are not its nodes', or not of now, where they are not.
    #[must_use]
    pub fn describe_capacity_caveat(&self, cluster: &str) -> Option<String> {
        let member = self.members.get(cluster)?;
        match (&member.down, member.inventory.is_complete(), member.summary.source) {
            (None, true, _) => match &member.origin {
                Origin::Published { seen_at, late: Some(why) } => {
                    Some(format!("its nodes are those published at {seen_at}: {why}"))
                }
                Origin::Published { late: None, .. } | Origin::Member => None,
            },
            (Some(why), _, Source::Summary) => Some(format!("its resource summary is used: {why}")),
            (Some(why), _, _) => Some(format!("nothing is known of its capacity: {why}")),
            (None, false, _) => Some("nothing is known of its capacity: its nodes were not read yet".to_owned()),
        }
    }
}
