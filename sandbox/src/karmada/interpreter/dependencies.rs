//! What a workload needs besides itself.
//!
//! Rule: Karmada `default/native/dependencies.go`, `pkg/util/helper/pod.go`: config maps, secrets, the service account
//! (unless `default`) and volume claims that its pods name. Karmada lists each sort in random order; we sort.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::karmada::object::{Gvk, ObjectExt};

/// Whether Karmada itself knows what this kind needs.
#[must_use]
pub fn has_dependencies(gvk: &Gvk) -> bool {
    pod_spec(gvk).is_some() || *gvk == Gvk::new("networking.k8s.io/v1", "Ingress")
}

fn pod_spec(gvk: &Gvk) -> Option<&'static str> {
    match (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()) {
        ("apps", "v1", "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet") | ("batch", "v1", "Job") => {
            Some("/spec/template/spec")
        }
        ("batch", "v1", "CronJob") => Some("/spec/jobTemplate/spec/template/spec"),
        ("", "v1", "Pod") => Some("/spec"),
        _ => None,
    }
}

/// References to what the object needs.
#[must_use]
pub fn list_dependencies(object: &Value) -> Vec<Value> {
    let gvk = object.gvk();
    let namespace = object.namespace();
    let Some(pod) = pod_spec(&gvk).and_then(|at| object.pointer(at)) else {
        let secrets = object.items("/spec/tls").iter().map(|tls| tls.text("/secretName"));
        return secrets.map(|name| refer_to("Secret", namespace, name)).collect();
    };
    let own: BTreeSet<&str> = object.items("/spec/volumeClaimTemplates").iter().map(ObjectExt::name).collect();
    let mut needs = list_pod_needs(pod, namespace);
    needs.retain(|one| one["kind"] != "PersistentVolumeClaim" || !own.contains(one.text("/name")));
    needs
}

fn refer_to(kind: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name})
}

/// References to what a pod of this spec needs.
#[must_use]
pub fn list_pod_needs(pod: &Value, namespace: &str) -> Vec<Value> {
    let needs = Needs::of(pod);
    let mut all = Vec::new();
    for (kind, names) in [
        ("ConfigMap", &needs.config_maps),
        ("Secret", &needs.secrets),
        ("ServiceAccount", &needs.accounts),
        ("PersistentVolumeClaim", &needs.claims),
    ] {
        all.extend(names.iter().map(|name| refer_to(kind, namespace, name)));
    }
    all
}

#[derive(Default)]
struct Needs<'a> {
    config_maps: BTreeSet<&'a str>,
    secrets: BTreeSet<&'a str>,
    accounts: BTreeSet<&'a str>,
    claims: BTreeSet<&'a str>,
}

impl<'a> Needs<'a> {
    fn of(pod: &'a Value) -> Self {
        let mut needs = Self::default();
        for secret in pod.items("/imagePullSecrets") {
            needs.secrets.insert(secret.text("/name"));
        }
        for list in ["/containers", "/initContainers", "/ephemeralContainers"] {
            for container in pod.items(list) {
                for from in container.items("/envFrom") {
                    needs.config_maps.insert(from.text("/configMapRef/name"));
                    needs.secrets.insert(from.text("/secretRef/name"));
                }
                for env in container.items("/env") {
                    needs.config_maps.insert(env.text("/valueFrom/configMapKeyRef/name"));
                    needs.secrets.insert(env.text("/valueFrom/secretKeyRef/name"));
                }
            }
        }
        for volume in pod.items("/volumes") {
            needs.config_maps.insert(volume.text("/configMap/name"));
            needs.secrets.insert(volume.text("/secret/secretName"));
            for source in [
                "azureFile/secretName",
                "cephfs/secretRef/name",
                "csi/nodePublishSecretRef/name",
                "iscsi/secretRef/name",
            ] {
                needs.secrets.insert(volume.text(&format!("/{source}")));
            }
            for source in volume.items("/projected/sources") {
                needs.config_maps.insert(source.text("/configMap/name"));
                needs.secrets.insert(source.text("/secret/name"));
            }
            needs.claims.insert(volume.text("/persistentVolumeClaim/claimName"));
        }
        match pod.text("/serviceAccountName") {
            "" | "default" => {}
            name => drop(needs.accounts.insert(name)),
        }
        for names in [&mut needs.config_maps, &mut needs.secrets, &mut needs.claims] {
            names.remove("");
        }
        needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_volumes_and_environment_name_its_needs() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "n"}, "spec": {
            "serviceAccountName": "default",
            "containers": [{"envFrom": [{"configMapRef": {"name": "b"}}], "env": [{"valueFrom": {"secretKeyRef": {"name": "s"}}}]}],
            "volumes": [{"configMap": {"name": "a"}}],
        }});
        let names: Vec<String> =
            list_dependencies(&pod).iter().map(|one| format!("{}/{}", one.text("/kind"), one.text("/name"))).collect();
        assert_eq!(names, ["ConfigMap/a", "ConfigMap/b", "Secret/s"]);
    }
}
