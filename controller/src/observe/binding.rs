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
    place::{self, AffinityGroup},
    plan::Plan,
    queue::{JobId, preemption::EvictionRecord},
    resources::Resources,
    time::EpochSeconds,
};
use caldera_crds::{
    binding::{BindingView, Gate},
    karmada::work::{AggregatedStatusItem, ResourceBinding},
    names::caldera::ADMISSION,
    placement,
    workload::{
        WorkloadKind,
        progress::{JobFailure, has_copy_begun, has_copy_ended, read_job_failure},
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::ended_pods::EndedPods;

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

    pub(super) fn from_metadata(metadata: &ObjectMeta) -> Self {
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
    /// When it was made.
    pub created: EpochSeconds,
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
    /// What is decided of it does not reach all of its clusters.
    pub undispatched: bool,
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
    /// When its clusters were last chosen.
    pub scheduled: Option<EpochSeconds>,
    /// As placement sees it; `None` for dependencies' bindings, which have no placement.
    pub placement: Option<Arc<place::Binding>>,
    /// What one replica asks for, as Karmada's interpreter told.
    pub replica_request: Arc<Resources>,
    /// Clusters where a Volcano Job is past Pending.
    pub begun: Vec<ClusterName>,
    /// Its clusters that refuse their copies, in their own words.
    pub refused_copies: Vec<(ClusterName, Arc<str>)>,
    /// Its clusters that say they have their copies, and tell no status of them.
    pub silent_copies: Vec<ClusterName>,
    /// Karmada lists no copy in one of its clusters.
    pub misses_reports: bool,
    /// `spec.resource.resourceVersion` is set.
    pub names_workload_version: bool,
    /// Its clusters where its policies restarted its whole copy, which has not ended, and how often.
    pub restarted_copies: Vec<(ClusterName, u64)>,
    /// Its clusters where its whole copy failed, and how often that had restarted; those where it is held included.
    pub failed_copies: Vec<(ClusterName, u64)>,
    /// Its clusters where it ended well.
    pub ended_in: BTreeSet<ClusterName>,
    /// Each of its clusters says that nothing of its copy runs or will run. Of a cluster that was added the workload's
    /// own status says nothing until Karmada has aggregated it again.
    pub ended_everywhere: bool,
    /// Pods that its clusters say have ended.
    pub ended_pods: EndedPods,
    /// Of a batch Job that has ended in each of its clusters, and failed in one.
    pub failure: Option<Arc<JobFailure>>,
    /// Karmada lists copies of it, be they wanted or on their way out.
    pub has_copies: bool,
    /// Clusters where Karmada lists copies of it, and where it is not to be, nor is evicted from with grace.
    pub orphan_copies: Vec<ClusterName>,
    /// Lost clusters that the controller took it off and where it left the copies, to learn whether they end.
    pub held_in: Vec<ClusterName>,
    /// Each of these copies has ended.
    pub ended_where_held: bool,
    /// Karmada is told to keep copies somewhere that it has left, by whomever.
    pub leaves_with_grace: bool,
    /// `spec.suspension.dispatching`, where it is said.
    pub dispatching: Option<bool>,
    /// Being deleted.
    pub deleting: bool,
    /// Why the scheduler did not place it.
    pub refused: Option<Arc<str>>,
    /// Its workload affinity groups.
    pub groups: Vec<AffinityGroup>,
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
            key: Key::from_metadata(metadata),
            id: metadata.uid.as_deref().unwrap_or("").into(),
            resource_version: metadata.resource_version.as_deref().unwrap_or("").into(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0.into()).unwrap_or_default(),
            workload: Arc::new(view.workload()),
            workload_uid: spec.resource.uid.as_deref().unwrap_or("").into(),
            gate: view.gate(),
            suspension: spec.suspension.is_some(),
            suspended: view.is_scheduling_suspended(),
            undispatched: view.is_dispatching_suspended(),
            recorded: view.annotation(ADMISSION).is_some(),
            admission: view.admission().map(Arc::new),
            epoch: view.epoch().map(Arc::from),
            clusters: view.clusters().collect(),
            plan: view.plan().map(Arc::new),
            planned: view.has_plan(),
            eviction: view.eviction().map(Arc::new),
            scheduled: view.last_scheduled().map(EpochSeconds::from),
            placement: spec.placement.is_some().then(|| Arc::new(placement::read_binding(spec, view.status))),
            replica_request: requirements
                .map(|requirements| Arc::new(placement::read_resource_list(&requirements.resource_request)))
                .unwrap_or_default(),
            begun: list_begun_clusters(view),
            refused_copies: list_refused_copies(view),
            silent_copies: list_silent_copies(view),
            misses_reports: misses_reports(view),
            names_workload_version: spec
                .resource
                .resource_version
                .as_deref()
                .is_some_and(|version| !version.is_empty()),
            restarted_copies: list_restarted_copies(view),
            failed_copies: list_failed_copies(view),
            ended_in: list_completed_copies(view),
            ended_everywhere: have_all_copies_ended(view),
            ended_pods: EndedPods::count(view, view.admission().as_ref()),
            failure: read_failure(view).map(Arc::new),
            has_copies: view.status.is_some_and(|status| !status.aggregated_status.is_empty()),
            orphan_copies: list_orphan_copies(view),
            held_in: view.held_clusters().collect(),
            ended_where_held: have_all_ended_in(view, view.held_clusters()),
            leaves_with_grace: !spec.graceful_eviction_tasks.is_empty(),
            dispatching: spec.suspension.as_ref().and_then(|suspension| suspension.dispatching),
            deleting: view.is_deleting(),
            refused: refused.map(|condition| format!("{}: {}", condition.reason, condition.message).into()),
            groups: placement::read_affinity_groups(spec),
            ours: view.names_our_scheduler(),
        }
    }

    /// How often its policies restarted it as a whole.
    pub(crate) fn count_policy_restarts(&self) -> u32 {
        self.eviction.as_ref().map_or(0, |record| record.restarts)
    }

    /// Pods of a task that may be in one cluster: what its workload wants, or was granted.
    pub(crate) fn max_pods_per_cluster(&self, task: &Task) -> u32 {
        task.replicas.max(self.admission.as_ref().map_or(0, |record| record.pods_of(&task.name)))
    }

    /// Where the pods of each task are: by the plan, else (one task) by the replicas. Nothing that its clusters say is
    /// taken for more pods in one of them than its workload wants, or was granted.
    pub(crate) fn count_pods_by_cluster(&self, gang: &Gang) -> Vec<BTreeMap<ClusterName, u32>> {
        let of_task = |task: &Task| {
            let most = self.max_pods_per_cluster(task);
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

fn have_all_copies_ended(binding: BindingView<'_>) -> bool {
    have_all_ended_in(binding, binding.clusters().map(|(cluster, _)| cluster))
}

fn have_all_ended_in(binding: BindingView<'_>, mut clusters: impl Iterator<Item = ClusterName>) -> bool {
    let Some(kind) = binding.workload_kind() else { return false };
    let says_so = |item: &&AggregatedStatusItem| item.status.as_ref().is_some_and(|it| has_copy_ended(kind, it));
    let items = binding.status.into_iter().flat_map(|status| &status.aggregated_status);
    let ended: BTreeSet<&str> = items.filter(says_so).map(|item| &*item.cluster_name).collect();
    clusters.all(|cluster| ended.contains(cluster.as_str()))
}

fn read_failure(binding: BindingView<'_>) -> Option<JobFailure> {
    if binding.workload_kind() != Some(WorkloadKind::BatchJob) || !have_all_copies_ended(binding) {
        return None;
    }
    let reported = list_copies(binding).filter_map(|item| Some((&*item.cluster_name, item.status.as_ref()?)));
    read_job_failure(&reported.collect::<Vec<_>>())
}

/// What Karmada tells of the copies in the clusters that it is to be in.
fn list_copies(binding: BindingView<'_>) -> impl Iterator<Item = &AggregatedStatusItem> {
    list_copies_in(binding, binding.clusters().map(|(cluster, _)| cluster).collect())
}

fn list_copies_in(
    binding: BindingView<'_>,
    clusters: BTreeSet<ClusterName>,
) -> impl Iterator<Item = &AggregatedStatusItem> {
    let items = binding.status.into_iter().flat_map(|status| &status.aggregated_status);
    items.filter(move |item| clusters.contains(item.cluster_name.as_str()))
}

/// What Karmada tells of copies in clusters that it is not to be in.
fn list_orphan_copies(binding: BindingView<'_>) -> Vec<ClusterName> {
    let evicted = binding.spec.graceful_eviction_tasks.iter().map(|task| ClusterName::from(task.from_cluster.as_str()));
    let stays: BTreeSet<ClusterName> = binding.clusters().map(|(cluster, _)| cluster).chain(evicted).collect();
    let items = binding.status.into_iter().flat_map(|status| &status.aggregated_status);
    let listed = items.map(|item| ClusterName::from(item.cluster_name.as_str()));
    listed.filter(|cluster| !stays.contains(cluster)).collect()
}

/// A Work that nobody has tried yet says nothing.
fn list_refused_copies(binding: BindingView<'_>) -> Vec<(ClusterName, Arc<str>)> {
    let refused = list_copies(binding).filter(|item| item.applied != Some(true));
    let reported = refused.filter_map(|item| Some((item, item.applied_message.as_deref()?)));
    let all = reported.filter(|(_, message)| !message.is_empty());
    all.map(|(item, message)| (item.cluster_name.as_str().into(), message.into())).collect()
}

fn list_completed_copies(binding: BindingView<'_>) -> BTreeSet<ClusterName> {
    let is_completed =
        |item: &&AggregatedStatusItem| item.status.as_ref().is_some_and(|it| it["state"]["phase"] == "Completed");
    list_copies(binding).filter(is_completed).map(|item| item.cluster_name.as_str().into()).collect()
}

/// Volcano raises `version` where it kills the whole copy, and `retryCount` where it brings something of it back.
fn list_restarted_copies(binding: BindingView<'_>) -> Vec<(ClusterName, u64)> {
    let count = |status: &Value, field: &str| status[field].as_u64().filter(|count| *count > 0);
    let goes_on =
        |status: &Value| matches!(status["state"]["phase"].as_str(), Some("Restarting" | "Pending" | "Running"));
    let restarted = |item: &AggregatedStatusItem| {
        let status = item.status.as_ref().filter(|status| goes_on(status) && count(status, "version").is_some())?;
        Some((item.cluster_name.as_str().into(), count(status, "retryCount")?))
    };
    list_copies(binding).filter_map(restarted).collect()
}

fn list_failed_copies(binding: BindingView<'_>) -> Vec<(ClusterName, u64)> {
    let failed = |item: &AggregatedStatusItem| {
        let status = item.status.as_ref().filter(|status| status["state"]["phase"] == "Failed")?;
        Some((item.cluster_name.as_str().into(), status["retryCount"].as_u64().unwrap_or(0)))
    };
    let clusters = binding.clusters().map(|(cluster, _)| cluster);
    list_copies_in(binding, clusters.chain(binding.held_clusters()).collect()).filter_map(failed).collect()
}

fn list_silent_copies(binding: BindingView<'_>) -> Vec<ClusterName> {
    let silent = list_copies(binding).filter(|item| item.applied == Some(true) && item.status.is_none());
    silent.map(|item| item.cluster_name.as_str().into()).collect()
}

fn misses_reports(binding: BindingView<'_>) -> bool {
    let reported: BTreeSet<ClusterName> = list_copies(binding).map(|item| item.cluster_name.as_str().into()).collect();
    binding.clusters().any(|(cluster, _)| !reported.contains(&cluster))
}

fn list_begun_clusters(binding: BindingView<'_>) -> Vec<ClusterName> {
    let items = binding.status.into_iter().flat_map(|status| &status.aggregated_status);
    let Some(kind) = binding.workload_kind() else { return Vec::new() };
    items
        .filter(|item| item.status.as_ref().is_some_and(|status| has_copy_begun(kind, status)))
        .map(|item| item.cluster_name.as_str().into())
        .collect()
}
