//! Which clusters a binding leaves, when, and when what it leaves behind may go.
//!
//! Rule: Karmada `pkg/controllers/cluster/taint_manager.go`, `pkg/controllers/gracefuleviction/evictiontask.go`,
//! `pkg/controllers/applicationfailover`, `GracefulEvictCluster` in `pkg/apis/work/v1alpha2/binding_types_helper.go`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Evictions;
use crate::karmada::{names, object::ObjectExt};

/// Whether a binding may stay in a tainted cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    /// It leaves now.
    Over,
    /// It leaves then, unless the taint does.
    Until(Timestamp),
    /// It stays.
    Endless,
}

/// Taints of a cluster that drive away what is there.
#[must_use]
pub fn driving_taints(cluster: &Value) -> Vec<&Value> {
    cluster.items("/spec/taints").iter().filter(|taint| taint.text("/effect") == "NoExecute").collect()
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let agrees = |field: &str| toleration.text(field).is_empty() || toleration.text(field) == taint.text(field);
    agrees("/effect")
        && agrees("/key")
        && match toleration.text("/operator") {
            "" | "Equal" => toleration.text("/value") == taint.text("/value"),
            "Exists" => true,
            _ => false,
        }
}

/// By the placement that the scheduler noted, not by the one that is wanted now. `None`: the binding carries none, so
/// Karmada looks away and tries again.
#[must_use]
pub fn tolerance_of_binding(binding: &Value, taints: &[&Value], now: Timestamp) -> Option<Tolerance> {
    let placement: Value = serde_json::from_str(binding.annotation(names::APPLIED_PLACEMENT)).ok()?;
    let tolerations = placement.items("/clusterTolerations");
    let mut ends = Vec::new();
    for taint in taints {
        let Some(used) = tolerations.iter().find(|one| tolerates(one, taint)) else { return Some(Tolerance::Over) };
        let Some(seconds) = used.pointer("/tolerationSeconds").and_then(Value::as_i64) else { continue };
        let matching = taints.iter().filter(|taint| tolerates(used, taint));
        ends.extend(matching.filter_map(|taint| {
            let added: Timestamp = taint.text("/timeAdded").parse().ok()?;
            added.checked_add(SignedDuration::from_secs(seconds)).ok()
        }));
    }
    Some(match ends.into_iter().min() {
        None => Tolerance::Endless,
        Some(end) if end < now => Tolerance::Over,
        Some(end) => Tolerance::Until(end),
    })
}

/// Takes a cluster from a binding's targets and notes that it is left, once.
pub fn evict_cluster(binding: &mut Value, cluster: &str, mut task: Value) {
    let mut clusters = binding.items("/spec/clusters").to_vec();
    let Some(index) = clusters.iter().position(|one| one.text("/name") == cluster) else { return };
    let left = clusters.remove(index);
    binding.put_or_remove(&["spec", "clusters"], (!clusters.is_empty()).then(|| json!(clusters)));
    let mut tasks = binding.items("/spec/gracefulEvictionTasks").to_vec();
    if tasks.iter().any(|task| task.text("/fromCluster") == cluster) {
        return;
    }
    task.put(&["fromCluster"], json!(cluster));
    if left.number("/replicas") > 0 {
        task.put(&["replicas"], left["replicas"].clone());
    }
    tasks.push(task);
    binding.put(&["spec", "gracefulEvictionTasks"], json!(tasks));
}

/// The task of a binding that leaves a tainted cluster.
#[must_use]
pub fn task_of_taint(binding: &Value, evictions: Evictions) -> Value {
    let mode = match binding.present("/spec/failover/cluster") {
        Some(own) if own.text("/purgeMode").is_empty() => "Gracefully",
        Some(own) => own.text("/purgeMode"),
        None if evictions.directly => "Directly",
        None => "Gracefully",
    };
    json!({"purgeMode": mode, "producer": "TaintManager", "reason": "TaintUntolerated"})
}

/// Tasks that stay, with the time at which they began, and the clusters of those that do not.
#[must_use]
pub fn assess_tasks(binding: &Value, timeout: SignedDuration, now: Timestamp) -> (Vec<Value>, Vec<String>) {
    let scheduled = binding.number("/status/schedulerObservedGeneration") == binding.generation();
    let healthy = |target: &Value| {
        let told = binding.items("/status/aggregatedStatus").iter().find(|one| one["clusterName"] == target["name"]);
        told.is_some_and(|told| told.text("/health") == "Healthy")
    };
    let replaced = scheduled && binding.items("/spec/clusters").iter().all(healthy);
    let (mut kept, mut evicted) = (Vec::new(), Vec::new());
    for task in binding.items("/spec/gracefulEvictionTasks") {
        let Ok(begun) = task.text("/creationTimestamp").parse::<Timestamp>() else {
            let mut task = task.clone();
            task.put(&["creationTimestamp"], json!(caldera_runtime::clock::format_time(now)));
            kept.push(task);
            continue;
        };
        let late = begun.checked_add(timeout_of_task(task, timeout)).is_ok_and(|end| now > end);
        let stays = match task.present("/suppressDeletion").and_then(Value::as_bool) {
            Some(suppressed) => suppressed,
            None => !late && !replaced,
        };
        if stays {
            kept.push(task.clone());
        } else {
            evicted.push(task.text("/fromCluster").to_owned());
        }
    }
    (kept, evicted)
}

fn timeout_of_task(task: &Value, default: SignedDuration) -> SignedDuration {
    let own = task.pointer("/gracePeriodSeconds").and_then(Value::as_i64);
    own.map_or(default, SignedDuration::from_secs)
}

/// When the first of these tasks is late.
#[must_use]
pub fn next_deadline(tasks: &[Value], timeout: SignedDuration) -> Option<Timestamp> {
    let waiting = tasks.iter().filter(|task| task.present("/suppressDeletion").is_none());
    let end = |task: &Value| {
        let begun: Timestamp = task.text("/creationTimestamp").parse().ok()?;
        begun.checked_add(timeout_of_task(task, timeout)).ok()
    };
    waiting.filter_map(end).min()
}

/// Since when a binding's workload is unhealthy, by cluster.
pub type Unhealthy = BTreeMap<String, Timestamp>;

/// Clusters that a binding leaves because its workload was unhealthy there for longer than it tolerates, and when to
/// look again.
pub fn detect_failures(binding: &Value, since: &mut Unhealthy, now: Timestamp) -> (Vec<String>, Option<Timestamp>) {
    let seconds = binding.number("/spec/failover/application/decisionConditions/tolerationSeconds");
    let tolerated = SignedDuration::from_secs(seconds);
    let evicting =
        |name: &str| binding.items("/spec/gracefulEvictionTasks").iter().any(|task| task.text("/fromCluster") == name);
    let (mut failed, mut next): (Vec<String>, Option<Timestamp>) = (Vec::new(), None);
    for item in binding.items("/status/aggregatedStatus") {
        let cluster = item.text("/clusterName");
        if item.text("/health") != "Unhealthy" {
            since.remove(cluster);
            continue;
        }
        if evicting(cluster) {
            continue;
        }
        let end = since.entry(cluster.to_owned()).or_insert(now).checked_add(tolerated).unwrap_or(Timestamp::MAX);
        if now > end {
            failed.push(cluster.to_owned());
        } else {
            next = Some(next.map_or(end, |next| next.min(end)));
        }
    }
    since.retain(|cluster, _| {
        let target = binding.items("/spec/clusters").iter().any(|one| one.text("/name") == cluster);
        target && !failed.contains(cluster)
    });
    (failed, next)
}

/// The task of a binding that leaves a cluster where its workload failed.
#[must_use]
pub fn task_of_failure(binding: &Value, producer: &str) -> Value {
    let behavior = &binding["spec"]["failover"]["application"];
    let mode = behavior.text("/purgeMode");
    let mut task = json!({"producer": producer, "reason": "ApplicationFailure"});
    if !mode.is_empty() {
        task.put(&["purgeMode"], json!(mode));
    }
    match mode {
        "Gracefully" => {
            task.put_or_remove(&["gracePeriodSeconds"], behavior.present("/gracePeriodSeconds").cloned());
        }
        "Never" => task.put(&["suppressDeletion"], json!(true)),
        _ => {}
    }
    task
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T00:{text}Z").parse().unwrap()
    }

    fn tolerating(tolerations: &Value) -> Value {
        let placement = json!({"clusterTolerations": tolerations}).to_string();
        json!({"metadata": {"annotations": {"policy.karmada.io/applied-placement": placement}}})
    }

    #[test]
    fn a_taint_is_tolerated_for_as_long_as_the_applied_placement_says() {
        let cluster = json!({"spec": {"taints": [
            {"key": "maint", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}, {"key": "x", "effect": "NoSchedule"}]}});
        let taints = driving_taints(&cluster);
        let told = |tolerations: Value| tolerance_of_binding(&tolerating(&tolerations), &taints, at("00:10"));
        assert_eq!(told(json!([])), Some(Tolerance::Over));
        assert_eq!(told(json!([{"key": "maint", "operator": "Exists"}])), Some(Tolerance::Endless));
        let for_seconds = |seconds: i64| json!([{"key": "maint", "operator": "Exists", "tolerationSeconds": seconds}]);
        assert_eq!(told(for_seconds(20)), Some(Tolerance::Until(at("00:20"))));
        assert_eq!(told(for_seconds(5)), Some(Tolerance::Over));
        assert_eq!(tolerance_of_binding(&json!({}), &taints, at("00:10")), None);
    }

    #[test]
    fn a_cluster_is_left_once_with_the_replicas_it_had() {
        let mut binding = json!({"spec": {"clusters": [{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 4}]}});
        let task = task_of_taint(&binding, Evictions::default());
        evict_cluster(&mut binding, "m2", task.clone());
        evict_cluster(&mut binding, "m2", task);
        assert_eq!(
            binding["spec"],
            json!({"clusters": [{"name": "m1", "replicas": 1}], "gracefulEvictionTasks": [{"fromCluster": "m2", "replicas": 4,
                "purgeMode": "Gracefully", "producer": "TaintManager", "reason": "TaintUntolerated"}]})
        );
    }

    #[test]
    fn the_policys_purge_mode_outranks_the_flag() {
        let directly = Evictions { directly: true, ..Evictions::default() };
        assert_eq!(task_of_taint(&json!({}), directly)["purgeMode"], "Directly");
        let own = json!({"spec": {"failover": {"cluster": {}}}});
        assert_eq!(task_of_taint(&own, directly)["purgeMode"], "Gracefully");
    }

    #[test]
    fn what_is_left_goes_when_all_targets_are_healthy_or_it_is_late() {
        let timeout = SignedDuration::from_secs(60);
        let mut binding = json!({"metadata": {"generation": 3}, "spec": {"clusters": [{"name": "m1"}],
            "gracefulEvictionTasks": [{"fromCluster": "m2"}]}, "status": {"schedulerObservedGeneration": 3}});
        let (kept, evicted) = assess_tasks(&binding, timeout, at("00:00"));
        assert_eq!(kept, [json!({"fromCluster": "m2", "creationTimestamp": "2026-01-01T00:00:00Z"})]);
        assert!(evicted.is_empty());
        assert_eq!(next_deadline(&kept, timeout), Some(at("01:00")));
        binding.put(&["spec", "gracefulEvictionTasks"], json!(kept));
        assert_eq!(assess_tasks(&binding, timeout, at("00:30")).0.len(), 1);
        assert_eq!(assess_tasks(&binding, timeout, at("01:01")).1, ["m2"]);
        binding.put(&["status", "aggregatedStatus"], json!([{"clusterName": "m1", "health": "Healthy"}]));
        assert_eq!(assess_tasks(&binding, timeout, at("00:30")).1, ["m2"]);
        binding.put(&["metadata", "generation"], json!(4));
        assert!(assess_tasks(&binding, timeout, at("00:30")).1.is_empty(), "not before it is scheduled");
        binding["spec"]["gracefulEvictionTasks"][0]["suppressDeletion"] = json!(true);
        assert!(assess_tasks(&binding, timeout, at("09:00")).1.is_empty(), "not before somebody says so");
        binding["spec"]["gracefulEvictionTasks"][0]["suppressDeletion"] = json!(false);
        assert_eq!(assess_tasks(&binding, timeout, at("00:30")).1, ["m2"]);
    }

    #[test]
    fn a_workload_fails_where_it_is_unhealthy_for_longer_than_tolerated() {
        let mut binding = json!({"spec": {"clusters": [{"name": "m1"}, {"name": "m2"}],
            "failover": {"application": {"decisionConditions": {"tolerationSeconds": 30}, "purgeMode": "Never"}}},
            "status": {"aggregatedStatus": [{"clusterName": "m1", "health": "Healthy"}, {"clusterName": "m2", "health": "Unhealthy"}]}});
        let mut since = Unhealthy::new();
        assert_eq!(detect_failures(&binding, &mut since, at("00:00")), (vec![], Some(at("00:30"))));
        assert_eq!(detect_failures(&binding, &mut since, at("00:31")), (vec!["m2".to_owned()], None));
        assert_eq!(task_of_failure(&binding, "p")["suppressDeletion"], true);
        binding["status"]["aggregatedStatus"][1]["health"] = json!("Healthy");
        detect_failures(&binding, &mut since, at("00:40"));
        assert!(since.is_empty(), "what recovered begins anew");
    }
}
