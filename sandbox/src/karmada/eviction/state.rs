//! What a workload that leaves a cluster takes along as labels: gate `StatefulFailoverInjection`.
//!
//! Rule: `BuildPreservedLabelState` in `pkg/util/helper/failover.go`, `injectReservedLabelState` in
//! `pkg/controllers/binding/common.go`. Of JSONPath only fields and indexes are read: `{ .a.b[0] }`.

use serde_json::{Map, Value, json};

use crate::karmada::{binding::plan::target_clusters, object::ObjectExt};

/// Labels by the rules of a failover behaviour, from what a cluster told of its copy; none without rules.
///
/// # Errors
/// When the cluster told nothing yet, or not what a rule asks for.
pub fn read_preserved(behavior: &Value, binding: &Value, cluster: &str) -> Result<Option<Value>, String> {
    let rules = behavior.items("/statePreservation/rules");
    if rules.is_empty() {
        return Ok(None);
    }
    let told = binding.items("/status/aggregatedStatus").iter().find(|one| one.text("/clusterName") == cluster);
    let status = told
        .and_then(|told| told.present("/status"))
        .ok_or_else(|| format!("the application status has not yet been collected from Cluster({cluster})"))?;
    let mut labels = Map::new();
    for rule in rules {
        let path = rule.text("/jsonPath");
        let value = find_at(status, path).ok_or_else(|| format!("failed to execute jsonpath {path:?}"))?;
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        labels.insert(rule.text("/aliasLabelName").to_owned(), json!(value));
    }
    Ok(Some(labels.into()))
}

fn find_at<'a>(status: &'a Value, path: &str) -> Option<&'a Value> {
    let path = path.trim().trim_start_matches('{').trim_end_matches('}').trim().replace('[', ".").replace(']', "");
    let mut parts = path.trim_start_matches(['$', '.']).split('.').filter(|part| !part.is_empty());
    parts.try_fold(status, |at, part| match at {
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    })
}

/// Labels that the copy for a cluster gets: of the last eviction, where the binding goes to one new cluster alone.
#[must_use]
pub fn labels_to_inject(binding: &Value, cluster: &str) -> Map<String, Value> {
    let last = binding.items("/spec/gracefulEvictionTasks").last();
    let Some(task) = last.filter(|task| task.text("/purgeMode") == "Directly") else { return Map::new() };
    let before = task.items("/clustersBeforeFailover").iter().any(|one| one == cluster);
    if before || target_clusters(binding).len() > 1 {
        return Map::new();
    }
    task["preservedLabelState"].as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_name_what_is_taken_along() {
        let behavior =
            |path: &str| json!({"statePreservation": {"rules": [{"aliasLabelName": "at", "jsonPath": path}]}});
        let item = json!({"clusterName": "m1", "status": {"step": 7, "parts": [{"id": "x"}]}});
        let binding = json!({"status": {"aggregatedStatus": [item]}});
        let read = |path: &str, cluster: &str| read_preserved(&behavior(path), &binding, cluster);
        assert_eq!(read("{ .step }", "m1"), Ok(Some(json!({"at": "7"}))));
        assert_eq!(read("{.parts[0].id}", "m1"), Ok(Some(json!({"at": "x"}))));
        assert!(read("{.none}", "m1").is_err() && read("{.step}", "m2").is_err());
        assert_eq!(read_preserved(&json!({}), &binding, "m2"), Ok(None));
    }

    #[test]
    fn one_new_cluster_alone_gets_what_was_taken_along_by_force() {
        let binding = |mode: &str, clusters: Value| {
            json!({"spec": {"clusters": clusters, "gracefulEvictionTasks": [{"fromCluster": "m1", "purgeMode": mode,
                "clustersBeforeFailover": ["m1"], "preservedLabelState": {"at": "7"}}]}})
        };
        let alone = json!([{"name": "m2"}]);
        assert_eq!(labels_to_inject(&binding("Directly", alone.clone()), "m2").len(), 1);
        assert!(labels_to_inject(&binding("Directly", alone.clone()), "m1").is_empty());
        assert!(labels_to_inject(&binding("Gracefully", alone), "m2").is_empty());
        let two = json!([{"name": "m2"}, {"name": "m3"}]);
        assert!(labels_to_inject(&binding("Directly", two), "m2").is_empty());
    }
}
