//! A binding as the scheduler sees it, parsed from the object.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    gang::{Gang, WorkloadRef},
    place::{self, AffinityGroup},
    plan::Plan,
};
pub use caldera_crds::binding::Gate;
use caldera_crds::{
    binding::{self, BindingView},
    karmada::work::ResourceHealth,
    names::karmada::APPLIED_PLACEMENT,
    placement,
    workload::WorkloadKind,
};
use caldera_runtime::clock::format_time;
use jiff::Timestamp;
use serde_json::Value;

use super::ranking::{self, PolicyKey, StatedWeights};

/// Namespace (empty for a ClusterResourceBinding) and name of a binding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for BindingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl BindingKey {
    /// Whether it is a ClusterResourceBinding's.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.namespace.is_empty()
    }
}

/// A ResourceBinding or ClusterResourceBinding as far as the scheduler looks at it.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// Which.
    pub key: BindingKey,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` as last seen.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`, which sorts as text.
    pub created: String,
    /// Being deleted.
    pub deleting: bool,
    /// It has annotations at all.
    pub annotated: bool,
    /// Karmada made it from a policy, or somebody says that it is to be scheduled.
    pub claimed: bool,
    /// `spec.schedulerName` is ours.
    pub ours: bool,
    /// Its gate; `None` for one that is not queued.
    pub gate: Option<Gate>,
    /// `spec.suspension.scheduling`: while the gate is open, somebody else's hold.
    pub held: bool,
    /// `spec.schedulePriority.priority`.
    pub priority: i32,
    /// What the controller granted.
    pub admission: Option<Admission>,
    /// The epoch of the lease under which that was.
    pub epoch: Option<String>,
    /// Clusters where it was placed before and did not start.
    pub avoid: Vec<String>,
    /// The template.
    pub workload: WorkloadRef,
    /// Its UID, as the binding says it.
    pub workload_uid: String,
    /// As written, for events about the template.
    pub api_version: String,
    /// `spec.placement` as JSON; `None` for a dependency's binding.
    pub placement: Option<Arc<str>>,
    /// As placement sees it, but for what others say ([`Cache::context_of`](super::cache::Cache::context_of)).
    pub place: place::Binding,
    /// `spec.workloadAffinityGroups`.
    pub groups: Vec<AffinityGroup>,
    /// What it requests by its own spec, where it is not queued.
    pub replica: Option<Arc<Gang>>,
    /// How clusters rank, where its own annotation says so.
    pub weights: Option<StatedWeights>,
    /// The policy that made it.
    pub policy: Option<PolicyKey>,
    /// The plan annotation, if it can be read.
    pub plan: Option<Plan>,
    /// The applied-placement annotation.
    pub applied: Option<Arc<str>>,
    /// What status says.
    pub status: Status,
    /// Clusters of which the aggregated status has a copy.
    pub copies: BTreeSet<String>,
    /// Clusters where the workload has ended, and how.
    pub ended: BTreeMap<String, End>,
    /// Clusters where it is said to be healthy, of a kind whose template is not read.
    pub healthy: BTreeSet<String>,
}

/// How a workload has ended in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is done.
    Completed,
    /// It failed for good.
    Failed,
    /// It was terminated, or stopped and may be resumed.
    Stopped,
}

/// The part of a binding's status that the scheduler writes, and the conditions that others do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// All conditions as written, because a patch replaces the list and must keep those of others.
    pub conditions: Vec<Value>,
    /// `schedulerObservedGeneration`.
    pub observed_generation: Option<i64>,
    /// `lastScheduledTime`.
    pub last_scheduled: Option<Timestamp>,
}

impl Status {
    /// The `Scheduled` condition's status, reason and message.
    #[must_use]
    pub fn scheduled_condition(&self) -> Option<(&str, &str, &str)> {
        let condition = self.conditions.iter().find(|condition| condition["type"] == SCHEDULED)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        Some((text("status"), text("reason"), text("message")))
    }
}

/// Type of the condition that the scheduler writes.
pub(crate) const SCHEDULED: &str = "Scheduled";

impl Binding {
    /// Parses a binding; `None` if it is none.
    #[must_use]
    pub fn parse_binding(object: &Value) -> Option<Self> {
        let typed = binding::parse_binding(object)?;
        let view = BindingView::from(&typed);
        let (metadata, spec, status) = (view.metadata, view.spec, view.status);
        let (ours, gate) = (view.names_our_scheduler(), view.gate());
        let copies = view.list_copy_statuses();
        let ended =
            copies.iter().filter_map(|copy| Some((copy.cluster_name.clone(), read_end(copy.status.as_ref()?)?)));
        let is_read = view.workload_kind().is_some();
        let healthy = copies.iter().filter(|copy| !is_read && copy.health == Some(ResourceHealth::Healthy));
        Some(Self {
            key: BindingKey {
                namespace: metadata.namespace.clone().unwrap_or_default(),
                name: metadata.name.clone().unwrap_or_default(),
            },
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or(0),
            created: metadata.creation_timestamp.as_ref().map(|time| format_time(time.0)).unwrap_or_default(),
            deleting: view.is_deleting(),
            ours,
            annotated: metadata.annotations.is_some(),
            claimed: view.has_policy_or_manager(),
            gate,
            held: view.is_scheduling_suspended(),
            priority: spec.schedule_priority.as_ref().and_then(|priority| priority.priority).unwrap_or(0),
            admission: view.admission(),
            epoch: view.epoch().map(ToOwned::to_owned),
            avoid: view.eviction().map_or_else(Vec::new, |eviction| eviction.avoid),
            workload: view.workload(),
            workload_uid: view.spec.resource.uid.clone().unwrap_or_default(),
            api_version: spec.resource.api_version.clone(),
            placement: object
                .pointer("/spec/placement")
                .filter(|placement| !placement.is_null())
                .map(|placement| placement.to_string().into()),
            place: placement::read_binding(spec, status),
            groups: placement::read_affinity_groups(spec),
            replica: (ours && gate.is_none()).then(|| Arc::new(placement::read_replica_gang(spec))),
            weights: ranking::read_score_weights(object),
            policy: ranking::policy_of(object),
            plan: view.plan(),
            applied: view.annotation(APPLIED_PLACEMENT).map(Arc::from),
            status: Status {
                conditions: object["status"]["conditions"].as_array().cloned().unwrap_or_default(),
                observed_generation: status.and_then(|status| status.scheduler_observed_generation),
                last_scheduled: view.last_scheduled(),
            },
            copies: copies.iter().map(|copy| copy.cluster_name.clone()).collect(),
            ended: ended.collect(),
            healthy: healthy.map(|copy| copy.cluster_name.clone()).collect(),
        })
    }

    /// Whether it is ours to place now.
    #[must_use]
    pub fn is_ours_to_place(&self) -> bool {
        self.is_released() || self.is_unqueued()
    }

    /// Whether it was queued and is admitted.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.gate == Some(Gate::Open) && self.admission.is_some() && self.is_ours_now()
    }

    /// Whether a policy names us as the scheduler of something that is not queued: it is placed as karmada-scheduler
    /// would. A Volcano Job is always queued.
    #[must_use]
    pub fn is_unqueued(&self) -> bool {
        let free = self.gate.is_none() && self.admission.is_none();
        free && self.claimed && !self.is_volcano_job() && self.is_ours_now()
    }

    /// Whether it is a Volcano Job's.
    #[must_use]
    pub fn is_volcano_job(&self) -> bool {
        WorkloadKind::parse(&self.api_version, &self.workload.kind) == Some(WorkloadKind::VolcanoJob)
    }

    fn is_ours_now(&self) -> bool {
        self.ours && !self.held && !self.deleting && self.placement.is_some()
    }

    /// A version that can be compared, where the server's can.
    pub(crate) fn comparable_version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}

/// How the workload has ended in a member by its status; nothing while it may run more pods.
fn read_end(status: &Value) -> Option<End> {
    let phase = status.pointer("/state/phase").or_else(|| status.get("phase")).and_then(Value::as_str);
    let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let holds = |name: &str| conditions.clone().any(|one| one["type"] == name && one["status"] == "True");
    match phase {
        Some("Completed" | "Succeeded") => Some(End::Completed),
        Some("Failed") => Some(End::Failed),
        Some("Terminated" | "Aborted") => Some(End::Stopped),
        _ if holds("Complete") => Some(End::Completed),
        _ if holds("Failed") => Some(End::Failed),
        _ => None,
    }
}
