//! ResourceQuotas: what they let into a namespace (`apiserver/pkg/admission/plugin/resourcequota`, `pkg/quota`).
//!
//! A quota counts by its status, which a controller writes: without one nothing is refused. Objects are counted, and
//! pods must say what a quota measures; what they and claims ask for is added up.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::clock::write_seconds;
use crate::error::{Status, qualified_resource};
use crate::fields::Writer;
use crate::limits::{add_amounts, compare_amounts, show_amount, sum_pod};
use crate::meta;
use crate::resource::Resource;
use crate::server::ApiServer;
use crate::store::{Change, Expect, Key, Object};

const STORAGE: &str = "resourcequotas";
/// How often a quota may be changed by others meanwhile.
const ATTEMPTS: usize = 8;

/// Kinds of the core group that quotas know by their bare name.
const NAMED: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];

/// Quantities by what they measure.
type Amounts = BTreeMap<String, Value>;

/// Counts a new object into the quotas of its namespace, or refuses it.
pub fn charge_creation(server: &ApiServer, resource: &Resource, object: &Value, dry_run: bool) -> Result<(), Status> {
    let namespace = meta::metadata_text(object, "namespace");
    if namespace.is_empty() {
        return Ok(());
    }
    let refused = |why: &str| Status::forbidden(&resource.group, &resource.plural, meta::object_name(object), why);
    let asked = usage_of(resource, object);
    let quotas = server.store().list(STORAGE, Some(namespace));
    let mut charges = Vec::new();
    for quota in &quotas {
        let charge = judge_creation(&quota.value, resource, object, &asked).map_err(|why| refused(&why))?;
        charges.extend(charge.map(|used| (quota.clone(), used)));
    }
    if dry_run {
        return Ok(());
    }
    for (quota, _) in charges {
        charge_quota(server, resource, object, &asked, quota).map_err(|why| refused(&why))?;
    }
    Ok(())
}

/// What the object counts as.
fn usage_of(resource: &Resource, object: &Value) -> Amounts {
    let mut usage = Amounts::new();
    usage.insert(format!("count/{}", qualified_resource(&resource.plural, &resource.group)), one());
    if resource.group.is_empty() && NAMED.contains(&resource.plural.as_str()) {
        usage.insert(resource.plural.clone(), one());
    }
    if resource.group.is_empty() && resource.plural == "services" {
        match object.pointer("/spec/type").and_then(Value::as_str) {
            Some("LoadBalancer") => _ = usage.insert("services.loadbalancers".into(), one()),
            Some("NodePort") => {
                let ports = object.pointer("/spec/ports").and_then(Value::as_array).map_or(0, Vec::len);
                usage.insert("services.nodeports".into(), ports.to_string().into());
            }
            _ => {}
        }
    }
    match resource.storage.as_str() {
        "pods" => usage.extend(pod_usage(object)),
        "persistentvolumeclaims" => usage.extend(claim_usage(object)),
        _ => {}
    }
    usage
}

fn one() -> Value {
    "1".into()
}

/// What all containers ask for: requests also by their bare names.
fn pod_usage(pod: &Value) -> Amounts {
    let sums = sum_pod(pod);
    let mut usage = Amounts::new();
    let standard = |name: &str| matches!(name, "cpu" | "memory" | "ephemeral-storage");
    for (name, amount) in sums["requests"].as_object().into_iter().flatten() {
        usage.insert(format!("requests.{name}"), amount.clone());
        if standard(name) {
            usage.insert(name.clone(), amount.clone());
        }
    }
    for (name, amount) in sums["limits"].as_object().into_iter().flatten().filter(|(name, _)| standard(name)) {
        usage.insert(format!("limits.{name}"), amount.clone());
    }
    usage
}

/// The storage that a claim asks for, of all classes and of its own.
fn claim_usage(claim: &Value) -> Amounts {
    let mut usage = Amounts::new();
    let storage = claim.pointer("/spec/resources/requests/storage");
    usage.extend(storage.map(|amount| ("requests.storage".to_owned(), amount.clone())));
    if let Some(class) = claim.pointer("/spec/storageClassName").and_then(Value::as_str).filter(|c| !c.is_empty()) {
        let of_class = format!("{class}.storageclass.storage.k8s.io");
        usage.extend(storage.map(|amount| (format!("{of_class}/requests.storage"), amount.clone())));
        usage.insert(format!("{of_class}/persistentvolumeclaims"), one());
    }
    usage
}

/// The counts that a creation would leave the quota with; `None` when it does not concern it.
fn judge_creation(
    quota: &Value,
    resource: &Resource,
    object: &Value,
    asked: &Amounts,
) -> Result<Option<Amounts>, String> {
    let scoped = ["scopes", "scopeSelector"].iter().any(|key| quota.pointer(&format!("/spec/{key}")).is_some());
    let Some(hard) = quota.pointer("/status/hard").and_then(Value::as_object).filter(|_| !scoped) else {
        return Ok(None);
    };
    let name = meta::object_name(quota);
    if resource.storage == "pods" {
        let missing = missing_measures(object, hard);
        if !missing.is_empty() {
            return Err(format!("failed quota: {name}: must specify {}", missing.join("; ")));
        }
    }
    let limits: Amounts = hard
        .iter()
        .filter(|(key, _)| asked.contains_key(*key))
        .map(|(key, amount)| (key.clone(), amount.clone()))
        .collect();
    if limits.is_empty() {
        return Ok(None);
    }
    let used = |key: &str| quota.pointer("/status/used").and_then(|u| u.get(key)).cloned();
    let before: Amounts = limits.keys().filter_map(|key| Some((key.clone(), used(key)?))).collect();
    if before.len() < limits.len() {
        let names: Vec<&str> = limits.keys().map(String::as_str).collect();
        return Err(format!("status unknown for quota: {name}, resources: {}", names.join(",")));
    }
    let after: Amounts = before
        .iter()
        .map(|(key, used)| (key.clone(), add_amounts(used, asked.get(key).unwrap_or(&Value::Null))))
        .collect();
    let beyond =
        |(key, amount): &(&String, &Value)| limits.get(*key).is_some_and(|l| compare_amounts(amount, l).is_gt());
    let over: Vec<&String> = after.iter().filter(beyond).map(|(key, _)| key).collect();
    if over.is_empty() {
        return Ok(Some(after));
    }
    let shown = |amounts: &Amounts| -> String {
        let texts = over.iter().filter_map(|key| Some(format!("{key}={}", show_amount(amounts.get(*key)?))));
        texts.collect::<Vec<_>>().join(",")
    };
    Err(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        shown(asked),
        shown(&before),
        shown(&limits)
    ))
}

/// What the quota measures and containers do not say, with the containers.
fn missing_measures(pod: &Value, hard: &serde_json::Map<String, Value>) -> Vec<String> {
    let containers = |list: &str| pod.pointer(&format!("/spec/{list}")).and_then(Value::as_array).into_iter().flatten();
    let mut missing = Vec::new();
    for key in hard.keys() {
        let (kind, measure) = match key.as_str() {
            "cpu" | "memory" => ("requests", key.as_str()),
            other => match other.split_once('.') {
                Some((kind @ ("requests" | "limits"), measure @ ("cpu" | "memory"))) => (kind, measure),
                _ => continue,
            },
        };
        let names: Vec<&str> = containers("initContainers")
            .chain(containers("containers"))
            .filter(|c| c.pointer(&format!("/resources/{kind}/{measure}")).is_none())
            .filter_map(|c| c.get("name").and_then(Value::as_str))
            .collect();
        if !names.is_empty() {
            missing.push(format!("{key} for: {}", names.join(",")));
        }
    }
    missing
}

/// Writes what is used now, judging anew when somebody else was faster.
fn charge_quota(
    server: &ApiServer,
    resource: &Resource,
    object: &Value,
    asked: &Amounts,
    mut quota: Arc<Object>,
) -> Result<(), String> {
    for _ in 0..ATTEMPTS {
        let Some(used) = judge_creation(&quota.value, resource, object, asked)? else { return Ok(()) };
        let mut next = quota.value.clone();
        for (key, amount) in used {
            next["status"]["used"][key] = amount;
        }
        if let Some(kind) = server.registry().get("", "v1", STORAGE) {
            let now = write_seconds(server.now());
            let writer = Writer { manager: "kube-apiserver", subresource: "status", api_version: "v1", now: &now };
            crate::fields::track_update(Some(&quota.value), &mut next, &writer, &kind.schema);
        }
        let key = Key::new(meta::metadata_text(&next, "namespace"), meta::object_name(&next));
        let change = Change::Put(next, quota.form);
        if server.store().commit(STORAGE, &key, Expect::Revision(quota.revision), change).is_ok() {
            return Ok(());
        }
        let Some(newer) = server.store().get(STORAGE, &key) else { return Ok(()) };
        quota = newer;
    }
    Err("unable to update the quota: too many changes at once".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judge(status: Value, object: &Value) -> Result<Option<Amounts>, String> {
        let registry = crate::builtin::builtin_registry();
        let pods = registry.get("", "v1", "pods").unwrap();
        let quota = json!({"metadata": {"name": "q"}, "spec": {}, "status": status});
        judge_creation(&quota, pods, object, &usage_of(pods, object))
    }

    #[test]
    fn a_quota_counts_by_its_status_alone() {
        let pod = json!({});
        assert_eq!(judge(json!({}), &pod), Ok(None));
        assert_eq!(judge(json!({"hard": {"secrets": "0"}}), &pod), Ok(None));
        let unknown = judge(json!({"hard": {"pods": "1"}}), &pod).unwrap_err();
        assert_eq!(unknown, "status unknown for quota: q, resources: pods");
        let after = judge(json!({"hard": {"pods": "1"}, "used": {"pods": "0"}}), &pod).unwrap().unwrap();
        assert_eq!(after["pods"], "1");
        let over = judge(json!({"hard": {"count/pods": "9", "pods": 1}, "used": {"pods": 1, "count/pods": 1}}), &pod);
        assert_eq!(over.unwrap_err(), "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1");
    }

    #[test]
    fn what_pods_ask_for_is_added_up() {
        let pod = json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "600m"}}}]}});
        let judged = |used: &str| judge(json!({"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": used}}), &pod);
        assert_eq!(judged("200m").unwrap().unwrap()["requests.cpu"], "800m");
        assert_eq!(
            judged("500m").unwrap_err(),
            "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"
        );
    }

    #[test]
    fn pods_must_say_what_a_quota_measures() {
        let pod =
            json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}, {"name": "b"}]}});
        let refused = judge(json!({"hard": {"requests.cpu": "4", "limits.memory": "1Gi"}}), &pod).unwrap_err();
        assert_eq!(refused, "failed quota: q: must specify limits.memory for: a,b; requests.cpu for: b");
    }
}
