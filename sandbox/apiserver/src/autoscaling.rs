//! The two forms of a HorizontalPodAutoscaler: `autoscaling/v1` knows one CPU target, `autoscaling/v2` a list of
//! metrics (`pkg/apis/autoscaling/v1/conversion.go`). What v1 cannot say rides along in annotations.

use serde_json::{Map, Value, json};

/// Where the first version has what it cannot say of metrics.
pub const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The collection that holds both forms.
pub const STORAGE: &str = "horizontalpodautoscalers.autoscaling";

/// An autoscaler in the version `to`.
pub fn convert_autoscaler(mut value: Value, to: &str) -> Value {
    let from = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    match (from.as_str(), to) {
        ("autoscaling/v1", "autoscaling/v2") => to_v2(&mut value),
        ("autoscaling/v2", "autoscaling/v1") => to_v1(&mut value),
        _ => return value,
    }
    value["apiVersion"] = to.into();
    value
}

fn is_cpu_target(metric: &Value) -> bool {
    metric.pointer("/resource/name").and_then(Value::as_str) == Some("cpu")
        && metric.pointer("/resource/target/averageUtilization").is_some()
}

fn is_cpu_reading(metric: &Value) -> bool {
    metric.pointer("/resource/name").and_then(Value::as_str) == Some("cpu")
        && metric.pointer("/resource/current/averageUtilization").is_some()
}

fn take_member(value: &mut Value, part: &str, member: &str) -> Option<Value> {
    value.get_mut(part)?.as_object_mut()?.remove(member)
}

fn set_annotation(value: &mut Value, name: &str, content: &Value) {
    let metadata = crate::meta::metadata_mut(value);
    if let Some(map) = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new())).as_object_mut() {
        map.insert(name.into(), content.to_string().into());
    }
}

fn take_annotation(value: &mut Value, name: &str) -> Option<Value> {
    let metadata = crate::meta::metadata_mut(value);
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(name)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    serde_json::from_str(text.as_str()?).ok()
}

fn to_v1(value: &mut Value) {
    let metrics = take_member(value, "spec", "metrics").and_then(|m| m.as_array().cloned()).unwrap_or_default();
    let (mut cpu, mut others): (Vec<Value>, Vec<Value>) = metrics.into_iter().partition(is_cpu_target);
    if !cpu.is_empty() {
        let target = cpu.remove(0);
        value["spec"]["targetCPUUtilizationPercentage"] = target["resource"]["target"]["averageUtilization"].clone();
        others.splice(0..0, cpu);
    }
    if !others.is_empty() {
        set_annotation(value, METRICS, &Value::from(others));
    }
    let readings =
        take_member(value, "status", "currentMetrics").and_then(|m| m.as_array().cloned()).unwrap_or_default();
    let (mut cpu, mut others): (Vec<Value>, Vec<Value>) = readings.into_iter().partition(is_cpu_reading);
    if !cpu.is_empty() {
        let reading = cpu.remove(0);
        value["status"]["currentCPUUtilizationPercentage"] =
            reading["resource"]["current"]["averageUtilization"].clone();
        others.splice(0..0, cpu);
    }
    // Only the first version writes that there are none.
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        status.entry("currentReplicas").or_insert_with(|| 0.into());
    }
    if !others.is_empty() {
        set_annotation(value, CURRENT_METRICS, &Value::from(others));
    }
    for (part, member, name) in [("status", "conditions", CONDITIONS), ("spec", "behavior", BEHAVIOR)] {
        if let Some(content) = take_member(value, part, member).filter(|c| !c.is_null()) {
            set_annotation(value, name, &content);
        }
    }
}

fn to_v2(value: &mut Value) {
    let list = |v: Option<Value>| v.and_then(|m| m.as_array().cloned()).unwrap_or_default();
    let mut metrics = list(take_annotation(value, METRICS));
    if let Some(percent) = take_member(value, "spec", "targetCPUUtilizationPercentage") {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        metrics.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    if !metrics.is_empty() {
        value["spec"]["metrics"] = metrics.into();
    }
    let mut readings = list(take_annotation(value, CURRENT_METRICS));
    if let Some(percent) = take_member(value, "status", "currentCPUUtilizationPercentage") {
        let current = json!({"averageUtilization": percent});
        readings.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "current": current}}));
    }
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("currentMetrics".into(), if readings.is_empty() { Value::Null } else { readings.into() });
        if status.get("currentReplicas").is_some_and(|count| *count == 0) {
            status.remove("currentReplicas");
        }
    }
    for (part, member, name) in [("status", "conditions", CONDITIONS), ("spec", "behavior", BEHAVIOR)] {
        if let Some(content) = take_annotation(value, name) {
            value[part][member] = content;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let other = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue"}}});
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}});
        let new = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "metrics": [cpu, other]}});
        let old = convert_autoscaler(new.clone(), "autoscaling/v1");
        assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], json!(80));
        assert!(old["spec"].get("metrics").is_none());
        assert_eq!(convert_autoscaler(old, "autoscaling/v2"), new);
    }

    #[test]
    fn only_the_first_version_writes_that_there_are_no_replicas() {
        let status = json!({"currentReplicas": 0, "desiredReplicas": 0});
        let old = json!({"apiVersion": "autoscaling/v1", "metadata": {}, "status": status});
        let new = convert_autoscaler(old.clone(), "autoscaling/v2");
        assert_eq!(new["status"], json!({"desiredReplicas": 0, "currentMetrics": null}));
        assert_eq!(convert_autoscaler(new, "autoscaling/v1"), old);
    }
}
