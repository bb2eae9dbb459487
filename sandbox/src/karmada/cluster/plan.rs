//! What a Cluster says of its member.
//!
//! Rule: Karmada `pkg/controllers/status/cluster_status_controller.go`, `pkg/modeling/modeling.go`,
//! `pkg/controllers/cluster/cluster_controller.go`. Allocatable counts every node, ready or not; allocating counts pods
//! without a node; a node that is full ends the modelling (nodes after it are not counted).

use std::collections::BTreeMap;

use caldera_core::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::karmada::{
    interpreter::workload,
    object::{ObjectExt, Shared},
};

/// Taint of a cluster that is not ready.
pub const NOT_READY: &str = "cluster.karmada.io/not-ready";
/// Taint of a cluster whose state is unknown.
pub const UNREACHABLE: &str = "cluster.karmada.io/unreachable";

/// How a member answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It is ready.
    Ready,
    /// It answered, but not well.
    NotReady,
    /// It did not answer.
    NotReachable,
}

/// The `Ready` condition of a health.
#[must_use]
pub fn ready_condition(health: Health) -> Value {
    let (status, reason, message) = match health {
        Health::Ready => ("True", "ClusterReady", "cluster is healthy and ready to accept workloads"),
        Health::NotReady => {
            ("False", "ClusterNotReady", "cluster is reachable but health endpoint responded without ok")
        }
        Health::NotReachable => ("False", "ClusterNotReachable", "cluster is not reachable"),
    };
    json!({"type": "Ready", "status": status, "reason": reason, "message": message})
}

/// The condition that goes with API enablements.
#[must_use]
pub fn enablements_condition(enablements: &[Value], complete: bool) -> Value {
    let (status, reason, message) = match (enablements.len(), complete) {
        (0, _) => ("False", "Empty", "collected empty APIEnablements from the cluster".to_owned()),
        (found, false) => {
            ("False", "Partial", format!("might collect partial APIEnablements({found}) from the cluster"))
        }
        (_, true) => ("True", "Complete", "collected complete APIEnablements from the cluster".to_owned()),
    };
    json!({"type": "CompleteAPIEnablements", "status": status, "reason": reason, "message": message})
}

/// The taints of a cluster by its readiness: `not-ready` when false or never told, `unreachable` when unknown. What
/// others tainted stays.
#[must_use]
pub fn taints_of_conditions(cluster: &Value, now: &str) -> Vec<Value> {
    let wanted = match crate::karmada::object::condition_status(cluster, "Ready") {
        "True" => None,
        "Unknown" => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    let ours =
        |taint: &Value| matches!(taint.text("/key"), NOT_READY | UNREACHABLE) && taint.text("/effect") == "NoSchedule";
    let mut taints: Vec<Value> = cluster
        .items("/spec/taints")
        .iter()
        .filter(|taint| !ours(taint) || Some(taint.text("/key")) == wanted)
        .cloned()
        .collect();
    if let Some(key) = wanted.filter(|key| !taints.iter().any(|taint| ours(taint) && taint.text("/key") == *key)) {
        taints.push(json!({"key": key, "effect": "NoSchedule", "timeAdded": now}));
    }
    taints
}

/// `nodeSummary`.
#[must_use]
pub fn node_summary(nodes: &[Shared]) -> Value {
    let ready = |node: &&Shared| {
        node.items("/status/conditions").iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let (total, ready) = (nodes.len(), nodes.iter().filter(ready).count());
    let mut summary = Map::new();
    for (field, number) in [("totalNum", total), ("readyNum", ready)] {
        if number != 0 {
            summary.insert(field.to_owned(), json!(number));
        }
    }
    Value::Object(summary)
}

/// Amounts by name, in a scale fine enough for each.
type Amounts = BTreeMap<String, Quantity>;

fn read_amounts(list: Option<&Value>) -> Amounts {
    list.and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.parse().ok()?)))
        .collect()
}

fn add_amounts(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let so_far = total.entry(name.clone()).or_insert(Quantity::ZERO);
        *so_far = if so_far.is_zero() { *amount } else { so_far.saturating_add(*amount) };
    }
}

fn pod_request(pod: &Value) -> Amounts {
    let mut request = read_amounts(Some(&Value::Object(workload::pod_request(&pod["spec"]))));
    add_amounts(&mut request, &Amounts::from([("pods".to_owned(), Quantity::from_units(1))]));
    request
}

fn write_amounts(amounts: &Amounts) -> Value {
    amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect::<Map<_, _>>().into()
}

fn holds_room(pod: &Value) -> bool {
    !pod.text("/spec/nodeName").is_empty() && !matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
}

/// `resourceSummary`, with the modelling where the cluster has models.
#[must_use]
pub fn resource_summary(models: &[Value], nodes: &[Shared], pods: &[Shared]) -> Value {
    let (mut allocatable, mut allocating, mut allocated) = (Amounts::new(), Amounts::new(), Amounts::new());
    let mut by_node: BTreeMap<&str, Amounts> = BTreeMap::new();
    for node in nodes {
        add_amounts(&mut allocatable, &read_amounts(node.pointer("/status/allocatable")));
    }
    for pod in pods {
        if pod.text("/spec/nodeName").is_empty() {
            add_amounts(&mut allocating, &pod_request(pod));
        } else if holds_room(pod) {
            let request = pod_request(pod);
            add_amounts(&mut allocated, &request);
            add_amounts(by_node.entry(pod.text("/spec/nodeName")).or_default(), &request);
        }
    }
    let mut summary = json!({});
    for (field, amounts) in [("allocatable", &allocatable), ("allocating", &allocating), ("allocated", &allocated)] {
        if !amounts.is_empty() {
            summary.put(&[field], write_amounts(amounts));
        }
    }
    if !models.is_empty() {
        summary.put(&["allocatableModelings"], Value::Array(count_models(models, nodes, &by_node)));
    }
    summary
}

fn count_models(models: &[Value], nodes: &[Shared], by_node: &BTreeMap<&str, Amounts>) -> Vec<Value> {
    let mut counts = vec![0_u64; models.len()];
    for node in nodes {
        let mut free = read_amounts(node.pointer("/status/allocatable"));
        if let Some(used) = by_node.get(node.name()) {
            let pods = |list: &Amounts| list.get("pods").copied().unwrap_or(Quantity::ZERO);
            if pods(&free) <= pods(used) {
                // Karmada breaks off here; so do we.
                break;
            }
            for (name, used) in used {
                if let Some(free) = free.get_mut(name) {
                    *free = free.signed_sub(*used);
                }
            }
        }
        if let Some(count) = grade_of_node(models, &free).and_then(|grade| counts.get_mut(grade)) {
            *count += 1;
        }
    }
    models.iter().zip(counts).map(|(model, count)| json!({"grade": model.number("/grade"), "count": count})).collect()
}

/// The highest grade whose every minimum the node reaches, by each resource alone.
fn grade_of_node(models: &[Value], free: &Amounts) -> Option<usize> {
    let names: Vec<&str> = models.first()?.items("/ranges").iter().map(|range| range.text("/name")).collect();
    names
        .iter()
        .map(|name| {
            let free = free.get(*name).copied().unwrap_or(Quantity::ZERO);
            models.iter().rposition(|model| {
                let range = model.items("/ranges").iter().find(|range| range.text("/name") == *name);
                let minimum = range.and_then(|range| read_quantity(range.get("min")?));
                minimum.is_some_and(|minimum| minimum <= free)
            })
        })
        .min()
        .flatten()
}

fn read_quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64().map(Quantity::from_units),
    }
}

/// The nine grades of cpu and memory that Karmada's aggregated API server gives every new Cluster.
#[must_use]
pub fn default_models() -> Vec<Value> {
    const CPU: [i64; 9] = [0, 1, 2, 4, 8, 16, 32, 64, 128];
    const GIB: [i64; 9] = [0, 4, 16, 32, 64, 128, 256, 512, 1024];
    let bytes = |gib: i64| workload::binary_text(i128::from(gib) << 30);
    (0..CPU.len())
        .map(|grade| {
            let cpu = CPU.get(grade + 1).map_or_else(|| i64::MAX.to_string(), ToString::to_string);
            let memory = GIB.get(grade + 1).map_or_else(|| i64::MAX.to_string(), |gib| bytes(*gib));
            json!({"grade": grade, "ranges": [
                {"name": "cpu", "min": CPU[grade].to_string(), "max": cpu},
                {"name": "memory", "min": bytes(GIB[grade]), "max": memory},
            ]})
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn node(name: &str, cpu: &str) -> Shared {
        Arc::new(json!({"metadata": {"name": name}, "status": {
            "allocatable": {"cpu": cpu, "memory": "128Gi", "nvidia.com/gpu": "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]}}))
    }

    fn pod(node: &str, phase: &str) -> Shared {
        Arc::new(json!({"spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "2"}}}]},
            "status": {"phase": phase}}))
    }

    #[test]
    fn pods_without_a_node_are_allocating_and_finished_ones_nothing() {
        let pods = [pod("n", "Running"), pod("n", "Succeeded"), pod("", "Pending")];
        let summary = resource_summary(&[], &[node("n", "32")], &pods);
        assert_eq!(summary["allocated"], json!({"cpu": "2", "pods": "1"}));
        assert_eq!(summary["allocating"], json!({"cpu": "2", "pods": "1"}));
        assert_eq!(summary["allocatable"]["memory"], "128Gi");
    }

    #[test]
    fn a_nodes_grade_is_the_lowest_that_its_resources_reach() {
        let summary = resource_summary(&default_models(), &[node("n", "32")], &[]);
        let counts: Vec<i64> = summary.items("/allocatableModelings").iter().map(|one| one.number("/count")).collect();
        assert_eq!(counts, [0, 0, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn readiness_decides_our_taints_and_others_stay() {
        let cluster = json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}});
        let tainted = taints_of_conditions(&cluster, "now");
        assert_eq!(tainted.len(), 2);
        let ready =
            json!({"spec": {"taints": tainted}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(taints_of_conditions(&ready, "now").len(), 1);
    }
}
