//! ResourceQuotas: what they let into a namespace (`apiserver/pkg/admission/plugin/resourcequota`, `pkg/quota`).
//!
//! A quota counts by its status, which a controller writes: without one nothing is refused. Objects are counted, and
//! pods must say what a quota measures; amounts of cores and memory are not added up.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::clock::write_seconds;
use crate::error::{Status, qualified_resource};
use crate::fields::Writer;
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

type Amounts = BTreeMap<String, i64>;

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
    usage.insert(format!("count/{}", qualified_resource(&resource.plural, &resource.group)), 1);
    if resource.group.is_empty() && NAMED.contains(&resource.plural.as_str()) {
        usage.insert(resource.plural.clone(), 1);
    }
    if resource.group.is_empty() && resource.plural == "services" {
        match object.pointer("/spec/type").and_then(Value::as_str) {
            Some("LoadBalancer") => _ = usage.insert("services.loadbalancers".into(), 1),
            Some("NodePort") => {
                let ports = object.pointer("/spec/ports").and_then(Value::as_array).map_or(0, Vec::len);
                usage.insert("services.nodeports".into(), i64::try_from(ports).unwrap_or(i64::MAX));
            }
            _ => {}
        }
    }
    usage
}

fn amount_of(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
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
        .filter_map(|(k, v)| Some((k.clone(), amount_of(v)?)))
        .collect();
    if limits.is_empty() {
        return Ok(None);
    }
    let used = |key: &str| quota.pointer("/status/used").and_then(|u| u.get(key)).and_then(amount_of);
    let before: Amounts = limits.keys().filter_map(|key| Some((key.clone(), used(key)?))).collect();
    if before.len() < limits.len() {
        let names: Vec<&str> = limits.keys().map(String::as_str).collect();
        return Err(format!("status unknown for quota: {name}, resources: {}", names.join(",")));
    }
    let of = |amounts: &Amounts, key: &str| amounts.get(key).copied().unwrap_or_default();
    let after: Amounts = before.iter().map(|(key, n)| (key.clone(), n.saturating_add(of(asked, key)))).collect();
    let over: Vec<&String> = after.iter().filter(|(key, n)| **n > of(&limits, key)).map(|(key, _)| key).collect();
    if over.is_empty() {
        return Ok(Some(after));
    }
    let shown = |amounts: &Amounts| -> String {
        over.iter().map(|key| format!("{key}={}", of(amounts, key))).collect::<Vec<_>>().join(",")
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
            next["status"]["used"][key] = amount.to_string().into();
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
        assert_eq!(after["pods"], 1);
        let over = judge(json!({"hard": {"count/pods": "9", "pods": 1}, "used": {"pods": 1, "count/pods": 1}}), &pod);
        assert_eq!(over.unwrap_err(), "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1");
    }

    #[test]
    fn pods_must_say_what_a_quota_measures() {
        let pod =
            json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}, {"name": "b"}]}});
        let refused = judge(json!({"hard": {"requests.cpu": "4", "limits.memory": "1Gi"}}), &pod).unwrap_err();
        assert_eq!(refused, "failed quota: q: must specify limits.memory for: a,b; requests.cpu for: b");
    }
}
