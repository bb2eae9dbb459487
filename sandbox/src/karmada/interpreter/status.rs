//! Statuses of the kinds Karmada knows: what a member reports, and what the template says of all members.
//!
//! Rule: Karmada `default/native/{reflectstatus,aggregatestatus,healthy}.go`, `pkg/util/helper/job.go`.

use serde_json::{Map, Value, json};

use super::small;
use crate::karmada::{
    names,
    object::{Gvk, ObjectExt},
};

/// Counters that Karmada sums for a kind of `apps/v1`, and which of them are written even when zero.
struct Counters {
    fields: &'static [&'static str],
    always: &'static [&'static str],
}

fn counters_of_kind(gvk: &Gvk) -> Option<Counters> {
    let (fields, always): (&[&str], &[&str]) = match (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()) {
        ("apps", "v1", "Deployment") => {
            (&["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"], &[])
        }
        ("apps", "v1", "ReplicaSet") => (&["replicas", "readyReplicas", "availableReplicas"], &["replicas"]),
        ("apps", "v1", "StatefulSet") => (
            &["availableReplicas", "currentReplicas", "readyReplicas", "replicas", "updatedReplicas"],
            &["replicas", "availableReplicas"],
        ),
        ("apps", "v1", "DaemonSet") => (
            &[
                "currentNumberScheduled",
                "desiredNumberScheduled",
                "numberAvailable",
                "numberMisscheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberUnavailable",
            ],
            &["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"],
        ),
        _ => return None,
    };
    Some(Counters { fields, always })
}

fn is_kind(gvk: &Gvk, api_version: &str, kind: &str) -> bool {
    *gvk == Gvk::new(api_version, kind)
}

/// Whether Karmada itself can aggregate this kind.
#[must_use]
pub fn is_aggregated(gvk: &Gvk) -> bool {
    counters_of_kind(gvk).is_some()
        || is_kind(gvk, "batch/v1", "Job")
        || is_kind(gvk, "batch/v1", "CronJob")
        || is_kind(gvk, "v1", "Pod")
        || is_kind(gvk, "v1", "Service")
        || small::is_aggregated(gvk)
}

/// The part of a member object's status that travels to the host; `None` when there is nothing to tell.
#[must_use]
pub fn reflect_status(observed: &Value) -> Option<Value> {
    let gvk = observed.gvk();
    let status = observed.get("status").filter(|status| status.is_object())?;
    if let Some(counters) = counters_of_kind(&gvk) {
        let mut told = Map::new();
        let template = observed.annotation(names::TEMPLATE_GENERATION).parse::<i64>().unwrap_or_default();
        let stateful_set = gvk.kind == "StatefulSet";
        for (field, number) in [("generation", observed.generation()), ("resourceTemplateGeneration", template)] {
            if number != 0 {
                told.insert(field.to_owned(), json!(number));
            }
        }
        // Karmada's own wrapper of StatefulSet leaves observedGeneration out.
        let observed_generation = if stateful_set { None } else { Some("observedGeneration") };
        for field in counters.fields.iter().copied().chain(observed_generation) {
            let number = status.number(&format!("/{field}"));
            if number != 0 || counters.always.contains(&field) {
                told.insert(field.to_owned(), json!(number));
            }
        }
        return Some(Value::Object(told));
    }
    if is_kind(&gvk, "batch/v1", "Job") {
        return Some(reflect_job(status));
    }
    if is_kind(&gvk, "v1", "Service") {
        let is_balancer = observed.text("/spec/type") == "LoadBalancer";
        return is_balancer
            .then(|| json!({"loadBalancer": status.get("loadBalancer").cloned().unwrap_or_else(|| json!({}))}));
    }
    Some(small::reflect_status(&gvk, status).unwrap_or_else(|| status.clone()))
}

fn reflect_job(status: &Value) -> Value {
    let mut told = Map::new();
    for field in ["active", "succeeded", "failed"] {
        if status.number(&format!("/{field}")) != 0 {
            told.insert(field.to_owned(), status[field].clone());
        }
    }
    for field in ["conditions", "startTime", "completionTime"] {
        let value = status.present(&format!("/{field}")).filter(|value| !value.as_array().is_some_and(Vec::is_empty));
        if let Some(value) = value {
            told.insert(field.to_owned(), value.clone());
        }
    }
    Value::Object(told)
}

/// The template's status from those of its members, or nothing where Karmada leaves the template as it is.
#[must_use]
pub fn aggregate_status(template: &Value, items: &[Value], now: &str) -> Option<Value> {
    let gvk = template.gvk();
    if let Some(counters) = counters_of_kind(&gvk) {
        return sum_counters(template, items, &counters);
    }
    if is_kind(&gvk, "batch/v1", "Job") {
        return aggregate_job(template, items, now);
    }
    if is_kind(&gvk, "batch/v1", "CronJob") {
        return Some(aggregate_cron_job(items));
    }
    if is_kind(&gvk, "v1", "Pod") {
        return (!items.is_empty()).then(|| aggregate_pod(items));
    }
    if is_kind(&gvk, "v1", "Service") {
        let is_balancer = template.text("/spec/type") == "LoadBalancer";
        return is_balancer.then(|| small::aggregate_balancers(items, true));
    }
    small::aggregate_status(&gvk, items)
}

pub(super) fn reported_statuses(items: &[Value]) -> impl Iterator<Item = (&str, &Value)> {
    items.iter().filter_map(|item| Some((item.text("/clusterName"), item.present("/status")?)))
}

fn sum_counters(template: &Value, items: &[Value], counters: &Counters) -> Option<Value> {
    let old = template.get("status").cloned().unwrap_or_else(|| json!({}));
    // StatefulSet compares a member with itself there.
    let latest = |status: &Value| {
        let newest =
            if template.text("/kind") == "StatefulSet" { status.number("/generation") } else { template.generation() };
        status.number("/observedGeneration") >= status.number("/generation")
            && status.number("/resourceTemplateGeneration") >= newest
    };
    let observed = if reported_statuses(items).filter(|(_, status)| latest(status)).count() == items.len() {
        template.generation()
    } else {
        old.number("/observedGeneration")
    };
    let mut new: Vec<(&str, i64)> = vec![("observedGeneration", observed)];
    for field in counters.fields {
        new.push((field, reported_statuses(items).map(|(_, status)| status.number(&format!("/{field}"))).sum()));
    }
    if new.iter().all(|(field, number)| old.number(&format!("/{field}")) == *number) {
        return None;
    }
    let mut status = old;
    for (field, number) in new {
        let value = (number != 0 || counters.always.contains(&field)).then(|| json!(number));
        status.put_or_remove(&[field], value);
    }
    Some(status)
}

fn finished_condition(status: &Value) -> Option<&str> {
    status
        .items("/conditions")
        .iter()
        .find(|one| matches!(one.text("/type"), "Complete" | "Failed") && one.text("/status") == "True")
        .map(|one| one.text("/type"))
}

fn aggregate_job(template: &Value, items: &[Value], now: &str) -> Option<Value> {
    let old = template.get("status").cloned().unwrap_or_else(|| json!({}));
    if finished_condition(&old).is_some() {
        return None;
    }
    let mut status = Map::new();
    for field in ["active", "succeeded", "failed"] {
        let total: i64 = reported_statuses(items).map(|(_, status)| status.number(&format!("/{field}"))).sum();
        if total != 0 {
            status.insert(field.to_owned(), json!(total));
        }
    }
    let failed: Vec<&str> = reported_statuses(items)
        .filter(|(_, status)| finished_condition(status) == Some("Failed"))
        .map(|(cluster, _)| cluster)
        .collect();
    let count = |test: &dyn Fn(&Value) -> bool| reported_statuses(items).filter(|(_, status)| test(status)).count();
    let all = |number: usize| number == items.len() && number > 0;
    let mut conditions = Vec::new();
    let mut say = |kind: &str, reason: &str, message: String| {
        conditions.push(json!({"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now,
            "reason": reason, "message": message}));
    };
    if !failed.is_empty() {
        say("Failed", "JobFailed", format!("Job executed failed in member clusters {}", failed.join(",")));
    }
    if all(count(&|status| finished_condition(status) == Some("Complete"))) {
        say("Complete", "Completed", "Job completed".to_owned());
        let met = |status: &Value| {
            status.items("/conditions").iter().any(|one| one["type"] == "SuccessCriteriaMet" && one["status"] == "True")
        };
        if all(count(&met)) {
            let message = "All member clusters have met success criteria".to_owned();
            say("SuccessCriteriaMet", "CompletionsReached", message);
        }
    }
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }
    let times = |field: &str| -> Vec<String> {
        reported_statuses(items)
            .filter_map(|(_, status)| status.present(&format!("/{field}"))?.as_str().map(str::to_owned))
            .collect()
    };
    let (started, completed) = (times("startTime"), times("completionTime"));
    if let Some(start) = old.present("/startTime") {
        status.insert("startTime".to_owned(), start.clone());
    } else if let (true, Some(first)) = (all(started.len()), started.iter().min()) {
        status.insert("startTime".to_owned(), json!(first));
    }
    if let (true, Some(last)) = (all(completed.len()), completed.iter().max()) {
        status.insert("completionTime".to_owned(), json!(last));
    }
    Some(Value::Object(status))
}

/// All that runs, and the last times of all members.
fn aggregate_cron_job(items: &[Value]) -> Value {
    let mut status = json!({});
    let active: Vec<Value> =
        reported_statuses(items).flat_map(|(_, status)| status.items("/active").iter().cloned()).collect();
    if !active.is_empty() {
        status.put(&["active"], Value::Array(active));
    }
    for field in ["lastScheduleTime", "lastSuccessfulTime"] {
        let last = reported_statuses(items).map(|(_, status)| status.text(&format!("/{field}"))).max();
        if let Some(last) = last.filter(|last| !last.is_empty()) {
            status.put(&[field], json!(last));
        }
    }
    status
}

fn aggregate_pod(items: &[Value]) -> Value {
    let phases: Vec<&str> =
        items.iter().map(|item| item.present("/status").map_or("Pending", |status| status.text("/phase"))).collect();
    let mut status = Map::new();
    if let Some(phase) = ["Failed", "Pending", "Running", "Succeeded"].into_iter().find(|phase| phases.contains(phase))
    {
        status.insert("phase".to_owned(), json!(phase));
    }
    for field in ["containerStatuses", "initContainerStatuses"] {
        let all: Vec<Value> = reported_statuses(items)
            .flat_map(|(_, status)| status.items(&format!("/{field}")).iter())
            .map(|one| {
                let state = one.get("state").cloned().unwrap_or_else(|| json!({}));
                json!({"name": "", "state": state, "lastState": {}, "ready": one.flag("/ready"), "restartCount": 0,
                    "image": "", "imageID": ""})
            })
            .collect();
        if !all.is_empty() {
            status.insert(field.to_owned(), Value::Array(all));
        }
    }
    Value::Object(status)
}

/// Whether Karmada itself can tell the health of this kind.
#[must_use]
pub fn tells_health(gvk: &Gvk) -> bool {
    counters_of_kind(gvk).is_some()
        || is_kind(gvk, "v1", "Service")
        || is_kind(gvk, "v1", "Pod")
        || is_kind(gvk, "v1", "PersistentVolumeClaim")
        || is_kind(gvk, "networking.k8s.io/v1", "Ingress")
        || is_kind(gvk, "policy/v1", "PodDisruptionBudget")
}

/// Whether a member object does what it shall.
#[must_use]
pub fn is_healthy(observed: &Value) -> bool {
    let number = |field: &str| observed.number(&format!("/status/{field}"));
    let addressed = || {
        observed
            .items("/status/loadBalancer/ingress")
            .iter()
            .any(|one| !one.text("/hostname").is_empty() || !one.text("/ip").is_empty())
    };
    let current = number("observedGeneration") == observed.generation();
    let wanted = observed.pointer("/spec/replicas").and_then(Value::as_i64);
    match observed.text("/kind") {
        "Deployment" | "StatefulSet" => {
            current
                && wanted.is_none_or(|wanted| number("updatedReplicas") >= wanted)
                && number("availableReplicas") >= number("updatedReplicas")
        }
        "ReplicaSet" => current && wanted.is_none_or(|wanted| number("availableReplicas") >= wanted),
        "DaemonSet" => {
            current
                && number("updatedNumberScheduled") >= number("desiredNumberScheduled")
                && number("numberAvailable") >= number("updatedNumberScheduled")
        }
        "Service" => observed.text("/spec/type") != "LoadBalancer" || addressed(),
        "Ingress" => addressed(),
        "PersistentVolumeClaim" => observed.text("/status/phase") == "Bound",
        "PodDisruptionBudget" => number("currentHealthy") >= number("desiredHealthy"),
        "Pod" => match observed.text("/status/phase") {
            "Succeeded" => true,
            "Running" => {
                observed.items("/status/conditions").iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
            }
            _ => false,
        },
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(cluster: &str, status: &Value) -> Value {
        json!({"clusterName": cluster, "status": status})
    }

    #[test]
    fn a_cron_job_tells_all_that_runs_and_the_last_times() {
        let template = json!({"apiVersion": "batch/v1", "kind": "CronJob"});
        let items = [
            json!({"status": {"active": [{"name": "a"}], "lastScheduleTime": "2026-01-01T00:00:00Z"}}),
            json!({"status": {"lastScheduleTime": "2026-01-02T00:00:00Z", "lastSuccessfulTime": "2026-01-01T00:00:00Z"}}),
        ];
        assert_eq!(
            aggregate_status(&template, &items, "now"),
            Some(json!({"active": [{"name": "a"}], "lastScheduleTime": "2026-01-02T00:00:00Z",
                "lastSuccessfulTime": "2026-01-01T00:00:00Z"}))
        );
    }

    #[test]
    fn a_pod_that_no_member_reports_keeps_its_status() {
        assert_eq!(aggregate_status(&json!({"apiVersion": "v1", "kind": "Pod"}), &[], "now"), None);
    }

    #[test]
    fn a_deployment_is_observed_when_every_member_is() {
        let template =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": 2}, "status": {}});
        let seen = json!({"generation": 1, "resourceTemplateGeneration": 2, "observedGeneration": 1, "replicas": 6});
        let late = json!({"generation": 1, "resourceTemplateGeneration": 1, "observedGeneration": 1, "replicas": 4});
        let both = aggregate_status(&template, &[item("m1", &seen), item("m2", &late)], "now");
        assert_eq!(both, Some(json!({"replicas": 10})));
        let one = aggregate_status(&template, &[item("m1", &seen)], "now");
        assert_eq!(one, Some(json!({"replicas": 6, "observedGeneration": 2})));
    }

    #[test]
    fn a_batch_job_is_complete_when_all_members_are() {
        let template = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "status": {}});
        let done = json!({"succeeded": 4, "startTime": "a", "conditions": [{"type": "Complete", "status": "True"}]});
        let half = aggregate_status(&template, &[item("m1", &done), item("m2", &json!({"active": 1}))], "now");
        assert_eq!(half, Some(json!({"active": 1, "succeeded": 4})));
        let all = aggregate_status(&template, &[item("m1", &done)], "now").unwrap();
        assert_eq!(all["conditions"][0]["reason"], "Completed");
        assert_eq!(all["startTime"], "a");
    }

    #[test]
    fn a_pod_without_a_reported_status_is_pending() {
        let items = [item("m1", &json!({"phase": "Running"})), json!({"clusterName": "m2"})];
        assert_eq!(aggregate_pod(&items), json!({"phase": "Pending"}));
    }

    #[test]
    fn a_member_deployment_tells_generations_and_counters() {
        let observed = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"generation": 1, "annotations": {"resourcetemplate.karmada.io/generation": "2"}}, "status": {}});
        assert_eq!(reflect_status(&observed), Some(json!({"generation": 1, "resourceTemplateGeneration": 2})));
    }
}
