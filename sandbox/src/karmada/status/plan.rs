//! What a binding says of its Works.
//!
//! Rule: Karmada `pkg/util/helper/workstatus.go`: one item a cluster, by name; a cluster where nothing was applied says
//! so and has no status; fully applied means every cluster that it should be in.

use serde_json::{Value, json};

use crate::karmada::{
    binding::plan::existing_clusters,
    names,
    object::{ObjectExt, Shared, set_condition},
};

/// The one manifest status that a Work has: later ones replace it.
#[must_use]
pub fn manifest_status(work: &Value, observed: &Value, status: Option<Value>, health: &str) -> Option<Value> {
    let ordinal = work.items("/spec/workload/manifests").iter().position(|manifest| {
        ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"]
            .iter()
            .all(|at| manifest.text(at) == observed.text(at))
    })?;
    let gvk = observed.gvk();
    let mut identifier = json!({
        "ordinal": ordinal, "version": gvk.version, "kind": gvk.kind, "resource": "", "name": observed.name(),
    });
    if !gvk.group.is_empty() {
        identifier.put(&["group"], json!(gvk.group));
    }
    if !observed.namespace().is_empty() {
        identifier.put(&["namespace"], json!(observed.namespace()));
    }
    let mut item = json!({"identifier": identifier, "health": health});
    item.put_or_remove(&["status"], status);
    Some(item)
}

/// One item for each Work that is not going away.
#[must_use]
pub fn aggregate_works(works: &[Shared]) -> Vec<Value> {
    let mut items: Vec<Value> = works
        .iter()
        .filter(|work| !work.is_deleting())
        .filter_map(|work| Some(aggregated_item(work, names::cluster_of(work.namespace())?)))
        .collect();
    items.sort_by(|a, b| a.text("/clusterName").cmp(b.text("/clusterName")));
    items
}

fn aggregated_item(work: &Value, cluster: &str) -> Value {
    let condition = work.items("/status/conditions").iter().find(|one| one["type"] == "Applied");
    let mut item = json!({"clusterName": cluster, "health": "Unknown"});
    match condition {
        Some(condition) if condition["status"] == "True" => item.put(&["applied"], json!(true)),
        Some(condition) => {
            item.put(&["appliedMessage"], json!(condition.text("/message")));
            return item;
        }
        None => return item,
    }
    // As Karmada does, of the workload alone: of what goes with it nothing is told on.
    let kind = work.items("/spec/workload/manifests").first().map_or("", |manifest| manifest.text("/kind"));
    let statuses = work.items("/status/manifestStatuses").iter();
    if let Some(told) = { statuses }.find(|status| status.text("/identifier/kind") == kind) {
        item.put(&["health"], json!(told.text("/health")));
        item.put_or_remove(&["status"], told.present("/status").cloned());
    }
    item
}

/// Writes the items and whether everything is applied into a binding's status.
pub fn set_aggregated(binding: &mut Value, items: &[Value], now: &str) {
    let clusters = existing_clusters(binding);
    let fully = !clusters.is_empty()
        && clusters.len() == items.len()
        && items.iter().all(|item| item.flag("/applied") && clusters.contains(item.text("/clusterName")));
    let condition = if fully {
        json!({"type": "FullyApplied", "status": "True", "reason": "FullyAppliedSuccess",
            "message": "All works have been successfully applied"})
    } else {
        json!({"type": "FullyApplied", "status": "False", "reason": "FullyAppliedFailed",
            "message": "Failed to apply all works, see status.aggregatedStatus for details"})
    };
    let mut conditions = binding.items("/status/conditions").to_vec();
    if set_condition(&mut conditions, condition, now) {
        binding.put(&["status", "conditions"], Value::Array(conditions));
    }
    if binding.items("/status/aggregatedStatus") != items {
        let value = (!items.is_empty()).then(|| Value::Array(items.to_vec()));
        binding.put_or_remove(&["status", "aggregatedStatus"], value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn work(cluster: &str, status: &Value) -> Shared {
        Arc::new(json!({"metadata": {"namespace": format!("karmada-es-{cluster}")}, "status": status}))
    }

    #[test]
    fn what_is_not_applied_has_no_status() {
        let failed = json!({"conditions": [{"type": "Applied", "status": "False", "message": "no"}],
            "manifestStatuses": [{"status": {"a": 1}, "health": "Healthy"}]});
        let applied = json!({"conditions": [{"type": "Applied", "status": "True"}],
            "manifestStatuses": [{"status": {"a": 1}, "health": "Healthy"}]});
        assert_eq!(
            aggregate_works(&[work("m2", &failed), work("m1", &applied)]),
            [
                json!({"clusterName": "m1", "applied": true, "status": {"a": 1}, "health": "Healthy"}),
                json!({"clusterName": "m2", "appliedMessage": "no", "health": "Unknown"}),
            ]
        );
    }

    #[test]
    fn nothing_scheduled_is_not_fully_applied() {
        let mut binding = json!({"spec": {}});
        set_aggregated(&mut binding, &[], "now");
        assert_eq!(binding["status"]["conditions"][0]["status"], "False");
        let mut binding = json!({"spec": {"clusters": [{"name": "m1"}]}});
        set_aggregated(&mut binding, &[json!({"clusterName": "m1", "applied": true})], "now");
        assert_eq!(binding["status"]["conditions"][0]["status"], "True");
    }
}
