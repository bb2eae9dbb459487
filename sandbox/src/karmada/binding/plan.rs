//! Which Works a binding has, and what each of them says.
//!
//! Rule: Karmada `pkg/controllers/binding/common.go`, `pkg/controllers/ctrlutil/work.go`. Scheduling suspension is not
//! looked at: where there are clusters, there are Works.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::webster::{self, Tie};
use serde_json::{Value, json};

use crate::karmada::{
    interpreter::{prune::prune_template, workload},
    names,
    object::{ObjectExt, ObjectKey, Shared},
};

/// A cluster and its replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Cluster.
    pub cluster: String,
    /// Replicas.
    pub replicas: i64,
}

fn read_target(value: &Value) -> Target {
    Target { cluster: value.text("/name").to_owned(), replicas: value.number("/replicas") }
}

/// Its own clusters, then those of the bindings that need it.
#[must_use]
pub fn target_clusters(binding: &Value) -> Vec<Target> {
    let mut all: Vec<Target> = binding.items("/spec/clusters").iter().map(read_target).collect();
    for snapshot in binding.items("/spec/requiredBy") {
        for one in snapshot.items("/clusters").iter().map(read_target) {
            if all.iter().all(|known| known.cluster != one.cluster) {
                all.push(one);
            }
        }
    }
    all
}

/// Clusters whose Works stay: targets, and those from which it is evicted other than `Directly`.
#[must_use]
pub fn existing_clusters(binding: &Value) -> BTreeSet<String> {
    let evicting =
        binding.items("/spec/gracefulEvictionTasks").iter().filter(|task| task.text("/purgeMode") != "Directly");
    target_clusters(binding)
        .into_iter()
        .map(|target| target.cluster)
        .chain(evicting.map(|task| task.text("/fromCluster").to_owned()))
        .collect()
}

/// Whether Karmada takes the template for something with pods.
#[must_use]
pub fn is_workload(binding: &Value) -> bool {
    binding.number("/spec/replicas") > 0
        || binding.present("/spec/replicaRequirements").is_some()
        || !binding.items("/spec/components").is_empty()
}

/// A Job's completions by cluster, where a Job (of any group) with completions is divided.
#[must_use]
pub fn divide_completions(binding: &Value, template: &Value) -> Option<BTreeMap<String, i64>> {
    let divided = binding.text("/spec/placement/replicaScheduling/replicaSchedulingType") == "Divided";
    if template.text("/kind") != "Job" || binding.number("/spec/replicas") <= 0 || !divided {
        return None;
    }
    let total = u64::try_from(template.pointer("/spec/completions")?.as_i64()?).ok()?;
    let targets = target_clusters(binding);
    let votes: Vec<(u64, &str)> =
        targets.iter().map(|target| (u64::try_from(target.replicas).unwrap_or(0), target.cluster.as_str())).collect();
    // Where nobody has replicas, nothing is divided, and the copies keep the template's completions.
    if votes.iter().all(|(replicas, _)| *replicas == 0) {
        return None;
    }
    let seats = webster::divide_seats(total, &votes, Tie::of_uid(template.uid()));
    Some(
        votes
            .iter()
            .zip(seats)
            .map(|((_, name), seats)| ((*name).to_owned(), i64::try_from(seats).unwrap_or(i64::MAX)))
            .collect(),
    )
}

/// Sets a copy's completions.
///
/// # Errors
/// When the division left the cluster out.
pub fn set_completions(manifest: &mut Value, cluster: &str, completions: &BTreeMap<String, i64>) -> Result<(), String> {
    let number = completions.get(cluster).ok_or_else(|| format!("no completions found for cluster {cluster}"))?;
    workload::set_number(manifest, "completions", *number);
    Ok(())
}

/// What was overridden in a copy, for the Work's annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overridden {
    /// By ClusterOverridePolicies.
    pub cluster_wide: Option<String>,
    /// By OverridePolicies.
    pub namespaced: Option<String>,
}

/// The Work of one cluster, from its revised and overridden copy of the template.
#[must_use]
pub fn build_work(binding: &Value, copy: &Value, target: &Target, overridden: &Overridden) -> Value {
    let mut manifest = copy.clone();
    let namespace = names::execution_namespace(&target.cluster);
    let name = names::work_name(copy.text("/kind"), copy.name(), copy.namespace());
    let namespaced = !binding.namespace().is_empty();
    let id_label = if namespaced { names::BINDING_ID } else { names::CLUSTER_BINDING_ID };
    let id = binding.label(id_label);
    manifest.set_label(id_label, id);
    let mut annotations = BTreeMap::new();
    if copy.generation() > 0 {
        manifest.set_annotation(names::TEMPLATE_GENERATION, &copy.generation().to_string());
    }
    let owner: &[(&str, &str)] = if namespaced {
        &[(names::BINDING_NAMESPACE, binding.namespace()), (names::BINDING_NAME, binding.name())]
    } else {
        &[(names::CLUSTER_BINDING_NAME, binding.name())]
    };
    for (key, value) in owner {
        manifest.set_annotation(key, value);
        annotations.insert((*key).to_owned(), (*value).to_owned());
    }
    let resolution = match copy.annotation(names::CONFLICT_RESOLUTION) {
        own @ ("abort" | "overwrite") => own,
        _ if binding.text("/spec/conflictResolution") == "Overwrite" => "overwrite",
        _ => "abort",
    };
    annotations.insert(names::CONFLICT_RESOLUTION.to_owned(), resolution.to_owned());
    let records = [
        (names::APPLIED_CLUSTER_OVERRIDES, &overridden.cluster_wide),
        (names::APPLIED_OVERRIDES, &overridden.namespaced),
    ];
    for (key, record) in records {
        if let Some(record) = record {
            annotations.insert(key.to_owned(), record.clone());
        }
    }
    manifest.set_label(names::MANAGED, "true");
    manifest.set_annotation(names::TEMPLATE_UID, copy.uid());
    manifest.set_annotation(names::WORK_NAME, &name);
    manifest.set_annotation(names::WORK_NAMESPACE, &namespace);
    manifest.set_annotation(names::CONFLICT_RESOLUTION, resolution);
    prune_template(&mut manifest);
    json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "finalizers": [names::EXECUTION_FINALIZER],
            "labels": {id_label: id},
            "annotations": annotations,
        },
        "spec": {
            "suspendDispatching": suspends_dispatching(binding, &target.cluster),
            "preserveResourcesOnDeletion": binding.flag("/spec/preserveResourcesOnDeletion"),
            "workload": {"manifests": [manifest]},
        },
    })
}

fn suspends_dispatching(binding: &Value, cluster: &str) -> bool {
    binding.flag("/spec/suspension/dispatching")
        || binding.items("/spec/suspension/dispatchingOnClusters/clusterNames").iter().any(|one| one == cluster)
}

/// Writes down in a Work's manifest which labels and annotations are Karmada's to manage, and the Work's own id.
pub fn record_managed(work: &mut Value) {
    let id = work.label(names::WORK_ID).to_owned();
    let Some(manifests) = work.pointer_mut("/spec/workload/manifests").and_then(Value::as_array_mut) else { return };
    for manifest in manifests {
        let mut keys: BTreeSet<String> = manifest.annotations().into_keys().collect();
        keys.insert(names::MANAGED_ANNOTATIONS.to_owned());
        keys.insert(names::MANAGED_LABELS.to_owned());
        manifest.set_annotation(names::MANAGED_ANNOTATIONS, &join_keys(keys));
        if !id.is_empty() {
            manifest.set_label(names::WORK_ID, &id);
        }
        let labels = join_keys(manifest.labels().into_keys());
        manifest.set_annotation(names::MANAGED_LABELS, &labels);
    }
}

fn join_keys(keys: impl IntoIterator<Item = String>) -> String {
    keys.into_iter().collect::<Vec<_>>().join(",")
}

/// The Work that exists with the whole spec written again; labels and annotations are only added to.
#[must_use]
pub fn merge_work(existing: &Value, desired: &Value) -> Value {
    let mut merged = existing.clone();
    for (key, value) in desired.labels() {
        merged.set_label(&key, &value);
    }
    for (key, value) in desired.annotations() {
        merged.set_annotation(&key, &value);
    }
    for finalizer in desired.items("/metadata/finalizers").iter().filter_map(Value::as_str) {
        merged.add_finalizer(finalizer);
    }
    merged.put(&["spec"], desired["spec"].clone());
    record_managed(&mut merged);
    merged
}

/// The label that a binding's Works carry, and its value.
#[must_use]
pub fn id_of(binding: &Value) -> (&'static str, &str) {
    let label = if binding.namespace().is_empty() { names::CLUSTER_BINDING_ID } else { names::BINDING_ID };
    (label, binding.label(label))
}

/// Works of a binding, found by its id.
#[must_use]
pub fn works_of(binding: &Value, works: &[Shared]) -> Vec<Shared> {
    let (label, id) = id_of(binding);
    works.iter().filter(|work| !id.is_empty() && work.label(label) == id).cloned().collect()
}

/// Works in clusters where the binding no longer is.
#[must_use]
pub fn find_orphan_works(binding: &Value, works: &[Shared]) -> Vec<ObjectKey> {
    let stay = existing_clusters(binding);
    works_of(binding, works)
        .iter()
        .filter(|work| {
            !work.is_deleting() && names::cluster_of(work.namespace()).is_some_and(|cluster| !stay.contains(cluster))
        })
        .map(|work| ObjectKey::of(work))
        .collect()
}

/// Whether a Work is still where the binding was purged `Directly`; then nothing else is written yet.
#[must_use]
pub fn awaits_purge(binding: &Value, works: &[Shared]) -> bool {
    let purged: BTreeSet<&str> = binding
        .items("/spec/gracefulEvictionTasks")
        .iter()
        .filter(|task| task.text("/purgeMode") == "Directly")
        .map(|task| task.text("/fromCluster"))
        .collect();
    works_of(binding, works)
        .iter()
        .any(|work| names::cluster_of(work.namespace()).is_some_and(|one| purged.contains(one)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn binding() -> Value {
        json!({"kind": "ResourceBinding", "metadata": {"name": "a-job", "namespace": "n", "labels": {"resourcebinding.karmada.io/permanent-id": "id"}},
            "spec": {"clusters": [{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 2}], "replicas": 6,
                "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}, "suspension": {"scheduling": true}}})
    }

    fn template() -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 3,
            "ownerReferences": [{}]}, "spec": {"parallelism": 6, "completions": 12}, "status": {}})
    }

    #[test]
    fn a_work_carries_the_copy_and_who_manages_what() {
        let target = Target { cluster: "m1".to_owned(), replicas: 4 };
        let mut work = build_work(&binding(), &template(), &target, &Overridden::default());
        work.set_label(names::WORK_ID, "w");
        record_managed(&mut work);
        let manifest = &work["spec"]["workload"]["manifests"][0];
        assert_eq!(manifest.label(names::WORK_ID), "w");
        assert_eq!(
            manifest.annotation(names::MANAGED_LABELS),
            "karmada.io/managed,resourcebinding.karmada.io/permanent-id,work.karmada.io/permanent-id"
        );
        assert_eq!(manifest.annotation(names::TEMPLATE_GENERATION), "3");
        assert!(manifest.get("status").is_none() && manifest["metadata"].get("uid").is_none());
        assert_eq!(work["spec"]["suspendDispatching"], false);
    }

    #[test]
    fn completions_are_divided_like_replicas() {
        let division = divide_completions(&binding(), &template()).unwrap();
        assert_eq!(division, BTreeMap::from([("m1".to_owned(), 8), ("m2".to_owned(), 4)]));
    }

    #[test]
    fn completions_stay_where_no_cluster_has_replicas() {
        let mut binding = binding();
        binding.put(&["spec", "clusters"], json!([{"name": "m1"}, {"name": "m2"}]));
        assert_eq!(divide_completions(&binding, &template()), None);
        binding.put(&["spec", "clusters"], json!([{"name": "m1", "replicas": 1}, {"name": "m2"}]));
        let division = divide_completions(&binding, &template()).unwrap();
        assert_eq!(division, BTreeMap::from([("m1".to_owned(), 12), ("m2".to_owned(), 0)]));
    }

    #[test]
    fn dependencies_add_their_dependents_clusters() {
        let mut binding = binding();
        binding.put(&["spec", "requiredBy"], json!([{"clusters": [{"name": "m2"}, {"name": "m3"}]}]));
        let names: Vec<String> = target_clusters(&binding).into_iter().map(|one| one.cluster).collect();
        assert_eq!(names, ["m1", "m2", "m3"]);
    }

    #[test]
    fn a_work_where_the_binding_left_is_an_orphan_unless_it_is_evicted_gently() {
        let work = |cluster: &str| -> Shared {
            Arc::new(json!({"kind": "Work", "metadata": {"name": "w", "namespace": format!("karmada-es-{cluster}"),
                "labels": {"resourcebinding.karmada.io/permanent-id": "id"}}}))
        };
        let works = [work("m1"), work("m3")];
        assert_eq!(find_orphan_works(&binding(), &works).len(), 1);
        let mut evicting = binding();
        evicting.put(&["spec", "gracefulEvictionTasks"], json!([{"fromCluster": "m3", "purgeMode": "Gracefully"}]));
        assert!(find_orphan_works(&evicting, &works).is_empty());
    }
}
