//! Reads a member's Nodes, Pods, HyperNodes, Queues and NodeMetrics as the values of `caldera_core::inventory`.
//!
//! Reading never fails: an amount that can not be parsed counts as zero, and every pod counts as one pod. An object
//! without a name is left out, and so is a HyperNode without a tier. A pod's owner is the workload that Karmada
//! propagated, not the ReplicaSet or Job in between.

use caldera_core::{
    fleet::MemberVolcanoQueue,
    gang::Taint,
    image_locality::NodeImage,
    inventory::{HyperNode, HyperNodeMember, Node, NodeUse, Owner, Pod},
    quantity::Quantity,
    resources::ResourceName,
    time::EpochSeconds,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    names::volcano,
    selector::label_selector,
    workload::{self, find_job_of_pod},
};

/// A node; `None` without a name.
#[must_use]
pub fn read_node(object: &Value) -> Option<Node> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |pointer: &str| object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let pairs = |pointer: &str| object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let taint = |taint: &Value| Taint {
        key: text(&taint["key"]),
        value: text(&taint["value"]),
        effect: text(&taint["effect"]),
    };
    Some(Node {
        name: name_of(object)?,
        labels: pairs("/metadata/labels").map(|(key, value)| (key.clone(), text(value))).collect(),
        taints: list("/spec/taints").map(taint).collect(),
        allocatable: pairs("/status/allocatable").map(|(key, amount)| (key.as_str(), read_quantity(amount))).collect(),
        ready: list("/status/conditions").any(|one| one["type"] == "Ready" && one["status"] == "True"),
        unschedulable: object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)),
        images: list("/status/images").take(MOST_IMAGES_OF_NODE).flat_map(read_node_image).collect(),
    })
}

/// Images of a node that are read, and names of each. A kubelet tells of 50.
const MOST_IMAGES_OF_NODE: usize = 50;
const MOST_NAMES_OF_IMAGE: usize = 8;

/// An image under each of its names, where it may count. One without a size has none.
fn read_node_image(image: &Value) -> impl Iterator<Item = NodeImage> {
    let bytes = image["sizeBytes"].as_u64().unwrap_or(0);
    let names = image["names"].as_array().into_iter().flatten().filter_map(Value::as_str).take(MOST_NAMES_OF_IMAGE);
    names.filter_map(move |name| NodeImage::of_size(name, bytes))
}

/// A pod; `None` without a name.
#[must_use]
pub fn read_pod(object: &Value) -> Option<Pod> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    Some(Pod {
        namespace: namespace_of(object),
        name: name_of(object)?,
        node: text("/spec/nodeName").map(ToOwned::to_owned),
        request: workload::read_existing_pod_request(object),
        finished: matches!(text("/status/phase"), Some("Succeeded" | "Failed")),
        owner: find_owner(object),
    })
}

/// A HyperNode; `None` without a name. Members that Volcano does not understand select nothing.
#[must_use]
pub fn read_hyper_node(object: &Value) -> Option<HyperNode> {
    let members = object.pointer("/spec/members").and_then(Value::as_array);
    Some(HyperNode {
        name: name_of(object)?,
        tier: object.pointer("/spec/tier").and_then(Value::as_u64).and_then(|tier| u32::try_from(tier).ok())?,
        tier_name: object.pointer("/spec/tierName").and_then(Value::as_str).unwrap_or_default().to_owned(),
        members: members.into_iter().flatten().flat_map(hyper_node_members).collect(),
    })
}

/// A queue of the member's own Volcano; `None` without a name. Only the allocated amounts that a capability limits are
/// read, so that a queue without one rarely changes.
#[must_use]
pub fn read_queue(object: &Value) -> Option<(String, MemberVolcanoQueue)> {
    let amounts = |pointer: &str| object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let bounds = |name: &str, amount: Quantity| {
        // To Volcano zero cpu or memory means no limit (`capacity.go`, `NewQueueAttr`).
        let is_nothing = amount.is_zero() && matches!(name, ResourceName::CPU | ResourceName::MEMORY);
        !(is_nothing || amount.is_negative())
    };
    let mut queue = MemberVolcanoQueue::default();
    for (name, amount) in amounts("/spec/capability").map(|(name, amount)| (name.as_str(), read_quantity(amount))) {
        if bounds(name, amount) {
            queue.capability.set(name, amount);
        }
    }
    for (name, amount) in amounts("/status/allocated").filter(|(name, _)| queue.capability.get(name).is_some()) {
        queue.allocated.set(name.as_str(), read_quantity(amount));
    }
    object.pointer("/status/state").and_then(Value::as_str).unwrap_or_default().clone_into(&mut queue.state);
    Some((name_of(object)?, queue))
}

/// Seconds after which nobody goes by what a node measured: metrics-server measures each 15 seconds, or each minute.
const OLDEST_MEASUREMENT: i64 = 300;

/// What a node used by its NodeMetrics (`metrics.k8s.io/v1beta1`); `None` where that is too old, or no amount.
#[must_use]
pub fn read_node_use(object: &Value, now: EpochSeconds) -> Option<NodeUse> {
    let measured: Timestamp = object["timestamp"].as_str()?.parse().ok()?;
    if now.seconds_since(EpochSeconds::from(measured)) > OLDEST_MEASUREMENT {
        return None;
    }
    let amount = |name: &str| object["usage"][name].as_str()?.parse::<Quantity>().ok();
    Some(NodeUse { node: name_of(object)?, cpu: amount(ResourceName::CPU)?, memory: amount(ResourceName::MEMORY)? })
}

/// What one entry of `spec.members` selects. Volcano selects HyperNodes by exact name only.
fn hyper_node_members(member: &Value) -> Vec<HyperNodeMember> {
    let text = |pointer: &str| member.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let named = text("/selector/exactMatch/name").map(ToOwned::to_owned);
    if member["type"] == "HyperNode" {
        return named.map(HyperNodeMember::HyperNode).into_iter().collect();
    }
    let pattern = text("/selector/regexMatch/pattern").map(|pattern| HyperNodeMember::Pattern(pattern.to_owned()));
    let labels = member.pointer("/selector/labelMatch").and_then(label_selector).map(HyperNodeMember::Labels);
    named.map(HyperNodeMember::Node).into_iter().chain(pattern).chain(labels).collect()
}

/// A namespaced object's name, `None` where there is none.
#[must_use]
pub fn name_of(object: &Value) -> Option<String> {
    object.pointer("/metadata/name").and_then(Value::as_str).map(ToOwned::to_owned)
}

/// An object's namespace, empty where there is none.
#[must_use]
pub fn namespace_of(object: &Value) -> String {
    object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The workload that was propagated: the pod's controller, a Deployment for a pod of a ReplicaSet, the job that made
/// the controller, or the pod itself.
fn find_owner(pod: &Value) -> Option<Owner> {
    let references = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let controller = references.into_iter().flatten().find(|reference| reference["controller"] == true);
    let Some(controller) = controller else {
        return Some(Owner { group: String::new(), kind: "Pod".to_owned(), name: name_of(pod)?, task: None });
    };
    let api_version = controller["apiVersion"].as_str()?;
    let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let (kind, name) = (controller["kind"].as_str()?, controller["name"].as_str()?);
    let marked = |key: &str| {
        let of = |place: &str| pod["metadata"][place][key].as_str();
        of("annotations").or_else(|| of("labels"))
    };
    if group == "apps" && kind == "ReplicaSet" {
        let hash = marked("pod-template-hash")?;
        let deployment = name.strip_suffix(hash)?.strip_suffix('-')?;
        return Some(Owner { group, kind: "Deployment".to_owned(), name: deployment.to_owned(), task: None });
    }
    if let Some((job, name, task)) = find_job_of_pod(&group, kind, name, &pod["metadata"]["labels"]) {
        return Some(Owner { group: job.group().to_owned(), kind: job.kind().to_owned(), name, task });
    }
    let task = marked(volcano::TASK_SPEC).map(Into::into);
    Some(Owner { group, kind: kind.to_owned(), name: name.to_owned(), task })
}

fn read_quantity(value: &Value) -> Quantity {
    let parsed = match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    };
    parsed.unwrap_or(Quantity::ZERO)
}

#[cfg(test)]
mod tests {
    use caldera_core::gang::{Operator, Requirement};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_ready_and_schedulable_or_not() {
        let object = json!({
            "metadata": {"name": "n1", "labels": {"disk": "ssd"}},
            "spec": {"unschedulable": true, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "1500m", "memory": "1Gi", "odd": "garbage", "pods": 110},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        let node = read_node(&object).unwrap();
        assert!(node.ready && node.unschedulable);
        assert_eq!(node.allocatable.to_string(), "cpu 1.5, memory 1Gi, pods 110");
        assert_eq!(node.taints[0].key, "gpu");
        assert_eq!(super::read_node(&json!({})), None);
    }

    #[test]
    fn a_node_tells_of_its_images_by_all_their_names_and_of_small_or_odd_ones_nothing() {
        let images = json!([
            {"names": ["docker.io/team/a:1", "r.example/a@sha256:00"], "sizeBytes": 1_000_000_000},
            {"names": ["small:1"], "sizeBytes": 700_000}, {"names": ["odd:1"], "sizeBytes": -5}, {"sizeBytes": 1}, 7,
        ]);
        let read =
            |images: Value| read_node(&json!({"metadata": {"name": "n"}, "status": {"images": images}})).unwrap();
        let node = read(images);
        let found: Vec<_> = node.images.iter().map(|image| (image.name.as_str(), image.bytes)).collect();
        assert_eq!(found, [("team/a:1", 1_000_000_000), ("r.example/a@sha256:00", 1_000_000_000)]);
        let many: Vec<Value> = (0..60).map(|at| json!({"names": [at.to_string()], "sizeBytes": 1_u64 << 30})).collect();
        assert_eq!(read(many.into()).images.len(), 50);
        assert_eq!(read(json!("none")).images, []);
    }

    #[test]
    fn a_hyper_node_selects_by_name_pattern_and_label_and_nothing_by_what_is_malformed() {
        let object = json!({
            "metadata": {"name": "s"},
            "spec": {"tier": 2, "tierName": "spine", "members": [
                {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
                {"type": "Node", "selector": {"regexMatch": {"pattern": "^n[23]$"}}},
                {"type": "Node", "selector": {"labelMatch": {
                    "matchLabels": {"rack": "7"}, "matchExpressions": [{"key": "gpu", "operator": "Exists"}],
                }}},
                {"type": "Node", "selector": {"labelMatch": {"matchExpressions": [{"key": "gpu", "operator": "In"}]}}},
                {"type": "HyperNode", "selector": {"exactMatch": {"name": "r1"}}},
                {"type": "HyperNode", "selector": {"regexMatch": {"pattern": "r"}}},
                {"type": "Node"}, 5,
            ]},
        });
        let found = read_hyper_node(&object).unwrap();
        let rack = Requirement { key: "rack".into(), operator: Operator::In, values: vec!["7".into()] };
        let gpu = Requirement { key: "gpu".into(), operator: Operator::Exists, values: vec![] };
        assert_eq!((found.name.as_str(), found.tier, found.tier_name.as_str()), ("s", 2, "spine"));
        let want = [
            HyperNodeMember::Node("n1".into()),
            HyperNodeMember::Pattern("^n[23]$".into()),
            HyperNodeMember::Labels(vec![rack, gpu]),
            HyperNodeMember::HyperNode("r1".into()),
        ];
        assert_eq!(found.members, want);
        assert_eq!(read_hyper_node(&json!({"metadata": {"name": "s"}, "spec": {"tier": -1}})), None);
    }

    #[test]
    fn a_queue_says_what_it_bounds_and_no_more() {
        let of = |capability: Value| {
            let object = json!({
                "metadata": {"name": "q"}, "spec": {"capability": capability},
                "status": {"state": "Closing", "allocated": {"cpu": "3", "memory": "1Gi", "pods": "7"}},
            });
            let (name, queue) = read_queue(&object).unwrap();
            assert_eq!((name.as_str(), queue.is_closed()), ("q", true));
            let left: Vec<String> =
                queue.compute_quota_left().iter().map(|(name, amount)| format!("{name} {amount}")).collect();
            (left.join(", "), queue.allocated.to_string())
        };
        let bounded = of(json!({"cpu": "10", "memory": 0, "nvidia.com/gpu": 0}));
        assert_eq!(bounded, ("cpu 7, nvidia.com/gpu 0".to_owned(), "cpu 3".to_owned()));
        assert_eq!(of(Value::Null), (String::new(), "nothing".to_owned()));
        assert_eq!(read_queue(&json!({})), None);
    }

    #[test]
    fn what_a_node_used_is_what_it_measured_a_short_time_ago() {
        let now = EpochSeconds::new("2026-01-01T00:10:00Z".parse::<Timestamp>().unwrap().as_second());
        let read = |timestamp: Value, cpu: Value| {
            let usage = json!({"cpu": cpu, "memory": "512Ki"});
            read_node_use(&json!({"metadata": {"name": "n1"}, "timestamp": timestamp, "usage": usage}), now)
        };
        let fresh = read(json!("2026-01-01T00:09:30Z"), json!("1250000001n")).unwrap();
        assert_eq!(
            (fresh.node.as_str(), fresh.cpu.as_nano(), fresh.memory.to_string()),
            ("n1", 1_250_000_001, "512Ki".into())
        );
        // Another clock may be ahead of ours.
        assert!(read(json!("2026-01-01T00:10:30Z"), json!("1")).is_some());
        assert_eq!(read(json!("2026-01-01T00:04:59Z"), json!("1")), None);
        for time in [json!("now"), json!(null), json!(7)] {
            assert_eq!(read(time, json!("1")), None);
        }
        for wild in [json!("NaN"), json!("+Inf"), json!("1e"), json!(""), json!(3), json!(null)] {
            assert_eq!(read(json!("2026-01-01T00:10:00Z"), wild), None);
        }
        // No node has so much; what it is worth is judged beside what the node has.
        assert!(read(json!("2026-01-01T00:10:00Z"), json!("1e30")).is_some());
    }

    #[test]
    fn a_pod_knows_its_workload() {
        let pod_of = |metadata: Value| {
            let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}});
            read_pod(&object).unwrap().owner.unwrap()
        };
        let by = |api: &str, kind: &str, name: &str| json!([{"apiVersion": api, "kind": kind, "name": name, "controller": true}]);
        let volcano = pod_of(json!({
            "name": "p", "annotations": {"volcano.sh/task-spec": "worker"},
            "ownerReferences": by("batch.volcano.sh/v1alpha1", "Job", "train"),
        }));
        assert_eq!(
            volcano,
            Owner {
                group: "batch.volcano.sh".into(),
                kind: "Job".into(),
                name: "train".into(),
                task: Some("worker".into()),
            }
        );
        let deployment = pod_of(json!({
            "name": "p", "labels": {"pod-template-hash": "5c8f"}, "ownerReferences": by("apps/v1", "ReplicaSet", "web-5c8f"),
        }));
        assert_eq!((deployment.kind.as_str(), deployment.name.as_str()), ("Deployment", "web"));
        assert_eq!(pod_of(json!({"name": "alone"})).kind, "Pod");
    }

    #[test]
    fn a_pod_that_makes_no_sense_still_takes_a_place() {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "lots"}}}]},
        });
        assert_eq!(read_pod(&object).unwrap().request.to_string(), "pods 1");
    }

    /// Such a pod would be refused as a workload: a minimum above its one replica, an affinity that no node can meet,
    /// an amount that is none.
    #[test]
    fn a_pod_holds_what_it_asks_for_whatever_its_workload_may_not_say() {
        let request = |metadata: Value, affinity: Value, memory: &str| {
            let object = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {
                    "nodeName": "n", "affinity": affinity, "containers": [{"resources": {
                        "requests": {"cpu": "4", "memory": memory}, "limits": {"nvidia.com/gpu": 8},
                    }}],
                },
            });
            read_pod(&object).unwrap().request.to_string()
        };
        let all = "cpu 4, memory 1Gi, nvidia.com/gpu 8, pods 1";
        let member = json!({"name": "p", "annotations": {"scheduling.volcano.sh/group-min-member": "4"}});
        assert_eq!(request(member, Value::Null, "1Gi"), all);
        let nowhere = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{}],
        }}});
        assert_eq!(request(json!({"name": "p"}), nowhere, "1Gi"), all);
        assert_eq!(request(json!({"name": "p"}), Value::Null, "lots"), "cpu 4, nvidia.com/gpu 8, pods 1");
        assert_eq!(request(json!({"name": "p"}), Value::Null, "-1Gi"), "cpu 4, nvidia.com/gpu 8, pods 1");
    }
}
