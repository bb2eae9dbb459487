//! Changes of a member, as the inventory takes them: nodes, pods, HyperNodes, what nodes report of NUMA, and devices.
//!
//! Rule: a plural variant is a whole list and replaces all of its kind; a singular one adds or replaces one; one that
//! ends in `Gone` removes one by name. Only the fields that placement reads are kept.

use std::collections::BTreeMap;

use super::HyperNode;
use crate::{
    gang::{Taint, TaskName, WorkloadRef},
    image_locality::NodeImage,
    numa::NumaTopology,
    resources::Resources,
};

/// A member's node as the inventory needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// What pods may ask for in all.
    pub allocatable: Resources,
    /// Condition `Ready` is true.
    pub ready: bool,
    /// Cordoned.
    pub unschedulable: bool,
    /// Images that it has.
    pub images: Vec<NodeImage>,
}

impl Node {
    /// Whether it is ready, and not cordoned.
    #[must_use]
    pub const fn takes_pods(&self) -> bool {
        self.ready && !self.unschedulable
    }
}

/// A member's pod as the inventory needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its node, once bound.
    pub node: Option<String>,
    /// What it asks for, `pods: 1` and what it claims of devices included.
    pub request: Resources,
    /// Succeeded or failed: it holds nothing any more.
    pub finished: bool,
    /// Whose pod it is, where its labels say so.
    pub owner: Option<Owner>,
}

/// The workload (and task) a pod belongs to; the workload's namespace is the pod's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// API group of the workload, empty for core.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The task, for a Volcano Job.
    pub task: Option<TaskName>,
}

impl Owner {
    /// The workload, for a pod in this namespace.
    #[must_use]
    pub fn workload(&self, namespace: &str) -> WorkloadRef {
        WorkloadRef {
            group: self.group.clone(),
            kind: self.kind.clone(),
            namespace: namespace.to_owned(),
            name: self.name.clone(),
        }
    }
}

/// What happened in a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// These are all nodes now.
    Nodes(Vec<Node>),
    /// A node was created or changed.
    Node(Node),
    /// A node is gone.
    NodeGone(String),
    /// These are all pods now.
    Pods(Vec<Pod>),
    /// A pod was created or changed.
    Pod(Pod),
    /// A pod is gone (namespace, name).
    PodGone(String, String),
    /// These are all HyperNodes now.
    HyperNodes(Vec<HyperNode>),
    /// A HyperNode was created or changed.
    HyperNode(HyperNode),
    /// A HyperNode is gone.
    HyperNodeGone(String),
    /// These are all nodes that report their NUMA nodes now, and what they report.
    NumaTopologies(Vec<(String, NumaTopology)>),
    /// A node reports its NUMA nodes, or others than before.
    NumaTopology(String, NumaTopology),
    /// A node reports none any more.
    NumaTopologyGone(String),
    /// These are all nodes with devices that drivers publish, and how many there are under each name.
    AllDevices(Vec<(String, Resources)>),
    /// The devices of a node, or that it has none any more.
    Devices(String, Resources),
}
