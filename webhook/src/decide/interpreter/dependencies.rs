//! InterpretDependency: the objects that the pods of a job refer to by name and need in the same cluster.

use std::collections::BTreeSet;

use caldera_crds::names::caldera::SSH_SECRET;
use serde_json::{Value, json};

/// ConfigMaps, Secrets, ServiceAccounts and PersistentVolumeClaims, sorted, each once.
pub fn list_dependencies(job: &Value, namespace: &str) -> Value {
    let mut found: BTreeSet<(&'static str, String)> = BTreeSet::new();
    let mut add = |kind: &'static str, name: Option<&Value>| {
        if let Some(name) = name.and_then(Value::as_str).filter(|name| !name.is_empty()) {
            found.insert((kind, name.to_owned()));
        }
    };
    let list = |object: &'_ Value, pointer: &str| {
        object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    for task in list(job, "/spec/tasks") {
        let Some(pod) = task.pointer("/template/spec") else { continue };
        match pod.get("serviceAccountName").and_then(Value::as_str) {
            Some("default") => {}
            _ => add("ServiceAccount", pod.get("serviceAccountName")),
        }
        for secret in list(pod, "/imagePullSecrets") {
            add("Secret", secret.get("name"));
        }
        for volume in list(pod, "/volumes") {
            add("ConfigMap", volume.pointer("/configMap/name"));
            add("Secret", volume.pointer("/secret/secretName"));
            add("PersistentVolumeClaim", volume.pointer("/persistentVolumeClaim/claimName"));
            for source in list(&volume, "/projected/sources") {
                add("ConfigMap", source.pointer("/configMap/name"));
                add("Secret", source.pointer("/secret/name"));
            }
        }
        for containers in ["/containers", "/initContainers"] {
            for container in list(pod, containers) {
                for source in list(&container, "/envFrom") {
                    add("ConfigMap", source.pointer("/configMapRef/name"));
                    add("Secret", source.pointer("/secretRef/name"));
                }
                for variable in list(&container, "/env") {
                    add("ConfigMap", variable.pointer("/valueFrom/configMapKeyRef/name"));
                    add("Secret", variable.pointer("/valueFrom/secretKeyRef/name"));
                }
            }
        }
    }
    add("Secret", job.pointer("/metadata/annotations").and_then(|annotations| annotations.get(SSH_SECRET)));
    // A claim that the job itself makes is made in each cluster.
    for volume in list(job, "/spec/volumes").iter().filter(|volume| volume.get("volumeClaim").is_none()) {
        add("PersistentVolumeClaim", volume.get("volumeClaimName"));
    }
    let reference =
        |(kind, name): (&str, String)| json!({"apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name});
    found.into_iter().map(reference).collect()
}
