//! `nodeinfo.volcano.sh/v1alpha1`: Numatopology.

use std::collections::BTreeMap;

use crate::wire::{api_types, object};

object! {
    /// What a node reports of its NUMA nodes; named like the node.
    Numatopology, "nodeinfo.volcano.sh", "v1alpha1", "numatopologies", ClusterResourceScope
    { spec: NumatopologySpec } {}
}

api_types! {
    /// CPUs that are free, and how many there are.
    pub struct NumaResource {
        /// A set, such as `0-3,8`.
        pub allocatable: Option<String>,
        /// In all.
        #[schemars(extend("format" = null))]
        pub capacity: Option<i64>,
    }

    /// Where a CPU is.
    pub struct CpuPlace {
        /// Number of its NUMA node.
        #[schemars(extend("format" = null, "minimum" = 0))]
        pub numa: Option<i64>,
        /// Number of its socket.
        #[schemars(extend("format" = null, "minimum" = 0))]
        pub socket: Option<i64>,
        /// Number of its core in the socket.
        #[schemars(extend("format" = null, "minimum" = 0))]
        pub core: Option<i64>,
    }

    /// What a container has.
    pub struct ContainerAllocation {
        /// Its name.
        pub name: Option<String>,
        /// By resource.
        pub allocations: BTreeMap<String, String>,
    }

    /// What a pod has.
    pub struct PodAllocation {
        /// Its UID.
        pub uid: Option<String>,
        /// Its name.
        pub name: Option<String>,
        /// Its namespace.
        pub namespace: Option<String>,
        /// What each of its containers has.
        pub container_allocations: Vec<ContainerAllocation>,
    }

    /// A node's NUMA nodes.
    pub struct NumatopologySpec {
        /// Policies of the kubelet's managers, by name.
        pub policies: BTreeMap<String, String>,
        /// What is reserved for the system, by resource.
        pub res_reserved: BTreeMap<String, String>,
        /// What is free, by resource.
        pub numares: BTreeMap<String, NumaResource>,
        /// Where each CPU is, by its number.
        pub cpu_detail: BTreeMap<String, CpuPlace>,
        /// What each pod has.
        pub pod_allocations: Vec<PodAllocation>,
    }
}
