//! Replicas of the kinds Karmada knows: how many there are, what each needs, and how to say how many there shall be.
//!
//! Rule: Karmada `default/native/{replica,revisereplica}.go`, `pkg/util/resource.go` (requests default to limits; the
//! sum over containers or the largest init container, plus overhead), `pkg/util/helper/binding.go`.

use std::collections::BTreeMap;

use caldera_core::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::karmada::object::{Gvk, ObjectExt};

/// Where a kind says how many replicas it wants, if Karmada may revise it.
#[must_use]
pub fn replicas_field(gvk: &Gvk) -> Option<&'static str> {
    match (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()) {
        ("apps", "v1", "Deployment" | "ReplicaSet" | "StatefulSet") => Some("replicas"),
        ("batch", "v1", "Job") => Some("parallelism"),
        _ => None,
    }
}

/// Whether Karmada itself can tell a kind's replicas.
#[must_use]
pub fn counts_replicas(gvk: &Gvk) -> bool {
    replicas_field(gvk).is_some() || *gvk == Gvk::new("v1", "Pod")
}

/// A workload's replicas and what each of them needs.
#[must_use]
pub fn read_replicas(object: &Value) -> (i64, Option<Value>) {
    let gvk = object.gvk();
    match replicas_field(&gvk) {
        Some("parallelism") => {
            let parallelism = object.number("/spec/parallelism");
            let completions = object.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(parallelism);
            (parallelism.min(completions), replica_requirements(&object["spec"]["template"]["spec"]))
        }
        Some(field) => {
            (object.number(&format!("/spec/{field}")), replica_requirements(&object["spec"]["template"]["spec"]))
        }
        None => (1, replica_requirements(&object["spec"])),
    }
}

/// Sets the replicas, where the template has such a field (Karmada's `ApplyReplica`).
pub fn revise_replicas(object: &mut Value, replicas: i64) {
    if let Some(field) = replicas_field(&object.gvk()) {
        set_number(object, field, replicas);
    }
}

/// Sets a number in the spec, unless the template leaves it out.
pub fn set_number(object: &mut Value, field: &str, number: i64) {
    if object.pointer(&format!("/spec/{field}")).is_some() {
        object.put(&["spec", field], json!(number));
    }
}

/// `replicaRequirements` of a pod spec, absent when it asks for nothing.
#[must_use]
pub fn replica_requirements(pod: &Value) -> Option<Value> {
    let mut claim = Map::new();
    let affinity = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    for (field, at) in
        [("nodeSelector", "/nodeSelector"), ("tolerations", "/tolerations"), ("hardNodeAffinity", affinity)]
    {
        let value = pod.present(at).filter(|value| !value.as_array().is_some_and(Vec::is_empty));
        if let Some(value) = value {
            claim.insert(field.to_owned(), value.clone());
        }
    }
    let request = pod_request(pod);
    let mut all = Map::new();
    if !claim.is_empty() {
        all.insert("nodeClaim".to_owned(), Value::Object(claim));
    }
    if !request.is_empty() {
        all.insert("resourceRequest".to_owned(), Value::Object(request));
    }
    (!all.is_empty()).then_some(Value::Object(all))
}

/// What one pod of this spec asks for, as a Kubernetes resource list.
#[must_use]
pub fn pod_request(pod: &Value) -> Map<String, Value> {
    let mut total: BTreeMap<String, i128> = BTreeMap::new();
    for container in pod.items("/containers") {
        for (name, amount) in container_request(container) {
            *total.entry(name).or_default() += amount;
        }
    }
    for container in pod.items("/initContainers") {
        for (name, amount) in container_request(container) {
            let so_far = total.entry(name).or_default();
            *so_far = (*so_far).max(amount);
        }
    }
    for (name, amount) in read_amounts(pod.get("overhead")) {
        *total.entry(name).or_default() += amount;
    }
    total
        .into_iter()
        .filter(|(_, amount)| *amount > 0)
        .map(|(name, amount)| (name.clone(), Value::String(write_amount(&name, amount))))
        .collect()
}

fn container_request(container: &Value) -> BTreeMap<String, i128> {
    let mut all = read_amounts(container.pointer("/resources/limits"));
    all.extend(read_amounts(container.pointer("/resources/requests")));
    all
}

/// In thousandths for cpu, whole units for everything else, each rounded up.
fn read_amounts(list: Option<&Value>) -> BTreeMap<String, i128> {
    let mut amounts = BTreeMap::new();
    for (name, text) in list.and_then(Value::as_object).into_iter().flatten() {
        let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
        let Ok(quantity) = text.parse::<Quantity>() else { continue };
        if name == "cpu" {
            amounts.insert(name.clone(), quantity.milli_ceil());
        } else if is_counted(name) {
            amounts.insert(name.clone(), quantity.units_ceil());
        }
    }
    amounts
}

/// Memory, storage, pods, and scalar resources: names of a domain, huge pages, attachable volumes.
fn is_counted(name: &str) -> bool {
    matches!(name, "memory" | "ephemeral-storage" | "pods")
        || name.contains('/')
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
}

fn write_amount(name: &str, amount: i128) -> String {
    let binary = matches!(name, "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if name == "cpu" {
        return Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX)).to_string();
    }
    if binary {
        return binary_text(amount);
    }
    Quantity::from_units(i64::try_from(amount).unwrap_or(i64::MAX)).to_string()
}

/// Bytes as apimachinery writes a `BinarySI` quantity: the largest suffix that leaves a whole number.
#[must_use]
pub fn binary_text(bytes: i128) -> String {
    let mut number = bytes;
    let mut suffix = "";
    for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
        if number == 0 || number % 1024 != 0 {
            break;
        }
        number /= 1024;
        suffix = next;
    }
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_default_to_limits_and_init_containers_count_when_larger() {
        let pod = json!({
            "containers": [
                {"resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"nvidia.com/gpu": "1"}}},
                {"resources": {"requests": {"cpu": "1500m"}}},
            ],
            "initContainers": [{"resources": {"requests": {"memory": "1Gi", "cpu": "1"}}}],
            "nodeSelector": {"a": "b"},
        });
        assert_eq!(
            replica_requirements(&pod),
            Some(json!({
                "nodeClaim": {"nodeSelector": {"a": "b"}},
                "resourceRequest": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"},
            }))
        );
    }

    #[test]
    fn a_batch_job_counts_no_more_pods_than_completions() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 5, "completions": 3, "template": {}}});
        assert_eq!(read_replicas(&job), (3, None));
    }

    #[test]
    fn replicas_are_not_written_where_the_template_has_none() {
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {}});
        revise_replicas(&mut job, 3);
        assert_eq!(job["spec"], json!({}));
    }
}
