//! Kinds of objects that decide.

use std::collections::BTreeSet;

use caldera_crds::{names::caldera::WORKLOAD_KIND, workload::WorkloadKind};
use caldera_runtime::watch::api_resource;
use kube::api::ApiResource;

/// Kinds of objects that decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Queues.
    Queues,
    /// Bindings.
    Bindings,
    /// One kind of workload.
    Workloads(WorkloadKind),
    /// PodGroups.
    PodGroups,
    /// PriorityClasses.
    Classes,
    /// Clusters.
    Clusters,
    /// Namespaces.
    Namespaces,
    /// Where data is.
    DataSources,
    /// What data workloads need.
    DataClaims,
    /// HyperJobs, whose jobs start together.
    HyperJobs,
    /// Declared links between clusters.
    Links,
    /// Amounts that are kept for a time.
    CapacityReservations,
}

impl ObjectKind {
    /// All of them.
    #[must_use]
    pub fn list_all() -> BTreeSet<Self> {
        let mut all = Self::list_required();
        all.insert(Self::Links);
        all.extend(WorkloadKind::list_all().map(Self::Workloads));
        all
    }

    /// Those that must have been listed before anything is decided. Not every host has links. Kinds that are told by
    /// data are waited for where they are followed, and not for ever.
    #[must_use]
    pub fn list_required() -> BTreeSet<Self> {
        [Self::Queues, Self::Bindings, Self::PodGroups, Self::Classes, Self::Clusters, Self::Namespaces]
            .into_iter()
            .chain([Self::DataSources, Self::DataClaims, Self::HyperJobs, Self::CapacityReservations])
            .chain(WorkloadKind::ALL.map(Self::Workloads))
            .collect()
    }

    /// What to ask the server for.
    #[must_use]
    pub fn api_resource(self) -> ApiResource {
        match self {
            Self::Queues => api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
            Self::Bindings => api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings"),
            Self::Workloads(kind) => kind.api_resource(),
            Self::PodGroups => api_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
            Self::Classes => api_resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
            Self::Clusters => api_resource("cluster.karmada.io", "v1alpha1", "Cluster", "clusters"),
            Self::Namespaces => api_resource("", "v1", "Namespace", "namespaces"),
            Self::DataSources => api_resource("datadependency.volcano.sh", "v1alpha1", "DataSource", "datasources"),
            Self::DataClaims => {
                api_resource("datadependency.volcano.sh", "v1alpha1", "DataSourceClaim", "datasourceclaims")
            }
            Self::HyperJobs => api_resource("training.volcano.sh", "v1alpha1", "HyperJob", "hyperjobs"),
            Self::Links => {
                api_resource("federation.caldera.dev", "v1alpha1", "FederationTopology", "federationtopologies")
            }
            Self::CapacityReservations => {
                api_resource("federation.caldera.dev", "v1alpha1", "CapacityReservation", "capacityreservations")
            }
        }
    }

    /// Only those with this label.
    #[must_use]
    pub const fn label_selector(self) -> Option<&'static str> {
        match self {
            Self::PodGroups => Some(WORKLOAD_KIND),
            _ => None,
        }
    }
}
