//! What the controller is told: an event of one kind of object, something that happened in a member, what earlier
//! controllers accounted, or that a kind is listed.
//!
//! Every kind that is required ([`ObjectKind::list_required`]) must be listed before the first decision: half a view
//! gives away what the other half holds. Nothing waits for the first lists of links, Commands, HyperJobs and Works.

use std::collections::BTreeSet;

use caldera_core::{fleet::Update, gang::ClusterName};
use caldera_crds::{
    karmada::{cluster::Cluster, work::ResourceBinding},
    links::FederationTopology,
    names::caldera::WORKLOAD_KIND,
    tenancy::NamespaceFacts,
    volcano::{
        datadependency::{DataSource, DataSourceClaim},
        scheduling::{PodGroup, Queue},
    },
    workload::WorkloadKind,
};
use caldera_runtime::watch::{Event, api_resource};
use k8s_openapi::api::{core::v1::Namespace, scheduling::v1::PriorityClass};
use kube::api::ApiResource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    binding::Binding,
    cluster::{ClassFacts, ClusterFacts, read_namespace},
    command::CommandFacts,
    cron_job::CronJobFacts,
    data_claim::{DataClaimFacts, DataSourceFacts},
    hyper_job::{HyperJobFacts, PolicyFacts},
    losses::WorkFacts,
    pod_group::PodGroupFacts,
    queue::QueueFacts,
    workload::Workload,
};
use crate::{history::JobHistory, usage::UsageHistory};

/// Something that happened.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "inputs are taken in one by one, and queues are few")]
pub enum Input {
    /// Queues.
    Queues(Event<QueueFacts>),
    /// Bindings.
    Bindings(Event<Binding>),
    /// Workloads of one kind.
    Workloads(WorkloadKind, Event<Workload>),
    /// PodGroups of ours.
    PodGroups(Event<PodGroupFacts>),
    /// PriorityClasses.
    Classes(Event<ClassFacts>),
    /// Members' objects on the host.
    Clusters(Event<ClusterFacts>),
    /// Namespaces.
    Namespaces(Event<(String, NamespaceFacts)>),
    /// Where data is.
    DataSources(Event<DataSourceFacts>),
    /// What data workloads need.
    DataClaims(Event<DataClaimFacts>),
    /// Declared links between clusters.
    Links(Event<FederationTopology>),
    /// Commands for queues and Volcano Jobs.
    Commands(Event<CommandFacts>),
    /// CronJobs of one group.
    CronJobs(WorkloadKind, Event<CronJobFacts>),
    /// HyperJobs.
    HyperJobs(Event<HyperJobFacts>),
    /// PropagationPolicies of HyperJobs.
    Policies(Event<PolicyFacts>),
    /// Works of a cluster that is lost, or was.
    Works(ClusterName, Event<WorkFacts>),
    /// Nobody watches the Works of a cluster any more.
    WorksUnwatched(ClusterName),
    /// In a member.
    Member(String, Update),
    /// What earlier controllers accounted.
    UsageHistory(UsageHistory),
    /// How jobs ended that earlier controllers saw.
    JobHistory(JobHistory),
    /// The catalogue's answer: the clusters that have the data, none where it knows none, or why there is no answer.
    Located(Result<BTreeSet<String>, String>),
    /// All objects of this kind were told, one by one.
    Listed(ObjectKind),
}

impl Input {
    /// The kind on the host that this is an event of.
    #[must_use]
    pub const fn watched_kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::Queues(_) => "Queue",
            Self::Bindings(_) => "ResourceBinding",
            Self::Workloads(kind, _) => kind.kind(),
            Self::PodGroups(_) => "PodGroup",
            Self::Classes(_) => "PriorityClass",
            Self::Clusters(_) => "Cluster",
            Self::Namespaces(_) => "Namespace",
            Self::DataSources(_) => "DataSource",
            Self::DataClaims(_) => "DataSourceClaim",
            Self::Links(_) => "FederationTopology",
            Self::Commands(_) => "Command",
            Self::CronJobs(..) => "CronJob",
            Self::HyperJobs(_) => "HyperJob",
            Self::Policies(_) => "PropagationPolicy",
            Self::Works(..) => "Work",
            Self::WorksUnwatched(_)
            | Self::Member(..)
            | Self::UsageHistory(_)
            | Self::JobHistory(_)
            | Self::Located(_)
            | Self::Listed(_) => return None,
        })
    }
}

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
    /// Declared links between clusters.
    Links,
}

impl ObjectKind {
    /// All of them.
    #[must_use]
    pub fn list_all() -> BTreeSet<Self> {
        let mut all = Self::list_required();
        all.insert(Self::Links);
        all
    }

    /// Those that must have been listed before anything is decided. Not every host has links.
    #[must_use]
    pub fn list_required() -> BTreeSet<Self> {
        [Self::Queues, Self::Bindings, Self::PodGroups, Self::Classes, Self::Clusters, Self::Namespaces]
            .into_iter()
            .chain([Self::DataSources, Self::DataClaims])
            .chain(WorkloadKind::ALL.into_iter().map(Self::Workloads))
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
            Self::Links => {
                api_resource("federation.caldera.dev", "v1alpha1", "FederationTopology", "federationtopologies")
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

/// Reads one object of a list for who looks only once; `None` for one that is of no interest.
///
/// # Errors
/// If it does not parse: it is left out, as a watch leaves it out.
pub fn read_object(kind: ObjectKind, object: Value) -> Result<Option<Input>, serde_json::Error> {
    fn parse<K: DeserializeOwned, R>(object: Value, read: fn(&K) -> R) -> Result<Event<R>, serde_json::Error> {
        serde_json::from_value::<K>(object).map(|object| Event::Applied(read(&object)))
    }
    Ok(Some(match kind {
        ObjectKind::Queues => Input::Queues(parse::<Queue, _>(object, QueueFacts::read)?),
        ObjectKind::Bindings => Input::Bindings(parse::<ResourceBinding, _>(object, Binding::read)?),
        ObjectKind::Workloads(kind) => {
            return Ok(Workload::read(&object).map(|workload| Input::Workloads(kind, Event::Applied(workload))));
        }
        ObjectKind::PodGroups => Input::PodGroups(parse::<PodGroup, _>(object, PodGroupFacts::read)?),
        ObjectKind::Classes => Input::Classes(parse::<PriorityClass, _>(object, ClassFacts::read)?),
        ObjectKind::Clusters => Input::Clusters(parse::<Cluster, _>(object, ClusterFacts::read)?),
        ObjectKind::Namespaces => Input::Namespaces(parse::<Namespace, _>(object, read_namespace)?),
        ObjectKind::DataSources => Input::DataSources(parse::<DataSource, _>(object, DataSourceFacts::read)?),
        ObjectKind::DataClaims => Input::DataClaims(parse::<DataSourceClaim, _>(object, DataClaimFacts::read)?),
        ObjectKind::Links => Input::Links(parse(object, FederationTopology::clone)?),
    }))
}
