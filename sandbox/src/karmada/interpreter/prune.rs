//! What a template loses before it goes into a Work.
//!
//! Rule: Karmada `pkg/resourceinterpreter/default/native/prune/prune.go`, keyed by kind alone: a Volcano Job is pruned
//! as a `batch/v1` Job is, and loses its `ttlSecondsAfterFinished` too.

use serde_json::Value;

use crate::karmada::object::ObjectExt;

/// Removes what the API server fills in, the status, and what only one cluster can know.
pub fn prune_template(object: &mut Value) {
    for field in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
        "ownerReferences",
        "finalizers",
    ] {
        object.remove_at(&["metadata", field]);
    }
    object.remove_at(&["status"]);
    match object.text("/kind") {
        "Deployment" => {
            for key in ["deployment.kubernetes.io/revision", "deployment.kubernetes.io/revision-history"] {
                object.remove_at(&["metadata", "annotations", key]);
            }
        }
        "Job" => {
            if !object.flag("/spec/manualSelector") {
                remove_generated_job_labels(object);
            }
            object.remove_at(&["spec", "ttlSecondsAfterFinished"]);
        }
        "Secret" if object.text("/type") == "kubernetes.io/service-account-token" => {
            object.remove_at(&["metadata", "annotations", "kubernetes.io/service-account.uid"]);
            object.put(&["data"], Value::Null);
        }
        "ServiceAccount" => remove_token_secrets(object),
        "Service" => {
            let address = object.text("/spec/clusterIP").to_owned();
            if object.pointer("/spec/clusterIP").is_some() && address != "None" {
                object.remove_at(&["spec", "clusterIP"]);
                object.remove_at(&["spec", "clusterIPs"]);
            }
        }
        "PersistentVolumeClaim" => {
            object.remove_at(&["metadata", "annotations", "volume.kubernetes.io/selected-node"]);
        }
        _ => {}
    }
}

fn remove_generated_job_labels(object: &mut Value) {
    for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
        object.remove_at(&["spec", "selector", "matchLabels", key]);
    }
    for key in ["controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"] {
        object.remove_at(&["spec", "template", "metadata", "labels", key]);
    }
}

fn remove_token_secrets(object: &mut Value) {
    let prefix = format!("{}-token-", object.name());
    if let Some(secrets) = object.get_mut("secrets").and_then(Value::as_array_mut) {
        secrets.retain(|secret| !secret.text("/name").starts_with(&prefix));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_of_any_group_loses_its_ttl() {
        let mut job = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "metadata": {"name": "a", "uid": "1"}, "spec": {"ttlSecondsAfterFinished": 5, "queue": "q"}, "status": {}});
        prune_template(&mut job);
        assert_eq!(
            job,
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"queue": "q"}})
        );
    }

    #[test]
    fn a_headless_service_stays_headless() {
        let mut service = json!({"kind": "Service", "metadata": {}, "spec": {"clusterIP": "None"}});
        prune_template(&mut service);
        assert_eq!(service["spec"]["clusterIP"], "None");
    }
}
