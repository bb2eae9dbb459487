//! ResourceBindings: gated on creation, kept ours on every update.
//!
//! Rule (docs/design.md 3.1): without an admission record there is no start. A binding in scope that is not placed and
//! has no record is suspended by `/spec/suspension/scheduling` alone, and marked as ours. A binding that arrives
//! suspended is somebody else's hold: it stays, unmarked. Karmada rewrites `schedulerName` and `schedulePriority` from
//! the policy at every pass, so both are asserted on every write.

use std::borrow::Cow;

use caldera_crds::{names::caldera, workload::WorkloadKind};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use crate::{
    index::{Known, Lookup, Snapshot, WorkloadKey, fingerprint},
    patch::{Op, escape},
    review::{Request, Verdict},
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
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<Annotations<'a>>,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

/// Ours among the annotations: the others, which can be long, are skipped without a copy.
#[derive(Debug, Default, Deserialize)]
struct Annotations<'a> {
    #[serde(borrow, default, rename = "caldera.dev/gate")]
    gate: Option<Cow<'a, str>>,
    #[serde(default, rename = "caldera.dev/admission")]
    admission: Option<IgnoredAny>,
    #[serde(borrow, default, rename = "caldera.dev/plan")]
    plan: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "caldera.dev/priority")]
    priority: Option<Cow<'a, str>>,
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
    scheduler_name: Option<Cow<'a, str>>,
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
    fn gate(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.gate.as_deref()
    }

    fn is_admitted(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|annotations| annotations.admission.is_some())
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
        let plan = self.metadata.annotations.as_ref().and_then(|annotations| annotations.plan.as_deref());
        (&self.metadata.name, fingerprint(plan))
    }
}

/// What to do with a ResourceBinding that is created or updated.
#[must_use]
pub fn gate(request: &Request<'_, Binding<'_>>, snapshot: Snapshot<'_>) -> Verdict {
    let Some(binding) = &request.object else { return Verdict::UNCHANGED };
    let resource = &binding.spec.resource;
    // Bindings of dependencies have no placement: they follow their owner's.
    let (Some(_), Some(kind)) =
        (&binding.spec.placement, WorkloadKind::parse_version(&resource.api_version, &resource.kind))
    else {
        return Verdict::UNCHANGED;
    };
    // Its last updates only take finalizers.
    if binding.metadata.deletion_timestamp.is_some() {
        return Verdict::UNCHANGED;
    }
    let marked = binding.gate().is_some();
    // Placed before we were installed, or by somebody else.
    if binding.is_placed() && !marked && !binding.is_admitted() {
        return Verdict::UNCHANGED;
    }
    let key = WorkloadKey {
        kind,
        namespace: request.namespace.as_deref().unwrap_or_default().to_owned(),
        name: resource.name.as_ref().to_owned(),
    };
    match in_scope(&key, marked, request.is_create(), snapshot) {
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
    close(binding, &mut patch);
    if binding.spec.scheduler_name.as_deref() != Some(caldera::SCHEDULER_NAME) {
        patch.push(Op::set("/spec/schedulerName", caldera::SCHEDULER_NAME));
    }
    let current = binding.spec.schedule_priority.as_ref().map(|priority| priority.priority);
    if let Some(priority) = priority(&key, binding, snapshot).filter(|priority| Some(*priority) != current) {
        patch.push(Op::set("/spec/schedulePriority", json!({"priority": priority})));
    }
    Verdict::patch(patch)
}

/// Whether we queue the workload. One that memory lacks is read live when its binding is new: the watch may be behind.
/// Later it is simply gone.
fn in_scope(key: &WorkloadKey, marked: bool, new: bool, snapshot: Snapshot<'_>) -> Known<()> {
    if key.kind == WorkloadKind::VolcanoJob || marked || snapshot.is_opted_in(&key.namespace) {
        return Known::Yes(());
    }
    match snapshot.workload(key) {
        Known::Yes(workload) if workload.queue.is_some() => Known::Yes(()),
        Known::Yes(_) | Known::No => Known::No,
        Known::Unread if !new && snapshot.index.listed.contains(key.kind.title()) => Known::No,
        Known::Unread => Known::Unread,
        Known::Failed(error) => Known::Failed(error),
    }
}

/// Suspends the binding and marks the suspension as ours, unless it is admitted, placed, or held by somebody else.
fn close(binding: &Binding<'_>, patch: &mut Vec<Op>) {
    if binding.is_admitted() || binding.is_placed() || binding.is_suspended() {
        return;
    }
    match &binding.spec.suspension {
        None => patch.push(Op::set("/spec/suspension", json!({"scheduling": true}))),
        Some(_) => patch.push(Op::set("/spec/suspension/scheduling", true)),
    }
    if binding.gate() == Some(caldera::GATE_CLOSED) {
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
    known.or_else(|| binding.metadata.annotations.as_ref()?.priority.as_deref()?.parse().ok())
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
        let key = WorkloadKey { kind: WorkloadKind::VolcanoJob, namespace: "ns".into(), name: "x".into() };
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
        let key = WorkloadKey { kind: WorkloadKind::Deployment, namespace: "ns".into(), name: "x".into() };
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
        let key = WorkloadKey { kind: WorkloadKind::Deployment, namespace: "ns".into(), name: "x".into() };
        assert_eq!(review("CREATE", &binding(DEPLOYMENT), Snapshot::of(&index)), Verdict::Read(Lookup::Workload(key)));
        let gone = Live::Workload(None, false);
        let snapshot = Snapshot { index: &index, live: Some(&gone) };
        assert_eq!(review("CREATE", &binding(DEPLOYMENT), snapshot), Verdict::UNCHANGED);
        let failed = Live::Failed("timeout".into());
        let snapshot = Snapshot { index: &index, live: Some(&failed) };
        assert!(matches!(review("CREATE", &binding(DEPLOYMENT), snapshot), Verdict::Undecided(_)));
    }

    #[test]
    fn a_deployment_that_is_gone_is_not_read_again_for_each_update() {
        let mut index = Index::default();
        index.listed.insert(WorkloadKind::Deployment.title());
        assert_eq!(review("UPDATE", &binding(DEPLOYMENT), Snapshot::of(&index)), Verdict::UNCHANGED);
        let opted_in = Live::Workload(Some(Workload::default()), true);
        let snapshot = Snapshot { index: &index, live: Some(&opted_in) };
        assert!(
            matches!(review("CREATE", &binding(DEPLOYMENT), snapshot), Verdict::Allow { patch, .. } if !patch.is_empty())
        );
    }

    #[test]
    fn a_binding_that_goes_away_is_left_alone() {
        let mut going = binding(JOB);
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(review("UPDATE", &going, Snapshot::of(&Index::default())), Verdict::UNCHANGED);
    }

    #[test]
    fn a_users_own_hold_stays_after_the_gate_was_opened_and_lifting_it_does_not_skip_the_queue() {
        let mut object = binding(JOB);
        object["spec"]["suspension"] = json!({"scheduling": true});
        object["metadata"]["annotations"] = json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{}"});
        let held = after("UPDATE", &object, &Index::default());
        assert_eq!(held["metadata"]["annotations"], object["metadata"]["annotations"]);
        assert_eq!(held["spec"]["suspension"], object["spec"]["suspension"]);
        // A hold from before we saw the binding, lifted: into the queue.
        object["metadata"]["annotations"] = json!({});
        object["spec"]["suspension"] = json!({"scheduling": false});
        let queued = after("UPDATE", &object, &Index::default());
        assert_eq!(queued["spec"]["suspension"]["scheduling"], true);
        assert_eq!(queued["metadata"]["annotations"]["caldera.dev/gate"], "closed");
    }

    #[test]
    fn an_eviction_passes_as_it_is() {
        let mut object = after("CREATE", &binding(JOB), &Index::default());
        object["spec"]["clusters"] = json!([]);
        assert_eq!(review("UPDATE", &object, Snapshot::of(&Index::default())), Verdict::UNCHANGED);
    }

    #[test]
    fn an_unknown_priority_class_counts_as_zero_and_what_the_controller_wrote_is_kept_without_memory() {
        let mut index = Index::default();
        index.listed.insert("PriorityClass");
        let key = WorkloadKey { kind: WorkloadKind::VolcanoJob, namespace: "ns".into(), name: "x".into() };
        index.workloads.insert(key, Workload { queue: None, priority_class: Some("nobody".into()) });
        assert_eq!(after("CREATE", &binding(JOB), &index)["spec"]["schedulePriority"], json!({"priority": 0}));
        let mut object = binding(JOB);
        object["metadata"]["annotations"] = json!({"caldera.dev/priority": "7", "caldera.dev/gate": "closed"});
        let asserted = after("UPDATE", &object, &Index::default());
        assert_eq!(asserted["spec"]["schedulePriority"], json!({"priority": 7}));
    }

    proptest! {
        #[test]
        fn no_object_makes_it_panic(object in crate::patch::tests::any_json(), spec in crate::patch::tests::any_json()) {
            let mut ours = binding(JOB);
            ours["spec"]["suspension"] = spec.clone();
            ours["metadata"]["annotations"] = spec;
            for object in [object, ours] {
                let body = json!({"request": {"uid": "u", "operation": "UPDATE", "namespace": "ns", "object": object}});
                let index = Index::default();
                let _ = crate::review::answer::<Binding<'_>>(body.to_string().as_bytes(), |request| {
                    gate(request, Snapshot::of(&index))
                });
            }
        }

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
            prop_assert_eq!(&after(operation, &once, &Index::default()), &once);
            // Nothing but our own fields differ.
            for path in ["/spec/suspension/dispatching", "/spec/clusters", "/spec/placement", "/spec/resource"] {
                prop_assert_eq!(once.pointer(path), object.pointer(path));
            }
        }
    }
}
