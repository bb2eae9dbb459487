//! What a ResourceBinding says to Caldera: its gate, what was admitted, where the gang goes and what was evicted.
//!
//! This is the one reading of a binding. Controller, scheduler, webhook and command line each keep the part that they
//! need, but all ask [`BindingView`] for it, so that a field or an annotation means the same everywhere.
//!
//! Rule: an annotation of ours that can not be parsed counts as absent, and so does an empty one. Without a readable
//! admission record nothing is placed. The fields are those of Karmada's `work.karmada.io/v1alpha2`
//! (`pkg/apis/work/v1alpha2/binding_types.go`); a ClusterResourceBinding has the same ones, and no namespace.

use std::collections::BTreeSet;

use caldera_core::{
    admission::Admission,
    gang::{ClusterName, WorkloadRef},
    plan::Plan,
    queue::preemption::EvictionRecord,
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
    jiff::Timestamp,
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    karmada::work::{
        AggregatedStatusItem, ClusterResourceBinding, ResourceBinding, ResourceBindingSpec, ResourceBindingStatus,
    },
    names::{
        caldera::{ADMISSION, EPOCH, EVICTION, GATE, GATE_CLOSED, GATE_OPEN, PLAN, SCHEDULER_NAME},
        karmada::{BINDING_MANAGED_BY, CLUSTER_POLICY_ID, POLICY_ID},
    },
    workload::WorkloadKind,
};

/// Producer of the graceful evictions with which the controller has copies left in lost clusters.
pub const COPY_HOLDER: &str = "caldera-controller";

/// The gate of a queued binding, as its annotation says. A binding without the annotation is not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The webhook suspended the binding. The controller opens the gate when it admits the workload.
    Closed,
    /// The controller admitted the workload.
    Open,
    /// A word that neither component writes. It opens nothing.
    Unknown,
}

/// A read-only view of a ResourceBinding or ClusterResourceBinding.
#[derive(Debug, Clone, Copy)]
pub struct BindingView<'a> {
    /// `metadata`.
    pub metadata: &'a ObjectMeta,
    /// `spec`.
    pub spec: &'a ResourceBindingSpec,
    /// `status`, once there is one.
    pub status: Option<&'a ResourceBindingStatus>,
}

impl<'a> From<&'a ResourceBinding> for BindingView<'a> {
    fn from(object: &'a ResourceBinding) -> Self {
        Self { metadata: &object.metadata, spec: &object.spec, status: object.status.as_ref() }
    }
}

impl<'a> From<&'a ClusterResourceBinding> for BindingView<'a> {
    fn from(object: &'a ClusterResourceBinding) -> Self {
        Self { metadata: &object.metadata, spec: &object.spec, status: object.status.as_ref() }
    }
}

/// Parses a binding of either kind from JSON. `None` if its spec can not be read; a status that can not is left out.
#[must_use]
pub fn parse_binding(object: &Value) -> Option<ResourceBinding> {
    Some(ResourceBinding {
        metadata: object
            .get("metadata")
            .and_then(|metadata| ObjectMeta::deserialize(metadata).ok())
            .unwrap_or_default(),
        spec: ResourceBindingSpec::deserialize(object.get("spec")?).ok()?,
        status: object.get("status").and_then(|status| ResourceBindingStatus::deserialize(status).ok()),
    })
}

impl<'a> BindingView<'a> {
    /// An annotation's text.
    #[must_use]
    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The gate; `None` for a binding that is not queued.
    #[must_use]
    pub fn gate(self) -> Option<Gate> {
        self.annotation(GATE).map(|word| match word {
            GATE_CLOSED => Gate::Closed,
            GATE_OPEN => Gate::Open,
            _ => Gate::Unknown,
        })
    }

    /// What the controller admitted.
    #[must_use]
    pub fn admission(self) -> Option<Admission> {
        Admission::parse(self.annotation(ADMISSION)?).ok()
    }

    /// The lease of the controller under which [`Self::admission`] was granted.
    #[must_use]
    pub fn epoch(self) -> Option<&'a str> {
        self.annotation(EPOCH).filter(|epoch| !epoch.is_empty())
    }

    /// Whether there is a plan annotation, readable or not.
    #[must_use]
    pub fn has_plan(self) -> bool {
        self.annotation(PLAN).is_some()
    }

    /// The gang's shares by cluster.
    #[must_use]
    pub fn plan(self) -> Option<Plan> {
        serde_json::from_str(self.annotation(PLAN)?).ok()
    }

    /// What was last evicted.
    #[must_use]
    pub fn eviction(self) -> Option<EvictionRecord> {
        EvictionRecord::parse(self.annotation(EVICTION)?).ok()
    }

    /// The workload that the binding propagates.
    #[must_use]
    pub fn workload(self) -> WorkloadRef {
        let resource = &self.spec.resource;
        WorkloadRef {
            group: resource.api_version.split_once('/').map_or("", |(group, _)| group).to_owned(),
            kind: resource.kind.clone(),
            namespace: resource.namespace.clone().unwrap_or_default(),
            name: resource.name.clone(),
        }
    }

    /// The kind of that workload, if it is one that can be queued.
    #[must_use]
    pub fn workload_kind(self) -> Option<WorkloadKind> {
        WorkloadKind::parse(&self.spec.resource.api_version, &self.spec.resource.kind)
    }

    /// The chosen clusters and their replicas.
    pub fn clusters(self) -> impl Iterator<Item = (ClusterName, u32)> + 'a {
        let replicas = |replicas: Option<i32>| u32::try_from(replicas.unwrap_or(0)).unwrap_or(0);
        self.spec.clusters.iter().map(move |target| (target.name.as_str().into(), replicas(target.replicas)))
    }

    /// Lost clusters where the controller has Karmada leave the copies, to learn whether they end ([`COPY_HOLDER`]).
    pub fn held_clusters(self) -> impl Iterator<Item = ClusterName> + 'a {
        let tasks = self.spec.graceful_eviction_tasks.iter();
        let held = tasks.filter(|task| task.producer == COPY_HOLDER && task.suppress_deletion == Some(true));
        held.map(|task| task.from_cluster.as_str().into())
    }

    /// Whether `spec.suspension.scheduling` keeps schedulers off.
    #[must_use]
    pub fn is_scheduling_suspended(self) -> bool {
        self.spec.suspension.as_ref().and_then(|suspension| suspension.scheduling) == Some(true)
    }

    /// Whether `spec.suspension` keeps what is decided from any of its clusters.
    #[must_use]
    pub fn is_dispatching_suspended(self) -> bool {
        let Some(suspension) = self.spec.suspension.as_ref() else { return false };
        let named: BTreeSet<&String> =
            suspension.dispatching_on_clusters.iter().flat_map(|clusters| &clusters.cluster_names).collect();
        suspension.dispatching == Some(true) || self.spec.clusters.iter().any(|target| named.contains(&target.name))
    }

    /// Whether `spec.schedulerName` is ours.
    #[must_use]
    pub fn names_our_scheduler(self) -> bool {
        self.spec.scheduler_name.as_deref() == Some(SCHEDULER_NAME)
    }

    /// Whether Karmada made the binding from a policy, or somebody says that it is to be scheduled.
    #[must_use]
    pub fn has_policy_or_manager(self) -> bool {
        let has_label = |label: &str| self.metadata.labels.as_ref().is_some_and(|all| all.contains_key(label));
        [POLICY_ID, CLUSTER_POLICY_ID, BINDING_MANAGED_BY].into_iter().any(has_label)
    }

    /// Whether the binding is being deleted.
    #[must_use]
    pub const fn is_deleting(self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// When clusters were last chosen.
    #[must_use]
    pub fn last_scheduled(self) -> Option<Timestamp> {
        Some(self.status?.last_scheduled_time.as_ref()?.0)
    }

    /// The condition `Scheduled`.
    #[must_use]
    pub fn scheduled_condition(self) -> Option<&'a Condition> {
        self.status?.conditions.iter().find(|condition| condition.type_ == "Scheduled")
    }

    /// What each cluster reports of its copy.
    #[must_use]
    pub fn list_copy_statuses(self) -> &'a [AggregatedStatusItem] {
        self.status.map_or(&[], |status| &status.aggregated_status)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(metadata: Value, spec: Value) -> ResourceBinding {
        let mut object = json!({"metadata": metadata, "spec": {"resource": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "x",
        }}});
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap_or_default());
        parse_binding(&object).unwrap()
    }

    #[test]
    fn an_annotation_that_can_not_be_read_counts_as_absent() {
        let binding = read(
            json!({"annotations": {
                "caldera.dev/gate": "ajar", "caldera.dev/admission": "{}", "caldera.dev/epoch": "",
                "caldera.dev/plan": "no", "caldera.dev/eviction": "[]",
            }}),
            json!({}),
        );
        let view = BindingView::from(&binding);
        assert_eq!((view.gate(), view.admission(), view.epoch()), (Some(Gate::Unknown), None, None));
        assert_eq!((view.plan(), view.has_plan(), view.eviction()), (None, true, None));
    }

    /// What `docs/tasks/upgrade.md` says of two versions at once. A plan that is read in part would put pods elsewhere.
    #[test]
    fn a_field_of_a_later_version_is_passed_over_in_a_record_and_makes_a_plan_unreadable() {
        let admission = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"t": 2}, "charged": {"cpu": "2"}});
        let eviction = json!({"count": 1, "at": 1, "until": 2, "preemptor": "u", "reason": "r", "message": "m"});
        let plan = json!({"clusters": {"m1": {"tasks": {}, "minAvailable": 0}}});
        let read_all = |later: bool| {
            let text = |record: &Value| {
                let mut record = record.clone();
                if later {
                    record["ofALaterVersion"] = json!({"some": ["thing"]});
                }
                record.to_string()
            };
            let annotations = json!({ADMISSION: text(&admission), EVICTION: text(&eviction), PLAN: text(&plan)});
            let binding = read(json!({"annotations": annotations}), json!({}));
            let view = BindingView::from(&binding);
            (view.admission(), view.eviction(), view.plan())
        };
        let (now, later) = (read_all(false), read_all(true));
        assert!(now.0.is_some() && now.1.is_some() && now.2.is_some(), "{now:?}");
        assert_eq!(later, (now.0, now.1, None));
    }

    #[test]
    fn a_binding_says_whose_it_is_and_where_it_goes() {
        let binding = read(
            json!({"annotations": {"caldera.dev/gate": "open"}, "labels": {"binding.karmada.io/managed-by": "x"}}),
            json!({
                "schedulerName": "caldera", "suspension": {"scheduling": true},
                "clusters": [{"name": "m1", "replicas": 3}, {"name": "m2"}],
            }),
        );
        let view = BindingView::from(&binding);
        assert_eq!((view.gate(), view.workload_kind()), (Some(Gate::Open), Some(WorkloadKind::VolcanoJob)));
        assert!(
            view.names_our_scheduler()
                && view.is_scheduling_suspended()
                && view.has_policy_or_manager()
                && !view.is_deleting()
        );
        assert_eq!(view.clusters().collect::<Vec<_>>(), [("m1".into(), 3), ("m2".into(), 0)]);
        assert_eq!(view.workload().to_string(), "Job ns/x");
        assert_eq!(parse_binding(&json!({"metadata": {}})), None);
    }
}
