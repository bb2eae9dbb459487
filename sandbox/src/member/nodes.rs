//! The member's simulated nodes, and the queues every Volcano has.

use caldera_runtime::clock::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    object::{annotation, list, name, text},
    world::{Kind, Want, World, create, merge},
};

/// A group of equal nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup {
    /// Nodes are named `<prefix>-<index>`.
    pub prefix: String,
    /// How many.
    pub count: u32,
    /// What each offers, as Kubernetes quantities: `cpu`, `memory`, `nvidia.com/gpu`, ...
    pub allocatable: Vec<(String, String)>,
    /// Labels besides hostname, os and arch.
    pub labels: Vec<(String, String)>,
}

/// Marks the nodes that are simulated here.
const SIMULATED: &str = "sim.caldera.dev/node";

/// Creates the missing nodes and makes simulated nodes ready (whoever created them).
#[must_use]
pub fn sync(world: &World, groups: &[NodeGroup], now: Timestamp) -> Vec<Want> {
    let mut wants = Vec::new();
    for group in groups {
        for index in 0..group.count {
            let name = format!("{}-{index}", group.prefix);
            if world.get(Kind::Node, &(String::new(), name.clone())).is_none() {
                wants.push(create(Kind::Node, node(group, &name, now)));
            }
        }
    }
    for node in world.of(Kind::Node).filter(|node| !annotation(node, SIMULATED).is_empty()) {
        let reported = list(node, "/status/conditions").iter().any(|condition| text(condition, "/type") == "Ready");
        if !reported {
            let allocatable = serde_json::from_str::<Value>(annotation(node, SIMULATED)).unwrap_or_default();
            wants.push(merge(Kind::Node, node, Some("status"), json!({"status": status(&allocatable, now)})));
        }
    }
    wants
}

fn node(group: &NodeGroup, name: &str, now: Timestamp) -> Value {
    let mut allocatable: serde_json::Map<String, Value> =
        group.allocatable.iter().map(|(name, amount)| (name.clone(), amount.clone().into())).collect();
    allocatable.entry("pods").or_insert_with(|| "110".into());
    let mut labels =
        json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
    for (key, value) in &group.labels {
        labels[key.as_str()] = value.clone().into();
    }
    let allocatable = Value::Object(allocatable);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {SIMULATED: allocatable.to_string()}},
        "spec": {},
        "status": status(&allocatable, now),
    })
}

fn status(allocatable: &Value, now: Timestamp) -> Value {
    let time = rfc3339(now);
    json!({
        "capacity": allocatable, "allocatable": allocatable,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated kubelet is ready",
            "lastHeartbeatTime": time, "lastTransitionTime": time,
        }],
        "nodeInfo": {
            "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.1.0", "osImage": "simulated",
            "containerRuntimeVersion": "simulated://1", "kubeletVersion": "v1.36.1", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        },
    })
}

/// Volcano's own queues, and the state of the others: the queue controller opens what has no state.
#[must_use]
pub fn queues(world: &World) -> Vec<Want> {
    let mut wants = Vec::new();
    for (queue, spec) in [
        ("root", json!({"weight": 1, "reclaimable": false})),
        ("default", json!({"weight": 1, "reclaimable": true, "parent": "root"})),
    ] {
        if world.get(Kind::Queue, &(String::new(), queue.to_owned())).is_none() {
            let object = json!({
                "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": queue}, "spec": spec,
            });
            wants.push(create(Kind::Queue, object));
        }
    }
    for queue in world.of(Kind::Queue).filter(|queue| text(queue, "/status/state").is_empty()) {
        wants.push(merge(Kind::Queue, queue, Some("status"), json!({"status": {"state": "Open"}})));
    }
    for queue in world.of(Kind::Queue).filter(|queue| name(queue) != "root" && text(queue, "/spec/parent").is_empty()) {
        wants.push(merge(Kind::Queue, queue, None, json!({"spec": {"parent": "root"}})));
    }
    wants
}
