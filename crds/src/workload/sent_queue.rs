//! The queue that an object of any kind names for the pods that a member makes of it.
//!
//! Rule: a member's Volcano takes a queue from what pods and their owners say, whoever made them: the annotations and
//! labels of [`named_queue`](super::queue_of). So a name counts in the metadata of every template, however deep in the
//! object it is (a ReplicaSet's, an Argo Workflow's `podMetadata`), and in the object's own where it makes pods: where
//! a list of containers is in it. A workload that is part of another object, as a Trainer's experiment has one, names
//! what it names itself: a Volcano Job always a queue. So do the fields in which an operator that we know looks for it,
//! for it may have more kinds than those that can be queued.
//!
//! What is text, such as the manifest that a step of a Workflow applies, is not looked into: that is up to the rights
//! of its account in the member.

use caldera_core::gang::QueueName;
use serde_json::Value;

use super::{WorkloadKind, named_queue, queue_of};
use crate::names::volcano::{QUEUE, QUEUE_OLD};

/// Kinds of Kubernetes that make pods of a template and can not be queued.
pub const OTHER_POD_MAKERS: [&str; 3] = ["ReplicaSet", "DaemonSet", "ReplicationController"];

/// The queue that a member would run pods of this object in because the object says so; `None` if it names none.
#[must_use]
pub fn find_sent_queue(object: &Value) -> Option<QueueName> {
    let own = find_own_queue(object);
    let below = || object.as_object()?.iter().filter(|(field, _)| *field != "metadata").find_map(find_queue_below);
    // A CronJob's jobs have what their template says, and nothing of its own.
    let of_root = || {
        let metadata = object.get("metadata").filter(|_| object["kind"] != "CronJob")?;
        find_queue_below(("metadata", metadata)).filter(|_| holds_containers(object))
    };
    own.or_else(below).or_else(of_root)
}

/// That of a workload, which a Volcano Job always has.
fn find_own_queue(object: &Value) -> Option<QueueName> {
    match WorkloadKind::of_object(object)? {
        WorkloadKind::VolcanoJob => Some(queue_of(object)),
        _ => named_queue(object).map(QueueName::from),
    }
}

fn find_queue_below<K: AsRef<str>>((field, value): (K, &Value)) -> Option<QueueName> {
    let field = field.as_ref();
    let named = |name: &str| value.get(name).and_then(Value::as_str).filter(|queue| !queue.is_empty());
    let keys: &[&str] = match field {
        "annotations" => &[QUEUE_OLD, QUEUE],
        "labels" => &[QUEUE],
        _ if value.get("queue").is_some() && is_operators_place(field) => &["queue"],
        _ => &[],
    };
    let here = keys.iter().find_map(|key| named(key)).map(QueueName::from);
    let below = || match value {
        Value::Array(items) => items.iter().find_map(|item| find_queue_below(("", item))),
        Value::Object(fields) => fields.iter().find_map(find_queue_below),
        _ => None,
    };
    here.or_else(|| find_own_queue(value)).or_else(below)
}

/// Whether the queue is in a field of this object for an operator whose kinds are told in code.
fn is_operators_place(field: &str) -> bool {
    let mut all = WorkloadKind::ALL.into_iter().flat_map(WorkloadKind::list_queue_fields);
    !field.is_empty() && all.any(|path| matches!(path, [.., place, "queue"] if *place == field))
}

fn holds_containers(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(holds_containers),
        Value::Object(fields) => {
            fields.get("containers").is_some_and(Value::is_array) || fields.values().any(holds_containers)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queue_sent(object: &Value) -> Option<String> {
        find_sent_queue(object).map(|queue| queue.as_str().to_owned())
    }

    #[test]
    fn whatever_makes_pods_names_the_queue_that_its_templates_name() {
        let pod = |metadata: Value| json!({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}});
        for metadata in [
            json!({"annotations": {QUEUE_OLD: "q"}}),
            json!({"annotations": {QUEUE: "q"}}),
            json!({"labels": {QUEUE: "q"}}),
        ] {
            for (api_version, kind, spec) in [
                ("apps/v1", "ReplicaSet", json!({"template": pod(metadata.clone())})),
                ("apps/v1", "DaemonSet", json!({"template": pod(metadata.clone())})),
                ("v1", "ReplicationController", json!({"template": pod(metadata.clone())})),
                ("apps/v1", "Deployment", json!({"template": pod(metadata.clone())})),
                ("argoproj.io/v1alpha1", "Workflow", json!({"podMetadata": metadata, "templates": []})),
                ("argoproj.io/v1alpha1", "Workflow", json!({"templates": [{"name": "t", "metadata": metadata}]})),
                (
                    "ray.io/v1alpha1",
                    "RayService",
                    json!({"rayClusterConfig": {"headGroupSpec": {"template": pod(metadata.clone())}}}),
                ),
            ] {
                let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
                assert_eq!(queue_sent(&object).as_deref(), Some("q"), "{object}");
            }
        }
    }

    #[test]
    fn an_objects_own_metadata_counts_where_it_makes_pods() {
        let of = |api_version: &str, kind: &str, spec: Value| {
            json!({
                "apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "labels": {QUEUE: "q"}},
                "spec": spec,
            })
        };
        let template = json!({"template": {"spec": {"containers": []}}});
        for (api_version, kind) in [("apps/v1", "DaemonSet"), ("example.com/v1", "Thing"), ("apps/v1", "Deployment")] {
            assert_eq!(queue_sent(&of(api_version, kind, template.clone())).as_deref(), Some("q"), "{kind}");
        }
        // A label that a tool gives all objects.
        for (api_version, kind) in [("v1", "Service"), ("v1", "ConfigMap"), ("monitoring.example.com/v1", "Monitor")] {
            assert_eq!(queue_sent(&of(api_version, kind, json!({"selector": {QUEUE: "q"}}))), None, "{kind}");
        }
        let cron_job = json!({"jobTemplate": {"spec": template}});
        assert_eq!(queue_sent(&of("batch/v1", "CronJob", cron_job)), None, "its jobs do not have it");
    }

    #[test]
    fn what_is_part_of_another_object_and_what_an_operator_reads_counts_too() {
        let job = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {}});
        let experiment = json!({
            "apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": "x"},
            "spec": {"trialTemplate": {"trialSpec": job}},
        });
        assert_eq!(queue_sent(&experiment).as_deref(), Some("default"));
        let of = |api_version: &str, kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        let boost = json!({"runPolicy": {"schedulingPolicy": {"queue": "q"}}});
        assert_eq!(queue_sent(&of("kubeflow.org/v1", "XGBoostJob", boost)).as_deref(), Some("q"));
        let scheduled = json!({"template": {"batchSchedulerOptions": {"queue": "q"}}});
        let scheduled = of("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", scheduled);
        assert_eq!(queue_sent(&scheduled).as_deref(), Some("q"));
        assert_eq!(queue_sent(&of("rabbitmq.example.com/v1", "Binding", json!({"queue": "q"}))), None);
    }

    #[test]
    fn what_names_none_and_what_has_another_shape_names_none() {
        for object in [
            json!(null),
            json!({"kind": 5, "metadata": [], "spec": {"template": "text", "annotations": [QUEUE]}}),
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"annotations": {QUEUE: ""}}, "spec": {
                "template": {"metadata": {"labels": {QUEUE: ""}, "annotations": {QUEUE_OLD: 5}}, "spec": {"containers": []}},
            }}),
            json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": {
                "entrypoint": "a", "templates": [{"name": "a", "container": {"image": "i"}}],
            }}),
        ] {
            assert_eq!(queue_sent(&object), None, "{object}");
        }
    }
}
