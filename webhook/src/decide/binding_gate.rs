//! The gate of ResourceBindings: closed when a binding is created, kept ours on every update.
//!
//! Rule: nothing starts without an admission record, whichever version of its kind a binding names. A binding in scope
//! that is neither placed nor admitted is suspended by `/spec/suspension/scheduling` alone and marked with the gate
//! annotation. A binding that arrives suspended is held by somebody else: it stays suspended, without our mark.
//! Karmada's detector rewrites `schedulerName` and `schedulePriority` from the policy at every pass
//! (`pkg/detector/detector.go`), so both are set again on every write; the former not where karmada-scheduler places
//! what is admitted ([`stock_placement`](super::stock_placement)).
//!
//! What is placed without a gate stays as it is placed: no record is made of it here. If it comes to name a queue, its
//! copies are refused ([`unadmitted_copy`](super::unadmitted_copy)).

use std::borrow::Cow;

use caldera_crds::{names::caldera, workload::WorkloadKind};
use json_patch::PatchOperation;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;

use super::{patch::set_field, verdict::Verdict};
use crate::observe::{
    cache::{Known, Lookup, Placer, Snapshot, WorkloadKey, fingerprint_plan},
    request::ReviewRequest,
};

/// As much of a ResourceBinding as the gate reads, borrowed from the review.
#[derive(Debug, Deserialize)]
pub struct GatedBinding<'a> {
    #[serde(borrow, default)]
    metadata: BindingMetadata<'a>,
    #[serde(borrow)]
    spec: BindingSpec<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingMetadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<OurAnnotations<'a>>,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

/// Ours among the annotations: the others, which can be long, are skipped without a copy.
#[derive(Debug, Default, Deserialize)]
struct OurAnnotations<'a> {
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
struct BindingSpec<'a> {
    #[serde(borrow)]
    resource: WorkloadReference<'a>,
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
struct WorkloadReference<'a> {
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

impl GatedBinding<'_> {
    fn read_gate_annotation(&self) -> Option<&str> {
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
    pub fn read_name_and_plan_fingerprint(&self) -> (&str, u64) {
        let plan = self.metadata.annotations.as_ref().and_then(|annotations| annotations.plan.as_deref());
        (&self.metadata.name, fingerprint_plan(plan))
    }
}

/// What to do with a ResourceBinding that is created or updated.
#[must_use]
pub fn gate_binding(request: &ReviewRequest<'_, GatedBinding<'_>>, snapshot: Snapshot<'_>) -> Verdict {
    let Some(binding) = &request.object else { return Verdict::UNCHANGED };
    let resource = &binding.spec.resource;
    // Bindings of dependencies have no placement: they follow their owner's.
    let (Some(_), Some(kind)) = (&binding.spec.placement, WorkloadKind::parse(&resource.api_version, &resource.kind))
    else {
        return Verdict::UNCHANGED;
    };
    // Its last updates only take finalizers.
    if binding.metadata.deletion_timestamp.is_some() {
        return Verdict::UNCHANGED;
    }
    let marked = binding.read_gate_annotation().is_some();
    // Placed before we were installed, or by somebody else.
    if binding.is_placed() && !marked && !binding.is_admitted() {
        return Verdict::UNCHANGED;
    }
    let key = WorkloadKey {
        kind,
        namespace: request.namespace.as_deref().unwrap_or_default().to_owned(),
        name: resource.name.as_ref().to_owned(),
    };
    match is_in_scope(&key, marked, request.is_create(), snapshot) {
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
    close_gate(binding, &mut patch);
    let is_ours = snapshot.cache.placer == Placer::Caldera;
    if is_ours && binding.spec.scheduler_name.as_deref() != Some(caldera::SCHEDULER_NAME) {
        patch.push(set_field(&["spec", "schedulerName"], caldera::SCHEDULER_NAME));
    }
    let current = binding.spec.schedule_priority.as_ref().map(|priority| priority.priority);
    if let Some(priority) = priority_of(&key, binding, snapshot).filter(|priority| Some(*priority) != current) {
        patch.push(set_field(&["spec", "schedulePriority"], json!({"priority": priority})));
    }
    Verdict::allow_with(patch)
}

/// Whether we queue the workload. One that the cache lacks is read live when its binding is new, because the watch may
/// be behind. Later it is simply gone.
fn is_in_scope(key: &WorkloadKey, marked: bool, new: bool, snapshot: Snapshot<'_>) -> Known<()> {
    if key.kind == WorkloadKind::VolcanoJob || marked || snapshot.is_opted_in(&key.namespace) {
        return Known::Yes(());
    }
    match snapshot.find_workload(key) {
        Known::Yes(workload) if workload.queue.is_some() => Known::Yes(()),
        Known::Yes(_) | Known::No => Known::No,
        Known::Unread if !new && snapshot.cache.listed.contains(key.kind.title()) => Known::No,
        Known::Unread => Known::Unread,
        Known::Failed(error) => Known::Failed(error),
    }
}

/// Suspends the binding and marks the suspension as ours, unless it is admitted, placed, or held by somebody else.
fn close_gate(binding: &GatedBinding<'_>, patch: &mut Vec<PatchOperation>) {
    if binding.is_admitted() || binding.is_placed() || binding.is_suspended() {
        return;
    }
    match &binding.spec.suspension {
        None => patch.push(set_field(&["spec", "suspension"], json!({"scheduling": true}))),
        Some(_) => patch.push(set_field(&["spec", "suspension", "scheduling"], true)),
    }
    if binding.read_gate_annotation() == Some(caldera::GATE_CLOSED) {
        return;
    }
    if binding.metadata.annotations.is_none() {
        patch.push(set_field(&["metadata", "annotations"], json!({})));
    }
    patch.push(set_field(&["metadata", "annotations", caldera::GATE], caldera::GATE_CLOSED));
}

/// The workload's priority as the cache has it, else what the controller wrote at release.
fn priority_of(key: &WorkloadKey, binding: &GatedBinding<'_>, snapshot: Snapshot<'_>) -> Option<i32> {
    let known = match snapshot.find_workload(key) {
        Known::Yes(workload) => snapshot.priority_of(workload.priority_class.as_deref()),
        _ => None,
    };
    known.or_else(|| binding.metadata.annotations.as_ref()?.priority.as_deref()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use caldera_crds::tenancy::NamespaceFacts;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::{
        decide::patch::tests::{any_json, applied},
        observe::{
            cache::{Cache, CachedWorkload, LiveRead, PriorityClass},
            request::parse_review,
        },
        write::review::answer_review,
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
        gate_binding(&parse_review::<GatedBinding<'_>>(body.as_bytes()).unwrap(), snapshot)
    }

    fn after(operation: &str, object: &Value, cache: &Cache) -> Value {
        match review(operation, object, Snapshot::of_cache(cache)) {
            Verdict::Allow { patch, .. } => applied(object, &patch),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_volcano_job_is_gated_and_marked_on_creation() {
        let gated = after("CREATE", &binding(JOB), &Cache::default());
        assert_eq!(gated["spec"]["suspension"], json!({"scheduling": true}));
        assert_eq!(gated["metadata"]["annotations"], json!({"a": "b", "caldera.dev/gate": "closed"}));
        assert_eq!(gated["spec"]["schedulerName"], "caldera");
    }

    #[test]
    fn a2_16_only_the_scheduling_member_of_a_suspension_is_touched() {
        let mut object = binding(JOB);
        object["spec"]["suspension"] = json!({"dispatching": true, "dispatchingOnClusters": {"clusterNames": ["m"]}});
        let gated = after("CREATE", &object, &Cache::default());
        assert_eq!(
            gated["spec"]["suspension"],
            json!({"dispatching": true, "dispatchingOnClusters": {"clusterNames": ["m"]}, "scheduling": true})
        );
    }

    #[test]
    fn a2_16_somebody_elses_suspension_is_not_marked_as_ours() {
        let mut object = binding(JOB);
        object["spec"]["suspension"] = json!({"scheduling": true});
        let held = after("CREATE", &object, &Cache::default());
        assert_eq!(held["metadata"]["annotations"], json!({"a": "b"}));
        assert_eq!(held["spec"]["suspension"], json!({"scheduling": true}));
    }

    #[test]
    fn without_an_admission_record_a_lifted_gate_is_closed_again() {
        let mut object = binding(JOB);
        object["spec"]["suspension"] = json!({"scheduling": false});
        object["metadata"]["annotations"] = json!({"caldera.dev/gate": "closed"});
        let gated = after("UPDATE", &object, &Cache::default());
        assert_eq!(gated["spec"]["suspension"]["scheduling"], true);
        object["metadata"]["annotations"] = json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{}"});
        let released = after("UPDATE", &object, &Cache::default());
        assert_eq!(released["spec"]["suspension"]["scheduling"], false);
    }

    #[test]
    fn karmadas_rewrite_of_scheduler_and_priority_is_undone_on_update() {
        let mut cache = Cache::default();
        let key = WorkloadKey { kind: WorkloadKind::VolcanoJob, namespace: "ns".into(), name: "x".into() };
        cache.workloads.insert(
            key,
            CachedWorkload {
                queue: Some("q".into()),
                priority_class: Some("high".into()),
                ..CachedWorkload::default()
            },
        );
        cache.priority_classes.insert("high".into(), PriorityClass { value: 1000, is_default: false });
        let mut object = after("CREATE", &binding(JOB), &cache);
        assert_eq!(object["spec"]["schedulePriority"], json!({"priority": 1000}));
        object["spec"]["schedulerName"] = "default-scheduler".into();
        object["spec"]["schedulePriority"] = json!({"priority": 5});
        let asserted = after("UPDATE", &object, &cache);
        assert_eq!(asserted["spec"]["schedulerName"], "caldera");
        assert_eq!(asserted["spec"]["schedulePriority"], json!({"priority": 1000}));
    }

    #[test]
    fn a2_22_bindings_out_of_scope_are_left_alone() {
        let cache = Cache::default();
        let mut dependency = binding(JOB);
        dependency["spec"].as_object_mut().unwrap().remove("placement");
        assert_eq!(review("CREATE", &dependency, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
        let mut placed = binding(JOB);
        placed["spec"]["clusters"] = json!([{"name": "m"}]);
        assert_eq!(review("CREATE", &placed, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
        assert_eq!(review("CREATE", &binding(("v1", "ConfigMap")), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
    }

    #[test]
    fn a2_26_a_deployment_is_gated_only_if_it_names_a_queue_or_its_namespace_is_opted_in() {
        let mut cache = Cache::default();
        let key = WorkloadKey { kind: WorkloadKind::Deployment, namespace: "ns".into(), name: "x".into() };
        cache.workloads.insert(key.clone(), CachedWorkload::default());
        assert_eq!(review("CREATE", &binding(DEPLOYMENT), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
        cache.namespaces.insert("ns".into(), NamespaceFacts { opted_in: true, ..NamespaceFacts::default() });
        assert_eq!(after("CREATE", &binding(DEPLOYMENT), &cache)["spec"]["suspension"]["scheduling"], true);
        cache.namespaces = Default::default();
        cache.workloads.insert(key, CachedWorkload { queue: Some("q".into()), ..CachedWorkload::default() });
        assert_eq!(after("CREATE", &binding(DEPLOYMENT), &cache)["spec"]["suspension"]["scheduling"], true);
    }

    /// Its owner makes the binding himself, in a version that nobody would have asked about.
    #[test]
    fn a_binding_of_another_version_of_its_kind_is_gated_like_any() {
        let mut cache = Cache::default();
        let opted_in = NamespaceFacts { opted_in: true, ..NamespaceFacts::default() };
        assert_eq!(
            after("CREATE", &binding(("batch.volcano.sh/v2", "Job")), &cache)["spec"]["schedulerName"],
            "caldera"
        );
        cache.namespaces.insert("ns".into(), opted_in);
        for (version, kind) in [("ray.io/v1alpha1", "RayJob"), ("ray.io/v1", "RayJob"), ("apps/v1beta2", "Deployment")]
        {
            let gated = after("CREATE", &binding((version, kind)), &cache);
            assert_eq!(gated["metadata"]["annotations"]["caldera.dev/gate"], "closed", "{version} {kind}");
        }
        assert_eq!(
            review("CREATE", &binding(("example.com/v1", "RayJob")), Snapshot::of_cache(&cache)),
            Verdict::UNCHANGED
        );
    }

    #[test]
    fn a_deployment_not_in_memory_is_read_once() {
        let cache = Cache::default();
        let key = WorkloadKey { kind: WorkloadKind::Deployment, namespace: "ns".into(), name: "x".into() };
        assert_eq!(
            review("CREATE", &binding(DEPLOYMENT), Snapshot::of_cache(&cache)),
            Verdict::Read(Lookup::Workload(key))
        );
        let gone = LiveRead::Workload(None, false);
        let snapshot = Snapshot::of_read(&cache, Some(&gone));
        assert_eq!(review("CREATE", &binding(DEPLOYMENT), snapshot), Verdict::UNCHANGED);
        let failed = LiveRead::Failed("timeout".into());
        let snapshot = Snapshot::of_read(&cache, Some(&failed));
        assert!(matches!(review("CREATE", &binding(DEPLOYMENT), snapshot), Verdict::Undecided(_)));
    }

    #[test]
    fn a_deployment_that_is_gone_is_not_read_again_for_each_update() {
        let mut cache = Cache::default();
        cache.listed.insert(WorkloadKind::Deployment.title());
        assert_eq!(review("UPDATE", &binding(DEPLOYMENT), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
        let opted_in = LiveRead::Workload(Some(CachedWorkload::default()), true);
        let snapshot = Snapshot::of_read(&cache, Some(&opted_in));
        assert!(
            matches!(review("CREATE", &binding(DEPLOYMENT), snapshot), Verdict::Allow { patch, .. } if !patch.is_empty())
        );
    }

    #[test]
    fn a_binding_that_goes_away_is_left_alone() {
        let mut going = binding(JOB);
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(review("UPDATE", &going, Snapshot::of_cache(&Cache::default())), Verdict::UNCHANGED);
    }

    #[test]
    fn a_users_own_hold_stays_after_the_gate_was_opened_and_lifting_it_does_not_skip_the_queue() {
        let mut object = binding(JOB);
        object["spec"]["suspension"] = json!({"scheduling": true});
        object["metadata"]["annotations"] = json!({"caldera.dev/gate": "open", "caldera.dev/admission": "{}"});
        let held = after("UPDATE", &object, &Cache::default());
        assert_eq!(held["metadata"]["annotations"], object["metadata"]["annotations"]);
        assert_eq!(held["spec"]["suspension"], object["spec"]["suspension"]);
        // A hold from before we saw the binding, lifted: into the queue.
        object["metadata"]["annotations"] = json!({});
        object["spec"]["suspension"] = json!({"scheduling": false});
        let queued = after("UPDATE", &object, &Cache::default());
        assert_eq!(queued["spec"]["suspension"]["scheduling"], true);
        assert_eq!(queued["metadata"]["annotations"]["caldera.dev/gate"], "closed");
    }

    #[test]
    fn an_eviction_passes_as_it_is() {
        let mut object = after("CREATE", &binding(JOB), &Cache::default());
        object["spec"]["clusters"] = json!([]);
        assert_eq!(review("UPDATE", &object, Snapshot::of_cache(&Cache::default())), Verdict::UNCHANGED);
    }

    #[test]
    fn an_unknown_priority_class_counts_as_zero_and_what_the_controller_wrote_is_kept_without_memory() {
        let mut cache = Cache::default();
        cache.listed.insert("PriorityClass");
        let key = WorkloadKey { kind: WorkloadKind::VolcanoJob, namespace: "ns".into(), name: "x".into() };
        cache
            .workloads
            .insert(key, CachedWorkload { priority_class: Some("nobody".into()), ..CachedWorkload::default() });
        assert_eq!(after("CREATE", &binding(JOB), &cache)["spec"]["schedulePriority"], json!({"priority": 0}));
        let mut object = binding(JOB);
        object["metadata"]["annotations"] = json!({"caldera.dev/priority": "7", "caldera.dev/gate": "closed"});
        let asserted = after("UPDATE", &object, &Cache::default());
        assert_eq!(asserted["spec"]["schedulePriority"], json!({"priority": 7}));
    }

    proptest! {
        #[test]
        fn no_object_makes_it_panic(object in any_json(), spec in any_json()) {
            let mut ours = binding(JOB);
            ours["spec"]["suspension"] = spec.clone();
            ours["metadata"]["annotations"] = spec;
            for object in [object, ours] {
                let body = json!({"request": {"uid": "u", "operation": "UPDATE", "namespace": "ns", "object": object}});
                let cache = Cache::default();
                let _ = answer_review::<GatedBinding<'_>>(body.to_string().as_bytes(), |request| {
                    gate_binding(request, Snapshot::of_cache(&cache))
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
            let once = after(operation, &object, &Cache::default());
            prop_assert_eq!(&after(operation, &once, &Cache::default()), &once);
            // Nothing but our own fields differ.
            for path in ["/spec/suspension/dispatching", "/spec/clusters", "/spec/placement", "/spec/resource"] {
                prop_assert_eq!(once.pointer(path), object.pointer(path));
            }
        }
    }
}
