//! What a RuntimeClass adds to the pods that name it: overhead, node selector and tolerations (admission plugin
//! RuntimeClass).

use serde_json::Value;

use crate::error::{Status, go_quote};
use crate::meta;
use crate::resource::Resource;
use crate::server::ApiServer;
use crate::store::Key;

const STORAGE: &str = "runtimeclasses.node.k8s.io";

fn rejected(pod: &Value, why: &str) -> Status {
    Status::forbidden("", "pods", meta::object_name(pod), &format!("pod rejected: {why}"))
}

/// Before a pod is looked at: what its class says is put in.
pub fn complete_pod(server: &ApiServer, pod: &mut Value) -> Result<(), Status> {
    let Some(name) = pod.pointer("/spec/runtimeClassName").and_then(Value::as_str).map(str::to_owned) else {
        return Ok(());
    };
    let Some(class) = server.store().get(STORAGE, &Key::new("", name.as_str())) else {
        return Err(rejected(pod, &format!("RuntimeClass {} not found", go_quote(&name))));
    };
    merge_class(pod, &class.value).map_err(|why| rejected(pod, &why))
}

fn merge_class(pod: &mut Value, class: &Value) -> Result<(), String> {
    if let Some(overhead) = class.pointer("/overhead/podFixed") {
        if pod.pointer("/spec/overhead").is_some_and(|own| own != overhead) {
            return Err("Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
        }
        pod["spec"]["overhead"] = overhead.clone();
    }
    for (key, value) in class.pointer("/scheduling/nodeSelector").and_then(Value::as_object).into_iter().flatten() {
        let own = pod.pointer("/spec/nodeSelector").and_then(|selector| selector.get(key));
        if let Some(own) = own.filter(|own| *own != value) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(value),
                text(own)
            ));
        }
        pod["spec"]["nodeSelector"][key] = value.clone();
    }
    let mut tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    for toleration in class.pointer("/scheduling/tolerations").and_then(Value::as_array).into_iter().flatten() {
        if !tolerations.contains(toleration) {
            tolerations.push(toleration.clone());
            pod["spec"]["tolerations"] = tolerations.clone().into();
        }
    }
    Ok(())
}

/// Afterwards: only a class gives an overhead.
pub fn check_overhead(server: &ApiServer, resource: &Resource, pod: &Value) -> Result<(), Status> {
    if resource.storage != "pods" || pod.pointer("/spec/overhead").is_none() {
        return Ok(());
    }
    let name = pod.pointer("/spec/runtimeClassName").and_then(Value::as_str).unwrap_or_default();
    let class = server.store().get(STORAGE, &Key::new("", name));
    match class.is_some_and(|class| class.value.pointer("/overhead/podFixed").is_some()) {
        true => Ok(()),
        false => Err(rejected(pod, "Pod Overhead set without corresponding RuntimeClass defined Overhead")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_class_gives_overhead_and_place() {
        let class = json!({"overhead": {"podFixed": {"cpu": "100m"}}, "scheduling": {"nodeSelector": {"a": "b"},
            "tolerations": [{"key": "k"}]}});
        let mut pod = json!({"spec": {"nodeSelector": {"c": "d"}}});
        assert_eq!(merge_class(&mut pod, &class), Ok(()));
        let wanted = json!({"spec": {"nodeSelector": {"a": "b", "c": "d"}, "overhead": {"cpu": "100m"},
            "tolerations": [{"key": "k"}]}});
        assert_eq!(pod, wanted);
        let mut other = json!({"spec": {"nodeSelector": {"a": "z"}}});
        assert!(merge_class(&mut other, &class).unwrap_err().starts_with("conflict: runtimeClass.scheduling"));
    }
}
