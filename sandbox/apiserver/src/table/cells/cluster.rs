//! Nodes, namespaces, and what admits, limits and tells.

use jiff::Timestamp;
use serde_json::Value;

use super::*;

pub fn component_status(o: &Value, _now: Timestamp) -> Vec<Value> {
    let healthy = list(o, "conditions").iter().find(|c| text(c, "type") == "Healthy").cloned().unwrap_or_default();
    let status = match text(&healthy, "status").as_str() {
        "True" => "Healthy",
        "False" => "Unhealthy",
        _ => "Unknown",
    };
    cells![name(o), status, text(&healthy, "message"), text(&healthy, "error")]
}

pub fn event(o: &Value, now: Timestamp) -> Vec<Value> {
    let regarding = if at(o, "regarding").is_some() { "regarding" } else { "involvedObject" };
    let first_of = |paths: &[&str]| paths.iter().find_map(|p| at(o, p)).cloned();
    let first = first_of(&["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]);
    let last = first_of(&["series.lastObservedTime", "lastTimestamp", "deprecatedLastTimestamp"]).or(first.clone());
    let times = first_of(&["series.count", "count", "deprecatedCount"]).and_then(|c| c.as_i64()).unwrap_or(1);
    let target = [text(o, &format!("{regarding}.kind")).to_lowercase(), text(o, &format!("{regarding}.name"))];
    let target = target.iter().filter(|t| !t.is_empty()).cloned().collect::<Vec<_>>().join("/");
    let source = match (text(o, "source.component"), text(o, "source.host")) {
        (component, _) if component.is_empty() => {
            let instance = [text(o, "reportingComponent"), text(o, "reportingController")].concat();
            let host = text(o, "reportingInstance");
            if instance.is_empty() || host.is_empty() { instance } else { format!("{instance}, {host}") }
        }
        (component, host) if host.is_empty() => component,
        (component, host) => format!("{component}, {host}"),
    };
    let message = [text(o, "message"), text(o, "note")].concat();
    cells![
        since(last.as_ref(), now),
        text(o, "type"),
        text(o, "reason"),
        target,
        text(o, &format!("{regarding}.fieldPath")),
        source,
        message.trim(),
        since(first.as_ref(), now),
        times,
        name(o)
    ]
}

pub fn namespace(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), text(o, "status.phase"), age(o, now)]
}

pub fn node(o: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(o, "status.conditions").iter().find(|c| text(c, "type") == "Ready");
    let mut status = match ready {
        Some(c) if text(c, "status") == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(o, "spec.unschedulable").and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let members = at(o, "metadata.labels").and_then(Value::as_object);
    let mut roles: Vec<String> = members
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role.to_owned()),
            None => value.as_str().filter(|_| key == "kubernetes.io/role").map(str::to_owned),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort();
    let address = |kind: &str| {
        let found = list(o, "status.addresses").iter().find(|a| text(a, "type") == kind);
        found.map_or_else(|| NONE.to_owned(), |a| text(a, "address"))
    };
    cells![
        name(o),
        status,
        joined(&roles, NONE),
        age(o, now),
        text(o, "status.nodeInfo.kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        text_or(o, "status.nodeInfo.osImage", UNKNOWN),
        text_or(o, "status.nodeInfo.kernelVersion", UNKNOWN),
        text_or(o, "status.nodeInfo.containerRuntimeVersion", UNKNOWN)
    ]
}

pub fn quota(o: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for resource in at(o, "status.hard").and_then(Value::as_object).into_iter().flatten().map(|(k, _)| k) {
        let value = |of: &str| {
            let found = at(o, &format!("status.{of}")).and_then(|m| m.get(resource)).and_then(Value::as_str);
            found.unwrap_or("0").to_owned()
        };
        let shown = format!("{resource}: {}/{}", value("used"), value("hard"));
        if resource.starts_with("limits") { limits.push(shown) } else { requests.push(shown) }
    }
    cells![name(o), requests.join(", "), limits.join(", "), age(o, now)]
}

pub fn webhooks(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), count(o, "webhooks"), age(o, now)]
}

pub fn admission_policy(o: &Value, now: Timestamp) -> Vec<Value> {
    let kind = match at(o, "spec.paramKind") {
        Some(kind) => format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")),
        None => UNSET.into(),
    };
    cells![name(o), count(o, "spec.validations"), kind, age(o, now)]
}

pub fn admission_policy_binding(o: &Value, now: Timestamp) -> Vec<Value> {
    let reference = match (text(o, "spec.paramRef.namespace"), text(o, "spec.paramRef.name")) {
        (_, name) if name.is_empty() => UNSET.into(),
        (namespace, name) if namespace.is_empty() => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    cells![name(o), text(o, "spec.policyName"), reference, age(o, now)]
}

pub fn api_service(o: &Value, now: Timestamp) -> Vec<Value> {
    let service = match at(o, "spec.service") {
        Some(s) => format!("{}/{}", text(s, "namespace"), text(s, "name")),
        None => "Local".into(),
    };
    let available = list(o, "status.conditions").iter().find(|c| text(c, "type") == "Available");
    let shown = match available.map(|c| (text(c, "status"), text(c, "reason"))) {
        Some((status, reason)) if status != "True" => format!("{status} ({reason})"),
        Some((status, _)) => status,
        None => UNKNOWN.into(),
    };
    cells![name(o), service, shown, age(o, now)]
}

pub fn signing_request(o: &Value, now: Timestamp) -> Vec<Value> {
    let types: Vec<String> = list(o, "status.conditions").iter().map(|c| text(c, "type")).collect();
    let mut condition = match types.iter().find(|t| *t == "Denied" || *t == "Approved") {
        Some(decision) => decision.clone(),
        None => "Pending".to_owned(),
    };
    if types.iter().any(|t| t == "Failed") {
        condition.push_str(",Failed");
    }
    if !text(o, "status.certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let requested = at(o, "spec.expirationSeconds").and_then(Value::as_i64);
    cells![
        name(o),
        age(o, now),
        text_or(o, "spec.signerName", NONE),
        text(o, "spec.username"),
        requested.map_or_else(|| NONE.to_owned(), human),
        condition
    ]
}

pub fn lease(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), text(o, "spec.holderIdentity"), age(o, now)]
}

pub fn runtime_class(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(o), text(o, "handler"), age(o, now)]
}

pub fn disruption_budget(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![
        name(o),
        text_or(o, "spec.minAvailable", "N/A"),
        text_or(o, "spec.maxUnavailable", "N/A"),
        number(o, "status.disruptionsAllowed"),
        age(o, now)
    ]
}

pub fn role_binding(o: &Value, now: Timestamp) -> Vec<Value> {
    let of = |kind: &str| -> String {
        let subjects = list(o, "subjects").iter().filter(|s| text(s, "kind") == kind);
        let shown = subjects.map(|s| match text(s, "namespace") {
            namespace if kind == "ServiceAccount" => format!("{namespace}/{}", text(s, "name")),
            _ => text(s, "name"),
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    let role = format!("{}/{}", text(o, "roleRef.kind"), text(o, "roleRef.name"));
    cells![name(o), role, age(o, now), of("User"), of("Group"), of("ServiceAccount")]
}

pub fn priority_class(o: &Value, now: Timestamp) -> Vec<Value> {
    let is_default = at(o, "globalDefault").and_then(Value::as_bool).unwrap_or(false);
    let policy = text_or(o, "preemptionPolicy", "PreemptLowerPriority");
    cells![name(o), number(o, "value"), is_default, policy, age(o, now)]
}
