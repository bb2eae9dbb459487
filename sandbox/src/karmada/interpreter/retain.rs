//! What a member's object keeps when Karmada writes it again.
//!
//! Rule: Karmada `default/native/retain.go`, `pkg/util/lifted/retain.go`.

use serde_json::Value;

use crate::karmada::{
    names,
    object::{Gvk, ObjectExt},
};

/// Whether Karmada itself keeps something for this kind.
#[must_use]
pub fn retains(gvk: &Gvk) -> bool {
    matches!(
        (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()),
        ("apps", "v1", "Deployment")
            | ("batch", "v1", "Job")
            | (
                "",
                "v1",
                "Pod" | "Service" | "ServiceAccount" | "PersistentVolumeClaim" | "PersistentVolume" | "Secret"
            )
    )
}

/// The desired object with what the observed one keeps.
pub fn retain_fields(desired: &mut Value, observed: &Value) {
    match desired.text("/kind") {
        "Pod" => retain_pod_fields(desired, observed),
        "Job" => {
            copy_field(desired, observed, &["spec", "selector", "matchLabels"]);
            copy_field(desired, observed, &["spec", "template", "metadata", "labels"]);
        }
        "Deployment" if desired.label(names::RETAIN_REPLICAS) == "true" => {
            copy_field(desired, observed, &["spec", "replicas"]);
        }
        "Service" => {
            for field in ["clusterIP", "healthCheckNodePort"] {
                copy_field(desired, observed, &["spec", field]);
            }
        }
        "ServiceAccount" => {
            for list in ["secrets", "imagePullSecrets"] {
                merge_named(desired, observed, list);
            }
        }
        "PersistentVolumeClaim" => copy_field(desired, observed, &["spec", "volumeName"]),
        "PersistentVolume" => copy_field(desired, observed, &["spec", "claimRef"]),
        "Secret" if desired.text("/type") == "kubernetes.io/service-account-token" => {
            copy_field(desired, observed, &["data"]);
        }
        _ => {}
    }
}

fn copy_field(desired: &mut Value, observed: &Value, path: &[&str]) {
    if let Some(value) = observed.present(&format!("/{}", path.join("/"))) {
        desired.put(path, value.clone());
    }
}

fn retain_pod_fields(desired: &mut Value, observed: &Value) {
    for field in ["nodeName", "serviceAccountName", "volumes"] {
        desired.put_or_remove(&["spec", field], observed.present(&format!("/spec/{field}")).cloned());
    }
    for list in ["containers", "initContainers"] {
        let at = format!("/spec/{list}");
        let Some(containers) = desired.pointer_mut(&at).and_then(Value::as_array_mut) else { continue };
        for container in containers {
            let same = observed.items(&at).iter().find(|one| one["name"] == container["name"]);
            if let Some(same) = same {
                container.put_or_remove(&["volumeMounts"], same.present("/volumeMounts").cloned());
            }
        }
    }
}

/// What is desired, and behind it what only the member has.
fn merge_named(desired: &mut Value, observed: &Value, list: &str) {
    let at = format!("/{list}");
    let mut merged = desired.items(&at).to_vec();
    for one in observed.items(&at) {
        if !merged.iter().any(|known| known["name"] == one["name"]) {
            merged.push(one.clone());
        }
    }
    if !merged.is_empty() {
        desired.put(&[list], Value::Array(merged));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_batch_job_keeps_its_selector() {
        let mut desired = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"selector": {"matchLabels": {}}}});
        let observed = json!({"spec": {"selector": {"matchLabels": {"controller-uid": "1"}}}});
        retain_fields(&mut desired, &observed);
        assert_eq!(desired["spec"]["selector"]["matchLabels"]["controller-uid"], "1");
    }

    #[test]
    fn a_deployment_keeps_its_replicas_only_when_asked_to() {
        let mut desired = json!({"kind": "Deployment", "metadata": {}, "spec": {"replicas": 2}});
        let observed = json!({"spec": {"replicas": 5}});
        retain_fields(&mut desired, &observed);
        assert_eq!(desired["spec"]["replicas"], 2);
        desired.set_label(names::RETAIN_REPLICAS, "true");
        retain_fields(&mut desired, &observed);
        assert_eq!(desired["spec"]["replicas"], 5);
    }

    #[test]
    fn a_service_account_keeps_the_secrets_of_the_member_behind_its_own() {
        let mut desired = json!({"kind": "ServiceAccount", "secrets": [{"name": "x"}]});
        let observed = json!({"secrets": [{"name": "m"}, {"name": "x"}], "imagePullSecrets": [{"name": "p"}]});
        retain_fields(&mut desired, &observed);
        assert_eq!(desired["secrets"], json!([{"name": "x"}, {"name": "m"}]));
        assert_eq!(desired["imagePullSecrets"], json!([{"name": "p"}]));
    }

    #[test]
    fn a_service_takes_the_node_port_that_is_desired() {
        let mut desired = json!({"kind": "Service", "spec": {"ports": [{"port": 80, "nodePort": 30080}]}});
        let observed = json!({"spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 80, "nodePort": 31000}]}});
        retain_fields(&mut desired, &observed);
        assert_eq!(desired["spec"]["clusterIP"], "10.0.0.7");
        assert_eq!(desired["spec"]["ports"][0]["nodePort"], 30080);
    }
}
