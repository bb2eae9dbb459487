//! What the engine asks about the clusters, and nothing of how that is found out: the caller answers with the same
//! function that places jobs.

use std::collections::BTreeSet;

use crate::{
    gang::{ClusterName, Requirement},
    queue::{pending::job_order::JobId, quota::admission::Ask},
    resources::{ResourceName, Resources},
};

/// Clusters that are kept for the copies of one duplicated job: one job does not close a fleet.
pub const MOST_CLUSTERS_FOR_COPIES: usize = 8;

/// The answer to "does it fit somewhere now?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Yes,
    /// It does not.
    No {
        /// Not even if everything were empty.
        never: bool,
        /// What is short, where.
        detail: String,
    },
    /// It does not in the clusters that are not kept for others; whether it would in all is not known.
    Reserved {
        /// What is short, where.
        detail: String,
    },
}

/// The clusters, as the engine asks about them.
pub trait ClusterCapacity {
    /// Does the job's minimum fit somewhere now, without what is `kept` for others?
    fn fits(&mut self, id: &JobId, ask: &Ask, kept: &[&ReservedClusters]) -> Fit;

    /// Why the job fits nowhere, not even if everything were empty. It is asked before anything is kept for a job, or
    /// a whole queue waits behind it; what is not known to be so is `None`.
    fn explain_never_fits(&mut self, id: &JobId, ask: &Ask) -> Option<String>;

    /// Where it could run if what runs there now were gone, and what it lacks there: that is kept for it. Not in
    /// clusters that were kept in `vain`.
    fn reserve_clusters(&mut self, id: &JobId, ask: &Ask, vain: &[ClusterName]) -> Option<ReservedClusters>;

    /// Whether so much was asked that nothing more is to be, for now.
    fn is_exhausted(&self) -> bool {
        false
    }
}

/// A function, which keeps nothing for anybody.
pub(crate) struct FitFunction<F>(pub(crate) F);

impl<F: FnMut(&JobId, &Ask) -> Fit> ClusterCapacity for FitFunction<F> {
    fn fits(&mut self, id: &JobId, ask: &Ask, _: &[&ReservedClusters]) -> Fit {
        (self.0)(id, ask)
    }

    fn explain_never_fits(&mut self, _: &JobId, _: &Ask) -> Option<String> {
        None
    }

    fn reserve_clusters(&mut self, _: &JobId, _: &Ask, _: &[ClusterName]) -> Option<ReservedClusters> {
        None
    }
}

/// What is reserved for a job that lacks capacity: nobody else gets these resources in these clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservedClusters {
    /// Where.
    pub clusters: Vec<ClusterName>,
    /// What.
    pub resources: Vec<ResourceName>,
    /// On nodes of these groups alone, where it is kept to some.
    pub groups: Option<Requirement>,
}

impl ReservedClusters {
    /// These and those, each once; these alone where all were too many for one job.
    pub(crate) fn merge(self, more: Self) -> Self {
        let clusters: BTreeSet<&ClusterName> = self.clusters.iter().chain(&more.clusters).collect();
        if clusters.len() > MOST_CLUSTERS_FOR_COPIES {
            return self;
        }
        let resources: BTreeSet<&ResourceName> = self.resources.iter().chain(&more.resources).collect();
        Self {
            clusters: clusters.into_iter().cloned().collect(),
            resources: resources.into_iter().cloned().collect(),
            groups: self.groups,
        }
    }
}

/// More free than before, on some nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapacityGrowth {
    /// What is free in all clusters together, or more.
    pub free: Resources,
    /// Of each resource the most that is free on one of the nodes where there is more, or more than that.
    pub largest: Resources,
}
