//! What the controller is told: an event of one kind of object, something that happened in a member, what earlier
//! controllers accounted, or that a kind is listed.
//!
//! Every kind that is required ([`ObjectKind::list_required`]) must be listed before the first decision: half a view
//! gives away what the other half holds. Nothing waits for the first lists of links, Commands, HyperJobs and Works:
//! jobs of a HyperJob that is not seen yet wait themselves.

use std::collections::BTreeSet;

use caldera_core::{fleet::Update, gang::ClusterName, queue::FairHistory};
use caldera_crds::{
    capacity_reservation::CapacityReservation,
    karmada::{cluster::Cluster, work::ResourceBinding},
    links::FederationTopology,
    tenancy::NamespaceFacts,
    volcano::{
        datadependency::{DataSource, DataSourceClaim},
        scheduling::{PodGroup, Queue},
    },
    workload::WorkloadKind,
};
use caldera_runtime::watch::Event;
use k8s_openapi::api::{core::v1::Namespace, scheduling::v1::PriorityClass};
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
    object_kind::ObjectKind,
    pod_group::PodGroupFacts,
    queue::QueueFacts,
    workload::Workload,
};
use crate::{
    history::{History, JobHistory, RecordedAction},
    usage::UsageHistory,
};

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
    /// Amounts that are kept for a time.
    CapacityReservations(Event<CapacityReservation>),
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
    /// What queues and their tenants used lately, as earlier controllers kept it.
    FairHistory(Vec<FairHistory>),
    /// How jobs ended that earlier controllers saw.
    JobHistory(JobHistory),
    /// What admins did, and what was done to jobs, as earlier controllers saw it.
    Actions([History<RecordedAction>; 2]),
    /// The catalogue's answer: the clusters that have the data, none where it knows none, or why there is no answer.
    Located(Result<BTreeSet<String>, String>),
    /// All objects of this kind were told, one by one.
    Listed(ObjectKind),
}

impl Input {
    /// Whether it is all objects of a kind that is written again and again until a change is seen.
    pub(crate) const fn resets_written_kind(&self) -> bool {
        matches!(
            self,
            Self::Bindings(Event::Reset(_)) | Self::Workloads(_, Event::Reset(_)) | Self::Commands(Event::Reset(_))
        )
    }

    /// The kind on the host that this is an event of: of workloads by its title, as two kinds are named Job, and two
    /// CronJob.
    #[must_use]
    pub const fn watched_kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::Queues(_) => "Queue",
            Self::Bindings(_) => "ResourceBinding",
            Self::Workloads(kind, _) => kind.title(),
            Self::PodGroups(_) => "PodGroup",
            Self::Classes(_) => "PriorityClass",
            Self::Clusters(_) => "Cluster",
            Self::Namespaces(_) => "Namespace",
            Self::DataSources(_) => "DataSource",
            Self::DataClaims(_) => "DataSourceClaim",
            Self::Links(_) => "FederationTopology",
            Self::CapacityReservations(_) => "CapacityReservation",
            Self::Commands(_) => "Command",
            Self::CronJobs(WorkloadKind::VolcanoJob, _) => "Volcano CronJob",
            Self::CronJobs(..) => "CronJob",
            Self::HyperJobs(_) => "HyperJob",
            Self::Policies(_) => "PropagationPolicy",
            Self::Works(..) => "Work",
            Self::WorksUnwatched(_)
            | Self::Member(..)
            | Self::UsageHistory(_)
            | Self::FairHistory(_)
            | Self::JobHistory(_)
            | Self::Actions(_)
            | Self::Located(_)
            | Self::Listed(_) => return None,
        })
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
        ObjectKind::HyperJobs => {
            return Ok(HyperJobFacts::read(object).map(|facts| Input::HyperJobs(Event::Applied(facts))));
        }
        ObjectKind::Links => Input::Links(parse(object, FederationTopology::clone)?),
        ObjectKind::CapacityReservations => Input::CapacityReservations(parse(object, CapacityReservation::clone)?),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two watches showed one series: that one of them fell silent was not seen.
    #[test]
    fn no_two_kinds_of_jobs_or_cron_jobs_share_a_name() {
        let mut names: Vec<Option<&str>> = Vec::new();
        for kind in WorkloadKind::ALL {
            names.push(Input::Workloads(kind, Event::Reset(Vec::new())).watched_kind());
        }
        for kind in [WorkloadKind::VolcanoJob, WorkloadKind::BatchJob] {
            names.push(Input::CronJobs(kind, Event::Reset(Vec::new())).watched_kind());
        }
        let different: BTreeSet<&Option<&str>> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }
}
