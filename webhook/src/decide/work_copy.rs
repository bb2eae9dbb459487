//! Works: the copy of each cluster gets the numbers of its share.
//!
//! Rule: the cluster is the Work's namespace, and the plan is on its ResourceBinding. The cache may be behind the
//! binding; the replicas that ReviseReplica stamped on the manifest tell. A copy that does not match its plan is
//! refused for now instead of being let through: Karmada's binding controller tries again. So is a copy that asks for
//! more than was charged ([`charged_copy`](super::charged_copy)), of any kind that can be queued, and one that an
//! override made another object than the workload that was charged: of another kind, name or namespace. A copy made
//! anew has what its job's restarts as a whole left of `maxRetry`. A Work whose manifests do not change is not refused.
//!
//! What is charged must end with its charge: a copy that was charged is deleted with its Work, whatever
//! `preserveResourcesOnDeletion` of its policy says, and has the replicas that were charged, whatever its label
//! `retain-replicas` says (Karmada `pkg/controllers/execution/execution_controller.go`, `pkg/util/constants.go`).
//!
//! The pods of some kinds say of which workload they are only if the copy has them do so: it is marked.

use std::{borrow::Cow, collections::BTreeMap};

use caldera_core::gang::ClusterName;
use caldera_crds::{
    job_admission::DEFAULT_MAX_RETRY,
    names::karmada,
    workload::{WorkloadKind, mark_pods},
};
use json_patch::PatchOperation;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use super::{
    charged_copy::check_copy_against_record,
    job_copy::{is_volcano_job, make_copy},
    patch::{patch_between, set_field},
    verdict::Verdict,
};
use crate::observe::{
    cache::{CachedBinding, Known, Lookup, Snapshot, WorkloadKey},
    request::ReviewRequest,
};

/// As much of a Work as is read.
#[derive(Debug, Deserialize)]
pub struct ReviewedWork<'a> {
    #[serde(borrow, default)]
    metadata: WorkMetadata<'a>,
    #[serde(default)]
    spec: WorkSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkMetadata<'a> {
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkSpec {
    #[serde(default)]
    workload: WorkManifests,
    #[serde(default)]
    preserve_resources_on_deletion: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct WorkManifests {
    #[serde(default)]
    manifests: Option<Vec<Value>>,
}

impl ReviewedWork<'_> {
    fn manifests(&self) -> &[Value] {
        self.spec.workload.manifests.as_deref().unwrap_or_default()
    }
}

/// What to do with a Work that is created or updated.
#[must_use]
pub fn rewrite_work(request: &ReviewRequest<'_, ReviewedWork<'_>>, snapshot: Snapshot<'_>) -> Verdict {
    let Some(work) = &request.object else { return Verdict::UNCHANGED };
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let Some(cluster) = namespace.strip_prefix(karmada::EXECUTION_NAMESPACE_PREFIX) else {
        return Verdict::UNCHANGED;
    };
    let is_workload = |manifest: &Value| WorkloadKind::of(manifest).is_some();
    let carries_workload = work.manifests().iter().any(is_workload);
    if work.metadata.deletion_timestamp.is_some() || work.manifests().is_empty() {
        return Verdict::UNCHANGED;
    }
    let annotation = |name: &str| work.metadata.annotations.as_ref()?.get(name).map(|value| value.as_ref().to_owned());
    let (Some(namespace), Some(name)) = (annotation(karmada::BINDING_NAMESPACE), annotation(karmada::BINDING_NAME))
    else {
        return Verdict::UNCHANGED;
    };
    let key = (namespace, name);
    let lookup = || Verdict::Read(Lookup::Binding(key.clone()));
    let is_live = snapshot.live.is_some();
    let problem = match snapshot.find_binding(&key) {
        Known::Unread => return lookup(),
        // What is no workload concerns us only as what an override made of one.
        Known::No if !carries_workload => return Verdict::UNCHANGED,
        Known::Yes(binding) if !carries_workload && !binding.gated => return Verdict::UNCHANGED,
        Known::Failed(error) => format!("failed to read ResourceBinding {}/{}: {error}", key.0, key.1),
        Known::No => format!("ResourceBinding {}/{} of this Work does not exist", key.0, key.1),
        Known::Yes(binding) if !binding.ours => return Verdict::UNCHANGED,
        Known::Yes(binding) => {
            match build_copies_patch(work, request.old_object.as_ref(), binding, cluster, snapshot) {
                Ok(patch) => return Verdict::allow_with(patch),
                Err(problem) => problem,
            }
        }
    };
    if !is_live {
        return lookup();
    }
    // Who only labels a Work, or takes a finalizer, sends no new numbers: nothing to hold up.
    if request.old_object.as_ref().is_some_and(|old| old.manifests() == work.manifests()) {
        return Verdict::UNCHANGED;
    }
    Verdict::deny_for_now(problem)
}

/// The patch that makes the copies, if what they ask for was charged.
fn build_copies_patch(
    work: &ReviewedWork<'_>,
    old: Option<&ReviewedWork<'_>>,
    binding: &CachedBinding,
    cluster: &str,
    snapshot: Snapshot<'_>,
) -> Result<Vec<PatchOperation>, String> {
    let manifests = work.manifests();
    if let Some(key) = binding.workload.as_ref().filter(|_| binding.gated) {
        manifests.iter().try_for_each(|manifest| check_copy_against_workload(manifest, key))?;
    }
    let mut copies = if manifests.iter().any(is_volcano_job) {
        rewrite_copies(manifests, old.map(ReviewedWork::manifests).unwrap_or_default(), binding, cluster)?
    } else {
        manifests.to_vec()
    };
    if binding.gated {
        let record = binding.admission.as_deref().ok_or("its job is not admitted")?;
        let replicas = binding.clusters.get(cluster).ok_or("its job is not placed in this cluster")?;
        let host = binding.workload.as_ref().and_then(|key| snapshot.cache.workloads.get(key));
        let class = host.map(|host| host.priority_class.as_deref().unwrap_or_default());
        for copy in copies.iter().filter(|copy| WorkloadKind::of(copy).is_some()) {
            check_copy_against_record(copy, record, *replicas, class)?;
        }
        copies.iter_mut().for_each(remove_retained_replicas);
        copies.iter_mut().for_each(mark_pods);
    }
    let whole = |manifests: &[Value]| json!({"spec": {"workload": {"manifests": manifests}}});
    let mut patch = patch_between(&whole(manifests), &whole(&copies));
    if binding.gated && work.spec.preserve_resources_on_deletion == Some(true) {
        patch.push(set_field(&["spec", "preserveResourcesOnDeletion"], false));
    }
    Ok(patch)
}

/// With this label Karmada keeps the replicas that the member's own copy has.
fn remove_retained_replicas(copy: &mut Value) {
    if let Some(labels) = copy.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(karmada::RETAIN_REPLICAS);
    }
}

/// A copy is of the workload that was charged: an override may change neither its kind nor its name or namespace.
fn check_copy_against_workload(copy: &Value, key: &WorkloadKey) -> Result<(), String> {
    let text = |pointer: &str| copy.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    if WorkloadKind::of(copy) == Some(key.kind) && (namespace, name) == (&*key.namespace, &*key.name) {
        return Ok(());
    }
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    Err(format!(
        "it carries {version} {kind} {namespace}/{name}, and what was admitted is {} {} {}/{}: no override may change \
         that",
        key.kind.api_version(),
        key.kind.kind(),
        key.namespace,
        key.name
    ))
}

fn rewrite_copies(
    manifests: &[Value],
    old: &[Value],
    binding: &CachedBinding,
    cluster: &str,
) -> Result<Vec<Value>, String> {
    let plan = match &binding.plan {
        Some(Ok(plan)) => plan,
        Some(Err(error)) => return Err(format!("the binding's plan is not readable: {error}")),
        None => return Err("the binding has no plan yet".to_owned()),
    };
    // A cached binding from before the placement lacks the cluster. The whole job must not pass.
    if !binding.clusters.contains_key(cluster) {
        return Err(format!("the binding does not place the job in cluster {cluster}"));
    }
    let cluster = ClusterName::from(cluster);
    let mut plan = Cow::Borrowed(&**plan);
    if binding.admission.as_deref().is_some_and(|record| record.copies > 1) {
        // Each copy of a duplicated job is a job of its own.
        plan.to_mut().clusters.retain(|name, _| *name == cluster);
    }
    let mut copies = manifests.to_vec();
    for (number, copy) in copies.iter_mut().enumerate().filter(|(_, manifest)| is_volcano_job(manifest)) {
        *copy = make_copy(copy, &plan, &cluster).map_err(|mismatch| mismatch.to_string())?;
        let most = |copy: &Value| copy.pointer("/spec/maxRetry").and_then(Value::as_i64).filter(|most| *most > 0);
        // What the Work said before was lowered then: who writes it again, and not from the template, lowers nothing.
        let is_lowered = most(copy).is_some() && old.get(number).and_then(most) == most(copy);
        if binding.restarts > 0 && !is_lowered {
            let left = most(copy).unwrap_or(DEFAULT_MAX_RETRY).saturating_sub(binding.restarts.into()).max(1);
            copy["spec"]["maxRetry"] = left.into();
        }
    }
    Ok(copies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decide::patch::tests::applied,
        observe::{
            cache::{Cache, LiveRead},
            request::parse_review,
        },
    };

    fn work(revised: u32) -> Value {
        json!({
            "metadata": {"name": "w", "annotations": {
                "resourcebinding.karmada.io/namespace": "ns", "resourcebinding.karmada.io/name": "j-job",
            }},
            "spec": {"workload": {"manifests": [{
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                "metadata": {"name": "j", "namespace": "ns", "annotations": {"caldera.dev/revised-replicas": revised.to_string()}},
                "spec": {"minAvailable": 10, "tasks": [{
                    "name": "t", "replicas": 10, "minAvailable": 10,
                    "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
                }]},
            }]}},
        })
    }

    fn binding(plan: Option<u32>) -> CachedBinding {
        let record =
            json!({"queue": "default", "priority": 0, "copies": 1, "tasks": {"t": 4}, "charged": {"pods": "4"}});
        let mut object = json!({
            "metadata": {"annotations": {"caldera.dev/gate": "open", "caldera.dev/admission": record.to_string()}},
            "spec": {
                "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": "j"},
                "clusters": [{"name": "m1", "replicas": 4}],
            },
        });
        if let Some(replicas) = plan {
            let plan = json!({"clusters": {"m1": {
                "tasks": {"t": {"replicas": replicas, "minAvailable": replicas}}, "minAvailable": replicas,
            }}});
            object["metadata"]["annotations"]["caldera.dev/plan"] = plan.to_string().into();
        }
        CachedBinding::from_object(&object)
    }

    #[test]
    fn a_copy_that_was_charged_is_deleted_with_its_work_and_keeps_no_replicas_of_its_members_own() {
        let mut cache = Cache::default();
        cache.put_binding(key(), binding(Some(4)));
        let mut work = work(4);
        work["spec"]["preserveResourcesOnDeletion"] = true.into();
        let retains = json!({"resourcetemplate.karmada.io/retain-replicas": "true", "app": "x"});
        work["spec"]["workload"]["manifests"][0]["metadata"]["labels"] = retains;
        for old in [None, Some(&work)] {
            let Verdict::Allow { patch, .. } = review(&work, old, Snapshot::of_cache(&cache)) else { panic!() };
            let sent = applied(&work, &patch);
            assert_eq!(sent["spec"]["preserveResourcesOnDeletion"], false);
            assert_eq!(sent["spec"]["workload"]["manifests"][0]["metadata"]["labels"], json!({"app": "x"}));
            assert_eq!(review(&sent, Some(&work), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
        }
        cache.put_binding(key(), CachedBinding { gated: false, ..binding(Some(4)) });
        let Verdict::Allow { patch, .. } = review(&work, None, Snapshot::of_cache(&cache)) else { panic!() };
        assert_eq!(applied(&work, &patch)["spec"]["preserveResourcesOnDeletion"], true, "nobody is charged for it");
    }

    fn key() -> (String, String) {
        ("ns".into(), "j-job".into())
    }

    fn review(object: &Value, old: Option<&Value>, snapshot: Snapshot<'_>) -> Verdict {
        let body = json!({"request": {
            "uid": "u", "operation": if old.is_some() { "UPDATE" } else { "CREATE" }, "namespace": "karmada-es-m1",
            "object": object, "oldObject": old,
        }})
        .to_string();
        rewrite_work(&parse_review::<ReviewedWork<'_>>(body.as_bytes()).unwrap(), snapshot)
    }

    #[test]
    fn a_work_gets_the_numbers_of_its_clusters_share() {
        let mut cache = Cache::default();
        cache.put_binding(key(), binding(Some(4)));
        let object = work(4);
        let Verdict::Allow { patch, .. } = review(&object, None, Snapshot::of_cache(&cache)) else { panic!() };
        let rewritten = applied(&object, &patch);
        let spec = &rewritten["spec"]["workload"]["manifests"][0]["spec"];
        assert_eq!(spec["tasks"][0]["replicas"], 4);
        assert_eq!(spec["minAvailable"], 4);
        // Again: nothing to do.
        assert_eq!(review(&rewritten, None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
    }

    #[test]
    fn a_copy_made_anew_has_what_its_jobs_restarts_left_of_max_retry() {
        for (restarts, left) in [(0, json!(5)), (2, json!(3)), (9, json!(1))] {
            let mut cache = Cache::default();
            cache.put_binding(key(), CachedBinding { restarts, ..binding(Some(4)) });
            let mut object = work(4);
            object["spec"]["workload"]["manifests"][0]["spec"]["maxRetry"] = 5.into();
            let Verdict::Allow { patch, .. } = review(&object, None, Snapshot::of_cache(&cache)) else { panic!() };
            let copy = applied(&object, &patch);
            assert_eq!(copy["spec"]["workload"]["manifests"][0]["spec"]["maxRetry"], left);
            // Somebody else writes the Work, and says the same of the job; Karmada writes it from the template.
            let mut touched = copy.clone();
            touched["spec"]["suspendDispatching"] = false.into();
            assert_eq!(review(&touched, Some(&copy), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
            let Verdict::Allow { patch, .. } = review(&object, Some(&copy), Snapshot::of_cache(&cache)) else {
                panic!()
            };
            let again = applied(&object, &patch);
            assert_eq!(again["spec"]["workload"]["manifests"][0]["spec"]["maxRetry"], left);
        }
        let record =
            json!({"count": 0, "at": 1, "until": 1, "preemptor": "", "reason": "r", "message": "m", "restarts": 2});
        let object = json!({"metadata": {"annotations": {"caldera.dev/eviction": record.to_string()}}});
        assert_eq!(CachedBinding::from_object(&object).restarts, 2);
    }

    #[test]
    fn an_override_policy_that_asks_for_more_than_was_charged_is_refused_until_it_is_admitted() {
        let mut cache = Cache::default();
        cache.put_binding(key(), binding(Some(4)));
        let mut object = work(4);
        let pod =
            json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "7"}}}]}});
        object["spec"]["workload"]["manifests"][0]["spec"]["tasks"][0]["template"] = pod;
        // Memory may be behind: it is read once more.
        assert_eq!(review(&object, None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
        let mut grown = binding(Some(4));
        let live = LiveRead::Binding(Some(Box::new(grown.clone())));
        let Verdict::Deny(denial) = review(&object, None, Snapshot { cache: &cache, live: Some(&live) }) else {
            panic!()
        };
        assert_eq!(denial.code, 503);
        assert!(denial.message.contains("cpu 28, and queue default is charged 0"), "{}", denial.message);
        let mut record = grown.admission.as_deref().unwrap().clone();
        record.charged.set("cpu", "28".parse().unwrap());
        grown.admission = Some(std::sync::Arc::new(record));
        let live = LiveRead::Binding(Some(Box::new(grown)));
        assert!(matches!(review(&object, None, Snapshot { cache: &cache, live: Some(&live) }), Verdict::Allow { .. }));
    }

    #[test]
    fn each_copy_of_a_duplicated_job_counts_its_own_pods_and_a_split_one_goes_on_from_the_cluster_before() {
        for (copies, offset) in [(1, Some("4")), (2, None)] {
            let mut placed = binding(Some(4));
            let mut plan = (**placed.plan.as_ref().unwrap().as_ref().unwrap()).clone();
            let share = plan.clusters[&ClusterName::from("m1")].clone();
            plan.clusters.insert("m0".into(), share);
            placed.plan = Some(Ok(std::sync::Arc::new(plan)));
            let mut record = placed.admission.as_deref().unwrap().clone();
            record.copies = copies;
            record.charged.set("pods", "8".parse().unwrap());
            placed.admission = Some(std::sync::Arc::new(record));
            let mut cache = Cache::default();
            cache.put_binding(key(), placed);
            let mut object = work(4);
            let job = &mut object["spec"]["workload"]["manifests"][0]["spec"];
            job["plugins"] = json!({"env": []});
            job["tasks"][0]["template"]["spec"]["containers"][0]["command"] = json!(["sh", "-c", "true"]);
            let Verdict::Allow { patch, .. } = review(&object, None, Snapshot::of_cache(&cache)) else { panic!() };
            let copy = applied(&object, &patch);
            let container =
                &copy["spec"]["workload"]["manifests"][0]["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
            assert_eq!(container["env"][0]["value"].as_str(), offset);
        }
    }

    #[test]
    fn a_deployments_work_is_held_against_its_record_and_one_that_is_not_queued_is_not() {
        let web = json!({
            "metadata": {"name": "w", "annotations": {
                "resourcebinding.karmada.io/namespace": "ns", "resourcebinding.karmada.io/name": "j-job",
            }},
            "spec": {"workload": {"manifests": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "j", "namespace": "ns"},
                "spec": {"replicas": 4, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
            }]}},
        });
        let service = WorkloadKey { kind: WorkloadKind::Deployment, namespace: "ns".into(), name: "j".into() };
        let binding = |_: Option<u32>| CachedBinding { workload: Some(service.clone()), ..binding(None) };
        let mut cache = Cache::default();
        cache.put_binding(key(), binding(None));
        assert_eq!(review(&web, None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
        let mut more = web.clone();
        more["spec"]["workload"]["manifests"][0]["spec"]["replicas"] = 14.into();
        assert_eq!(review(&more, None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
        cache.put_binding(key(), CachedBinding { admission: None, ..binding(None) });
        assert_eq!(review(&web, None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
        cache.put_binding(key(), CachedBinding { gated: false, admission: None, ..binding(None) });
        assert_eq!(review(&more, None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
    }

    #[test]
    fn an_override_of_kind_namespace_or_name_is_refused() {
        let mut cache = Cache::default();
        cache.put_binding(key(), binding(Some(4)));
        let live = LiveRead::Binding(Some(Box::new(binding(Some(4)))));
        for (pointer, value) in [
            ("/apiVersion", "apps/v1"),
            ("/kind", "ReplicaSet"),
            ("/metadata/namespace", "theirs"),
            ("/metadata/name", "other"),
        ] {
            let mut object = work(4);
            *object["spec"]["workload"]["manifests"][0].pointer_mut(pointer).unwrap() = value.into();
            let verdict = review(&object, None, Snapshot { cache: &cache, live: Some(&live) });
            let Verdict::Deny(denial) = verdict else { panic!("{pointer}: {verdict:?}") };
            assert!(denial.message.contains("no override may change"), "{}", denial.message);
        }
        // Of a binding that is not queued, and of none, that is not ours to say.
        let mut map = work(4);
        map["spec"]["workload"]["manifests"][0]["kind"] = "ConfigMap".into();
        let gone = LiveRead::Binding(None);
        assert_eq!(review(&map, None, Snapshot { cache: &cache, live: Some(&gone) }), Verdict::UNCHANGED);
        cache.put_binding(key(), CachedBinding { gated: false, ..binding(None) });
        assert_eq!(review(&map, None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
    }

    #[test]
    fn a_plan_that_memory_does_not_have_yet_is_read_live_and_a_wrong_one_is_refused_for_now() {
        let mut cache = Cache::default();
        assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
        cache.put_binding(key(), binding(None));
        assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
        cache.put_binding(key(), binding(Some(3)));
        assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
        let live = LiveRead::Binding(Some(Box::new(binding(Some(3)))));
        let snapshot = Snapshot { cache: &cache, live: Some(&live) };
        let Verdict::Deny(denial) = review(&work(4), None, snapshot) else { panic!() };
        assert_eq!(denial.code, 503);
        assert!(denial.message.contains("3 replicas") && denial.message.contains('4'), "{}", denial.message);
        let live = LiveRead::Binding(Some(Box::new(binding(Some(4)))));
        let snapshot = Snapshot { cache: &cache, live: Some(&live) };
        assert!(matches!(review(&work(4), None, snapshot), Verdict::Allow { .. }));
    }

    #[test]
    fn a_work_that_goes_away_or_keeps_its_manifests_is_let_through() {
        let cache = Cache::default();
        let mut going = work(4);
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(review(&going, Some(&work(4)), Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
        let mut labelled = work(4);
        labelled["metadata"]["labels"] = json!({"a": "b"});
        let gone = LiveRead::Binding(None);
        let snapshot = Snapshot { cache: &cache, live: Some(&gone) };
        assert_eq!(review(&labelled, Some(&work(4)), snapshot), Verdict::UNCHANGED);
        let Verdict::Deny(denial) = review(&work(4), Some(&work(3)), snapshot) else { panic!() };
        assert!(denial.message.contains("does not exist"), "{}", denial.message);
    }

    #[test]
    fn a_plan_that_changed_only_a_minimum_reaches_a_work_whose_manifest_did_not_change() {
        let mut cache = Cache::default();
        cache.put_binding(key(), binding(Some(4)));
        assert!(
            matches!(review(&work(4), Some(&work(4)), Snapshot::of_cache(&cache)), Verdict::Allow { patch, .. } if !patch.is_empty())
        );
    }

    #[test]
    fn a_binding_from_before_its_placement_never_lets_a_whole_copy_through() {
        let mut cache = Cache::default();
        let mut before = binding(Some(4));
        before.clusters.clear();
        cache.put_binding(key(), before.clone());
        assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
        let live = LiveRead::Binding(Some(Box::new(before)));
        let snapshot = Snapshot { cache: &cache, live: Some(&live) };
        let Verdict::Deny(denial) = review(&work(4), None, snapshot) else { panic!() };
        assert!(denial.message.contains("does not place the job in cluster m1"), "{}", denial.message);
    }

    #[test]
    fn a_binding_that_is_not_ours_keeps_karmadas_copy() {
        let mut cache = Cache::default();
        cache.put_binding(key(), CachedBinding { ours: false, ..binding(None) });
        assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::UNCHANGED);
    }

    #[test]
    fn an_announced_plan_makes_memory_stale_until_the_watch_shows_it() {
        let mut cache = Cache::default();
        cache.put_binding(key(), binding(Some(4)));
        cache.note_reviewed_plan(key(), 12345);
        assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
    }
}
