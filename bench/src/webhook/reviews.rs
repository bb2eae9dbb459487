//! What the webhook is asked: reviews of a usual size, and the objects that it must know to answer them.

use bytes::Bytes;
use caldera_crds::names::{caldera, karmada};
use serde_json::{Value, json};

use crate::world;

/// One question, ready to be sent again and again.
#[derive(Debug, Clone)]
pub struct Review {
    pub path: &'static str,
    pub body: Bytes,
}

/// ResourceBindings being created, as Karmada's detector writes them, of `size` bytes.
pub fn make_binding_reviews(count: usize, size: usize) -> Vec<Review> {
    let review = |i: usize| {
        let mut object = world::make_binding(i, &format!("{i:08}-1111-4000-8000-000000000000"));
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove(caldera::GATE);
        }
        object["spec"]["schedulerName"] = "default-scheduler".into();
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove("suspension");
        }
        let body = make_review("resourcebindings", "ResourceBinding", "work.karmada.io", "v1alpha2", "default", object);
        Review { path: "/mutate-resourcebinding", body: pad_body(body, "/request/object/metadata", size) }
    };
    (0..count).map(review).collect()
}

/// Works being created with the whole job as Karmada copies it, of `size` bytes.
pub fn make_work_reviews(count: usize, size: usize) -> Vec<Review> {
    let review = |i: usize| {
        let mut manifest = world::make_job(i, "q0");
        manifest["metadata"]["annotations"] = json!({(caldera::REVISED): "2"});
        let object = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {
                "name": format!("job-{i}-7c9f8b6d5"), "namespace": "karmada-es-m1",
                "finalizers": ["karmada.io/execution-controller"],
                "annotations": {
                    (karmada::BINDING_NAMESPACE): "default", (karmada::BINDING_NAME): format!("job-{i}-job"),
                },
            },
            "spec": {"workload": {"manifests": [manifest]}},
        });
        let body = make_review("works", "Work", "work.karmada.io", "v1alpha1", "karmada-es-m1", object);
        let pod = "/request/object/spec/workload/manifests/0/spec/tasks/0/template/metadata";
        Review { path: "/mutate-work", body: pad_body(body, pod, size) }
    };
    (0..count).map(review).collect()
}

/// The largest job that an API server takes, being created: about 3 MiB, each task after the one before.
pub fn make_largest_review(path: &'static str) -> Review {
    let mut job = world::make_job(0, "q0");
    let mut task = job["spec"]["tasks"][0].take();
    task["template"]["metadata"]["annotations"] = json!({"padding": ""});
    let tasks = LARGEST_TASKS;
    let each = (3 << 20) / tasks;
    let padding = each.saturating_sub(task.to_string().len() + 48);
    task["template"]["metadata"]["annotations"]["padding"] = "x".repeat(padding).into();
    let numbered = |at: usize| {
        let mut task = task.clone();
        task["name"] = format!("t{at}").into();
        if let Some(before) = at.checked_sub(1) {
            task["dependsOn"] = json!({"name": [format!("t{before}")]});
        }
        task
    };
    job["spec"]["tasks"] = (0..tasks).map(numbered).collect();
    job["spec"]["minAvailable"] = 1.into();
    let body = make_review("jobs", "Job", "batch.volcano.sh", "v1alpha1", "large", job);
    Review { path, body: Bytes::from(body.to_string()) }
}

/// Tasks of the largest job: as many as are promised to be taken.
const LARGEST_TASKS: usize = 5_000;

/// A binding that is placed: two of the four pods in cluster `m1`.
pub fn make_placed_binding(i: usize) -> Value {
    let mut object = world::make_binding(i, "");
    let share = json!({"tasks": {"worker": {"replicas": 2, "minAvailable": 2}}, "minAvailable": 2});
    let plan = json!({"clusters": {"m1": share.clone(), "m2": share}});
    object["metadata"]["annotations"][caldera::PLAN] = plan.to_string().into();
    object["metadata"]["annotations"][caldera::GATE] = caldera::GATE_OPEN.into();
    let charged = json!({"cpu": "4", "memory": "4Gi", "pods": "4"});
    let record = json!({"queue": "q0", "priority": 0, "copies": 1, "tasks": {"worker": 4}, "charged": charged});
    object["metadata"]["annotations"][caldera::ADMISSION] = record.to_string().into();
    object["spec"]["clusters"] = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}]);
    object
}

fn make_review(plural: &str, kind: &str, group: &str, version: &str, namespace: &str, object: Value) -> Value {
    let name = object["metadata"]["name"].clone();
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": plural});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0b9d5c3e-6f0a-4d5e-9a63-6f4f2c1d7e10",
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": name, "namespace": namespace, "operation": "CREATE",
            "userInfo": {"username": "system:karmada:controller", "groups": ["system:masters", "system:authenticated"]},
            "object": object, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

/// Annotations of a usual length at `metadata` until the body has this size.
fn pad_body(mut body: Value, metadata: &str, size: usize) -> Bytes {
    if let Some(template) = metadata.strip_suffix("/metadata").and_then(|parent| body.pointer_mut(parent))
        && template.get("metadata").is_none()
    {
        template["metadata"] = json!({});
    }
    let mut text = body.to_string();
    for i in 0.. {
        let Some(missing) = size.checked_sub(text.len()).filter(|missing| *missing > 64) else { break };
        if let Some(metadata) = body.pointer_mut(metadata) {
            metadata["annotations"][format!("team.example.com/note-{i}")] = "n".repeat(missing.min(120)).into();
        }
        text = body.to_string();
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_have_the_size_that_is_asked_for() {
        for review in [make_binding_reviews(1, 8192), make_work_reviews(1, 8192)].concat() {
            assert!((8000..8400).contains(&review.body.len()), "{} has {}", review.path, review.body.len());
        }
    }
}
