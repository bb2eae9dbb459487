//! Which clusters are lost and since when, and where old copies of bindings may still run.
//!
//! Rule: a cluster is lost while its condition `Ready` is not True, since that says so itself: a restart forgets
//! nothing, and a member that does not answer for a moment while Ready is True is not lost. Karmada deletes a copy
//! before its Work goes (`handleWorkDelete`, `pkg/controllers/execution/execution_controller.go`), and leaves the Work
//! while the cluster is not ready. So an old copy is known to be gone once its Work was seen to be, or its cluster is
//! no longer one, or the cluster's admin said after the loss that nothing runs there (`caldera.dev/fenced-at`). That
//! the cluster is ready again proves nothing: Karmada has yet to clean it. Works are watched only of clusters where
//! that matters, and of a lost one nothing is known before they are listed.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{gang::ClusterName, time::EpochSeconds};
use caldera_crds::{
    cluster_annotations::parse_fence_time,
    karmada::{cluster::Cluster, work::Work},
    names::{
        caldera::FENCED_AT,
        karmada::{BINDING_NAME, BINDING_NAMESPACE},
    },
};
use caldera_runtime::watch::Event;
use jiff::Timestamp;

use super::binding::{Binding, Key};

/// Event, and reason of an eviction record: a cluster that the job was in is lost; it was withdrawn from all of them.
pub(crate) const MEMBER_LOST: &str = "MemberLost";

/// Seconds by which an admin's clock may be ahead of ours.
const SKEW: i64 = 300;

/// Whether a cluster is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Presence {
    /// Since when it is not ready.
    pub lost_since: Option<EpochSeconds>,
    /// Since when it is ready.
    ready_since: Option<EpochSeconds>,
    /// When its admin last said that nothing runs there.
    fenced_at: Option<EpochSeconds>,
}

impl Presence {
    pub(super) fn read(cluster: &Cluster) -> Self {
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        let is_ready = ready.is_some_and(|condition| condition.status == "True");
        let since = ready.map(|condition| condition.last_transition_time.0.into());
        let annotations = cluster.metadata.annotations.as_ref();
        let fenced = annotations.and_then(|all| all.get(FENCED_AT)).and_then(|at| parse_fence_time(at).ok());
        Self {
            lost_since: since.filter(|_| !is_ready),
            ready_since: since.filter(|_| is_ready),
            fenced_at: fenced.map(EpochSeconds::from),
        }
    }

    /// Whether that was said of this loss. What is said of a time to come is said of no loss.
    fn is_fenced(self, now: EpochSeconds) -> bool {
        let said = self.fenced_at.filter(|fenced| *fenced <= now.saturating_add(SKEW));
        matches!((self.lost_since, said), (Some(lost), Some(fenced)) if fenced >= lost)
    }
}

/// The ResourceBinding of a Work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkFacts {
    name: String,
    binding: Key,
}

impl WorkFacts {
    /// Reads one; `None` for one that no ResourceBinding made, or that Karmada never tried to apply: nothing runs of
    /// it.
    #[must_use]
    pub fn read(object: &Work) -> Option<Self> {
        let annotations = object.metadata.annotations.as_ref()?;
        let conditions = object.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().find(|condition| condition.type_ == "Applied")?;
        let binding = Key::new(annotations.get(BINDING_NAMESPACE)?, annotations.get(BINDING_NAME)?);
        Some(Self { name: object.metadata.name.clone()?, binding })
    }
}

/// The Works of one cluster.
#[derive(Debug, Default)]
struct Works {
    listed: bool,
    of: BTreeMap<String, Key>,
    /// How many each binding has.
    counts: BTreeMap<Key, usize>,
}

impl Works {
    fn has(&self, binding: &Key) -> bool {
        self.counts.contains_key(binding)
    }

    /// Gives back the bindings that this changes something for.
    fn insert(&mut self, work: WorkFacts) -> BTreeSet<Key> {
        if self.of.get(&work.name) == Some(&work.binding) {
            return BTreeSet::new();
        }
        let before = self.remove(&work.name);
        *self.counts.entry(work.binding.clone()).or_default() += 1;
        self.of.insert(work.name, work.binding.clone());
        before.into_iter().chain([work.binding]).collect()
    }

    fn remove(&mut self, name: &str) -> Option<Key> {
        let binding = self.of.remove(name)?;
        if let Some(count) = self.counts.get_mut(&binding) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&binding);
            }
        }
        Some(binding)
    }
}

/// A binding that was taken off its clusters and is in none.
#[derive(Debug, Default)]
struct Withdrawal {
    /// The lost clusters that it was withdrawn from for that.
    from: BTreeSet<ClusterName>,
    /// When the last of its Works there was seen to be gone.
    proven_at: Option<EpochSeconds>,
    /// It ended where its copies were left: its Works matter to nobody.
    ended: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    clusters: BTreeMap<ClusterName, Presence>,
    works: BTreeMap<ClusterName, Works>,
    withdrawn: BTreeMap<Key, Withdrawal>,
}

impl Losses {
    /// Takes in a cluster; `None` for one that is gone. True if it changed.
    pub(crate) fn set_cluster(&mut self, name: &str, presence: Option<Presence>) -> bool {
        match presence {
            Some(presence) => self.clusters.insert(name.into(), presence) != Some(presence),
            None => self.clusters.remove(name).is_some(),
        }
    }

    /// Clusters that are lost, and since when.
    pub(crate) fn list_lost(&self) -> impl Iterator<Item = (&ClusterName, EpochSeconds)> {
        self.clusters.iter().filter_map(|(name, presence)| Some((name, presence.lost_since?)))
    }

    /// Clusters whose Works are to be watched: the lost ones, those that withdrawn bindings wait for, and those that
    /// are back as long as withdrawn bindings have Works there.
    pub(crate) fn list_clusters_to_watch_works(&self) -> BTreeSet<ClusterName> {
        let awaited = self.withdrawn.values().filter(|withdrawal| !withdrawal.ended).flat_map(|it| &it.from);
        let waits = |key: &Key| self.withdrawn.get(key).is_some_and(|withdrawal| !withdrawal.ended);
        let is_uncleaned = |works: &Works| works.counts.keys().any(waits);
        let is_back = |name: &ClusterName| self.clusters.get(name).is_some_and(|it| it.lost_since.is_none());
        let uncleaned = self.works.iter().filter(|(name, works)| is_back(name) && is_uncleaned(works));
        let all = awaited.chain(uncleaned.map(|(name, _)| name)).filter(|name| self.clusters.contains_key(*name));
        self.list_lost().map(|(name, _)| name).chain(all).cloned().collect()
    }

    /// Nobody watches the Works of a cluster any more.
    pub(crate) fn forget_works(&mut self, cluster: &ClusterName) {
        self.works.remove(cluster);
    }

    /// Takes in Works of a cluster; gives back the bindings whose copies there came or went. What comes after the watch
    /// has ended is not looked at.
    pub(crate) fn apply_works(
        &mut self,
        cluster: &ClusterName,
        event: Event<WorkFacts>,
        now: Timestamp,
    ) -> BTreeSet<Key> {
        if !self.works.contains_key(cluster) && !self.list_clusters_to_watch_works().contains(cluster) {
            return BTreeSet::new();
        }
        let works = self.works.entry(cluster.clone()).or_default();
        let changed = match event {
            Event::Applied(work) => works.insert(work),
            Event::Deleted(work) => works.remove(&work.name).into_iter().collect(),
            Event::Reset(all) => {
                let was_listed = works.listed;
                let before = std::mem::take(works);
                works.listed = true;
                all.into_iter().for_each(|work| drop(works.insert(work)));
                let mut changed: BTreeSet<Key> =
                    before.counts.into_keys().chain(works.counts.keys().cloned()).collect();
                // Who waits for this list.
                let waits = |withdrawal: &Withdrawal| !was_listed || withdrawal.from.contains(cluster);
                changed.extend(self.withdrawn.iter().filter(|(_, it)| waits(it)).map(|(key, _)| key.clone()));
                changed
            }
        };
        for key in changed.iter().filter(|key| !works.has(key)) {
            if let Some(withdrawal) = self.withdrawn.get_mut(key) {
                withdrawal.proven_at = Some(now.into());
            }
        }
        changed
    }

    /// Takes in that a binding was taken off its clusters, or is in some again.
    pub(super) fn update_withdrawal(&mut self, key: &Key, binding: Option<&Binding>) {
        let off = binding.filter(|binding| binding.clusters.is_empty());
        let Some((binding, record)) = off.and_then(|binding| Some((binding, binding.eviction.as_deref()?))) else {
            return drop(self.withdrawn.remove(key));
        };
        let is_lost = record.reason == MEMBER_LOST;
        let lost = record.avoid.iter().filter(|_| is_lost).map(|name| name.as_str().into());
        let withdrawal = self.withdrawn.entry(key.clone()).or_default();
        withdrawal.from = lost.chain(binding.held_in.iter().cloned()).collect();
        withdrawal.ended = !binding.held_in.is_empty() && binding.ended_where_held;
    }

    pub(crate) fn is_lost(&self, cluster: &ClusterName) -> bool {
        self.clusters.get(cluster).is_some_and(|presence| presence.lost_since.is_some())
    }

    /// Since when a cluster is ready; `None` while it is not.
    pub(crate) fn find_ready_time(&self, cluster: &ClusterName) -> Option<EpochSeconds> {
        self.clusters.get(cluster)?.ready_since
    }

    /// Whether nothing runs in a lost cluster by its admin's word, or it is a cluster no more.
    pub(crate) fn is_given_up(&self, cluster: &ClusterName, now: Timestamp) -> bool {
        self.clusters.get(cluster).is_none_or(|presence| presence.is_fenced(now.into()))
    }

    /// Bindings that wait for a cluster, or have copies there.
    pub(crate) fn list_affected_bindings(&self, cluster: &str) -> BTreeSet<Key> {
        let waiting = self.withdrawn.iter().filter(|(_, it)| it.from.contains(cluster)).map(|(key, _)| key);
        let there = self.works.get(cluster).into_iter().flat_map(|works| works.counts.keys());
        waiting.chain(there).cloned().collect()
    }

    /// When a withdrawn binding's last Work in a lost cluster was seen to be gone.
    pub(crate) fn get_copies_gone_time(&self, key: &Key) -> Option<EpochSeconds> {
        self.withdrawn.get(key)?.proven_at
    }

    /// Whether a lost cluster's admin said that nothing runs there any more.
    pub(crate) fn is_fenced(&self, cluster: &str, now: EpochSeconds) -> bool {
        self.clusters.get(cluster).is_some_and(|presence| presence.is_fenced(now))
    }

    /// The clusters where an old copy of a withdrawn binding may still run: where its Work is, and, as long as nobody
    /// has listed their Works, lost ones and those that it was withdrawn from.
    pub(crate) fn list_clusters_with_possible_copies(&self, key: &Key, now: Timestamp) -> Vec<&ClusterName> {
        let withdrawal = self.withdrawn.get(key);
        let may_run = |(name, presence): &(&ClusterName, &Presence)| {
            let works = self.works.get(*name);
            let is_lost = presence.lost_since.is_some();
            let was_there = withdrawal.is_some_and(|it| is_lost || it.from.contains(*name));
            !presence.is_fenced(now.into())
                && (works.is_some_and(|works| works.has(key)) || (was_there && works.is_none_or(|works| !works.listed)))
        };
        self.clusters.iter().filter(may_run).map(|(name, _)| name).collect()
    }
}
