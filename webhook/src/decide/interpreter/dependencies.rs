//! InterpretDependency: the objects that a job needs in the same cluster. Those are what its pods refer to by name and,
//! for a job that meets over a clusterset, the ServiceExport of its Service (KEP-1645), which has the Service's name:
//! the job's own, as Volcano's plugin `svc` calls it.

use std::collections::BTreeSet;

use caldera_crds::names::caldera::{RENDEZVOUS, RENDEZVOUS_CLUSTERSET, SSH_SECRET};
use serde_json::{Value, json};

const SERVICE_EXPORT: &str = "ServiceExport";

/// ConfigMaps, Secrets, ServiceAccounts, PersistentVolumeClaims and a ServiceExport, sorted, each once.
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
    let annotation = |name: &str| job.pointer("/metadata/annotations").and_then(|annotations| annotations.get(name));
    add("Secret", annotation(SSH_SECRET));
    if annotation(RENDEZVOUS).and_then(Value::as_str) == Some(RENDEZVOUS_CLUSTERSET) {
        add(SERVICE_EXPORT, job.pointer("/metadata/name"));
    }
    // A claim that the job itself makes is made in each cluster.
    for volume in list(job, "/spec/volumes").iter().filter(|volume| volume.get("volumeClaim").is_none()) {
        add("PersistentVolumeClaim", volume.get("volumeClaimName"));
    }
    let reference = |(kind, name): (&str, String)| {
        let version = if kind == SERVICE_EXPORT { "multicluster.x-k8s.io/v1alpha1" } else { "v1" };
        json!({"apiVersion": version, "kind": kind, "namespace": namespace, "name": name})
    };
    found.into_iter().map(reference).collect()
}
