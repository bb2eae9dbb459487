//! Works: the copy of each cluster gets the numbers of its share.
//!
//! Rule: the cluster is the Work's namespace, and the plan is on its ResourceBinding. The cache may be behind the
//! binding; the replicas that ReviseReplica stamped on the manifest tell. A copy that does not match its plan is
//! refused for now instead of being let through: Karmada's binding controller tries again.

use std::{borrow::Cow, collections::BTreeMap};

use caldera_core::gang::ClusterName;
use caldera_crds::names::karmada;
use json_patch::PatchOperation;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use super::{
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
    if work.metadata.deletion_timestamp.is_some() || !work.manifests().iter().any(is_volcano_job) {
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
        Known::Yes(binding) => match rewrite_copies(work, binding, cluster) {
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

fn rewrite_copies(
    work: &ReviewedWork<'_>,
    binding: &CachedBinding,
    cluster: &str,
) -> Result<Vec<PatchOperation>, String> {
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
    let manifests = work.manifests();
    let mut copies = manifests.to_vec();
    for copy in copies.iter_mut().filter(|manifest| is_volcano_job(manifest)) {
        *copy = make_copy(copy, plan, &cluster).map_err(|mismatch| mismatch.to_string())?;
    }
    let whole = |manifests: &[Value]| json!({"spec": {"workload": {"manifests": manifests}}});
    Ok(patch_between(&whole(manifests), &whole(&copies)))
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
                "spec": {"minAvailable": 10, "tasks": [{"name": "t", "replicas": 10, "minAvailable": 10}]},
            }]}},
        })
    }

    fn binding(plan: Option<u32>) -> CachedBinding {
        let mut object = json!({
            "metadata": {"annotations": {"caldera.dev/gate": "open"}},
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
