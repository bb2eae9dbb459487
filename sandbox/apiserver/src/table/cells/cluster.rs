//! Nodes, namespaces, and what admits, limits and tells.

use jiff::Timestamp;
use serde_json::Value;

use super::*;

pub fn component_status(o: &Value, _now: Timestamp) -> Vec<Value> {
    let healthy =
        list_at(o, "conditions").iter().find(|c| text_at(c, "type") == "Healthy").cloned().unwrap_or_default();
    let status = match text_at(&healthy, "status").as_str() {
        "True" => "Healthy",
        "False" => "Unhealthy",
        _ => "Unknown",
    };
    cells![name_cell(o), status, text_at(&healthy, "message"), text_at(&healthy, "error")]
}

pub fn print_event(o: &Value, now: Timestamp) -> Vec<Value> {
    let regarding = if value_at(o, "regarding").is_some() { "regarding" } else { "involvedObject" };
    let first_of = |paths: &[&str]| paths.iter().find_map(|p| value_at(o, p)).cloned();
    let first = first_of(&["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]);
    let last = first_of(&["series.lastObservedTime", "lastTimestamp", "deprecatedLastTimestamp"]).or(first.clone());
    let times = first_of(&["series.count", "count", "deprecatedCount"]).and_then(|c| c.as_i64()).unwrap_or(1);
    let target = [text_at(o, &format!("{regarding}.kind")).to_lowercase(), text_at(o, &format!("{regarding}.name"))];
    let target = target.iter().filter(|t| !t.is_empty()).cloned().collect::<Vec<_>>().join("/");
    let from =
        |part: &str| [text_at(o, &format!("source.{part}")), text_at(o, &format!("deprecatedSource.{part}"))].concat();
    let source = match (from("component"), from("host")) {
        (component, _) if component.is_empty() => {
            let instance = [text_at(o, "reportingComponent"), text_at(o, "reportingController")].concat();
            let host = text_at(o, "reportingInstance");
            if instance.is_empty() || host.is_empty() { instance } else { format!("{instance}, {host}") }
        }
        (component, host) if host.is_empty() => component,
        (component, host) => format!("{component}, {host}"),
    };
    let message = [text_at(o, "message"), text_at(o, "note")].concat();
    cells![
        age_since(last.as_ref(), now),
        text_at(o, "type"),
        text_at(o, "reason"),
        target,
        text_at(o, &format!("{regarding}.fieldPath")),
        source,
        message.trim(),
        age_since(first.as_ref(), now),
        times,
        name_cell(o)
    ]
}

pub fn print_namespace(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), text_at(o, "status.phase"), age_cell(o, now)]
}

pub fn print_node(o: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list_at(o, "status.conditions").iter().find(|c| text_at(c, "type") == "Ready");
    let mut status = match ready {
        Some(c) if text_at(c, "status") == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if value_at(o, "spec.unschedulable").and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let members = value_at(o, "metadata.labels").and_then(Value::as_object);
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
        let found = list_at(o, "status.addresses").iter().find(|a| text_at(a, "type") == kind);
        found.map_or_else(|| NONE.to_owned(), |a| text_at(a, "address"))
    };
    cells![
        name_cell(o),
        status,
        join_or(&roles, NONE),
        age_cell(o, now),
        text_at(o, "status.nodeInfo.kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        text_or(o, "status.nodeInfo.osImage", UNKNOWN),
        text_or(o, "status.nodeInfo.kernelVersion", UNKNOWN),
        text_or(o, "status.nodeInfo.containerRuntimeVersion", UNKNOWN)
    ]
}

pub fn print_quota(o: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for resource in value_at(o, "status.hard").and_then(Value::as_object).into_iter().flatten().map(|(k, _)| k) {
        let value = |of: &str| {
            let found = value_at(o, &format!("status.{of}")).and_then(|m| m.get(resource)).and_then(Value::as_str);
            found.unwrap_or("0").to_owned()
        };
        let shown = format!("{resource}: {}/{}", value("used"), value("hard"));
        if resource.starts_with("limits") { limits.push(shown) } else { requests.push(shown) }
    }
    cells![name_cell(o), requests.join(", "), limits.join(", "), age_cell(o, now)]
}

pub fn print_webhooks(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), count_at(o, "webhooks"), age_cell(o, now)]
}

pub fn admission_policy(o: &Value, now: Timestamp) -> Vec<Value> {
    policy_cells(o, "spec.validations", now)
}

pub fn mutating_policy(o: &Value, now: Timestamp) -> Vec<Value> {
    policy_cells(o, "spec.mutations", now)
}

fn policy_cells(o: &Value, counted: &str, now: Timestamp) -> Vec<Value> {
    let kind = match value_at(o, "spec.paramKind") {
        Some(kind) => format!("{}/{}", text_at(kind, "apiVersion"), text_at(kind, "kind")),
        None => UNSET.into(),
    };
    cells![name_cell(o), count_at(o, counted), kind, age_cell(o, now)]
}

pub fn admission_policy_binding(o: &Value, now: Timestamp) -> Vec<Value> {
    let reference = match (text_at(o, "spec.paramRef.namespace"), text_at(o, "spec.paramRef.name")) {
        (_, name) if name.is_empty() => UNSET.into(),
        (namespace, name) if namespace.is_empty() => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    cells![name_cell(o), text_at(o, "spec.policyName"), reference, age_cell(o, now)]
}

pub fn api_service(o: &Value, now: Timestamp) -> Vec<Value> {
    let service = match value_at(o, "spec.service") {
        Some(s) => format!("{}/{}", text_at(s, "namespace"), text_at(s, "name")),
        None => "Local".into(),
    };
    let available = list_at(o, "status.conditions").iter().find(|c| text_at(c, "type") == "Available");
    let shown = match available.map(|c| (text_at(c, "status"), text_at(c, "reason"))) {
        Some((status, reason)) if status != "True" => format!("{status} ({reason})"),
        Some((status, _)) => status,
        None => UNKNOWN.into(),
    };
    cells![name_cell(o), service, shown, age_cell(o, now)]
}

pub fn signing_request(o: &Value, now: Timestamp) -> Vec<Value> {
    let types: Vec<String> = list_at(o, "status.conditions").iter().map(|c| text_at(c, "type")).collect();
    let mut condition = match types.iter().find(|t| *t == "Denied" || *t == "Approved") {
        Some(decision) => decision.clone(),
        None => "Pending".to_owned(),
    };
    if types.iter().any(|t| t == "Failed") {
        condition.push_str(",Failed");
    }
    if !text_at(o, "status.certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let requested = value_at(o, "spec.expirationSeconds").and_then(Value::as_i64);
    cells![
        name_cell(o),
        age_cell(o, now),
        text_or(o, "spec.signerName", NONE),
        text_at(o, "spec.username"),
        requested.map_or_else(|| NONE.to_owned(), human_duration),
        condition
    ]
}

pub fn print_lease(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), text_at(o, "spec.holderIdentity"), age_cell(o, now)]
}

pub fn runtime_class(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![name_cell(o), text_at(o, "handler"), age_cell(o, now)]
}

pub fn disruption_budget(o: &Value, now: Timestamp) -> Vec<Value> {
    cells![
        name_cell(o),
        text_or(o, "spec.minAvailable", "N/A"),
        text_or(o, "spec.maxUnavailable", "N/A"),
        number_at(o, "status.disruptionsAllowed"),
        age_cell(o, now)
    ]
}

pub fn role_binding(o: &Value, now: Timestamp) -> Vec<Value> {
    let of = |kind: &str| -> String {
        let subjects = list_at(o, "subjects").iter().filter(|s| text_at(s, "kind") == kind);
        let shown = subjects.map(|s| match text_at(s, "namespace") {
            namespace if kind == "ServiceAccount" => format!("{namespace}/{}", text_at(s, "name")),
            _ => text_at(s, "name"),
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    let role = format!("{}/{}", text_at(o, "roleRef.kind"), text_at(o, "roleRef.name"));
    cells![name_cell(o), role, age_cell(o, now), of("User"), of("Group"), of("ServiceAccount")]
}

pub fn priority_class(o: &Value, now: Timestamp) -> Vec<Value> {
    let is_default = value_at(o, "globalDefault").and_then(Value::as_bool).unwrap_or(false);
    let policy = text_or(o, "preemptionPolicy", "PreemptLowerPriority");
    cells![name_cell(o), number_at(o, "value"), is_default, age_cell(o, now), policy]
}

pub fn flow_schema(o: &Value, now: Timestamp) -> Vec<Value> {
    let conditions = list_at(o, "status.conditions").iter();
    let dangling = conditions.filter(|c| text_at(c, "type") == "Dangling").map(|c| text_at(c, "status")).next();
    let missing = match dangling.as_deref() {
        None => "?",
        Some("True") => "True",
        Some(_) => "False",
    };
    cells![
        name_cell(o),
        text_or(o, "spec.priorityLevelConfiguration.name", NONE),
        number_at(o, "spec.matchingPrecedence"),
        text_or(o, "spec.distinguisherMethod.type", NONE),
        age_cell(o, now),
        missing
    ]
}

pub fn priority_level(o: &Value, now: Timestamp) -> Vec<Value> {
    let number = |path: &str| value_at(o, path).cloned().unwrap_or_else(|| NONE.into());
    let kind = text_at(o, "spec.type");
    let shares = format!("spec.{}.nominalConcurrencyShares", if kind == "Exempt" { "exempt" } else { "limited" });
    cells![
        name_cell(o),
        kind,
        number(&shares),
        number("spec.limited.limitResponse.queuing.queues"),
        number("spec.limited.limitResponse.queuing.handSize"),
        number("spec.limited.limitResponse.queuing.queueLengthLimit"),
        age_cell(o, now)
    ]
}
