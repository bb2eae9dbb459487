//! The member's simulated nodes.
//!
//! A node is simulated if it was made here, or if nobody runs it: a real kubelet tells the machine and the boot it runs
//! on. Nodes with a real kubelet, and their pods, are never touched.

use caldera_runtime::clock::format_time;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    object::{annotation, deleting, list, name, text},
    world::{Kind, Want, World, want_create, want_merge},
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

/// Marks the nodes that are made here, and says what they offer.
const SIMULATED: &str = "sim.caldera.dev/node";
/// Between two heartbeats; a node controller waits 40 s and more for one.
const HEARTBEAT: SignedDuration = SignedDuration::from_secs(15);

/// Whether the kubelet of this node is simulated.
#[must_use]
pub fn is_simulated(node: &Value) -> bool {
    let unknown = |field: &str| text(node, &format!("/status/nodeInfo/{field}")).is_empty();
    !annotation(node, SIMULATED).is_empty() || (unknown("bootID") && unknown("machineID"))
}

/// What the API server taints new nodes with.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Creates the missing nodes and makes simulated nodes ready, whoever created them.
#[must_use]
pub fn create_nodes(world: &World, groups: &[NodeGroup], now: Timestamp) -> Vec<Want> {
    let mut wants = Vec::new();
    for group in groups {
        for index in 0..group.count {
            let name = format!("{}-{index}", group.prefix);
            if world.named(Kind::Node, &name).is_none() {
                wants.push(want_create(Kind::Node, build_node(group, &name, now)));
            }
        }
    }
    for node in world.of(Kind::Node).filter(|node| is_simulated(node) && !deleting(node)) {
        if ready_condition(node).is_none() {
            let status = node_status(name(node), &offered_resources(node), now);
            wants.push(want_merge(Kind::Node, node, Some("status"), json!({"status": status})));
        } else if list(node, "/spec/taints").iter().any(|taint| text(taint, "/key") == NOT_READY) {
            // The API server taints every new node; the node lifecycle controller lifts that once it is ready.
            let taints: Vec<&Value> =
                list(node, "/spec/taints").iter().filter(|taint| text(taint, "/key") != NOT_READY).collect();
            wants.push(want_merge(Kind::Node, node, None, json!({"spec": {"taints": taints}})));
        }
    }
    wants
}

/// Heartbeats of the simulated nodes, for a cluster with a node controller; and when the next is due.
#[must_use]
pub fn renew_heartbeats(world: &World, now: Timestamp) -> (Vec<Want>, Option<Timestamp>) {
    let mut wants = Vec::new();
    let mut next: Option<Timestamp> = None;
    for node in world.of(Kind::Node).filter(|node| is_simulated(node)) {
        let Some(condition) = ready_condition(node) else { continue };
        let last: Timestamp = text(condition, "/lastHeartbeatTime").parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let due = last.checked_add(HEARTBEAT).unwrap_or(Timestamp::MAX);
        if due > now {
            next = Some(next.map_or(due, |known| known.min(due)));
            continue;
        }
        let mut conditions = list(node, "/status/conditions").to_vec();
        for condition in conditions.iter_mut().filter(|condition| text(condition, "/type") == "Ready") {
            // A node controller that heard nothing makes it Unknown, and taints the node.
            condition["status"] = "True".into();
            condition["lastHeartbeatTime"] = format_time(now).into();
        }
        wants.push(want_merge(Kind::Node, node, Some("status"), json!({"status": {"conditions": conditions}})));
    }
    (wants, next)
}

fn ready_condition(node: &Value) -> Option<&Value> {
    list(node, "/status/conditions").iter().find(|condition| text(condition, "/type") == "Ready")
}

/// What a node offers: as it was made here, or as whoever made it says.
fn offered_resources(node: &Value) -> Value {
    let told = |field: &str| node.pointer(&format!("/status/{field}")).filter(|amounts| amounts.is_object()).cloned();
    serde_json::from_str(annotation(node, SIMULATED))
        .ok()
        .or_else(|| told("allocatable"))
        .or_else(|| told("capacity"))
        .unwrap_or_else(|| json!({}))
}

fn build_node(group: &NodeGroup, name: &str, now: Timestamp) -> Value {
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
        "status": node_status(name, &allocatable, now),
    })
}

fn node_status(node_name: &str, allocatable: &Value, now: Timestamp) -> Value {
    let time = format_time(now);
    json!({
        "capacity": allocatable, "allocatable": allocatable,
        "addresses": [
            {"type": "InternalIP", "address": address_of(10, node_name)}, {"type": "Hostname", "address": node_name},
        ],
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

/// An IPv4 address in `first.0.0.0/8` that follows from `seed`.
pub(super) fn address_of(first: u8, seed: &str) -> String {
    let hash = seed.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [a, b, c, _] = hash.rotate_left(7).to_be_bytes();
    format!("{first}.{a}.{b}.{}", c.clamp(1, 254))
}
