//! `eviction`: deletes a pod if its disruption budget lets it go, and says on the pod why
//! (`pkg/registry/core/pod/storage/eviction.go`).

use serde_json::{Value, json};

use super::*;
use crate::admission::Operation;
use crate::delete::{Deleted, check_preconditions, delete_one};
use crate::registry_form::view_value;
use crate::store::{Change, Expect};

/// Deletes a pod if its disruption budget lets it go (`EvictionREST`).
pub async fn evict_pod(call: &mut Call) -> Result<Reply, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    // The old version of evictions is still understood.
    if read_document(call).is_ok_and(|body| body.value.get("apiVersion").is_some_and(|v| v == "policy/v1beta1")) {
        let mut body = read_document(call)?.value;
        body["apiVersion"] = "policy/v1".into();
        (call.body, call.content_type) = (body.to_string().into(), "application/json".into());
    }
    let mut eviction = read_as(call, &options, ("policy", "v1", "Eviction"))?;
    crate::namespace::check_open(call)?;
    let name = call.info.name.clone();
    if meta::object_name(&eviction) != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    complete_body(call, &mut eviction, "policy/v1", "Eviction", &name);
    admit_body(call, &options, Operation::Create, &name, None, &mut eviction, &as_admitted).await?;
    let pod = call.get(&name).ok_or_else(|| call.not_found(&name))?;
    let mut value = eviction.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
    if options.dry_run {
        value["dryRun"] = json!(["All"]);
    }
    let mut delete_options = DeleteOptions::from_value(value)?;
    check_budget(call, &pod.value, delete_options.dry_run)?;
    if !delete_options.dry_run {
        note_eviction(call, &name, &mut delete_options)?;
    }
    match delete_one(call, &name, &delete_options, crate::delete::Reviewed::Never).await? {
        Deleted::Pending(_) | Deleted::Gone(_) => Ok(created_status()),
    }
}

/// Says on the pod that it is evicted, before it is deleted (`addConditionAndDeletePod`). Preconditions are those of
/// the pod as it was before.
fn note_eviction(call: &Call, name: &str, options: &mut DeleteOptions) -> Result<(), Status> {
    let live = call.get(name).ok_or_else(|| call.not_found(name))?;
    check_preconditions(call, options, &view_value(&call.resource, &live))?;
    let mut next = live.value.clone();
    let now = write_seconds(call.server.now());
    if !set_evicted(&mut next, &now) {
        return Ok(());
    }
    let change = Change::Put(next, live.form);
    let mut store = call.server.store();
    let committed = store.commit(&call.resource.storage, &call.key(name), Expect::Revision(live.revision), change);
    let noted = committed.map_err(|_| Status::modified(&call.resource.group, &call.resource.plural, name))?;
    if options.resource_version.is_some() {
        options.resource_version = Some(noted.revision.to_string());
    }
    Ok(())
}

/// Whether the pod did not say so before.
fn set_evicted(pod: &mut Value, now: &str) -> bool {
    let told = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
    });
    let mut conditions = pod.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let same = |condition: &Value, member: &str| condition.get(member) == told.get(member);
    if let Some(before) = conditions.iter_mut().find(|condition| same(condition, "type")) {
        if ["status", "reason", "message"].iter().all(|member| same(before, member)) {
            return false;
        }
        *before = told;
    } else {
        conditions.push(told);
    }
    pod["status"]["conditions"] = conditions.into();
    true
}

/// The condition of a budget that says whether pods may go.
fn allowance(budget: &Value) -> Option<&Value> {
    let conditions = budget.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|condition| condition["type"] == "DisruptionAllowed")
}

/// Why a budget lets no pod go (`checkAndDecrement`).
fn say_exhausted(name: &str, budget: &Value) -> String {
    let number = |path: &str| budget.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let (desired, healthy) = (number("/status/desiredHealthy"), number("/status/currentHealthy"));
    let told = allowance(budget).filter(|condition| condition["status"] == "False");
    let told = told.map(|c| (c["reason"].as_str().unwrap_or_default(), c["message"].as_str().unwrap_or_default()));
    let refused = format!("The disruption budget {name} does not allow evicting pods currently");
    match told.filter(|(_, message)| !message.is_empty()) {
        Some(("SyncFailed", message)) => format!("{refused} because it failed sync: {message}"),
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some((reason, message)) => format!("{refused} ({reason}): {message}"),
        None => refused,
    }
}

/// The last disruption is spent (`UpdateDisruptionAllowedCondition`).
fn close_budget(budget: &mut Value, now: &str) {
    let since = match allowance(budget).filter(|condition| condition["status"] == "False") {
        Some(condition) => condition["lastTransitionTime"].clone(),
        None => now.into(),
    };
    let closed = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": budget.pointer("/status/observedGeneration").cloned().unwrap_or_default(),
        "lastTransitionTime": since,
    });
    let mut conditions = budget.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    match conditions.iter_mut().find(|condition| condition["type"] == "DisruptionAllowed") {
        Some(condition) => *condition = closed,
        None => conditions.push(closed),
    }
    budget["status"]["conditions"] = conditions.into();
}

/// Whether a pod that is not ready may go although a budget counts it: the budget says so, or enough others are ready.
fn spares_unready(budget: &Value, pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True");
    let number = |path: &str| budget.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let (healthy, desired) = (number("/status/currentHealthy"), number("/status/desiredHealthy"));
    let always = budget.pointer("/spec/unhealthyPodEvictionPolicy").is_some_and(|policy| policy == "AlwaysAllow");
    !ready && (always || (desired > 0 && healthy >= desired))
}

/// Pods that have not started or are done may always go; the others spend a disruption.
fn check_budget(call: &Call, pod: &Value, dry_run: bool) -> Result<(), Status> {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    if matches!(phase, "Pending" | "Succeeded" | "Failed") || meta::is_deleting(pod) {
        return Ok(());
    }
    let kind = "poddisruptionbudgets.policy";
    let budgets = call.server.store().list(kind, Some(call.namespace()));
    let mut matching = budgets.into_iter().filter(|b| {
        let selector = b.value.pointer("/spec/selector").and_then(LabelSelector::from_value);
        selector.is_some_and(|s| s.matches(pod))
    });
    let Some(budget) = matching.next() else { return Ok(()) };
    if matching.next().is_some() {
        return Err(Status::internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    }
    let name = meta::object_name(&budget.value);
    if spares_unready(&budget.value, pod) {
        return Ok(());
    }
    let number = |path: &str| budget.value.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let refused = |message: String, retry: u32| {
        let cause = Cause { reason: "DisruptionBudget".into(), message, field: String::new() };
        let text = "Cannot evict pod as it would violate the pod's disruption budget.";
        let status = Status::new(429, "TooManyRequests", text).with_causes(vec![cause]);
        if retry > 0 { status.with_retry_after(retry) } else { status }
    };
    if number("/status/observedGeneration") < number("/metadata/generation") {
        return Err(refused(format!("The disruption budget {name} is still being processed by the server."), 10));
    }
    let allowed = number("/status/disruptionsAllowed");
    if allowed <= 0 {
        return Err(refused(say_exhausted(name, &budget.value), 0));
    }
    if dry_run {
        return Ok(());
    }
    let mut next = budget.value.clone();
    next["status"]["disruptionsAllowed"] = (allowed - 1).into();
    if allowed == 1 {
        close_budget(&mut next, &write_seconds(call.server.now()));
    }
    next["status"]["disruptedPods"][meta::object_name(pod)] = write_seconds(call.server.now()).into();
    let key = call.key(name);
    let change = crate::store::Change::Put(next, budget.form);
    let expect = crate::store::Expect::Revision(budget.revision);
    call.server
        .store()
        .commit(kind, &key, expect, change)
        .map(drop)
        .map_err(|_| refused("Too many concurrent evictions; please retry".to_owned(), 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evicted_pod_says_so_once() {
        let mut pod = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert!(set_evicted(&mut pod, "t"));
        assert_eq!(pod["status"]["conditions"][1]["reason"], "EvictionByEvictionAPI");
        assert!(!set_evicted(&mut pod, "later"));
    }

    #[test]
    fn a_budget_says_why_it_lets_no_pod_go() {
        let mut budget = json!({"status": {"currentHealthy": 2, "desiredHealthy": 1, "observedGeneration": 3}});
        let plain = "The disruption budget b does not allow evicting pods currently";
        assert_eq!(say_exhausted("b", &budget), plain);
        close_budget(&mut budget, "t");
        assert_eq!(budget["status"]["conditions"][0]["observedGeneration"], 3);
        assert_eq!(say_exhausted("b", &budget), plain);
        budget["status"]["conditions"][0]["message"] = "m".into();
        assert_eq!(say_exhausted("b", &budget), format!("{plain} (InsufficientPods): m"));
        budget["status"]["currentHealthy"] = 1.into();
        let short = "The disruption budget b needs 1 healthy pods and has 1 currently";
        assert_eq!(say_exhausted("b", &budget), short);
        budget["status"]["conditions"][0]["reason"] = "SyncFailed".into();
        assert_eq!(say_exhausted("b", &budget), format!("{plain} because it failed sync: m"));
    }

    #[test]
    fn a_pod_that_is_not_ready_may_go_when_enough_are() {
        let budget = |healthy: u64| json!({"status": {"currentHealthy": healthy, "desiredHealthy": 2}});
        let (ready, unready) = (json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), json!({}));
        assert!(spares_unready(&budget(2), &unready));
        assert!(!spares_unready(&budget(1), &unready) && !spares_unready(&budget(2), &ready));
        let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
        assert!(spares_unready(&always, &unready) && !spares_unready(&always, &ready));
    }
}
