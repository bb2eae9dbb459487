//! Works: the copy of each cluster gets the numbers of its share.
//!
//! Rule: the cluster is the Work's namespace, and the plan is on its ResourceBinding. The cache may be behind the
//! binding; the replicas that ReviseReplica stamped on the manifest tell. A copy that does not match its plan is
//! refused for now instead of being let through: Karmada's binding controller tries again. So is a copy that asks for
//! more than was charged ([`charged_copy`](super::charged_copy)), of any kind that can be queued.

use std::{borrow::Cow, collections::BTreeMap};

use caldera_core::gang::ClusterName;
use caldera_crds::{names::karmada, workload::WorkloadKind};
use json_patch::PatchOperation;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use super::{
    charged_copy::hold_against_record,
    job_copy::{is_volcano_job, make_copy},
    patch::patch_between,
    verdict::Verdict,
};
use crate::observe::{
    cache::{CachedBinding, Known, Lookup, Snapshot},
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
struct WorkSpec {
    #[serde(default)]
    workload: WorkManifests,
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
    if work.metadata.deletion_timestamp.is_some() || !work.manifests().iter().any(is_workload) {
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
        Known::Failed(error) => format!("failed to read ResourceBinding {}/{}: {error}", key.0, key.1),
        Known::No => format!("ResourceBinding {}/{} of this Work does not exist", key.0, key.1),
        Known::Yes(binding) if !binding.ours => return Verdict::UNCHANGED,
        Known::Yes(binding) => match make_copies(work, binding, cluster, snapshot) {
            Ok(patch) => return Verdict::allow_with(patch),
            Err(problem) => problem,
        },
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
fn make_copies(
    work: &ReviewedWork<'_>,
    binding: &CachedBinding,
    cluster: &str,
    snapshot: Snapshot<'_>,
) -> Result<Vec<PatchOperation>, String> {
    let manifests = work.manifests();
    let copies = if manifests.iter().any(is_volcano_job) {
        rewrite_copies(manifests, binding, cluster)?
    } else {
        manifests.to_vec()
    };
    if binding.gated {
        let record = binding.admission.as_deref().ok_or("its job is not admitted")?;
        let replicas = binding.clusters.get(cluster).ok_or("its job is not placed in this cluster")?;
        let host = binding.workload.as_ref().and_then(|key| snapshot.cache.workloads.get(key));
        let class = host.map(|host| host.priority_class.as_deref().unwrap_or_default());
        for copy in copies.iter().filter(|copy| WorkloadKind::of(copy).is_some()) {
            hold_against_record(copy, record, *replicas, class)?;
        }
    }
    let whole = |manifests: &[Value]| json!({"spec": {"workload": {"manifests": manifests}}});
    Ok(patch_between(&whole(manifests), &whole(&copies)))
}

fn rewrite_copies(manifests: &[Value], binding: &CachedBinding, cluster: &str) -> Result<Vec<Value>, String> {
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
    let mut copies = manifests.to_vec();
    for copy in copies.iter_mut().filter(|manifest| is_volcano_job(manifest)) {
        *copy = make_copy(copy, plan, &cluster).map_err(|mismatch| mismatch.to_string())?;
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
                "metadata": {"name": "j", "annotations": {"caldera.dev/revised-replicas": revised.to_string()}},
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
            "spec": {"resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}, "clusters": [{"name": "m1", "replicas": 4}]},
        });
        if let Some(replicas) = plan {
            let plan = json!({"clusters": {"m1": {
                "tasks": {"t": {"replicas": replicas, "minAvailable": replicas}}, "minAvailable": replicas,
            }}});
            object["metadata"]["annotations"]["caldera.dev/plan"] = plan.to_string().into();
        }
        CachedBinding::from_object(&object)
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
    fn a_deployments_work_is_held_against_its_record_and_one_that_is_not_queued_is_not() {
        let web = json!({
            "metadata": {"name": "w", "annotations": {
                "resourcebinding.karmada.io/namespace": "ns", "resourcebinding.karmada.io/name": "j-job",
            }},
            "spec": {"workload": {"manifests": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "j"},
                "spec": {"replicas": 4, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
            }]}},
        });
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
        cache.announce_plan(key(), 12345);
        assert_eq!(review(&work(4), None, Snapshot::of_cache(&cache)), Verdict::Read(Lookup::Binding(key())));
    }
}
