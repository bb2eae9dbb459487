//! How far a cluster's nodes are from what a gang's pods prefer.
//!
//! Rule: Kubernetes' scheduler prefers nodes by the weights of the terms in
//! `preferredDuringSchedulingIgnoredDuringExecution` that they match (`nodeaffinity.PreferredSchedulingTerms`), and
//! those with fewer `PreferNoSchedule` taints that a pod does not tolerate (`tainttoleration/taint_toleration.go`).
//! What a member's scheduler will choose is its own affair; here it is asked how good the best nodes are that the pods
//! could have: each task alone takes the nodes that it likes best, for as many pods as it has and as fit, and of all of
//! these pods the mean counts. So a cluster is not better for a single node that all pods would like, nor for being
//! small. It is asked of whole clusters, once for each: domains of one cluster are equal in this. A gang of very many
//! kinds of pods prefers nothing, since each kind is asked of each node.

use super::GangRequests;
use crate::{
    gang::NodeClaim,
    inventory::{Capacity, NodeRef, NodeShape},
};

/// What pods prefer and do not get, in thousandths for each pod; less is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnmetPreferences {
    /// Weights of preferred terms that their nodes do not match.
    pub unmet: u64,
    /// `PreferNoSchedule` taints of their nodes that they do not tolerate.
    pub tainted: u64,
}

/// A pod is a thousand.
const POD: u64 = 1000;
/// Kinds of pods of which it is asked.
const MOST_KINDS: usize = 32;

impl UnmetPreferences {
    pub(in crate::split) const fn plus(self, other: Self) -> Self {
        Self { unmet: self.unmet.saturating_add(other.unmet), tainted: self.tainted.saturating_add(other.tainted) }
    }

    const fn times(self, pods: u64) -> Self {
        Self { unmet: self.unmet.saturating_mul(pods), tainted: self.tainted.saturating_mul(pods) }
    }

    fn of_node(claim: &NodeClaim, shape: &NodeShape, node: &NodeRef) -> Self {
        let avoided = shape.taints.iter().filter(|taint| taint.discourages());
        let tainted = avoided.filter(|taint| !taint.tolerated_by(&claim.tolerations)).count() as u64;
        Self { unmet: claim.sum_unmet_weights(node, |key| shape.label(node, key)).into(), tainted }
    }
}

impl GangRequests<'_> {
    /// What pods of the gang prefer of nodes and do not get in a cluster, in the mean.
    pub(in crate::split) fn mean_unmet_preferences(&self, capacity: &Capacity) -> UnmetPreferences {
        let prefers = self.gang.tasks.iter().any(|task| !task.node.preferred.is_empty());
        if self.kinds.len() > MOST_KINDS || !(prefers || capacity.profile().has_avoided_nodes()) {
            return UnmetPreferences::default();
        }
        let (mut sum, mut pods) = (UnmetPreferences::default(), 0_u64);
        for (kind, (first, _)) in self.kinds.iter().enumerate() {
            let of_kind = self.gang.tasks.iter().zip(&self.kind_of).filter(|(_, of)| **of == kind);
            let mut wanted: u64 = of_kind.map(|(task, _)| u64::from(task.replicas)).sum();
            let mut places = self.list_places(capacity, *first);
            places.sort_unstable();
            for (unmet, fits) in places {
                let taken = fits.min(wanted);
                (sum, pods, wanted) = (sum.plus(unmet.times(taken)), pods + taken, wanted - taken);
            }
        }
        let mean = |of_all: u64| of_all.saturating_mul(POD).checked_div(pods).unwrap_or(0);
        UnmetPreferences { unmet: mean(sum.unmet), tainted: mean(sum.tainted) }
    }

    /// The nodes that take pods of a task: what each kind of them lacks of what it prefers, and how many pods fit.
    fn list_places(&self, capacity: &Capacity, task: usize) -> Vec<(UnmetPreferences, u64)> {
        let (profile, claim) = (capacity.profile(), &self.gang.tasks[task].node);
        let columns: Vec<Option<usize>> = self.resources.iter().map(|name| profile.column(name)).collect();
        let by_node =
            self.needs_single_nodes(capacity) || !claim.prefers_by_labels_of(|key| capacity.carries_label(key));
        let mut places = Vec::new();
        for (at, shape) in capacity.shapes.iter().enumerate() {
            let row = profile.free_of_shape(at);
            let asked = self.request_row(task).iter().zip(&columns).filter(|(asked, _)| **asked > 0);
            let fits = asked.map(|(asked, column)| column.map_or(0, |column| row[column] / asked).unsigned_abs()).min();
            let most = claim.most_per_node.map_or(u64::from(u32::MAX), u64::from);
            let fits = self.count_aligned_pods_on(capacity, shape, task, fits.unwrap_or(most).min(most));
            let mut add = |node: &NodeRef, nodes: usize| {
                let admits = || claim.admits_by(node, |key| shape.label(node, key), &shape.taints);
                if fits > 0 && nodes > 0 && (shape.labels.is_none() || admits()) {
                    places.push((UnmetPreferences::of_node(claim, shape, node), fits.saturating_mul(nodes as u64)));
                }
            };
            if by_node {
                shape.nodes.iter().for_each(|node| add(node, 1));
            } else if let Some(first) = shape.nodes.first() {
                add(first, shape.nodes.len());
            }
        }
        places
    }
}
