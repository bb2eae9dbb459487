//! The defaults of built-in kinds (Kubernetes `pkg/apis/*/v1/defaults.go` and conversions), but not what registries and
//! admission add.

use serde_json::{Map, Value, json};

use super::defaults_pod as pod;

type Object = Map<String, Value>;

/// Sets a member that is missing or null.
pub(super) fn put(map: &mut Object, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

/// The object at `key`, if there is one.
pub(super) fn at<'a>(map: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// The objects in the list at `key`.
pub(super) fn each<'a>(map: &'a mut Object, key: &str) -> impl Iterator<Item = &'a mut Object> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

pub(super) fn text<'a>(map: &'a Object, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn empty(map: &Object, key: &str) -> bool {
    match map.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// Fills in what the kind's defaulting functions fill in.
pub fn default(object: &mut Value, group: &str, kind: &str) {
    let Some(object) = object.as_object_mut() else { return };
    match (group, kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => super::crd::default_spec(object),
        ("", "Namespace") => namespace(object),
        ("", "Secret") => secret(object),
        ("", "LimitRange") => limit_range(object),
        ("", "Endpoints") => each(object, "subsets").for_each(protocols),
        ("discovery.k8s.io", "EndpointSlice") => {
            for port in each(object, "ports") {
                put(port, "name", "");
                put(port, "protocol", "TCP");
            }
        }
        ("", "PodTemplate") => template(object),
        ("", "PersistentVolumeClaim") => claim(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => role_binding(object),
        ("scheduling.k8s.io", "PriorityClass") => put(object, "preemptionPolicy", "PreemptLowerPriority"),
        ("storage.k8s.io", "StorageClass") => {
            put(object, "reclaimPolicy", "Delete");
            put(object, "volumeBindingMode", "Immediate");
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => webhooks(object, true),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => webhooks(object, false),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => policy(object),
        _ => {}
    }
    let status = kind == "PersistentVolume";
    if let Some(spec) = at(object, "spec") {
        match (group, kind) {
            ("", "Pod") => pod::pod(spec),
            ("", "Service") => service(spec),
            ("", "PersistentVolume") => {
                put(spec, "persistentVolumeReclaimPolicy", "Retain");
                put(spec, "volumeMode", "Filesystem");
                pod::volume_source(spec);
            }
            ("", "ReplicationController") => {
                put(spec, "replicas", 1);
                template(spec);
            }
            ("apps", _) => workload(spec, kind),
            ("batch", "Job") => job(spec),
            ("batch", "CronJob") => cron_job(spec),
            ("autoscaling", "HorizontalPodAutoscaler") => autoscaler(spec),
            ("networking.k8s.io", "NetworkPolicy") => network_policy(spec),
            ("networking.k8s.io", "IngressClass") => {
                if let Some(parameters) = at(spec, "parameters") {
                    put(parameters, "scope", "Cluster");
                }
            }
            _ => {}
        }
    }
    if status && let Some(status) = at(object, "status") {
        put(status, "phase", "Pending");
    }
}

fn namespace(object: &mut Object) {
    if let Some(metadata) = at(object, "metadata")
        && let Some(name) = metadata.get("name").cloned()
    {
        put(metadata, "labels", json!({}));
        if let Some(labels) = at(metadata, "labels") {
            labels.insert("kubernetes.io/metadata.name".to_owned(), name);
        }
    }
}

/// `stringData` is write-only: it ends in `data`.
fn secret(object: &mut Object) {
    use base64::Engine as _;
    put(object, "type", "Opaque");
    if let Some(Value::Object(plain)) = object.remove("stringData") {
        put(object, "data", json!({}));
        if let Some(data) = at(object, "data") {
            for (key, value) in plain {
                let bytes = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
                data.insert(key, Value::from(bytes));
            }
        }
        if empty(object, "data") {
            object.remove("data");
        }
    }
}

fn limit_range(object: &mut Object) {
    let Some(spec) = at(object, "spec") else { return };
    for item in each(spec, "limits").filter(|item| text(item, "type") == "Container") {
        for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let source = item.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
            if source.is_empty() {
                continue;
            }
            put(item, to, json!({}));
            if let Some(target) = at(item, to) {
                source.into_iter().for_each(|(key, value)| put(target, &key, value));
            }
        }
    }
}

fn protocols(map: &mut Object) {
    each(map, "ports").for_each(|port| put(port, "protocol", "TCP"));
}

fn role_binding(object: &mut Object) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(reference) = at(object, "roleRef")
        && text(reference, "apiGroup").is_empty()
    {
        reference.insert("apiGroup".to_owned(), Value::from(GROUP));
    }
    for subject in each(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            put(subject, "apiGroup", GROUP);
        }
    }
}

fn webhooks(object: &mut Object, mutating: bool) {
    for webhook in each(object, "webhooks") {
        put(webhook, "failurePolicy", "Fail");
        put(webhook, "matchPolicy", "Equivalent");
        put(webhook, "namespaceSelector", json!({}));
        put(webhook, "objectSelector", json!({}));
        put(webhook, "timeoutSeconds", 10);
        if mutating {
            put(webhook, "reinvocationPolicy", "Never");
        }
        each(webhook, "rules").for_each(|rule| put(rule, "scope", "*"));
        if let Some(service) = at(webhook, "clientConfig").and_then(|config| at(config, "service")) {
            put(service, "port", 443);
        }
    }
}

fn policy(object: &mut Object) {
    let Some(spec) = at(object, "spec") else { return };
    put(spec, "failurePolicy", "Fail");
    if let Some(constraints) = at(spec, "matchConstraints") {
        put(constraints, "matchPolicy", "Equivalent");
        put(constraints, "namespaceSelector", json!({}));
        put(constraints, "objectSelector", json!({}));
        each(constraints, "resourceRules").for_each(|rule| put(rule, "scope", "*"));
    }
}

fn service(spec: &mut Object) {
    put(spec, "sessionAffinity", "None");
    if text(spec, "sessionAffinity") == "ClientIP" {
        put(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
    }
    put(spec, "type", "ClusterIP");
    for port in each(spec, "ports") {
        put(port, "protocol", "TCP");
        let same = port.get("port").cloned().unwrap_or(Value::from(0));
        let unset = matches!(port.get("targetPort"), None | Some(Value::Null))
            || port["targetPort"] == 0
            || port["targetPort"] == "";
        if unset {
            port.insert("targetPort".to_owned(), same);
        }
    }
    let kind = text(spec, "type").to_owned();
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        put(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        put(spec, "allocateLoadBalancerNodePorts", true);
    }
    if kind == "ExternalName" {
        return;
    }
    put(spec, "internalTrafficPolicy", "Cluster");
}

fn claim(object: &mut Object) {
    if let Some(spec) = at(object, "spec") {
        put(spec, "volumeMode", "Filesystem");
    }
    if let Some(status) = at(object, "status") {
        put(status, "phase", "Pending");
    }
}

/// The pod template of a workload.
fn template(spec: &mut Object) {
    if let Some(inner) = at(spec, "template").and_then(|template| at(template, "spec")) {
        pod::pod_spec(inner);
    }
}

fn workload(spec: &mut Object, kind: &str) {
    template(spec);
    if matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet") {
        put(spec, "replicas", 1);
    }
    if matches!(kind, "Deployment" | "DaemonSet" | "StatefulSet") {
        put(spec, "revisionHistoryLimit", 10);
    }
    match kind {
        "Deployment" => {
            put(spec, "progressDeadlineSeconds", 600);
            rolling(spec, "strategy", &json!({"maxUnavailable": "25%", "maxSurge": "25%"}));
        }
        "DaemonSet" => rolling(spec, "updateStrategy", &json!({"maxUnavailable": 1, "maxSurge": 0})),
        "StatefulSet" => {
            put(spec, "podManagementPolicy", "OrderedReady");
            rolling(spec, "updateStrategy", &json!({"partition": 0}));
            put(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
            if let Some(policy) = at(spec, "persistentVolumeClaimRetentionPolicy") {
                put(policy, "whenDeleted", "Retain");
                put(policy, "whenScaled", "Retain");
            }
            for volume in each(spec, "volumeClaimTemplates") {
                put(volume, "apiVersion", "v1");
                put(volume, "kind", "PersistentVolumeClaim");
                claim(volume);
            }
        }
        _ => {}
    }
}

fn rolling(spec: &mut Object, field: &str, parts: &Value) {
    put(spec, field, json!({}));
    let Some(strategy) = at(spec, field) else { return };
    put(strategy, "type", "RollingUpdate");
    if text(strategy, "type") != "RollingUpdate" {
        return;
    }
    put(strategy, "rollingUpdate", json!({}));
    if let Some(rolling) = at(strategy, "rollingUpdate") {
        parts.as_object().into_iter().flatten().for_each(|(key, value)| put(rolling, key, value.clone()));
    }
}

fn job(spec: &mut Object) {
    template(spec);
    if empty(spec, "completions") && empty(spec, "parallelism") {
        put(spec, "completions", 1);
    }
    put(spec, "parallelism", 1);
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    put(spec, "backoffLimit", limit);
    put(spec, "completionMode", "NonIndexed");
    put(spec, "suspend", false);
    put(spec, "manualSelector", false);
    let policy = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    put(spec, "podReplacementPolicy", policy);
}

fn cron_job(spec: &mut Object) {
    put(spec, "concurrencyPolicy", "Allow");
    put(spec, "suspend", false);
    put(spec, "successfulJobsHistoryLimit", 3);
    put(spec, "failedJobsHistoryLimit", 1);
    if let Some(inner) = at(spec, "jobTemplate").and_then(|template| at(template, "spec")) {
        template(inner);
    }
}

fn autoscaler(spec: &mut Object) {
    put(spec, "minReplicas", 1);
    if empty(spec, "metrics") {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
        spec.insert("metrics".to_owned(), metrics);
    }
}

fn network_policy(spec: &mut Object) {
    for direction in ["ingress", "egress"] {
        each(spec, direction).for_each(protocols);
    }
    if empty(spec, "policyTypes") {
        let types = if empty(spec, "egress") { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
        spec.insert("policyTypes".to_owned(), types);
    }
}

#[cfg(test)]
mod tests {
    use super::super::TypeSchema;
    use super::*;

    fn defaulted(group: &str, kind: &str, mut object: Value) -> Value {
        let schema = TypeSchema::builtin(group, "v1", kind);
        schema.default(&mut object);
        let once = object.clone();
        schema.default(&mut object);
        assert_eq!(object, once, "defaulting {kind} twice changes it");
        object
    }

    #[test]
    fn a_deployment_gets_its_strategy_and_its_pods_theirs() {
        let object = json!({"metadata": {"name": "d"}, "spec": {"selector": {}, "template": {"spec": {"containers": [
            {"name": "a", "image": "img:1", "ports": [{"containerPort": 80}]}, {"name": "b", "image": "img"}]}}}});
        let object = defaulted("apps", "Deployment", object);
        let spec = &object["spec"];
        assert_eq!(spec["replicas"], 1);
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}});
        assert_eq!(spec["strategy"], strategy);
        let containers = &spec["template"]["spec"]["containers"];
        assert_eq!(containers[0]["imagePullPolicy"], "IfNotPresent");
        assert_eq!(containers[0]["ports"][0]["protocol"], "TCP");
        assert_eq!(containers[1]["imagePullPolicy"], "Always");
        assert_eq!(spec["template"]["spec"]["restartPolicy"], "Always");
        assert!(spec["template"]["spec"].get("enableServiceLinks").is_none(), "only pods themselves have it");
    }

    #[test]
    fn a_pod_gets_requests_from_limits() {
        let object = json!({"metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}});
        let object = defaulted("", "Pod", object);
        let requests = &object["spec"]["containers"][0]["resources"]["requests"];
        assert_eq!(*requests, json!({"cpu": "1", "memory": "1Gi"}));
        assert_eq!(object["spec"]["enableServiceLinks"], true);
    }

    #[test]
    fn a_secret_turns_string_data_into_data() {
        let object = defaulted("", "Secret", json!({"metadata": {}, "stringData": {"a": "1"}}));
        assert_eq!(object["data"], json!({"a": "MQ=="}));
        assert!(object.get("stringData").is_none());
        assert_eq!(object["type"], "Opaque");
    }

    #[test]
    fn webhooks_services_and_namespaces_get_theirs() {
        let hook = json!({"metadata": {}, "webhooks": [{"name": "a", "clientConfig": {"service": {"name": "s",
            "namespace": "n"}}, "rules": [{"apiGroups": [""]}], "sideEffects": "None"}]});
        let hook = defaulted("admissionregistration.k8s.io", "MutatingWebhookConfiguration", hook);
        assert_eq!(hook["webhooks"][0]["clientConfig"]["service"]["port"], 443);
        assert_eq!(hook["webhooks"][0]["rules"][0]["scope"], "*");
        let service = defaulted(
            "",
            "Service",
            json!({"metadata": {}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}),
        );
        assert_eq!(service["spec"]["ports"][0], json!({"port": 80, "protocol": "TCP", "targetPort": 80}));
        let namespace = defaulted("", "Namespace", json!({"metadata": {"name": "n"}}));
        assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
    }
}
