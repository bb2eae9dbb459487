//! A binding as the scheduler sees it, read from the object.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    gang::{Gang, WorkloadRef},
    place::{self, Group},
    plan::Plan,
    queue::preemption::EvictionRecord,
};
use caldera_crds::{
    karmada::work::{AggregatedStatusItem, ResourceBindingSpec, ResourceBindingStatus, ResourceHealth},
    names::{
        caldera::{ADMISSION, EPOCH, EVICTION, GATE, GATE_OPEN, PLAN, SCHEDULER_NAME},
        karmada::{APPLIED_PLACEMENT, BINDING_MANAGED_BY, CLUSTER_POLICY_ID, POLICY_ID},
    },
    placement,
    workload::WorkloadKind,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::ranking::{self, PolicyKey, Stated};

/// Namespace (empty for a ClusterResourceBinding) and name of a binding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Key {
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
    pub key: Key,
    /// `metadata.uid`.
    pub uid: String,
    /// As last seen.
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
    /// Under which lease that was.
    pub epoch: Option<String>,
    /// Clusters where it was placed before and did not start.
    pub avoid: Vec<String>,
    /// The template.
    pub workload: WorkloadRef,
    /// As written, for events about the template.
    pub api_version: String,
    /// `spec.placement` as written; `None` for a dependency's binding.
    pub placement: Option<Value>,
    /// As placement sees it, but for what others say ([`Index::around`](crate::index::Index::around)).
    pub place: place::Binding,
    /// `spec.workloadAffinityGroups`.
    pub groups: Vec<Group>,
    /// What it asks for by its own words, where it is not queued.
    pub replica: Option<Arc<Gang>>,
    /// How clusters rank, where it says so itself.
    pub weights: Option<Stated>,
    /// The policy that made it.
    pub policy: Option<PolicyKey>,
    /// The plan annotation, if it can be read.
    pub plan: Option<Plan>,
    /// The applied-placement annotation.
    pub applied: Option<String>,
    /// What status says.
    pub status: Status,
    /// Clusters whose copy Karmada tells of.
    pub copies: BTreeSet<String>,
    /// Clusters where the workload has ended, and how.
    pub ended: BTreeMap<String, End>,
    /// Clusters where it is said to be healthy, of a kind whose template is not read.
    pub healthy: BTreeSet<String>,
}

/// The state of a queued binding's gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It waits to be admitted.
    Closed,
    /// We lifted it.
    Open,
}

/// How a workload has ended in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is done.
    Completed,
    /// It failed for good, or was terminated.
    Broken,
    /// It was stopped, and may be resumed.
    Stopped,
}

/// The part of a binding's status that the scheduler writes, and the conditions that others do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// All conditions as written.
    pub conditions: Vec<Value>,
    /// `schedulerObservedGeneration`.
    pub observed_generation: Option<i64>,
    /// `lastScheduledTime` is there.
    pub scheduled_before: bool,
    /// The same.
    pub last_scheduled: Option<Timestamp>,
}

impl Status {
    /// The `Scheduled` condition's status, reason and message.
    #[must_use]
    pub fn scheduled(&self) -> Option<(&str, &str, &str)> {
        let condition = self.conditions.iter().find(|condition| condition["type"] == "Scheduled")?;
        Some((
            condition["status"].as_str().unwrap_or_default(),
            condition["reason"].as_str().unwrap_or_default(),
            condition["message"].as_str().unwrap_or_default(),
        ))
    }
}

impl Binding {
    /// Reads a binding; `None` if it is none.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let annotation = |key: &str| object["metadata"]["annotations"][key].as_str();
        let spec: ResourceBindingSpec = serde_json::from_value(object.get("spec")?.clone()).ok()?;
        let status: ResourceBindingStatus =
            object.get("status").and_then(|status| serde_json::from_value(status.clone()).ok()).unwrap_or_default();
        let resource = &spec.resource;
        let workload = WorkloadRef {
            group: resource.api_version.split_once('/').map_or("", |(group, _)| group).to_owned(),
            kind: resource.kind.clone(),
            namespace: resource.namespace.clone().unwrap_or_default(),
            name: resource.name.clone(),
        };
        let ours = spec.scheduler_name.as_deref() == Some(SCHEDULER_NAME);
        let gate = annotation(GATE).map(|gate| if gate == GATE_OPEN { Gate::Open } else { Gate::Closed });
        let has_label = |label: &&str| object["metadata"]["labels"].get(*label).is_some();
        let ended = status.aggregated_status.iter().filter_map(|item| {
            let end = item.status.as_ref().and_then(end)?;
            Some((item.cluster_name.clone(), end))
        });
        let is_read = WorkloadKind::parse(&resource.api_version, &resource.kind).is_some();
        let is_healthy = |item: &&AggregatedStatusItem| !is_read && item.health == Some(ResourceHealth::Healthy);
        let healthy = status.aggregated_status.iter().filter(is_healthy);
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        Some(Self {
            key: Key { namespace: text("/metadata/namespace"), name: text("/metadata/name") },
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            generation: object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0),
            created: text("/metadata/creationTimestamp"),
            deleting: object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()),
            ours,
            annotated: object["metadata"]["annotations"].is_object(),
            claimed: [POLICY_ID, CLUSTER_POLICY_ID, BINDING_MANAGED_BY].iter().any(has_label),
            gate,
            held: spec.suspension.as_ref().and_then(|suspension| suspension.scheduling) == Some(true),
            priority: spec.schedule_priority.as_ref().and_then(|priority| priority.priority).unwrap_or(0),
            admission: annotation(ADMISSION).and_then(|text| Admission::parse(text).ok()),
            epoch: annotation(EPOCH).filter(|epoch| !epoch.is_empty()).map(ToOwned::to_owned),
            avoid: annotation(EVICTION)
                .and_then(|text| EvictionRecord::parse(text).ok())
                .map_or_else(Vec::new, |eviction| eviction.avoid),
            workload,
            api_version: resource.api_version.clone(),
            placement: object.pointer("/spec/placement").filter(|placement| !placement.is_null()).cloned(),
            place: placement::read_binding(&spec, Some(&status)),
            groups: placement::read_affinity_groups(&spec),
            replica: (ours && gate.is_none()).then(|| Arc::new(placement::read_replica_gang(&spec))),
            weights: ranking::weights_of(object),
            policy: ranking::policy_of(object),
            plan: annotation(PLAN).and_then(|text| serde_json::from_str(text).ok()),
            applied: annotation(APPLIED_PLACEMENT).map(ToOwned::to_owned),
            status: Status {
                conditions,
                observed_generation: status.scheduler_observed_generation,
                scheduled_before: status.last_scheduled_time.is_some(),
                last_scheduled: status.last_scheduled_time.as_ref().map(|at| at.0),
            },
            copies: status.aggregated_status.iter().map(|item| item.cluster_name.clone()).collect(),
            ended: ended.collect(),
            healthy: healthy.map(|item| item.cluster_name.clone()).collect(),
        })
    }

    /// Whether it is ours to place now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_released() || self.is_unqueued()
    }

    /// Whether it was queued and is admitted.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.gate == Some(Gate::Open) && self.admission.is_some() && self.is_ours_now()
    }

    /// Whether a policy names us as the scheduler of something that is not queued: it is placed as karmada-scheduler would.
    /// A Volcano Job is always queued.
    #[must_use]
    pub fn is_unqueued(&self) -> bool {
        let volcano = WorkloadKind::parse(&self.api_version, &self.workload.kind) == Some(WorkloadKind::VolcanoJob);
        self.gate.is_none() && self.admission.is_none() && self.claimed && !volcano && self.is_ours_now()
    }

    fn is_ours_now(&self) -> bool {
        self.ours && !self.held && !self.deleting && self.placement.is_some()
    }

    /// A version that can be compared, where the server's can.
    pub(crate) fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}

/// How the workload has ended in a member by its status; nothing while it may run more pods.
fn end(status: &Value) -> Option<End> {
    let phase = status.pointer("/state/phase").or_else(|| status.get("phase")).and_then(Value::as_str);
    let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let holds = |name: &str| conditions.clone().any(|one| one["type"] == name && one["status"] == "True");
    match phase {
        Some("Completed" | "Succeeded") => Some(End::Completed),
        Some("Failed" | "Terminated") => Some(End::Broken),
        Some("Aborted") => Some(End::Stopped),
        _ if holds("Complete") => Some(End::Completed),
        _ if holds("Failed") => Some(End::Broken),
        _ => None,
    }
}
