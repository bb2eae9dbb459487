//! What a RuntimeClass adds to the pods that name it: overhead, node selector and tolerations (admission plugin
//! RuntimeClass).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::{Status, go_quote};
use crate::internal_form::internal_text;
use crate::meta;
use crate::podspec::text_of;
use crate::resource::Resource;
use crate::schema::FieldError;
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

/// What a class may ask for (`pkg/apis/node/validation`).
pub fn class_errors(class: &Value) -> Vec<FieldError> {
    let pod_fixed = class.pointer("/overhead/podFixed");
    let mut errors = crate::pod_rules::overhead_errors(pod_fixed, "overhead");
    let scheduling = class.get("scheduling").unwrap_or(&Value::Null);
    errors.extend(meta::label_errors(scheduling.get("nodeSelector"), "scheduling.nodeSelector"));
    let tolerations = scheduling.get("tolerations").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = format!("scheduling.tolerations[{index}]");
        crate::podspec::validate_toleration(toleration, &at, &mut errors);
    }
    let mut seen = BTreeSet::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        if !seen.insert(["key", "operator", "value", "effect"].map(|member| text_of(toleration, member))) {
            let shown = internal_text("Toleration", toleration);
            errors.push(FieldError::duplicate_shown(format!("scheduling.tolerations[{index}]"), &shown));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_class_asks_for_what_there_is() {
        let fields = |class: Value| class_errors(&class).into_iter().map(|e| e.field).collect::<Vec<_>>();
        let twice = json!({"key": "a", "operator": "Exists"});
        let class = json!({"overhead": {"podFixed": {"cpu": "-1"}}, "scheduling": {"nodeSelector": {"a b": "c"},
            "tolerations": [twice, twice]}});
        assert_eq!(fields(class), ["overhead.limits[cpu]", "scheduling.nodeSelector", "scheduling.tolerations[1]"]);
    }

    /// `validateTolerations`: seconds do not tell two tolerations apart, and duplicates come last.
    #[test]
    fn a_class_tolerates_each_thing_once() {
        let toleration =
            |effect: &str, seconds: u32| json!({"operator": "Exists", "effect": effect, "tolerationSeconds": seconds});
        let list = [toleration("NoExecute", 1), toleration("NoExecute", 2), toleration("NoSchedule", 1)];
        let errors = class_errors(&json!({"scheduling": {"tolerations": list}}));
        let fields: Vec<_> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["scheduling.tolerations[2].effect", "scheduling.tolerations[1]"]);
    }

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
