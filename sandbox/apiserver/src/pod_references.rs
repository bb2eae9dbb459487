//! What a container refers to: keys and fields for its variables, volumes that it mounts or has as devices, amounts
//! that may change, ports of the host, headers of probes (`validateEnv`, `validateEnvFrom`, `ValidateVolumeMounts`,
//! `ValidateVolumeDevices`, `validateResizePolicy`, `validateHTTPGetAction` of `pkg/apis/core/validation`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::meta::subdomain_problems;
use crate::podspec::{NULL, items_of, text_of};
use crate::schema::{CauseReason, FieldError};

const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// `spec` is that of the pod.
pub fn reference_errors(container: &Value, spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, variable) in items_of(container, "env").iter().enumerate() {
        errors.extend(variable_errors(variable, &format!("{at}.env[{index}].valueFrom")));
    }
    for (index, source) in items_of(container, "envFrom").iter().enumerate() {
        errors.extend(whole_map_errors(source, &format!("{at}.envFrom[{index}]")));
    }
    for (index, port) in items_of(container, "ports").iter().enumerate() {
        let number = port.get("hostPort").and_then(Value::as_i64).filter(|n| *n != 0 && !(1..=65535).contains(n));
        let field = format!("{at}.ports[{index}].hostPort");
        errors.extend(number.map(|number| FieldError::invalid(field, &number.into(), PORT_RANGE)));
    }
    for mount in items_of(container, "volumeMounts") {
        let known = ["Bidirectional", "HostToContainer", "None"];
        let given = mount.get("mountPropagation").and_then(Value::as_str).filter(|given| !known.contains(given));
        let field = format!("{at}.volumeMounts.mountPropagation");
        errors.extend(given.map(|given| FieldError::not_supported(field, &given.into(), &known)));
    }
    errors.extend(device_errors(container, spec, &format!("{at}.volumeDevices")));
    errors.extend(resize_errors(items_of(container, "resizePolicy"), spec, &format!("{at}.resizePolicy")));
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        errors.extend(call_errors(container.get(kind).unwrap_or(&NULL), &format!("{at}.{kind}")));
    }
    for kind in ["postStart", "preStop"] {
        let hook = container.get("lifecycle").and_then(|all| all.get(kind)).unwrap_or(&NULL);
        let at = format!("{at}.lifecycle.{kind}");
        errors.extend(call_errors(hook, &at));
        for way in ["httpGet", "tcpSocket"] {
            let Some(call) = hook.get(way).filter(|call| call.is_object()) else { continue };
            let number = call.get("port").map_or(Some(0), Value::as_i64).filter(|n| !(1..=65535).contains(n));
            let field = format!("{at}.{way}.port");
            errors.extend(number.map(|number| FieldError::invalid(field, &number.into(), PORT_RANGE)));
        }
    }
    errors
}

/// What is wrong with a key of a ConfigMap or a Secret.
fn key_problems(key: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 characters");
    }
    if !key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        );
    }
    problems
}

fn variable_errors(variable: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let source = |kind: &str| variable.get("valueFrom").and_then(|from| from.get(kind)).filter(|s| s.is_object());
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let Some(key) = source(kind).map(|source| text_of(source, "key")).filter(|key| !key.is_empty()) else {
            continue;
        };
        let field = format!("{at}.{kind}.key");
        errors.extend(key_problems(key).into_iter().map(|why| FieldError::invalid_text(field.as_str(), key, why)));
    }
    if source("fieldRef").is_some_and(|field| text_of(field, "fieldPath").is_empty()) {
        errors.push(FieldError::required(format!("{at}.fieldRef.fieldPath"), ""));
    }
    if let Some(source) = source("resourceFieldRef") {
        let (resource, divisor) = (text_of(source, "resource"), text_of(source, "divisor"));
        if matches!(resource, "limits.cpu" | "requests.cpu") && !matches!(divisor, "" | "0" | "1" | "1m") {
            let why = "only divisor's values 1m and 1 are supported with the cpu resource";
            errors.push(FieldError::invalid_text(format!("{at}.resourceFieldRef.divisor"), resource, why));
        }
    }
    errors
}

fn whole_map_errors(source: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for kind in ["configMapRef", "secretRef"] {
        let Some(reference) = source.get(kind).filter(|r| r.is_object()) else { continue };
        let (name, field) = (text_of(reference, "name"), format!("{at}.{kind}.name"));
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else {
            let problems = subdomain_problems(name);
            errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), name, why)));
        }
    }
    errors
}

fn device_errors(container: &Value, spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let devices = items_of(container, "volumeDevices");
    if spec["hostUsers"] == false && !devices.is_empty() {
        errors.push(FieldError::forbidden(at, "when `hostUsers` is false"));
    }
    for (index, device) in devices.iter().enumerate() {
        let (name, field) = (text_of(device, "name"), format!("{at}[{index}].name"));
        if name.is_empty() {
            errors.push(FieldError::required(field.as_str(), ""));
        }
        if text_of(device, "devicePath").is_empty() {
            errors.push(FieldError::required(format!("{at}[{index}].devicePath"), ""));
        }
        let volume = items_of(spec, "volumes").iter().find(|volume| text_of(volume, "name") == name);
        match volume.filter(|_| !name.is_empty()) {
            None => errors.push(FieldError::value(CauseReason::NotFound, field, &name.into(), "")),
            Some(volume) => {
                let block = ["persistentVolumeClaim", "ephemeral"];
                if block.iter().all(|kind| volume.get(kind).is_none_or(Value::is_null)) {
                    let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                    errors.push(FieldError::invalid_text(field, name, why));
                }
            }
        }
    }
    errors
}

fn resize_errors(policies: &[Value], spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let (resource, restart) = (text_of(policy, "resourceName"), text_of(policy, "restartPolicy"));
        if !seen.insert(resource) {
            errors.push(FieldError::duplicate(format!("{at}[{index}]"), &resource.into()));
        }
        for (given, known) in [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])] {
            if given.is_empty() {
                errors.push(FieldError::required(at, ""));
            } else if !known.contains(&given) {
                errors.push(FieldError::not_supported(at, &given.into(), &known));
            }
        }
        if text_of(spec, "restartPolicy") == "Never" && !matches!(restart, "" | "NotRequired") {
            let why = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid_text(at, restart, why));
        }
    }
    errors
}

/// Headers of a call, and a port that is given by its name.
fn call_errors(handler: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for way in ["httpGet", "tcpSocket"] {
        let port = handler.get(way).and_then(|call| call.get("port")).and_then(Value::as_str);
        let problems = port.map(crate::container_rules::port_name_problems).into_iter().flatten();
        let field = format!("{at}.{way}.port");
        errors.extend(problems.map(|why| FieldError::invalid_text(field.as_str(), port.unwrap_or_default(), why)));
    }
    let headers = handler.get("httpGet").map_or(&[][..], |call| items_of(call, "httpHeaders"));
    for name in headers.iter().map(|header| text_of(header, "name")) {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let why = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex \
                       used for validation is '[-A-Za-z0-9]+')";
            errors.push(FieldError::invalid_text(format!("{at}.httpGet.httpHeaders"), name, why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(container: Value) -> Vec<String> {
        let spec = json!({"volumes": [{"name": "c", "emptyDir": {}}, {"name": "p", "persistentVolumeClaim": {}}]});
        reference_errors(&container, &spec, "c").into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_variable_names_a_key_that_can_be_one() {
        let env = |source: Value| fields(json!({"env": [{"name": "A", "valueFrom": source}]}));
        assert_eq!(env(json!({"secretKeyRef": {"name": "s", "key": "a/b"}})), ["c.env[0].valueFrom.secretKeyRef.key"]);
        assert_eq!(env(json!({"fieldRef": {}})), ["c.env[0].valueFrom.fieldRef.fieldPath"]);
        assert!(env(json!({"configMapKeyRef": {"name": "s", "key": "a.b"}})).is_empty());
        assert_eq!(fields(json!({"envFrom": [{"configMapRef": {}}]})), ["c.envFrom[0].configMapRef.name"]);
    }

    #[test]
    fn a_device_is_a_volume_of_blocks() {
        let device = |name: &str| fields(json!({"volumeDevices": [{"name": name, "devicePath": "/d"}]}));
        assert!(device("p").is_empty());
        assert_eq!(device("c"), ["c.volumeDevices[0].name"]);
        assert_eq!(device("x"), ["c.volumeDevices[0].name"]);
        assert_eq!(device("").len(), 2);
    }

    #[test]
    fn a_resize_policy_names_cpu_or_memory_once() {
        let cpu = json!({"resourceName": "cpu", "restartPolicy": "NotRequired"});
        assert_eq!(fields(json!({"resizePolicy": [cpu, cpu]})), ["c.resizePolicy[1]"]);
        assert_eq!(fields(json!({"resizePolicy": [{"restartPolicy": "x"}]})).len(), 2);
    }

    #[test]
    fn a_call_has_headers_and_a_port() {
        let probe = json!({"httpGet": {"port": "", "httpHeaders": [{"name": "a b"}]}});
        assert_eq!(fields(json!({"livenessProbe": probe})).len(), 3);
        assert_eq!(
            fields(json!({"lifecycle": {"preStop": {"httpGet": {"port": 0}}}, "ports": [{"hostPort": -1}]})),
            ["c.ports[0].hostPort", "c.lifecycle.preStop.httpGet.port"]
        );
    }
}
