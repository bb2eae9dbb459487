//! A job's PodGroup (`createOrUpdatePodGroup`, `calcPGMinResources`).
//!
//! `minResources` is the quota usage of the pods within the minimum, as Kubernetes' quota counts a pod: `cpu` and
//! `requests.cpu`, `limits.cpu`, `pods` and `count/pods`; of extended resources `x` and `requests.x`. The pod template
//! is not defaulted: a limit without a request is no request here.

use std::collections::BTreeMap;

use caldera_core::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{key_of, queue_of, task_minimum};
use crate::member::{
    object::{list, number, owned_by, text, uid},
    schedule::priority_of,
    world::{Kind, Want, World, want_create, want_merge},
};

/// The name of a job's PodGroup: it carries the UID, and so differs in every cluster.
#[must_use]
pub fn podgroup_name(job: &Value) -> String {
    format!("{}-{}", crate::member::object::name(job), uid(job))
}

/// The job's PodGroup if it is there, and the write that makes it what it should be.
pub(super) fn ensure_podgroup<'a>(world: &'a World, job: &Value) -> (Option<&'a Value>, Option<Want>) {
    match find_podgroup(world, job) {
        None => (None, Some(want_create(Kind::PodGroup, build_podgroup(world, job)))),
        Some(group) => (Some(group), change_podgroup(world, job, group)),
    }
}

/// Deletes it, if it is there.
pub(super) fn delete_podgroup(world: &World, job: &Value) -> Option<Want> {
    find_podgroup(world, job).map(|group| crate::member::world::want_delete(Kind::PodGroup, group))
}

fn find_podgroup<'a>(world: &'a World, job: &Value) -> Option<&'a Value> {
    world.get(Kind::PodGroup, &key_of(job, podgroup_name(job)))
}

fn build_podgroup(world: &World, job: &Value) -> Value {
    let copied = |what: &str| job.pointer(&format!("/metadata/{what}")).cloned().unwrap_or_else(|| json!({}));
    let mut spec = podgroup_sizes(world, job);
    spec["queue"] = queue_of(job).into();
    spec["minTaskMember"] = task_minimums(job).into();
    if let Some(class) = job.pointer("/spec/priorityClassName").filter(|class| class.as_str() != Some("")) {
        spec["priorityClassName"] = class.clone();
    }
    if let Some(topology) = job.pointer("/spec/networkTopology").and_then(Value::as_object) {
        let mut topology = topology.clone();
        if topology.contains_key("highestTierAllowed") {
            topology.remove("highestTierName");
        }
        spec["networkTopology"] = topology.into();
    }
    let policies = sub_groups(job);
    if !policies.is_empty() {
        spec["subGroupPolicy"] = policies.into();
    }
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {
            "name": podgroup_name(job), "namespace": crate::member::object::namespace(job), "ownerReferences": owned_by(job),
            "annotations": copied("annotations"), "labels": copied("labels"),
        },
        "spec": spec,
    })
}

/// `minMember` and `minResources`.
fn podgroup_sizes(world: &World, job: &Value) -> Value {
    let mut spec = json!({"minMember": number(job, "/spec/minAvailable")});
    if let Some(resources) = min_resources(world, job) {
        spec["minResources"] = resources.into();
    }
    spec
}

fn change_podgroup(world: &World, job: &Value, group: &Value) -> Option<Want> {
    let mut patch = Map::new();
    if text(group, "/spec/priorityClassName") != text(job, "/spec/priorityClassName") {
        patch.insert("priorityClassName".to_owned(), text(job, "/spec/priorityClassName").into());
    }
    let wanted = podgroup_sizes(world, job);
    let same = |field: &str| {
        let (now, then) = (wanted.get(field), group.pointer(&format!("/spec/{field}")));
        read_amounts(now.unwrap_or(&Value::Null)) == read_amounts(then.unwrap_or(&Value::Null))
    };
    if number(group, "/spec/minMember") != number(&wanted, "/minMember") || !same("minResources") {
        let gone = group.pointer("/spec/minResources").and_then(Value::as_object).into_iter().flatten();
        let mut resources: Map<String, Value> = gone.map(|(name, _)| (name.clone(), Value::Null)).collect();
        resources.extend(wanted["minResources"].as_object().cloned().unwrap_or_default());
        patch.insert("minMember".to_owned(), wanted["minMember"].clone());
        patch.insert("minResources".to_owned(), resources.into());
    }
    let told = group.pointer("/spec/minTaskMember");
    let minimums: Map<String, Value> = task_minimums(job)
        .into_iter()
        .filter(|(task, minimum)| told.and_then(|told| told.get(task)) != Some(minimum))
        .collect();
    if !minimums.is_empty() {
        patch.insert("minTaskMember".to_owned(), minimums.into());
    }
    let policies = sub_groups(job);
    if policies != list(group, "/spec/subGroupPolicy") {
        patch.insert("subGroupPolicy".to_owned(), policies.into());
    }
    (!patch.is_empty()).then(|| want_merge(Kind::PodGroup, group, None, json!({"spec": patch})))
}

fn task_minimums(job: &Value) -> Map<String, Value> {
    list(job, "/spec/tasks")
        .iter()
        .map(|task| {
            let of_partitions =
                number(task, "/partitionPolicy/minPartitions") * number(task, "/partitionPolicy/partitionSize");
            let own = task.pointer("/minAvailable").and_then(Value::as_i64);
            let minimum = own.or((of_partitions > 0).then_some(of_partitions)).unwrap_or_else(|| task_minimum(task));
            (text(task, "/name").to_owned(), minimum.into())
        })
        .collect()
}

/// One sub-group policy for each partitioned task.
fn sub_groups(job: &Value) -> Vec<Value> {
    let tasks = list(job, "/spec/tasks").iter();
    tasks
        .filter_map(|task| {
            let policy = task.get("partitionPolicy").filter(|policy| policy.is_object())?;
            let mut group = json!({
                "name": text(task, "/name"),
                "subGroupSize": number(policy, "/partitionSize"), "minSubGroups": number(policy, "/minPartitions"),
                "labelSelector": {"matchLabels": {"volcano.sh/task-spec": text(task, "/name")}},
                "matchLabelKeys": ["volcano.sh/partition-id"],
            });
            if let Some(topology) = policy.get("networkTopology").filter(|topology| topology.is_object()) {
                group["networkTopology"] = topology.clone();
            }
            Some(group)
        })
        .collect()
}

type Amounts = BTreeMap<String, Quantity>;

fn min_resources(world: &World, job: &Value) -> Option<Map<String, Value>> {
    let gang = caldera_crds::workload::read_gang_of_copy(job).ok()?;
    let minimum = caldera_core::pod_group::compute_pod_group_minimum(&gang, |class| priority_of(world, class));
    let mut sum = Amounts::new();
    for (task, count) in list(job, "/spec/tasks").iter().zip(minimum.pods).filter(|(_, count)| *count > 0) {
        for (name, amount) in quota_usage(&task["template"]["spec"]) {
            let entry = sum.entry(name).or_default();
            *entry = entry.saturating_add(amount.times(u64::from(count)));
        }
    }
    Some(sum.into_iter().map(|(name, amount)| (name, amount.to_string().into())).collect())
}

/// What `count` pods use.
#[must_use]
pub fn pod_usage(pod: &Value, count: u32) -> Map<String, Value> {
    let times = |amount: Quantity| amount.times(u64::from(count)).to_string().into();
    quota_usage(pod).into_iter().map(|(name, amount)| (name, times(amount))).collect()
}

/// `PodUsageFunc`, and extended resources without their `requests.` too.
fn quota_usage(pod: &Value) -> Amounts {
    let one = Quantity::from_units(1);
    let mut usage = Amounts::from([("pods".to_owned(), one), ("count/pods".to_owned(), one)]);
    for (name, amount) in pod_resources(pod, "requests") {
        let native = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if native || name.contains('/') {
            usage.insert(format!("requests.{name}"), amount);
            usage.insert(name, amount);
        }
    }
    for (name, amount) in pod_resources(pod, "limits") {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), amount);
        }
    }
    usage
}

/// All containers together, or the largest init container where that is more.
fn pod_resources(pod: &Value, kind: &str) -> Amounts {
    let of = |container: &Value| read_amounts(container.pointer(&format!("/resources/{kind}")).unwrap_or(&Value::Null));
    let mut sum = Amounts::new();
    let sidecar = |container: &&Value| text(container, "/restartPolicy") == "Always";
    for container in list(pod, "/containers").iter().chain(list(pod, "/initContainers").iter().filter(sidecar)) {
        for (name, amount) in of(container) {
            let entry = sum.entry(name).or_default();
            *entry = entry.saturating_add(amount);
        }
    }
    for container in list(pod, "/initContainers") {
        for (name, amount) in of(container) {
            let entry = sum.entry(name).or_default();
            *entry = (*entry).max(amount);
        }
    }
    sum
}

fn read_amounts(value: &Value) -> Amounts {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.clone(), serde_json::from_value(amount.clone()).ok()?))).collect()
}
