//! The defaults of pods and pod templates (Kubernetes `pkg/apis/core/v1/defaults.go`). What admission and the registry
//! add to a pod is not among them.

use serde_json::{Map, Value, json};

use super::defaults::{each_object, object_at, put_default, text_of};

type Object = Map<String, Value>;

/// What pods and templates have in common.
pub fn pod_spec(spec: &mut Object) {
    put_default(spec, "dnsPolicy", "ClusterFirst");
    put_default(spec, "restartPolicy", "Always");
    put_default(spec, "securityContext", json!({}));
    put_default(spec, "terminationGracePeriodSeconds", 30);
    put_default(spec, "schedulerName", "default-scheduler");
    // Two names of one thing: the new one wins (`Convert_v1_PodSpec_To_core_PodSpec` and back).
    let account = ["serviceAccountName", "serviceAccount"].map(|name| text_of(spec, name).to_owned());
    if let Some(account) = account.into_iter().find(|account| !account.is_empty()) {
        spec.insert("serviceAccountName".into(), json!(account));
        spec.insert("serviceAccount".into(), json!(account));
    }
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each_object(spec, list).for_each(|item| default_container(item, host_network));
    }
    each_object(spec, "volumes").for_each(default_volume);
}

/// A pod itself.
pub fn default_pod(spec: &mut Object) {
    pod_spec(spec);
    put_default(spec, "enableServiceLinks", true);
    for list in ["containers", "initContainers"] {
        each_object(spec, list).for_each(requests_from_limits);
    }
    crate::pod_resources::default_requests(spec);
}

fn requests_from_limits(container: &mut Object) {
    let Some(resources) = object_at(container, "resources") else { return };
    let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    put_default(resources, "requests", json!({}));
    if let Some(requests) = object_at(resources, "requests") {
        limits.into_iter().for_each(|(name, amount)| put_default(requests, &name, amount));
    }
}

/// Whether a runtime can read it at all: what it cannot read has no tag, not even `latest`.
fn is_reference(image: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let (domain, path) = image.split_once('/').unwrap_or(("", image));
    let foreign =
        domain.contains(['.', ':']) || domain == "localhost" || domain.bytes().any(|b| b.is_ascii_uppercase());
    let path = if foreign || domain.is_empty() { path } else { image };
    let path = path.split_once('@').map_or(path, |(path, _)| path);
    let path = path.rsplit_once(':').map_or(path, |(path, _)| path);
    let part = |part: &str| {
        part.bytes().all(|b| plain(b) || matches!(b, b'-' | b'_' | b'.'))
            && part.bytes().next().is_some_and(plain)
            && part.bytes().last().is_some_and(plain)
    };
    path.len() <= 255 && path.split('/').all(part)
}

fn default_container(container: &mut Object, host_network: bool) {
    let image = text_of(container, "image");
    let policy = if is_latest(image) && is_reference(image) { "Always" } else { "IfNotPresent" };
    put_default(container, "imagePullPolicy", policy);
    put_default(container, "terminationMessagePath", "/dev/termination-log");
    put_default(container, "terminationMessagePolicy", "File");
    for port in each_object(container, "ports") {
        put_default(port, "protocol", "TCP");
        let number = port.get("containerPort").cloned();
        if host_network && let Some(number) = number {
            put_default(port, "hostPort", number);
        }
    }
    for variable in each_object(container, "env") {
        field_reference(variable, "valueFrom");
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = object_at(container, name) {
            for (key, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                put_default(probe, key, value);
            }
            http_get(probe);
            if let Some(grpc) = object_at(probe, "grpc") {
                put_default(grpc, "service", "");
            }
        }
    }
    if let Some(lifecycle) = object_at(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(handler) = object_at(lifecycle, name) {
                http_get(handler);
            }
        }
    }
}

fn http_get(handler: &mut Object) {
    if let Some(get) = object_at(handler, "httpGet") {
        put_default(get, "path", "/");
        put_default(get, "scheme", "HTTP");
    }
}

fn field_reference(holder: &mut Object, key: &str) {
    let inner = if key.is_empty() { Some(holder) } else { object_at(holder, key) };
    if let Some(reference) = inner.and_then(|inner| object_at(inner, "fieldRef")) {
        put_default(reference, "apiVersion", "v1");
    }
}

/// Whether the image names no version, or the latest.
fn is_latest(image: &str) -> bool {
    if image.is_empty() || image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn default_volume(volume: &mut Object) {
    if volume.len() == 1 && volume.contains_key("name") {
        put_default(volume, "emptyDir", json!({}));
    }
    volume_source(volume);
}

/// The sources that pods and persistent volumes share, and those of pods.
pub fn volume_source(volume: &mut Object) {
    const MODE: i32 = 0o644;
    if let Some(image) = object_at(volume, "image") {
        let reference = text_of(image, "reference").to_owned();
        let always = is_latest(&reference) && is_reference(&reference);
        put_default(image, "pullPolicy", if always { "Always" } else { "IfNotPresent" });
    }
    for name in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = object_at(volume, name) {
            put_default(source, "defaultMode", MODE);
            each_object(source, "items").for_each(|item| field_reference(item, ""));
            for part in each_object(source, "sources") {
                if let Some(token) = object_at(part, "serviceAccountToken") {
                    put_default(token, "expirationSeconds", 3600);
                }
                if let Some(downward) = object_at(part, "downwardAPI") {
                    each_object(downward, "items").for_each(|item| field_reference(item, ""));
                }
            }
        }
    }
    if let Some(path) = object_at(volume, "hostPath") {
        put_default(path, "type", "");
    }
    if let Some(spec) = object_at(volume, "ephemeral")
        .and_then(|e| object_at(e, "volumeClaimTemplate"))
        .and_then(|t| object_at(t, "spec"))
    {
        put_default(spec, "volumeMode", "Filesystem");
    }
}
