//! What the queue engine asks about the clusters, and nothing of how that is found out: the edge answers with the same
//! function that places.

use super::{admit::Ask, order::JobId};
use crate::{
    gang::ClusterName,
    resources::{ResourceName, Resources},
};

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
}

/// The clusters, as the engine asks about them.
pub trait Room {
    /// Does the job's minimum fit somewhere now, without what is `kept` for others?
    fn fits(&mut self, id: &JobId, ask: &Ask, kept: &[&Kept]) -> Fit;

    /// Where it could run if what runs there now were gone, and what it lacks there: that is kept for it. Not in clusters that
    /// were kept in `vain`.
    fn keep(&mut self, id: &JobId, ask: &Ask, vain: &[ClusterName]) -> Option<Kept>;
}

/// A function, which keeps nothing for anybody.
pub(super) struct Asked<F>(pub(super) F);

impl<F: FnMut(&JobId, &Ask) -> Fit> Room for Asked<F> {
    fn fits(&mut self, id: &JobId, ask: &Ask, _: &[&Kept]) -> Fit {
        (self.0)(id, ask)
    }

    fn keep(&mut self, _: &JobId, _: &Ask, _: &[ClusterName]) -> Option<Kept> {
        None
    }
}

/// What is kept for a job that lacks room: nobody else gets these resources in these clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Where.
    pub clusters: Vec<ClusterName>,
    /// What.
    pub resources: Vec<ResourceName>,
}

/// More room than before, on some nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Growth {
    /// What is free in all clusters together, or more.
    pub free: Resources,
    /// Of each resource the most that is free on one of the nodes where there is more, or more than that.
    pub largest: Resources,
}
