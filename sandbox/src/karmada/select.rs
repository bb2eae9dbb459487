//! Whether a cluster is one of those that an affinity, an override rule or a weight names.
//!
//! Rule: Karmada `pkg/util/selector.go` `ClusterMatches`: excluded names never; then labels, fields (`provider`,
//! `region`, `zone`) and names must all agree. A selector that makes no sense matches nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use super::object::{ObjectExt, selector_matches};

/// Whether the affinity names the cluster.
#[must_use]
pub fn cluster_matches(cluster: &Value, affinity: &Value) -> bool {
    let name = cluster.name();
    let lists = |list: &str| affinity.items(list).iter().any(|one| one == name);
    if lists("/exclude") {
        return false;
    }
    if let Some(labels) = affinity.present("/labelSelector")
        && !(is_valid(labels) && selector_matches(Some(labels), &cluster.labels()))
    {
        return false;
    }
    if let Some(fields) = affinity.present("/fieldSelector")
        && !fields.items("/matchExpressions").iter().all(|term| field_matches(cluster, term))
    {
        return false;
    }
    affinity.items("/clusterNames").is_empty() || lists("/clusterNames")
}

fn is_valid(selector: &Value) -> bool {
    selector.items("/matchExpressions").iter().all(|term| {
        let listed = !term.items("/values").is_empty();
        match term.text("/operator") {
            "In" | "NotIn" => listed,
            "Exists" | "DoesNotExist" => !listed,
            _ => false,
        }
    })
}

fn field_matches(cluster: &Value, term: &Value) -> bool {
    let listed = |value: &str| term.items("/values").iter().any(|one| one == value);
    let operator = term.text("/operator");
    if term.text("/key") == "zone" {
        let zones: Vec<&str> = cluster.items("/spec/zones").iter().filter_map(Value::as_str).collect();
        return match operator {
            "In" => zones.iter().any(|zone| listed(zone)),
            "NotIn" => !zones.iter().any(|zone| listed(zone)),
            "Exists" => !zones.is_empty(),
            "DoesNotExist" => zones.is_empty(),
            _ => false,
        };
    }
    let mut fields = BTreeMap::new();
    for key in ["provider", "region"] {
        let value = cluster.text(&format!("/spec/{key}"));
        if !value.is_empty() {
            fields.insert(key.to_owned(), value.to_owned());
        }
    }
    selector_matches(Some(&serde_json::json!({"matchExpressions": [term]})), &fields)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_parts_of_an_affinity_must_agree() {
        let cluster = json!({"metadata": {"name": "m1", "labels": {"a": "b"}}, "spec": {"region": "r"}});
        let yes = |affinity: Value| cluster_matches(&cluster, &affinity);
        assert!(yes(json!({})));
        assert!(yes(json!({"clusterNames": ["m1"], "labelSelector": {"matchLabels": {"a": "b"}}})));
        assert!(!yes(json!({"clusterNames": ["m1"], "exclude": ["m1"]})));
        assert!(yes(
            json!({"fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["r"]}]}})
        ));
        assert!(!yes(json!({"fieldSelector": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}})));
        assert!(!yes(json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}})));
    }
}
