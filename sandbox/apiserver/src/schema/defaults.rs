//! The defaults of built-in kinds (Kubernetes `pkg/apis/*/v1/defaults.go` and conversions), but not what registries and
//! admission add.

use serde_json::{Map, Value, json};

use super::defaults_pod as pod;

type Object = Map<String, Value>;

/// Sets a member that is missing or null.
pub(super) fn put_default(map: &mut Object, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

/// The object at `key`, if there is one.
pub(super) fn object_at<'a>(map: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// The objects in the list at `key`.
pub(super) fn each_object<'a>(map: &'a mut Object, key: &str) -> impl Iterator<Item = &'a mut Object> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

pub(super) fn text_of<'a>(map: &'a Object, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_empty_at(map: &Object, key: &str) -> bool {
    match map.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// Fills in what the kind's defaulting functions fill in.
pub fn default_object(object: &mut Value, group: &str, kind: &str) {
    let Some(object) = object.as_object_mut() else { return };
    match (group, kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => super::crd::default_spec(object),
        ("", "Namespace") => default_namespace(object),
        ("", "Secret") => default_secret(object),
        ("", "LimitRange") => limit_range(object),
        ("", "Endpoints") => each_object(object, "subsets").for_each(default_protocols),
        ("discovery.k8s.io", "EndpointSlice") => {
            for port in each_object(object, "ports") {
                put_default(port, "name", "");
                put_default(port, "protocol", "TCP");
            }
        }
        ("", "PodTemplate") => default_template(object),
        ("", "PersistentVolumeClaim") => default_claim(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => role_binding(object),
        ("scheduling.k8s.io", "PriorityClass") => put_default(object, "preemptionPolicy", "PreemptLowerPriority"),
        ("storage.k8s.io", "StorageClass") => {
            put_default(object, "reclaimPolicy", "Delete");
            put_default(object, "volumeBindingMode", "Immediate");
        }
        ("", "Service") => default_addresses(object),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => default_webhooks(object, true),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => default_webhooks(object, false),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy") => {
            default_policy(object);
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding") => {
            default_policy_binding(object);
        }
        _ => {}
    }
    let status = kind == "PersistentVolume";
    // The first version knows one CPU target; other metrics stand in an annotation.
    if object.get("apiVersion").is_some_and(|version| version == "autoscaling/v1") {
        let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
        let measured = annotations.is_some_and(|known| known.get(crate::autoscaling::METRICS).is_some());
        if let Some(spec) = object_at(object, "spec") {
            put_default(spec, "minReplicas", 1);
            if !measured {
                put_default(spec, "targetCPUUtilizationPercentage", 80);
            }
        }
        return;
    }
    if let Some(spec) = object_at(object, "spec") {
        match (group, kind) {
            ("", "Pod") => pod::default_pod(spec),
            ("", "Service") => default_service(spec),
            ("", "PersistentVolume") => {
                put_default(spec, "persistentVolumeReclaimPolicy", "Retain");
                put_default(spec, "volumeMode", "Filesystem");
                pod::volume_source(spec);
            }
            ("", "ReplicationController") => {
                put_default(spec, "replicas", 1);
                default_template(spec);
            }
            ("apps", _) => default_workload(spec, kind),
            ("batch", "Job") => default_job(spec),
            ("batch", "CronJob") => cron_job(spec),
            ("autoscaling", "HorizontalPodAutoscaler") => default_autoscaler(spec),
            ("networking.k8s.io", "NetworkPolicy") => network_policy(spec),
            ("storage.k8s.io", "CSIDriver") => default_driver(spec),
            ("apiregistration.k8s.io", "APIService") => {
                if let Some(service) = object_at(spec, "service") {
                    put_default(service, "port", 443);
                }
            }
            ("flowcontrol.apiserver.k8s.io", "FlowSchema")
                if spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(0) == 0 =>
            {
                spec.insert("matchingPrecedence".to_owned(), 1000.into());
            }
            ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
                if let Some(limited) = object_at(spec, "limited") {
                    if limited.get("nominalConcurrencyShares").is_none_or(Value::is_null) {
                        limited.insert("nominalConcurrencyShares".to_owned(), 30.into());
                    }
                    put_default(limited, "lendablePercent", 0);
                }
            }
            ("networking.k8s.io", "IngressClass") => {
                if let Some(parameters) = object_at(spec, "parameters") {
                    put_default(parameters, "scope", "Cluster");
                }
            }
            _ => {}
        }
    }
    if status && let Some(status) = object_at(object, "status") {
        put_default(status, "phase", "Pending");
    }
}

fn default_namespace(object: &mut Object) {
    if let Some(metadata) = object_at(object, "metadata")
        && let Some(name) = metadata.get("name").cloned()
    {
        put_default(metadata, "labels", json!({}));
        if let Some(labels) = object_at(metadata, "labels") {
            labels.insert("kubernetes.io/metadata.name".to_owned(), name);
        }
    }
}

/// `stringData` is write-only: it ends in `data`.
fn default_secret(object: &mut Object) {
    use base64::Engine as _;
    put_default(object, "type", "Opaque");
    if let Some(Value::Object(plain)) = object.remove("stringData") {
        put_default(object, "data", json!({}));
        if let Some(data) = object_at(object, "data") {
            for (key, value) in plain {
                let bytes = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
                data.insert(key, Value::from(bytes));
            }
        }
        if is_empty_at(object, "data") {
            object.remove("data");
        }
    }
}

fn limit_range(object: &mut Object) {
    let Some(spec) = object_at(object, "spec") else { return };
    for item in each_object(spec, "limits").filter(|item| text_of(item, "type") == "Container") {
        for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let source = item.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
            if source.is_empty() {
                continue;
            }
            put_default(item, to, json!({}));
            if let Some(target) = object_at(item, to) {
                source.into_iter().for_each(|(key, value)| put_default(target, &key, value));
            }
        }
    }
}

fn default_protocols(map: &mut Object) {
    each_object(map, "ports").for_each(|port| put_default(port, "protocol", "TCP"));
}

fn role_binding(object: &mut Object) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(reference) = object_at(object, "roleRef")
        && text_of(reference, "apiGroup").is_empty()
    {
        reference.insert("apiGroup".to_owned(), Value::from(GROUP));
    }
    for subject in each_object(object, "subjects") {
        if matches!(text_of(subject, "kind"), "User" | "Group") {
            put_default(subject, "apiGroup", GROUP);
        }
    }
}

fn default_webhooks(object: &mut Object, mutating: bool) {
    for webhook in each_object(object, "webhooks") {
        put_default(webhook, "failurePolicy", "Fail");
        put_default(webhook, "matchPolicy", "Equivalent");
        put_default(webhook, "namespaceSelector", json!({}));
        put_default(webhook, "objectSelector", json!({}));
        put_default(webhook, "timeoutSeconds", 10);
        if mutating {
            put_default(webhook, "reinvocationPolicy", "Never");
        }
        each_object(webhook, "rules").for_each(|rule| put_default(rule, "scope", "*"));
        if let Some(service) = object_at(webhook, "clientConfig").and_then(|config| object_at(config, "service")) {
            put_default(service, "port", 443);
        }
    }
}

fn default_policy(object: &mut Object) {
    let Some(spec) = object_at(object, "spec") else { return };
    put_default(spec, "failurePolicy", "Fail");
    object_at(spec, "matchConstraints").into_iter().for_each(default_matching);
}

fn default_policy_binding(object: &mut Object) {
    let Some(spec) = object_at(object, "spec") else { return };
    object_at(spec, "matchResources").into_iter().for_each(default_matching);
}

fn default_matching(matching: &mut Object) {
    put_default(matching, "matchPolicy", "Equivalent");
    put_default(matching, "namespaceSelector", json!({}));
    put_default(matching, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        each_object(matching, key).for_each(|rule| put_default(rule, "scope", "*"));
    }
}

/// Whoever tells an address of a load balancer and not its mode means a virtual one.
fn default_addresses(service: &mut Object) {
    if service.get("spec").is_none_or(|spec| spec.get("type") != Some(&Value::from("LoadBalancer"))) {
        return;
    }
    let balancer = object_at(service, "status").and_then(|status| object_at(status, "loadBalancer"));
    for address in balancer.into_iter().flat_map(|balancer| each_object(balancer, "ingress")) {
        if !text_of(address, "ip").is_empty() {
            put_default(address, "ipMode", "VIP");
        }
    }
}

fn default_driver(spec: &mut Object) {
    put_default(spec, "attachRequired", true);
    for key in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        put_default(spec, key, false);
    }
    put_default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
    }
}

fn default_service(spec: &mut Object) {
    put_default(spec, "sessionAffinity", "None");
    if text_of(spec, "sessionAffinity") == "ClientIP" {
        put_default(spec, "sessionAffinityConfig", json!({}));
        if let Some(config) = object_at(spec, "sessionAffinityConfig") {
            put_default(config, "clientIP", json!({}));
            object_at(config, "clientIP").into_iter().for_each(|client| put_default(client, "timeoutSeconds", 10800));
        }
    } else if text_of(spec, "sessionAffinity") == "None" {
        spec.remove("sessionAffinityConfig");
    }
    put_default(spec, "type", "ClusterIP");
    for port in each_object(spec, "ports") {
        put_default(port, "protocol", "TCP");
        let same = port.get("port").cloned().unwrap_or(Value::from(0));
        let unset = matches!(port.get("targetPort"), None | Some(Value::Null))
            || port["targetPort"] == 0
            || port["targetPort"] == "";
        if unset {
            port.insert("targetPort".to_owned(), same);
        }
    }
    let kind = text_of(spec, "type").to_owned();
    let outside =
        kind == "ClusterIP" && spec.get("externalIPs").and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    if outside || matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        put_default(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        put_default(spec, "allocateLoadBalancerNodePorts", true);
    }
    if kind == "ExternalName" {
        return;
    }
    put_default(spec, "internalTrafficPolicy", "Cluster");
}

fn default_claim(object: &mut Object) {
    if let Some(spec) = object_at(object, "spec") {
        put_default(spec, "volumeMode", "Filesystem");
    }
    if let Some(status) = object_at(object, "status") {
        put_default(status, "phase", "Pending");
    }
}

/// The pod template of a workload.
fn default_template(spec: &mut Object) {
    if let Some(inner) = object_at(spec, "template").and_then(|template| object_at(template, "spec")) {
        pod::pod_spec(inner);
    }
}

fn default_workload(spec: &mut Object, kind: &str) {
    default_template(spec);
    if matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet") {
        put_default(spec, "replicas", 1);
    }
    if matches!(kind, "Deployment" | "DaemonSet" | "StatefulSet") {
        put_default(spec, "revisionHistoryLimit", 10);
    }
    match kind {
        "Deployment" => {
            put_default(spec, "progressDeadlineSeconds", 600);
            default_rolling(spec, "strategy", &json!({"maxUnavailable": "25%", "maxSurge": "25%"}));
        }
        "DaemonSet" => default_rolling(spec, "updateStrategy", &json!({"maxUnavailable": 1, "maxSurge": 0})),
        "StatefulSet" => {
            put_default(spec, "podManagementPolicy", "OrderedReady");
            default_set_strategy(spec);
            put_default(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
            if let Some(policy) = object_at(spec, "persistentVolumeClaimRetentionPolicy") {
                put_default(policy, "whenDeleted", "Retain");
                put_default(policy, "whenScaled", "Retain");
            }
            for volume in each_object(spec, "volumeClaimTemplates") {
                put_default(volume, "apiVersion", "v1");
                put_default(volume, "kind", "PersistentVolumeClaim");
                default_claim(volume);
            }
        }
        _ => {}
    }
}

fn default_rolling(spec: &mut Object, field: &str, parts: &Value) {
    put_default(spec, field, json!({}));
    let Some(strategy) = object_at(spec, field) else { return };
    put_default(strategy, "type", "RollingUpdate");
    if text_of(strategy, "type") != "RollingUpdate" {
        return;
    }
    put_default(strategy, "rollingUpdate", json!({}));
    if let Some(rolling) = object_at(strategy, "rollingUpdate") {
        parts.as_object().into_iter().flatten().for_each(|(key, value)| put_default(rolling, key, value.clone()));
    }
}

/// A type that is given stands alone; without one there is a rolling update from the first pod on.
fn default_set_strategy(spec: &mut Object) {
    put_default(spec, "updateStrategy", json!({}));
    let Some(strategy) = object_at(spec, "updateStrategy") else { return };
    if text_of(strategy, "type").is_empty() {
        strategy.insert("type".into(), "RollingUpdate".into());
        put_default(strategy, "rollingUpdate", json!({}));
    }
    if text_of(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = object_at(strategy, "rollingUpdate")
    {
        put_default(rolling, "partition", 0);
    }
}

fn default_job(spec: &mut Object) {
    default_template(spec);
    if is_empty_at(spec, "completions") && is_empty_at(spec, "parallelism") {
        put_default(spec, "completions", 1);
    }
    put_default(spec, "parallelism", 1);
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    put_default(spec, "backoffLimit", limit);
    put_default(spec, "completionMode", "NonIndexed");
    put_default(spec, "suspend", false);
    put_default(spec, "manualSelector", false);
    let policy = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    put_default(spec, "podReplacementPolicy", policy);
    for rule in object_at(spec, "podFailurePolicy").into_iter().flat_map(|policy| each_object(policy, "rules")) {
        for condition in each_object(rule, "onPodConditions") {
            if text_of(condition, "status").is_empty() {
                condition.insert("status".to_owned(), "True".into());
            }
        }
    }
}

fn cron_job(spec: &mut Object) {
    put_default(spec, "concurrencyPolicy", "Allow");
    put_default(spec, "suspend", false);
    put_default(spec, "successfulJobsHistoryLimit", 3);
    put_default(spec, "failedJobsHistoryLimit", 1);
    if let Some(inner) = object_at(spec, "jobTemplate").and_then(|template| object_at(template, "spec")) {
        default_template(inner);
    }
}

fn default_autoscaler(spec: &mut Object) {
    put_default(spec, "minReplicas", 1);
    if is_empty_at(spec, "metrics") {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
        spec.insert("metrics".to_owned(), metrics);
    }
    default_behavior(spec);
}

/// Who says something of how to scale leaves the rest to the defaults (`GenerateHPAScaleUpRules`).
fn default_behavior(spec: &mut Object) {
    let Some(behavior) = object_at(spec, "behavior") else { return };
    let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
    let all = json!({
        "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
            "policies": [policy("Pods", 4), policy("Percent", 100)]},
        "scaleDown": {"selectPolicy": "Max", "policies": [policy("Percent", 100)]},
    });
    for (direction, rules) in all.as_object().into_iter().flatten() {
        put_default(behavior, direction, json!({}));
        let Some(given) = object_at(behavior, direction) else { continue };
        for (key, value) in rules.as_object().into_iter().flatten() {
            put_default(given, key, value.clone());
        }
    }
}

fn network_policy(spec: &mut Object) {
    for direction in ["ingress", "egress"] {
        each_object(spec, direction).for_each(default_protocols);
    }
    if is_empty_at(spec, "policyTypes") {
        let types = if is_empty_at(spec, "egress") { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
        spec.insert("policyTypes".to_owned(), types);
    }
}

#[cfg(test)]
mod tests;
