//! Building the objects scenarios apply.

use serde_json::{Value, json};

/// One task of a Volcano Job.
#[must_use]
pub fn task(name: &str, replicas: u32, cpu: &str, command: &str) -> Value {
    json!({
        "name": name, "replicas": replicas,
        "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": "busybox:1.36", "command": ["sh", "-c", command],
                "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
            }],
        }},
    })
}

/// A Volcano Job of these tasks.
#[must_use]
pub fn job(name: &str, queue: &str, tasks: &[Value]) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name},
        "spec": {"schedulerName": "volcano", "queue": queue, "tasks": tasks},
    })
}

/// A Volcano queue with these limits.
#[must_use]
pub fn queue(name: &str, capability: &Value) -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": true, "capability": capability},
    })
}

/// A policy for one workload, `placement` as Karmada writes it.
#[must_use]
pub fn policy(workload: &Value, placement: &Value) -> Value {
    let name = &workload["metadata"]["name"];
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": name},
        "spec": {
            "resourceSelectors": [{
                "apiVersion": workload["apiVersion"], "kind": workload["kind"], "name": name,
            }],
            "placement": placement,
        },
    })
}

/// Replicas divided, as few clusters as possible.
#[must_use]
pub fn aggregated() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}})
}

/// The whole workload in every cluster.
#[must_use]
pub fn duplicated() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}})
}

/// A Deployment; `queue` adds the annotation that puts it under quota.
#[must_use]
pub fn deployment(name: &str, queue: Option<&str>, replicas: u32, cpu: &str) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "main", "image": "busybox:1.36", "command": ["sh", "-c", "sleep 86400"],
                    "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
                }]},
            },
        },
    });
    if let Some(queue) = queue {
        object["metadata"]["annotations"] = json!({"scheduling.volcano.sh/queue-name": queue});
    }
    object
}
