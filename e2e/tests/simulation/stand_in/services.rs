//! Deployments: what Karmada's own interpreter says of them, and what a member makes of their copies.
//!
//! Pods start one by one, where there is room. Those of an old template end before new ones start (`Recreate`), so a
//! copy never has more pods than it was sent.

use caldera_runtime::write::{self, Body, Write};
use serde_json::{Value, json};

use super::{Copy, CopyKey, NAMESPACE, StandIn, members::take_room, text, write_to};
use crate::workloads::{Amount, deployments, list_tasks};

/// The answer in the form of a webhook's.
pub(super) fn interpret(operation: &str, service: &Value) -> Value {
    match operation {
        "InterpretReplica" => {
            let requests = &service["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"];
            json!({
                "replicas": service["spec"]["replicas"],
                "replicaRequirements": {"namespace": NAMESPACE, "resourceRequest": requests},
            })
        }
        other => panic!("nobody asks {other} of a Deployment"),
    }
}

pub(super) fn status(copy: &Copy) -> Value {
    let pods = copy.pods.len();
    json!({"replicas": pods, "readyReplicas": pods, "availableReplicas": pods, "updatedReplicas": pods})
}

/// Told by its requests: nothing else of a template changes here.
fn name_replica_set(name: &str, each: Amount) -> String {
    format!("{name}-{}x{}", each[0], each[1])
}

impl StandIn {
    /// The pods of one copy become those that its manifest says, as far as there is room.
    pub(super) async fn serve(&mut self, key: &CopyKey) {
        let copy = &self.copies[key];
        let task = list_tasks(&copy.manifest).remove(0);
        let set = name_replica_set(&key.2, task.each);
        let wanted: Vec<String> = (0..task.replicas.min(100)).map(|index| format!("{set}-{index}")).collect();
        let surplus: Vec<String> = copy.pods.keys().filter(|pod| !wanted.contains(pod)).cloned().collect();
        let missing: Vec<String> = wanted.into_iter().filter(|pod| !copy.pods.contains_key(pod)).collect();
        let template = copy.manifest["spec"]["template"]["spec"].clone();
        for pod in surplus {
            self.delete_pod(&key.0, &pod).await;
            self.copies.get_mut(key).unwrap().pods.remove(&pod);
        }
        let mut free = self.compute_free(&key.0);
        for name in missing {
            let Some(node) = take_room(&mut free, task.each) else { return };
            let mut spec = template.clone();
            spec["nodeName"] = node.as_str().into();
            let hash = set.rsplit_once('-').map(|(_, hash)| hash).unwrap_or_default();
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": NAMESPACE, "labels": {"app": key.2, "pod-template-hash": hash},
                    "ownerReferences": [{
                        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": key.1, "controller": true,
                    }],
                },
                "spec": spec,
            });
            self.member(&key.0, &name, None, Body::Create(pod)).await;
            self.pod_phase(&key.0, &name, "Running").await;
            self.copies.get_mut(key).unwrap().pods.insert(name, (node, task.each));
        }
    }

    /// The sum of what the members say.
    pub(super) async fn report_service(&self, service: &Value, items: &[Value]) -> Result<(), write::Failure> {
        let sum = |field: &str| items.iter().filter_map(|item| item["status"][field].as_u64()).sum::<u64>();
        let fields = ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas"];
        let mut status = json!({"observedGeneration": service["metadata"]["generation"]});
        for field in fields {
            status[field] = sum(field).into();
        }
        let is_said = |field: &str| service["status"][field].as_u64().unwrap_or(0) == status[field];
        if fields.iter().all(|field| is_said(field)) {
            return Ok(());
        }
        let name = text(&service["metadata"]["name"]);
        let write = write_to(deployments(), NAMESPACE, &name, Body::MergePatch(json!({"status": status})));
        write::execute_write(&self.host, &Write { subresource: Some("status"), ..write }).await.map(drop)
    }
}
