//! The checks of pods that users run into (`pkg/apis/core/validation`): missing and repeated names, unknown enums,
//! ports, requests above limits. Not the whole of them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::limits::{Amount, may_overcommit};
use crate::meta;
use crate::pod_update::immutable_spec;
use crate::schema::{CauseReason, FieldError};

pub(crate) fn text_of<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Puts the old values of these members in the place of the new ones.
pub(crate) fn keep_members<'m>(new: &mut Value, old: &Value, members: impl IntoIterator<Item = &'m str>) {
    let Some(new) = new.as_object_mut() else { return };
    for member in members {
        match old.get(member) {
            Some(value) => new.insert(member.to_owned(), value.clone()),
            None => new.remove(member),
        };
    }
}

pub(crate) fn items_of<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value.get(member).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) const NULL: Value = Value::Null;

pub fn validate_pod(pod: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = pod.get("spec").unwrap_or(&NULL);
    let mut errors = validate_spec(spec, "spec");
    if let Some(old) = old {
        errors.extend(immutable_spec(spec, old.get("spec").unwrap_or(&NULL)));
    }
    errors
}

pub fn validate_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes = validate_volumes(spec, path, &mut errors);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    if items_of(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in items_of(spec, list).iter().enumerate() {
            let path = format!("{path}.{list}[{index}]");
            validate_container(container, &path, (&volumes, host_network), &mut names, &mut errors);
        }
    }
    one_of(spec, path, "restartPolicy", &["Always", "OnFailure", "Never"], &mut errors);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(spec, path, "dnsPolicy", &policies, &mut errors);
    for (index, toleration) in items_of(spec, "tolerations").iter().enumerate() {
        validate_toleration(toleration, &format!("{path}.tolerations[{index}]"), &mut errors);
    }
    errors.extend(meta::label_errors(spec.get("nodeSelector"), &format!("{path}.nodeSelector")));
    errors.extend(crate::pod_affinity::spread_errors(spec, path));
    errors.extend(crate::pod_affinity::affinity_errors(spec, path));
    for member in ["activeDeadlineSeconds"] {
        if let Some(number) =
            spec.get(member).and_then(Value::as_i64).filter(|n| !(1..=i64::from(i32::MAX)).contains(n))
        {
            let why = "must be between 1 and 2147483647, inclusive";
            errors.push(FieldError::invalid(format!("{path}.{member}"), &number.into(), why));
        }
    }
    errors.extend(crate::pod_rules::spec_errors(spec, path));
    errors
}

fn one_of(value: &Value, path: &str, member: &str, known: &[&str], errors: &mut Vec<FieldError>) {
    let given = text_of(value, member);
    if !given.is_empty() && !known.contains(&given) {
        errors.push(FieldError::not_supported(format!("{path}.{member}"), &given.into(), known));
    }
}

pub(crate) fn validate_volumes(spec: &Value, path: &str, errors: &mut Vec<FieldError>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (index, volume) in items_of(spec, "volumes").iter().enumerate() {
        let path = format!("{path}.volumes[{index}]");
        let (name, before) = (text_of(volume, "name"), errors.len());
        let sources: Vec<&String> =
            volume.as_object().into_iter().flat_map(|v| v.keys()).filter(|k| *k != "name").collect();
        if let Some(second) =
            sources.iter().map(|s| s.as_str()).max_by_key(|s| source_order(s)).filter(|_| sources.len() > 1)
        {
            let why = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{path}.{second}"), why));
        }
        errors.extend(crate::pod_volumes::source_errors(volume, &path));
        errors.extend(crate::pod_volumes::account_errors(volume, spec, &path));
        validate_name(name, &format!("{path}.name"), &names, errors);
        // A volume with anything wrong about it is none that could be mounted.
        if errors.len() == before && !sources.is_empty() {
            names.insert(name.to_owned());
        }
    }
    names
}

/// The order in which volume sources are looked at; the later one is the one too many.
fn source_order(source: &str) -> usize {
    const ORDER: [&str; 8] =
        ["emptyDir", "hostPath", "gitRepo", "secret", "nfs", "persistentVolumeClaim", "configMap", "projected"];
    ORDER.iter().position(|s| *s == source).unwrap_or(ORDER.len())
}

fn validate_name(name: &str, path: &str, taken: &BTreeSet<String>, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for problem in meta::label_problems(name) {
        errors.push(FieldError::invalid_text(path, name, &problem));
    }
    if taken.contains(name) {
        errors.push(FieldError::duplicate(path, &name.into()));
    }
}

pub(crate) fn validate_container(
    container: &Value,
    path: &str,
    (volumes, host_network): (&BTreeSet<String>, bool),
    names: &mut BTreeSet<String>,
    errors: &mut Vec<FieldError>,
) {
    let name = text_of(container, "name");
    validate_name(name, &format!("{path}.name"), names, errors);
    names.insert(name.to_owned());
    if text_of(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    for (index, port) in items_of(container, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        match port.get("containerPort").and_then(Value::as_i64) {
            None | Some(0) => errors.push(FieldError::required(format!("{path}.containerPort"), "")),
            Some(number) if !(1..=65535).contains(&number) => {
                let why = "must be between 1 and 65535, inclusive";
                errors.push(FieldError::invalid(format!("{path}.containerPort"), &number.into(), why));
            }
            Some(_) => {}
        }
        one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"], errors);
        let wanted = port.get("hostPort").and_then(Value::as_i64).filter(|p| *p != 0);
        if let Some(wanted) =
            wanted.filter(|p| host_network && port.get("containerPort").and_then(Value::as_i64) != Some(*p))
        {
            let why = "must match `containerPort` when `hostNetwork` is true";
            errors.push(FieldError::invalid(format!("{path}.hostPort"), &wanted.into(), why));
        }
    }
    for (index, variable) in items_of(container, "env").iter().enumerate() {
        if text_of(variable, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.env[{index}].name"), ""));
        }
        if !text_of(variable, "value").is_empty() && variable.get("valueFrom").is_some_and(Value::is_object) {
            let why = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid_text(format!("{path}.env[{index}].valueFrom"), "", why));
        }
    }
    for (index, mount) in items_of(container, "volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let name = text_of(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(FieldError::value(CauseReason::NotFound, format!("{path}.name"), &name.into(), ""));
        }
        if text_of(mount, "mountPath").is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
        let Some(given) = container.get(probe).filter(|p| p.is_object()) else { continue };
        if handlers.iter().all(|handler| given.get(handler).is_none_or(Value::is_null)) {
            errors.push(FieldError::required(format!("{path}.{probe}"), "must specify a handler type"));
        }
    }
    one_of(container, path, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], errors);
    validate_resources(container.get("resources").unwrap_or(&NULL), path, errors);
}

fn validate_resources(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let map = |kind: &str| resources.get(kind).and_then(Value::as_object);
    for kind in ["limits", "requests"] {
        for (name, quantity) in map(kind).into_iter().flatten() {
            if Amount::parse(quantity).is_some_and(|a| a.is_negative()) {
                let field = format!("{path}.resources.{kind}[{name}]");
                errors.push(FieldError::invalid(field, quantity, "must be greater than or equal to 0"));
            }
        }
    }
    for (name, request) in map("requests").into_iter().flatten() {
        let Some(limit) = map("limits").and_then(|l| l.get(name)) else { continue };
        if !may_overcommit(name) && Amount::parse(request) != Amount::parse(limit) {
            let why = format!("must be equal to {name} limit of {}", crate::limits::show_amount(limit));
            errors.push(FieldError::invalid(format!("{path}.resources.requests"), request, &why));
        } else if Amount::parse(request) > Amount::parse(limit) {
            let shown = limit.as_str().map_or_else(|| limit.to_string(), Into::into);
            let why = format!("must be less than or equal to {name} limit of {shown}");
            errors.push(FieldError::invalid(format!("{path}.resources.requests"), request, &why));
        }
    }
}

pub fn validate_toleration(toleration: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (key, operator, value) =
        (text_of(toleration, "key"), text_of(toleration, "operator"), text_of(toleration, "value"));
    if !key.is_empty() {
        for problem in meta::qualified_name_problems(key) {
            errors.push(FieldError::invalid_text(format!("{path}.key"), key, &problem));
        }
    } else if operator != "Exists" {
        let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid_text(format!("{path}.operator"), operator, why));
    }
    let effect = text_of(toleration, "effect");
    if toleration.get("tolerationSeconds").is_some_and(Value::is_i64) && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid_text(format!("{path}.effect"), effect, why));
    }
    match operator {
        "Equal" | "" => {
            let problems = meta::label_value_problems(value);
            if !problems.is_empty() {
                errors.push(FieldError::invalid_text(format!("{path}.operator"), value, &problems.join(";")));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                let why = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid_text(format!("{path}.operator"), value, why));
            }
        }
        other => {
            // Numbers are compared behind a gate that is shut; the message of those two names them all the same.
            let known: &[&str] =
                if matches!(other, "Lt" | "Gt") { &["Equal", "Exists", "Lt", "Gt"] } else { &["Equal", "Exists"] };
            errors.push(FieldError::not_supported(format!("{path}.operator"), &other.into(), known));
        }
    }
    one_of(toleration, path, "effect", &["NoSchedule", "PreferNoSchedule", "NoExecute"], errors);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> Value {
        json!({"containers": [{"name": "c", "image": "x", "resources": {}}], "priority": 0})
    }

    fn told(spec: &Value) -> Vec<String> {
        validate_spec(spec, "s").into_iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn a_volume_with_an_error_is_not_mounted() {
        let mut spec = spec();
        spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        spec["volumes"] = json!([{"name": "v", "hostPath": {"path": "/a/../b"}}]);
        let missing = "s.containers[0].volumeMounts[0].name: Not found: \"v\"".to_owned();
        assert!(told(&spec).contains(&missing), "{:?}", told(&spec));
        spec["volumes"][0]["hostPath"]["path"] = "/b".into();
        assert!(!told(&spec).contains(&missing));
    }

    #[test]
    fn large_pages_are_requested_as_they_are_limited() {
        let told = |request: &str| {
            let mut spec = spec();
            let amounts = |pages: &str| json!({"cpu": "1", "hugepages-2Mi": pages});
            spec["containers"][0]["resources"] = json!({"requests": amounts(request), "limits": amounts("4Mi")});
            told(&spec)
        };
        assert!(told("4Mi").is_empty());
        let why =
            "s.containers[0].resources.requests: Invalid value: \"2Mi\": must be equal to hugepages-2Mi limit of 4Mi";
        assert_eq!(told("2Mi"), [why]);
    }

    #[test]
    fn a_pod_is_bound_not_patched_to_a_node() {
        for change in [json!({"nodeName": "n"}), json!({"priority": 5}), json!({"nodeSelector": {"a": "b"}})] {
            let mut new = spec();
            json_patch::merge(&mut new, &change);
            assert_eq!(immutable_spec(&new, &spec()).len(), 1, "{change}");
        }
        let mut image = spec();
        image["containers"][0]["image"] = "y".into();
        assert!(immutable_spec(&image, &spec()).is_empty());
    }

    #[test]
    fn gates_only_go_and_while_they_are_there_a_pod_may_be_sent_elsewhere() {
        let mut gated = spec();
        gated["schedulingGates"] = json!([{"name": "g"}]);
        assert!(immutable_spec(&spec(), &gated).is_empty());
        assert_eq!(immutable_spec(&gated, &spec())[0].field, "spec.schedulingGates[0].name");
        let mut elsewhere = gated.clone();
        elsewhere["nodeSelector"] = json!({"a": "b"});
        assert!(immutable_spec(&elsewhere, &gated).is_empty());
    }
}
