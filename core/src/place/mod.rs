//! Where a released binding goes: Karmada's filters, its choice of clusters and its division, or the gang-aware split.
//!
//! Rule: karmada-scheduler's `genericScheduler.Schedule` (`pkg/scheduler/core/generic_scheduler.go`), with our own
//! capacity in place of its estimates. Gangs are divided by [`crate::split`], all other kinds by [`replica_division`].
//! The controller asks the same [`place_binding`] whether a gated binding would fit now.
//!
//! | module | decides |
//! |---|---|
//! | `schedule` | the whole decision: filter, choose, divide; affinity terms one after the other |
//! | [`filter`] | which clusters a binding may go to |
//! | [`spread_constraints`] | which of them Karmada would choose; `schedule/region_sets`: which other regions would do |
//! | [`score`], `data_locality` | which of them come first by the policy's weights, and by where data is |
//! | [`crate::image_locality`] | which have the images of its pods |
//! | [`crate::data_source`] | which have the data that its claims require |
//! | [`crate::cluster_choice`] | which its user lets it go to |
//! | [`replica_division`] | how many replicas each gets |
//! | [`replica_estimate`], [`general_estimator`] | how many replicas a cluster takes, by its nodes or by its summary |
//! | `queue_clusters` | which clusters its queue may use |
//! | `maintenance_windows` | which maintenance windows are in its way, and which nodes are out of them |
//! | `member_queues` | what the queues of a member's own Volcano let start there |
//! | `workload_affinity` | where the others of its affinity groups are |

pub mod data_locality;
pub mod filter;
pub mod general_estimator;
mod lookup;
mod maintenance_windows;
mod member_queues;
#[cfg(test)]
#[path = "tests/model.rs"]
mod model;
mod queue_clusters;
pub mod replica_division;
pub mod replica_estimate;
mod schedule;
pub mod score;
pub mod spread_constraints;
mod workload_affinity;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use general_estimator::ClusterSummary;
pub use member_queues::{MemberVolcanoQueue, Queues, place_within_queues};
pub use queue_clusters::QueueClusters;
pub use schedule::{
    Decision, NotPlaced, Request, append_reasons, count_copies, describe_lasting_reasons, describe_maintenance,
    may_select, place_binding,
};
pub use workload_affinity::{AffinityGroup, Groups, Peers};

use crate::{
    autoscaling::Autoscaling,
    cluster_choice::ClusterChoice,
    data_source::DataLocality,
    gang::{QueueName, Requirement, Taint, Toleration},
    image_locality::{ClusterImages, PodImages},
    maintenance::Maintenance,
};

/// A member cluster as placement sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
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
    /// When it is kept for nobody.
    pub maintenance: Maintenance,
    /// Which of its node groups may grow.
    pub autoscaling: Autoscaling,
    /// Whose jobs alone it takes, of the queues here and those below them; any where it does not say.
    pub queues: Option<Vec<QueueName>>,
    /// (group/version, kind) of what the member's API serves.
    pub serves: Apis,
    /// The best bandwidth of a declared link to each other cluster, in megabits a second; of those with one.
    pub bandwidths: Arc<BTreeMap<String, u64>>,
    /// What its nodes have of images.
    pub images: Arc<ClusterImages>,
    /// What it says of its capacity, for where its nodes can not be read; `None` before the first heartbeat.
    pub published: Option<Arc<ClusterSummary>>,
}

/// Group/version and kind.
pub type ApiKey = (String, String);

/// What a member's API serves. Some hundred kinds, the same in most clusters: copies share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Apis(Arc<BTreeSet<ApiKey>>);

impl Apis {
    /// True if the kind is served.
    #[must_use]
    pub fn contains(&self, kind: &ApiKey) -> bool {
        self.0.contains(kind)
    }

    /// The same for all copies, and for nothing else as long as one of them is there.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl FromIterator<ApiKey> for Apis {
    fn from_iter<I: IntoIterator<Item = ApiKey>>(kinds: I) -> Self {
        Self(Arc::new(kinds.into_iter().collect()))
    }
}

impl<const N: usize> From<[ApiKey; N]> for Apis {
    fn from(kinds: [ApiKey; N]) -> Self {
        kinds.into_iter().collect()
    }
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
    /// A selector that Kubernetes would refuse: it matches nothing.
    pub invalid: bool,
    /// On the cluster's labels.
    pub labels: Vec<Requirement>,
    /// On `provider`, `region`, `zone`.
    pub fields: Vec<Requirement>,
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
    /// By fixed weights.
    StaticWeight {
        /// The rules.
        rules: Vec<WeightRule>,
        /// Whether `weightPreference` is there at all. An empty one divides as an absent one (all weights equal), but
        /// only with an empty one do spread constraints and capacity count.
        preference: bool,
    },
    /// By what is free.
    DynamicWeight,
    /// Divided without a preference: Karmada refuses it.
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
    pub cluster: String,
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
    /// Something with pods (Karmada's `IsWorkload`): only then do overflow affinities count.
    pub is_workload: bool,
    /// It has replicas or requirements of one, so that there is something to divide.
    pub divisible: bool,
    /// Number of `spec.components`.
    pub components: usize,
    /// `spec.clusters`.
    pub previous: Vec<Target>,
    /// Clusters it is being evicted from.
    pub evicting: Vec<String>,
    /// `spec.placement`.
    pub placement: Placement,
    /// `status.schedulerObservingAffinityName`.
    pub observed_affinity: String,
    /// A reschedule was triggered after the last scheduling: start afresh.
    pub fresh: bool,
    /// Where the others of its workload affinity groups are.
    pub peers: Peers,
    /// Where the data of its claims is; `None` without claims.
    pub data: Option<Arc<DataLocality>>,
    /// What its queues say of clusters; `None` where that is nothing, and no cluster is of some queues alone.
    pub queue: Option<Arc<QueueClusters>>,
    /// Which clusters its user lets it go to; `None` for any.
    pub choice: Option<Arc<ClusterChoice>>,
    /// The images of its pods, where they count: those of a Volcano Job that no HyperJob made.
    pub images: Option<Arc<PodImages>>,
    /// How its policy ranks clusters.
    pub ranking: score::Ranking,
    /// Clusters that get none of its replicas are listed too (`--enable-empty-workload-propagation` of
    /// karmada-scheduler).
    pub empty_workloads: bool,
}

impl Binding {
    /// True if it has been assigned to this cluster.
    #[must_use]
    pub fn is_target(&self, cluster: &str) -> bool {
        self.previous.iter().any(|target| target.cluster == cluster)
    }

    /// Whether all data that its claims require is in the cluster.
    #[must_use]
    pub fn has_data_in(&self, cluster: &str) -> bool {
        self.data.as_ref().is_none_or(|data| data.allows(cluster))
    }

    /// In tenths, how much of what its pods would pull is not in the cluster; 0 where nothing is known of its images.
    #[must_use]
    pub fn count_missing_images(&self, cluster: &Cluster) -> u64 {
        self.images.as_ref().map_or(0, |images| cluster.images.count_missing_tenths(images))
    }

    /// Whether its user lets it go to the cluster.
    #[must_use]
    pub fn is_allowed_by_user(&self, cluster: &str) -> bool {
        self.choice.as_ref().is_none_or(|choice| choice.allows(cluster))
    }

    /// The term in use: the observed one, or the first where none was observed yet. `None` without terms, and where the
    /// observed name matches no term (then every cluster passes).
    #[must_use]
    pub fn current_affinity_term(&self) -> Option<&AffinityTerm> {
        self.placement.affinities.iter().find(|term| term.name == self.observed_affinity)
    }
}
