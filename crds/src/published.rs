//! `federation.caldera.dev/v1alpha1` ClusterInventory: a member's nodes and pods as its collector saw them.
//!
//! Rule: a reader answers every question as if it watched the member itself: what is free on each node, which pods of a
//! workload reached a node, and what would be free without some of them. What no question needs is left out: pods of
//! unknown owners are one sum per node, pods of a task are ranges of numbers, and similar names are one pattern.
//!
//! A member has one object with a [`Heartbeat`], named like the cluster, and one or more objects with a [`Part`], named
//! `<cluster>.<index>` (a cluster's name has no dot). The heartbeat is small and is written at intervals. A part holds
//! the nodes whose names hash to it and everything that is bound to them, and is written when it changes. Each part is
//! consistent by itself, so parts need not be written together. The heartbeat says how many parts there are.

mod amount;
mod decode;
mod domains;
mod encode;
mod images;
mod links;
mod load;
mod malformed;
mod numa;
mod queues;
mod ranges;
mod set;
#[cfg(test)]
mod tests;
mod trust;
mod weight;

use std::collections::BTreeMap;

use caldera_core::{
    fleet::Queues,
    inventory::{HyperNode, Node, Pod},
    numa::NumaTopology,
};
use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement};

pub use decode::decode_part;
pub(crate) use encode::hash_fnv1a;
pub use encode::{MOST_OBJECT_BYTES, MOST_PARTS, divide_contents};
pub use images::encode_images;
pub use malformed::Malformed;
pub use set::{MemberObjects, Published};
pub use trust::TRUSTED_HEARTBEATS;

use crate::wire::{ResourceList, api_types, object, words};

/// Nodes by name.
pub type Nodes = BTreeMap<String, Node>;
/// Pods by namespace and name.
pub type Pods = BTreeMap<(String, String), Pod>;

/// HyperNodes by name.
pub type HyperNodes = BTreeMap<String, HyperNode>;

/// What nodes report of their NUMA nodes, by node.
pub type NumaTopologies = BTreeMap<String, NumaTopology>;

/// All that is published of a member, or of a part of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Nodes.
    pub nodes: Nodes,
    /// Pods.
    pub pods: Pods,
    /// Network domains.
    pub hyper_nodes: HyperNodes,
    /// The member's own queues.
    pub queues: Queues,
    /// What nodes report of their NUMA nodes.
    pub numa: NumaTopologies,
}

words! {
    /// How a collector reaches its member.
    Reached { Direct = "Direct", Proxy = "Proxy", Agent = "Agent", }
}

object! {
    /// A member's nodes and who holds them.
    ClusterInventory, "federation.caldera.dev", "v1alpha1", "clusterinventories", ClusterResourceScope
    { spec: ClusterInventorySpec } {}
}

api_types! {
    /// Either the heartbeat or a part.
    pub struct ClusterInventorySpec {
        /// The member.
        pub cluster: String,
        /// When and how it was last seen.
        pub heartbeat: Option<Heartbeat>,
        /// Some of its nodes.
        pub part: Option<Part>,
    }

    /// When and how a member was last seen.
    pub struct Heartbeat {
        /// When the member last answered its collector, RFC 3339.
        pub seen_at: String,
        /// Seconds until the next heartbeat at the latest. After three of them nobody trusts the numbers.
        #[schemars(extend("format" = null, "minimum" = 1, "maximum" = 100))]
        pub every_seconds: u32,
        /// How the collector reaches the member.
        pub reached: Reached,
        /// Number of parts.
        #[schemars(extend("format" = null, "minimum" = 1, "maximum" = 1024))]
        pub parts: u32,
        /// Nodes in all parts, for showing.
        #[schemars(extend("format" = null, "minimum" = 0))]
        pub nodes: u32,
        /// Why the member can not be read at present, where it can not; then `seenAt` stands still.
        pub fault: Option<String>,
        /// What its nodes really use, where they measure it.
        pub load: Option<Load>,
        /// The largest images of nodes that take pods, by name: how many bytes of each a node has in the mean.
        #[schemars(extend("maxProperties" = 64))]
        pub images: BTreeMap<String, i64>,
        /// Ways to other clusters, as its collector measured them.
        #[schemars(extend("maxItems" = 1024))]
        pub links: Vec<PeerLink>,
    }

    /// The way to another cluster.
    pub struct PeerLink {
        /// The other cluster.
        pub to: String,
        /// One-way latency: half of the shortest round trip of some.
        #[schemars(extend("minimum" = 0, "format" = null))]
        pub latency_microseconds: Option<i64>,
        /// What one connection carried to the other cluster.
        #[schemars(extend("minimum" = 0, "format" = null))]
        pub bandwidth_megabits: Option<i64>,
        /// Since when that is what counts, RFC 3339.
        pub since: String,
    }

    /// What the nodes of a member really use, by its NodeMetrics.
    pub struct Load {
        /// When that was read, RFC 3339.
        pub read_at: String,
        /// Cores and bytes, of all nodes that take pods together.
        #[serde_with(skip_apply)]
        pub used: ResourceList,
        /// What these nodes have.
        #[serde_with(skip_apply)]
        pub capacity: ResourceList,
    }

    /// Some of a member's nodes, with all that is bound to them. Nodes are numbered in the order in which they are
    /// listed here, from 0; `on` and `nodes` of what follows are ranges of these numbers (`0-7,9`).
    pub struct Part {
        /// Which, from 0.
        #[schemars(extend("format" = null, "minimum" = 0))]
        pub index: u32,
        /// Of how many.
        #[schemars(extend("format" = null, "minimum" = 1, "maximum" = 1024))]
        pub of: u32,
        /// Nodes that are alike.
        pub shapes: Vec<NodeShape>,
        /// What pods hold that are nobody's we know, by node.
        pub held: Vec<Held>,
        /// What pods of workloads ask for, each once; numbered from 0.
        pub requests: Vec<ResourceList>,
        /// Pods of workloads that Karmada may have brought.
        pub workloads: Vec<Workload>,
        /// Network domains of the member; all in the first part.
        pub domains: Vec<NetworkDomain>,
        /// Queues of the member's own Volcano; all in the first part.
        pub queues: Vec<MemberQueue>,
        /// What nodes report of their NUMA nodes, of those that do.
        pub numa: Vec<NumaReport>,
    }

    /// NUMA nodes of some nodes.
    pub struct NumaReport {
        /// Of which.
        pub nodes: String,
        /// The policy by which they align pods; absent where they align none.
        #[schemars(extend("enum" = ["best-effort", "restricted", "single-numa-node"]))]
        pub policy: Option<String>,
        /// Of each NUMA node the CPUs that are free, that pods may have, and that there are: `3/14/16 16/16/16`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub cpus: String,
    }

    /// A queue of the member's own Volcano.
    pub struct MemberQueue {
        /// Name.
        pub name: String,
        /// As in its status.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub state: String,
        /// What its capability leaves, of what it bounds.
        pub left: ResourceList,
    }

    /// A HyperNode and what it selects.
    pub struct NetworkDomain {
        /// Name of the HyperNode.
        pub name: String,
        /// Lower is closer.
        #[schemars(extend("format" = null, "minimum" = 0))]
        pub tier: u32,
        /// What the tier is called.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub tier_name: String,
        /// Nodes by name, written as a shape's names are.
        pub nodes: Vec<String>,
        /// Nodes by patterns of their names.
        pub patterns: Vec<String>,
        /// Nodes by labels: each list selects those for which all of it holds.
        pub labels: Vec<Vec<LabelSelectorRequirement>>,
        /// HyperNodes by name.
        pub hyper_nodes: Vec<String>,
    }

    /// Nodes that are alike in all that is said here.
    pub struct NodeShape {
        /// Their names: `n[08-11]` is n08, n09, n10 and n11.
        #[serde_with(skip_apply)]
        pub names: Vec<String>,
        /// Labels that they share.
        pub labels: BTreeMap<String, String>,
        /// Labels that tell most of them apart: a value for each node, in order.
        pub own_labels: BTreeMap<String, Vec<String>>,
        /// Taints.
        pub taints: Vec<Taint>,
        /// What pods may ask for in all.
        pub allocatable: ResourceList,
        /// Why they take no pods, where they do not.
        pub closed: Vec<Closed>,
    }
}

words! {
    /// Why a node takes no pods.
    Closed { NotReady = "NotReady", Cordoned = "Cordoned", Gone = "Gone", }
}

api_types! {
    /// The same amounts held on each of some nodes.
    pub struct Held {
        /// On which.
        pub nodes: String,
        /// How much, in whole units as schedulers count; `pods` says by how many.
        #[serde_with(skip_apply)]
        pub amounts: ResourceList,
    }

    /// A workload's pods.
    pub struct Workload {
        /// API group, absent for core.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub group: String,
        /// Kind.
        pub kind: String,
        /// Namespace.
        pub namespace: String,
        /// Name.
        pub name: String,
        /// Pods that are bound and not finished.
        pub bound: Vec<Bound>,
        /// Pods that were on nodes and have finished.
        pub finished: Vec<Finished>,
    }

    /// Pods of a task on nodes.
    pub struct Bound {
        /// The task, for kinds that have tasks.
        pub task: Option<String>,
        /// What each asks for: a number of the part's `requests`.
        #[schemars(extend("format" = null, "minimum" = 0))]
        pub request: u32,
        /// Where: `0:4-7 3:8,9` is pods 4 to 7 on node 0, pods 8 and 9 on node 3; `5*2` is two without a number on node
        /// 5.
        pub on: String,
    }

    /// Pods of a task that have finished.
    pub struct Finished {
        /// The task, for kinds that have tasks.
        pub task: Option<String>,
        /// How many.
        #[schemars(extend("format" = null, "minimum" = 1))]
        pub pods: u32,
    }
}
