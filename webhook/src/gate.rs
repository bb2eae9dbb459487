//! ResourceBindings: gated on creation, kept ours on every update.
//!
//! Rule (docs/design.md 3.1): without an admission record there is no start. A binding in scope that is not placed and
//! has no record is suspended by `/spec/suspension/scheduling` alone, and marked as ours. A binding that arrives
//! suspended is somebody else's hold: it stays, unmarked. Karmada rewrites `schedulerName` and `schedulePriority` from
//! the policy at every pass, so both are asserted on every write.

use std::{borrow::Cow, collections::BTreeMap};

use caldera_crds::names::caldera;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use crate::{
    index::{Known, Lookup, Snapshot, WorkloadKey, fingerprint},
    patch::{Op, escape},
    review::{Request, Verdict},
    scope::Kind,
};

/// As much of a ResourceBinding as the gate reads.
#[derive(Debug, Deserialize)]
pub struct Binding<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    spec: Spec<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    resource: Resource<'a>,
    #[serde(default)]
    placement: Option<IgnoredAny>,
    #[serde(default)]
    clusters: Option<Vec<IgnoredAny>>,
    #[serde(borrow, default)]
    scheduler_name: Cow<'a, str>,
    #[serde(default)]
    schedule_priority: Option<SchedulePriority>,
    #[serde(default)]
    suspension: Option<Suspension>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct SchedulePriority {
    #[serde(default)]
    priority: i32,
}

#[derive(Debug, Deserialize)]
struct Suspension {
    #[serde(default)]
    scheduling: Option<bool>,
}

impl Binding<'_> {
    fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(AsRef::as_ref)
    }

    fn is_placed(&self) -> bool {
        self.spec.clusters.as_ref().is_some_and(|clusters| !clusters.is_empty())
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspension.as_ref().and_then(|suspension| suspension.scheduling) == Some(true)
    }

    /// The binding's name and a number for the plan it carries.
    #[must_use]
    pub fn plan(&self) -> (&str, u64) {
        (&self.metadata.name, fingerprint(self.annotation(caldera::PLAN)))
    }
}

/// What to do with a ResourceBinding that is created or updated.
#[must_use]
pub fn gate(request: &Request<'_, Binding<'_>>, snapshot: Snapshot<'_>) -> Verdict {
    let Some(binding) = &request.object else { return Verdict::UNCHANGED };
    let resource = &binding.spec.resource;
    // Bindings of dependencies have no placement: they follow their owner's.
    let (Some(_), Some(kind)) = (&binding.spec.placement, Kind::of(&resource.api_version, &resource.kind)) else {
        return Verdict::UNCHANGED;
    };
    let marked = binding.annotation(caldera::GATE).is_some();
    // Placed before we were installed, or by somebody else.
    if binding.is_placed() && !marked && binding.annotation(caldera::ADMISSION).is_none() {
        return Verdict::UNCHANGED;
    }
    let key = WorkloadKey {
        kind,
        namespace: request.namespace.as_deref().unwrap_or_default().to_owned(),
        name: resource.name.as_ref().to_owned(),
    };
    match in_scope(&key, marked, snapshot) {
        Known::Yes(()) => {}
        Known::No => return Verdict::UNCHANGED,
        Known::Unread => return Verdict::Read(Lookup::Workload(key)),
        Known::Failed(error) => {
            return Verdict::Undecided(format!(
                "failed to tell whether {} {} is queued: {error}",
                resource.kind, resource.name
            ));
        }
    }
    let mut patch = Vec::new();
    close(request, binding, &mut patch);
    if binding.spec.scheduler_name != caldera::SCHEDULER_NAME {
        patch.push(Op::set("/spec/schedulerName", caldera::SCHEDULER_NAME));
    }
    let current = binding.spec.schedule_priority.as_ref().map(|priority| priority.priority);
    if let Some(priority) = priority(&key, binding, snapshot).filter(|priority| Some(*priority) != current) {
        patch.push(Op::set("/spec/schedulePriority", json!({"priority": priority})));
    }
    Verdict::patch(patch)
}

fn in_scope(key: &WorkloadKey, marked: bool, snapshot: Snapshot<'_>) -> Known<()> {
    if key.kind == Kind::VolcanoJob || marked || snapshot.is_opted_in(&key.namespace) {
        return Known::Yes(());
    }
    match snapshot.workload(key) {
        Known::Yes(workload) if workload.queue.is_some() => Known::Yes(()),
        Known::Yes(_) | Known::No => Known::No,
        Known::Unread => Known::Unread,
        Known::Failed(error) => Known::Failed(error),
    }
}

/// Suspends the binding and marks the suspension as ours, unless it is admitted, placed, or held by somebody else.
fn close(request: &Request<'_, Binding<'_>>, binding: &Binding<'_>, patch: &mut Vec<Op>) {
    if binding.annotation(caldera::ADMISSION).is_some() || binding.is_placed() || binding.is_suspended() {
        return;
    }
    debug_assert!(request.operation != "DELETE", "deletions are not reviewed");
    match &binding.spec.suspension {
        None => patch.push(Op::set("/spec/suspension", json!({"scheduling": true}))),
        Some(_) => patch.push(Op::set("/spec/suspension/scheduling", true)),
    }
    if binding.annotation(caldera::GATE) == Some(caldera::GATE_CLOSED) {
        return;
    }
    if binding.metadata.annotations.is_none() {
        patch.push(Op::set("/metadata/annotations", Value::Object(serde_json::Map::new())));
    }
    patch.push(Op::set(format!("/metadata/annotations/{}", escape(caldera::GATE)), caldera::GATE_CLOSED));
}

/// The workload's priority as memory has it, else what the controller wrote at release.
fn priority(key: &WorkloadKey, binding: &Binding<'_>, snapshot: Snapshot<'_>) -> Option<i32> {
    let known = match snapshot.workload(key) {
        Known::Yes(workload) => snapshot.priority(workload.priority_class.as_deref()),
        _ => None,
    };
    known.or_else(|| binding.annotation(caldera::PRIORITY)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        index::{Index, Live, Workload},
        patch::tests::applied,
        review::parse,
    };

    fn binding(kind: (&str, &str)) -> Value {
        json!({
            "metadata": {"name": "x-job", "annotations": {"a": "b"}},
            "spec": {
                "resource": {"apiVersion": kind.0, "kind": kind.1, "name": "x", "namespace": "ns"},
                "placement": {}, "schedulerName": "default-scheduler",
            },
        })
    }

    const JOB: (&str, &str) = ("batch.volcano.sh/v1alpha1", "Job");
    const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");

    fn review(operation: &str, object: &Value, snapshot: Snapshot<'_>) -> Verdict {
        let body = json!({"request": {
            "uid": "u", "operation": operation, "namespace": "ns", "object": object, "oldObject": object,
        }})
        .to_string();
        gate(&parse::<Binding<'_>>(body.as_bytes()).unwrap(), snapshot)
    }

    fn after(operation: &str, object: &Value, index: &Index) -> Value {
        match review(operation, object, Snapshot::of(index)) {
            Verdict::Allow { patch, .. } => applied(object, &patch),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_volcano_job_is_gated_and_marked_on_creation() {
        let gated = after("CREATE", &binding(JOB), &Index::default());
        assert_eq!(gated["spec"]["suspension"], json!({"scheduling": true}));
        assert_eq!(gated["metadata"]["annotations"], json!({"a": "b", "caldera.dev/gate": "closed"}));
        assert_eq!(gated["spec"]["schedulerName"], "caldera");
    }

    #[test]
    fn a2_16_only_the_scheduling_member_of_a_suspension_is_touched() {
        let mut object = binding(JOB);
        object["spec"]["suspension"] = json!({"dispatching": true, "dispatchingOnClusters": {"clusterNames": ["m"]}});
        let gated = after("CREATE", &object, &Index::default());
        assert_eq!(
            gated["spec"]["suspension"],
            json!({"dispatching": true, "dispatchingOnClusters": {"clusterNames": ["m"]}, "scheduling": true})
        );
    }

    #[test]
    fn a2_16_somebody_elses_suspension_is_not_marked_as_ours() {
        let mut object = binding(JOB);
        object["spec"]["suspension"] = json!({"scheduling": true});
        let held = after("CREATE", &object, &Index::default());
        assert_eq!(held["metadata"]["annotations"], json!({"a": "b"}));
        assert_eq!(held["spec"]["suspension"], json!({"scheduling": true}));
    }

    #[test]
    fn without_an_admission_record_a_lifted_gate_is_closed_again() {
        let mut object = binding(JOB);
        object["spec"]["suspension"] = json!({"scheduling": false});
        object["metadata"]["annotations"] = json!({"caldera.dev/gate": "closed"});
        let gated = after("UPDATE", &object, &Index::default());
        assert_eq!(gated["spec"]["suspension"]["scheduling"], true);
        object["metadata"]["annotations"] = json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{}"});
        let released = after("UPDATE", &object, &Index::default());
        assert_eq!(released["spec"]["suspension"]["scheduling"], false);
    }

    #[test]
    fn karmadas_rewrite_of_scheduler_and_priority_is_undone_on_update() {
        let mut index = Index::default();
        let key = WorkloadKey { kind: Kind::VolcanoJob, namespace: "ns".into(), name: "x".into() };
        index.workloads.insert(key, Workload { queue: Some("q".into()), priority_class: Some("high".into()) });
        index.priority_classes.insert("high".into(), 1000);
        let mut object = after("CREATE", &binding(JOB), &index);
        assert_eq!(object["spec"]["schedulePriority"], json!({"priority": 1000}));
        object["spec"]["schedulerName"] = "default-scheduler".into();
        object["spec"]["schedulePriority"] = json!({"priority": 5});
        let asserted = after("UPDATE", &object, &index);
        assert_eq!(asserted["spec"]["schedulerName"], "caldera");
        assert_eq!(asserted["spec"]["schedulePriority"], json!({"priority": 1000}));
    }

    #[test]
    fn a2_22_bindings_out_of_scope_are_left_alone() {
        let index = Index::default();
        let mut dependency = binding(JOB);
        dependency["spec"].as_object_mut().unwrap().remove("placement");
        assert_eq!(review("CREATE", &dependency, Snapshot::of(&index)), Verdict::UNCHANGED);
        let mut placed = binding(JOB);
        placed["spec"]["clusters"] = json!([{"name": "m"}]);
        assert_eq!(review("CREATE", &placed, Snapshot::of(&index)), Verdict::UNCHANGED);
        assert_eq!(review("CREATE", &binding(("v1", "ConfigMap")), Snapshot::of(&index)), Verdict::UNCHANGED);
    }

    #[test]
    fn a2_26_a_deployment_is_gated_only_if_it_names_a_queue_or_its_namespace_is_opted_in() {
        let mut index = Index::default();
        let key = WorkloadKey { kind: Kind::Deployment, namespace: "ns".into(), name: "x".into() };
        index.workloads.insert(key.clone(), Workload::default());
        assert_eq!(review("CREATE", &binding(DEPLOYMENT), Snapshot::of(&index)), Verdict::UNCHANGED);
        index.opted_in.insert("ns".into());
        assert_eq!(after("CREATE", &binding(DEPLOYMENT), &index)["spec"]["suspension"]["scheduling"], true);
        index.opted_in.clear();
        index.workloads.insert(key, Workload { queue: Some("q".into()), priority_class: None });
        assert_eq!(after("CREATE", &binding(DEPLOYMENT), &index)["spec"]["suspension"]["scheduling"], true);
    }

    #[test]
    fn a_deployment_not_in_memory_is_read_once() {
        let index = Index::default();
        let key = WorkloadKey { kind: Kind::Deployment, namespace: "ns".into(), name: "x".into() };
        assert_eq!(review("CREATE", &binding(DEPLOYMENT), Snapshot::of(&index)), Verdict::Read(Lookup::Workload(key)));
        let gone = Live::Workload(None, false);
        let snapshot = Snapshot { index: &index, live: Some(&gone) };
        assert_eq!(review("CREATE", &binding(DEPLOYMENT), snapshot), Verdict::UNCHANGED);
        let failed = Live::Failed("timeout".into());
        let snapshot = Snapshot { index: &index, live: Some(&failed) };
        assert!(matches!(review("CREATE", &binding(DEPLOYMENT), snapshot), Verdict::Undecided(_)));
    }

    proptest! {
        #[test]
        fn gating_twice_changes_nothing_more(
            update in any::<bool>(),
            scheduling in prop::option::of(prop::option::of(any::<bool>())),
            gate in prop::option::of(prop_oneof!["open", "closed"]),
            admitted in any::<bool>(),
            placed in any::<bool>(),
        ) {
            let mut object = binding(JOB);
            if let Some(scheduling) = scheduling {
                object["spec"]["suspension"] = json!({"dispatching": true, "scheduling": scheduling});
            }
            if let Some(gate) = gate {
                object["metadata"]["annotations"]["caldera.dev/gate"] = gate.into();
            }
            if admitted {
                object["metadata"]["annotations"]["caldera.dev/admission"] = "{}".into();
            }
            if placed {
                object["spec"]["clusters"] = json!([{"name": "m", "replicas": 1}]);
            }
            let operation = if update { "UPDATE" } else { "CREATE" };
            let once = after(operation, &object, &Index::default());
            prop_assert_eq!(after(operation, &once, &Index::default()), once.clone());
            // Nothing but our own fields differ.
            for path in ["/spec/suspension/dispatching", "/spec/clusters", "/spec/placement", "/spec/resource"] {
                prop_assert_eq!(once.pointer(path), object.pointer(path));
            }
        }
    }
}
