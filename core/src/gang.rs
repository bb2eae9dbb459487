//! What a workload asks for: its tasks, how many of their pods it needs at once, and where these pods may run.
//!
//! Rule: Volcano's Job (`batch.volcano.sh/v1alpha1`) after its defaults: a gang may start with `min_available` pods in
//! all and each task's own minimum. A minimum per task counts only while the job's minimum is at least their sum
//! (`pkg/scheduler/api/job_info.go`, `CheckTaskMinAvailable`). A Deployment or a Pod is a gang of one task. The types
//! for selectors, node affinity, taints and tolerations are here too; [`crate::node_affinity`] evaluates them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    cluster_choice::ClusterChoice,
    declared_data::Data,
    name::define_name,
    numa::NumaClaim,
    resources::{ResourceName, Resources},
    task_topology::TaskTopology,
};

define_name! {
    /// A member cluster's name (Karmada's `Cluster` object).
    ClusterName
}
define_name! {
    /// A task's name within its job.
    TaskName
}
define_name! {
    /// A Volcano queue's name.
    QueueName
}

/// What the task of a workload without tasks (a Deployment, a Pod) is called.
pub const SOLE_TASK: &str = "pods";

/// Which workload: Kubernetes group (empty for core), kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkloadRef {
    /// API group, empty for core.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for WorkloadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A gang: tasks, and the minimum that must start together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gang {
    /// In the order of the job's spec.
    pub tasks: Vec<Task>,
    /// Pods that must be placed together; at most the sum of the tasks' replicas.
    pub min_available: u32,
    /// Pods that must succeed for the job to be complete, where the user says so.
    pub min_success: Option<u32>,
    /// How close the pods must be.
    pub topology: Option<Topology>,
    /// Why all pods must be in one cluster, where they must (a plugin that builds ranks or host lists).
    pub one_cluster: Option<String>,
    /// Where it is split, each copy says of the whole job what nobody can change in it any more (its size, its hosts,
    /// the ranks that begin there): no part moves alone.
    #[serde(default)]
    pub rigid: bool,
    /// Where its data is, where its user says so.
    pub data: Option<Arc<Data>>,
    /// Which tasks want to be together, and which apart.
    #[serde(default, skip_serializing_if = "TaskTopology::is_empty")]
    pub task_topology: TaskTopology,
    /// Which clusters its user lets it go to, where its user says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Arc<ClusterChoice>>,
}

/// One pod template and its number of pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Task {
    /// Unique in the gang.
    pub name: TaskName,
    /// Pods wanted.
    pub replicas: u32,
    /// Pods needed; at most `replicas`.
    pub min_available: u32,
    /// What one pod asks for, `pods: 1` included.
    pub request: Resources,
    /// Where one pod may run.
    pub node: NodeClaim,
    /// The template's PriorityClass; empty for none.
    pub priority_class: String,
    /// Sizes that must not be cut.
    pub partition: Option<Partition>,
}

/// Sizes of a partitioned task (`partitionPolicy`): `total * size == replicas`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Partition {
    /// Number of partitions.
    pub total: u32,
    /// Pods of one partition.
    pub size: u32,
    /// Partitions needed.
    pub min: u32,
    /// How close the pods of one partition must be.
    pub topology: Option<Topology>,
}

/// `networkTopology` of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Topology {
    /// True for mode `hard`.
    pub hard: bool,
    /// Highest tier (lower is closer).
    pub highest_tier: Option<u32>,
    /// The same by the tier's name.
    pub highest_tier_name: Option<String>,
}

/// Where a pod may run: selector, required node affinity (terms are alternatives) and tolerations; how many of the task
/// may run on one node; and how its CPUs must lie there.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeClaim {
    /// All labels must be there.
    pub selector: BTreeMap<String, String>,
    /// At least one term must match, if there are any.
    pub affinity: Vec<NodeTerm>,
    /// Terms of nodes that it prefers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<PreferredTerm>,
    /// Taints the pod tolerates.
    pub tolerations: Vec<Toleration>,
    /// The most pods of the task that one node takes, where more would be in each other's way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_per_node: Option<u32>,
    /// Card models that it may use, the best first, where its user has a choice
    /// ([`crate::card_choice::read_card_models`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<ResourceName>,
    /// What its pods want of NUMA nodes, where its task has a policy and they are Guaranteed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<Arc<NumaClaim>>,
}

/// One term of a node affinity: all expressions must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeTerm {
    /// On the node's labels.
    pub labels: Vec<Requirement>,
    /// On the node's fields (`metadata.name`).
    pub fields: Vec<Requirement>,
}

/// Nodes that a pod prefers, and how much.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PreferredTerm {
    /// 1 to 100.
    pub weight: u32,
    /// Which nodes.
    pub term: NodeTerm,
}

/// `key operator values`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// Label or field.
    pub key: String,
    /// How to compare.
    pub operator: Operator,
    /// With what.
    pub values: Vec<String>,
}

/// A selector's operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// There.
    Exists,
    /// Not there.
    DoesNotExist,
    /// Greater, as integers.
    Gt,
    /// Less, as integers.
    Lt,
}

impl Operator {
    const ALL: [Self; 6] = [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist, Self::Gt, Self::Lt];

    /// Reads Kubernetes' word for it.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operator| operator.as_str() == word)
    }

    /// Kubernetes' word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
        }
    }
}

/// A toleration as Kubernetes writes it; an empty key with `exists` tolerates everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// Empty for every key.
    pub key: String,
    /// True for operator `Exists`.
    pub exists: bool,
    /// Compared for operator `Equal`.
    pub value: String,
    /// Empty for every effect.
    pub effect: String,
}

/// A taint of a node or a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value, may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl Task {
    /// Pods that are admitted and placed together: a partition's size, else 1.
    #[must_use]
    pub fn partition_size(&self) -> u32 {
        self.partition.as_ref().map_or(1, |partition| partition.size.max(1))
    }

    /// How close the pods of each partition must be, where they must.
    #[must_use]
    pub fn hard_partition_topology(&self) -> Option<&Topology> {
        self.partition.as_ref()?.topology.as_ref().filter(|topology| topology.hard)
    }
}

impl Gang {
    /// Tasks that need so many pods at once, and nothing else of note.
    #[must_use]
    pub const fn new(tasks: Vec<Task>, min_available: u32) -> Self {
        Self {
            tasks,
            min_available,
            min_success: None,
            topology: None,
            one_cluster: None,
            rigid: false,
            data: None,
            task_topology: TaskTopology::none(),
            clusters: None,
        }
    }

    /// All pods.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.tasks.iter().fold(0, |sum, task| sum.saturating_add(task.replicas))
    }

    /// Whether partitions of some task must each lie in one domain.
    #[must_use]
    pub fn has_close_partitions(&self) -> bool {
        self.tasks.iter().any(|task| task.hard_partition_topology().is_some())
    }

    /// What all pods ask for.
    #[must_use]
    pub fn sum_full_demand(&self) -> Resources {
        let mut demand = Resources::new();
        for task in &self.tasks {
            demand.add(&task.request.times(u64::from(task.replicas)));
        }
        demand
    }

    /// The same where all of its pods are needed at once.
    #[must_use]
    pub fn requiring_all_pods(mut self) -> Self {
        self.min_available = self.replicas();
        for task in &mut self.tasks {
            task.min_available = task.replicas;
            if let Some(partition) = &mut task.partition {
                partition.min = partition.total;
            }
        }
        self
    }

    /// The sum of the tasks' minimums.
    #[must_use]
    pub fn sum_task_minimums(&self) -> u32 {
        self.tasks.iter().fold(0, |sum, task| sum.saturating_add(task.min_available))
    }

    /// Whether each task's own minimum counts (Volcano ignores them below a smaller job minimum).
    #[must_use]
    pub fn enforces_task_minimums(&self) -> bool {
        self.min_available >= self.sum_task_minimums()
    }
}
