//! The defaults of pods and pod templates (Kubernetes `pkg/apis/core/v1/defaults.go`). What admission and the registry
//! add to a pod is not among them.

use serde_json::{Map, Value, json};

use super::defaults::{at, each, put, text};

type Object = Map<String, Value>;

/// What pods and templates have in common.
pub fn pod_spec(spec: &mut Object) {
    put(spec, "dnsPolicy", "ClusterFirst");
    put(spec, "restartPolicy", "Always");
    put(spec, "securityContext", json!({}));
    put(spec, "terminationGracePeriodSeconds", 30);
    put(spec, "schedulerName", "default-scheduler");
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, list).for_each(|item| container(item, host_network));
    }
    each(spec, "volumes").for_each(volume);
}

/// A pod itself.
pub fn pod(spec: &mut Object) {
    pod_spec(spec);
    put(spec, "enableServiceLinks", true);
    for list in ["containers", "initContainers"] {
        each(spec, list).for_each(requests_from_limits);
    }
}

fn requests_from_limits(container: &mut Object) {
    let Some(resources) = at(container, "resources") else { return };
    let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    put(resources, "requests", json!({}));
    if let Some(requests) = at(resources, "requests") {
        limits.into_iter().for_each(|(name, amount)| put(requests, &name, amount));
    }
}

fn container(container: &mut Object, host_network: bool) {
    let policy = if latest(text(container, "image")) { "Always" } else { "IfNotPresent" };
    put(container, "imagePullPolicy", policy);
    put(container, "terminationMessagePath", "/dev/termination-log");
    put(container, "terminationMessagePolicy", "File");
    for port in each(container, "ports") {
        put(port, "protocol", "TCP");
        let number = port.get("containerPort").cloned();
        if host_network && let Some(number) = number {
            put(port, "hostPort", number);
        }
    }
    for variable in each(container, "env") {
        field_reference(variable, "valueFrom");
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = at(container, name) {
            for (key, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                put(probe, key, value);
            }
            http_get(probe);
            if let Some(grpc) = at(probe, "grpc") {
                put(grpc, "service", "");
            }
        }
    }
    if let Some(lifecycle) = at(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(handler) = at(lifecycle, name) {
                http_get(handler);
            }
        }
    }
}

fn http_get(handler: &mut Object) {
    if let Some(get) = at(handler, "httpGet") {
        put(get, "path", "/");
        put(get, "scheme", "HTTP");
    }
}

fn field_reference(holder: &mut Object, key: &str) {
    let inner = if key.is_empty() { Some(holder) } else { at(holder, key) };
    if let Some(reference) = inner.and_then(|inner| at(inner, "fieldRef")) {
        put(reference, "apiVersion", "v1");
    }
}

/// Whether the image names no version, or the latest.
fn latest(image: &str) -> bool {
    if image.is_empty() || image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn volume(volume: &mut Object) {
    if volume.len() == 1 && volume.contains_key("name") {
        put(volume, "emptyDir", json!({}));
    }
    volume_source(volume);
}

/// The sources that pods and persistent volumes share, and those of pods.
pub fn volume_source(volume: &mut Object) {
    const MODE: i32 = 0o644;
    for name in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = at(volume, name) {
            put(source, "defaultMode", MODE);
            each(source, "items").for_each(|item| field_reference(item, ""));
            for part in each(source, "sources") {
                if let Some(token) = at(part, "serviceAccountToken") {
                    put(token, "expirationSeconds", 3600);
                }
                if let Some(downward) = at(part, "downwardAPI") {
                    each(downward, "items").for_each(|item| field_reference(item, ""));
                }
            }
        }
    }
    if let Some(path) = at(volume, "hostPath") {
        put(path, "type", "");
    }
    if let Some(spec) = at(volume, "ephemeral").and_then(|e| at(e, "volumeClaimTemplate")).and_then(|t| at(t, "spec")) {
        put(spec, "volumeMode", "Filesystem");
    }
}
