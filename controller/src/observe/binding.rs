//! What the controller keeps of a ResourceBinding, and whose its scheduling suspension is.
//!
//! The gate annotation says who suspended the binding: `closed` is ours to lift. A suspension without a closed gate is
//! somebody else's. An annotation that does not parse counts as absent: a watch never breaks over one object.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    gang::{ClusterName, Gang, Task, WorkloadRef},
    place::{self, Group},
    plan::Plan,
    queue::{JobId, preemption::EvictionRecord},
    resources::Resources,
};
use caldera_crds::{
    binding::{BindingView, Gate},
    karmada::work::ResourceBinding,
    names::caldera::ADMISSION,
    placement,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// From both.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        Self::new(metadata.namespace.as_deref().unwrap_or(""), metadata.name.as_deref().unwrap_or(""))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A ResourceBinding.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// Which.
    pub key: Key,
    /// Its UID.
    pub id: JobId,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// Seconds since 1970.
    pub created: i64,
    /// Its workload.
    pub workload: Arc<WorkloadRef>,
    /// Of the workload it was made from.
    pub workload_uid: Arc<str>,
    /// Whose suspension it is; `None` for a binding that is not gated by us.
    pub gate: Option<Gate>,
    /// `spec.suspension.scheduling`.
    pub suspended: bool,
    /// There is a `spec.suspension` at all.
    pub suspension: bool,
    /// There is an admission annotation, whether or not it can be read.
    pub recorded: bool,
    /// The record, if there is one that can be read.
    pub admission: Option<Arc<Admission>>,
    /// Under which lease that was granted.
    pub epoch: Option<Arc<str>>,
    /// `spec.clusters`.
    pub clusters: Vec<(ClusterName, u32)>,
    /// The plan annotation.
    pub plan: Option<Arc<Plan>>,
    /// There is one, whether or not it can be read.
    pub planned: bool,
    /// What was last taken from it.
    pub eviction: Option<Arc<EvictionRecord>>,
    /// When its clusters were last chosen, in seconds since 1970.
    pub scheduled: Option<i64>,
    /// As placement sees it; `None` for dependencies' bindings, which have no placement.
    pub placement: Option<Arc<place::Binding>>,
    /// What one replica asks for, as Karmada's interpreter told.
    pub replica_request: Arc<Resources>,
    /// Clusters where a Volcano Job is past Pending.
    pub begun: Vec<ClusterName>,
    /// Each of its clusters has told a status of the workload. Of one that was added the workload's own status says
    /// nothing until then.
    pub reported: bool,
    /// Karmada lists copies of it, be they wanted or on their way out.
    pub has_copies: bool,
    /// Being deleted.
    pub deleting: bool,
    /// Why the scheduler did not place it.
    pub refused: Option<Arc<str>>,
    /// Its workload affinity groups.
    pub groups: Vec<Group>,
    /// `spec.schedulerName` is ours.
    pub ours: bool,
}

impl Binding {
    /// Reads one.
    #[must_use]
    pub fn read(object: &ResourceBinding) -> Self {
        let view = BindingView::from(object);
        let (metadata, spec) = (view.metadata, view.spec);
        let refused = view.scheduled_condition().filter(|condition| condition.status == "False");
        let requirements = spec.replica_requirements.as_ref();
        Self {
            key: Key::of(metadata),
            id: metadata.uid.as_deref().unwrap_or("").into(),
            resource_version: metadata.resource_version.as_deref().unwrap_or("").into(),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            workload: Arc::new(view.workload()),
            workload_uid: spec.resource.uid.as_deref().unwrap_or("").into(),
            gate: view.gate(),
            suspension: spec.suspension.is_some(),
            suspended: view.is_suspended(),
            recorded: view.annotation(ADMISSION).is_some(),
            admission: view.admission().map(Arc::new),
            epoch: view.epoch().map(Arc::from),
            clusters: view.clusters().collect(),
            plan: view.plan().map(Arc::new),
            planned: view.has_plan(),
            eviction: view.eviction().map(Arc::new),
            scheduled: view.last_scheduled().map(|time| time.as_second()),
            placement: spec.placement.is_some().then(|| Arc::new(placement::read_binding(spec, view.status))),
            replica_request: requirements
                .map(|requirements| Arc::new(placement::read_resources(&requirements.resource_request)))
                .unwrap_or_default(),
            begun: list_begun_clusters(view),
            reported: has_all_reported(view),
            has_copies: view.status.is_some_and(|status| !status.aggregated_status.is_empty()),
            deleting: view.is_deleting(),
            refused: refused.map(|condition| format!("{}: {}", condition.reason, condition.message).into()),
            groups: placement::read_affinity_groups(spec),
            ours: view.names_our_scheduler(),
        }
    }

    /// Pods of a task that may be in one cluster: what its workload wants, or was granted.
    pub(crate) fn most_pods(&self, task: &Task) -> u32 {
        task.replicas.max(self.admission.as_ref().map_or(0, |record| record.pods_of(&task.name)))
    }

    /// Where the pods of each task are: by the plan, else (one task) by the replicas. Nothing that its clusters say is
    /// taken for more pods in one of them than its workload wants, or was granted.
    pub(crate) fn pods_by_cluster(&self, gang: &Gang) -> Vec<BTreeMap<ClusterName, u32>> {
        let of_task = |task: &Task| {
            let most = self.most_pods(task);
            let pods = |(cluster, replicas): &(ClusterName, u32)| {
                let share = self.plan.as_ref().and_then(|plan| plan.clusters.get(cluster));
                let pods = match share {
                    Some(share) => share.tasks.get(&task.name).map_or(0, |share| share.replicas),
                    None if gang.tasks.len() == 1 => *replicas,
                    None => task.replicas,
                };
                (cluster.clone(), pods.min(most))
            };
            self.clusters.iter().map(pods).collect()
        };
        gang.tasks.iter().map(of_task).collect()
    }
}

fn has_all_reported(binding: BindingView<'_>) -> bool {
    let items = binding.status.into_iter().flat_map(|status| &status.aggregated_status);
    let told: BTreeSet<&str> = items.filter(|item| item.status.is_some()).map(|item| &*item.cluster_name).collect();
    binding.clusters().all(|(cluster, _)| told.contains(cluster.as_str()))
}

fn list_begun_clusters(binding: BindingView<'_>) -> Vec<ClusterName> {
    let items = binding.status.into_iter().flat_map(|status| &status.aggregated_status);
    let phase = |status: &Value| status["state"]["phase"].as_str().unwrap_or("").to_owned();
    items
        .filter(|item| item.status.as_ref().is_some_and(|status| !matches!(phase(status).as_str(), "" | "Pending")))
        .map(|item| item.cluster_name.as_str().into())
        .collect()
}
