//! Where a gang's pods go: which clusters, how many of each task in each, and the minimum each must hold.
//!
//! All or nothing: less than the gang's minimum is never placed. Every share fits its cluster node by node (see
//! [`pack`]). The sums over clusters are the gang's: replicas (fewer, but never below the minimum, where the full size
//! does not fit), and every minimum.

use std::collections::BTreeMap;

use crate::{
    gang::{ClusterName, Gang, TaskName},
    inventory::Capacity,
    plan::Plan,
};

/// How to divide, as the policy says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// The whole gang in every candidate.
    Duplicated,
    /// As few clusters as possible.
    #[default]
    Aggregated,
    /// By [`Candidate::weight`], as far as it fits.
    StaticWeight,
    /// By what is free.
    DynamicWeight,
}

/// A cluster that passed every filter.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// Name.
    pub name: &'a ClusterName,
    /// For [`Strategy::StaticWeight`]; zero keeps the cluster out of it.
    pub weight: u64,
    /// What is free there for this gang: without what others were promised, and without what the gang itself holds
    /// there already ([`Problem::previous`]).
    pub capacity: &'a Capacity,
}

/// One question: where may this gang go now?
#[derive(Debug, Clone)]
pub struct Problem<'a> {
    /// What to place.
    pub gang: &'a Gang,
    /// Where it may go; the order does not matter.
    pub candidates: Vec<Candidate<'a>>,
    /// How to divide.
    pub strategy: Strategy,
    /// What it holds already. Kept where it can be: placed pods do not move.
    pub previous: Option<&'a Plan>,
    /// At most so many clusters, where the policy says so.
    pub most_clusters: Option<u32>,
    /// Breaks ties between equal clusters as Karmada does: by name, downwards if the binding's UID hashes to odd.
    pub names_descending: bool,
}

/// Why a gang can not be placed now, with the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No cluster is left to choose from.
    NoCandidates,
    /// The gang asks for nothing that could be placed.
    NoPods,
    /// Not enough room.
    Short(Shortage),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoCandidates => f.write_str("no cluster is left to choose from"),
            Self::NoPods => f.write_str("the job has no pods to place"),
            Self::Short(shortage) => write!(f, "{} of {} pods fit", shortage.placeable, shortage.needed),
        }
    }
}

/// What is missing where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Pods needed at once.
    pub needed: u32,
    /// Pods that could be placed now.
    pub placeable: u32,
    /// Clusters that were looked at.
    pub clusters: usize,
    /// Clusters that may be used together, where that is bounded.
    pub most_clusters: Option<u32>,
    /// Why only so many clusters, where the gang itself says so.
    pub one_cluster: Option<String>,
    /// The cluster that could take most, and how many pods.
    pub best: Option<(ClusterName, u32)>,
    /// For each task that does not reach its minimum: needed, and how many fit.
    pub tasks: BTreeMap<TaskName, (u32, u32)>,
}

/// Where the gang goes, or why nowhere.
///
/// # Errors
/// [`Refusal`], with what is short, where and by how much.
pub fn solve(problem: &Problem<'_>) -> Result<Plan, Refusal> {
    if problem.candidates.is_empty() {
        return Err(Refusal::NoCandidates);
    }
    Err(Refusal::NoPods)
}
