//! How many replicas Karmada believes a cluster can take.
//!
//! Rule: Karmada `pkg/estimator/client/general.go`: bounded by free pods; by models where the cluster has any counts
//! (each node as small as its grade allows, 110 pods; what is not in the models is not there: GPUs with default models
//! give 0); by the sums of the summary otherwise.

use std::collections::BTreeMap;

use caldera_core::quantity::Quantity;
use serde_json::Value;

use crate::karmada::object::ObjectExt;

/// A node of a model has room for so many pods.
const PODS_OF_A_MODEL: i64 = 110;

fn amount(list: &Value, name: &str) -> i128 {
    list.get(name).and_then(Value::as_str).and_then(|text| text.parse::<Quantity>().ok()).map_or(0, Quantity::as_nano)
}

fn requested(requirements: &Value) -> BTreeMap<String, i128> {
    let list = &requirements["resourceRequest"];
    let names = list.as_object().into_iter().flatten().map(|(name, _)| name.clone());
    names.map(|name| (name.clone(), amount(list, &name))).filter(|(_, amount)| *amount > 0).collect()
}

fn free(summary: &Value, name: &str) -> i128 {
    amount(&summary["allocatable"], name) - amount(&summary["allocated"], name) - amount(&summary["allocating"], name)
}

/// Replicas with these requirements that a cluster can take.
#[must_use]
pub fn replicas(cluster: &Value, requirements: Option<&Value>) -> i64 {
    let Some(summary) = cluster.present("/status/resourceSummary") else { return 0 };
    let pods = i64::try_from(free(summary, "pods") / 1_000_000_000).unwrap_or(0);
    if pods <= 0 {
        return 0;
    }
    let Some(requirements) = requirements else { return pods };
    let request = requested(requirements);
    let by_models = by_models(cluster, summary, &request);
    pods.min(by_models.unwrap_or_else(|| by_summary(summary, &request))).max(0)
}

fn by_summary(summary: &Value, request: &BTreeMap<String, i128>) -> i64 {
    let fits = request.iter().map(|(name, asked)| free(summary, name).max(0) / asked);
    fits.min().map_or(i64::MAX, |fits| i64::try_from(fits).unwrap_or(i64::MAX))
}

fn by_models(cluster: &Value, summary: &Value, request: &BTreeMap<String, i128>) -> Option<i64> {
    let counts = summary.items("/allocatableModelings");
    let models = cluster.items("/spec/resourceModels");
    if counts.is_empty() || models.is_empty() || counts.iter().any(|one| one.number("/count") < 0) {
        return None;
    }
    let known = |name: &str| {
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.contains('/') || name.starts_with("hugepages-")
    };
    let mut total = 0_i64;
    for count in counts.iter().filter(|one| one.number("/count") > 0) {
        let model = models.iter().find(|model| model.number("/grade") == count.number("/grade"))?;
        let minimum = |name: &str| {
            let range = model.items("/ranges").iter().find(|range| range.text("/name") == name);
            range.map_or(0, |range| amount(range, "min"))
        };
        let fits = request.iter().filter(|(name, _)| known(name)).map(|(name, asked)| minimum(name) / asked).min();
        let each = fits.map_or(PODS_OF_A_MODEL, |fits| i64::try_from(fits).unwrap_or(i64::MAX).min(PODS_OF_A_MODEL));
        total = total.saturating_add(each.saturating_mul(count.number("/count")));
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::karmada::cluster::plan::default_models;

    fn cluster(models: &[Value]) -> Value {
        let counts: Vec<Value> =
            (0..models.len()).map(|grade| json!({"grade": grade, "count": i64::from(grade == 5)})).collect();
        json!({"spec": {"resourceModels": models}, "status": {"resourceSummary": {
            "allocatable": {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "8", "pods": "110"}, "allocatableModelings": counts}}})
    }

    #[test]
    fn a_node_is_as_small_as_its_grade_allows() {
        let request = json!({"resourceRequest": {"cpu": "500m", "memory": "256Mi"}});
        assert_eq!(replicas(&cluster(&default_models()), Some(&request)), 32, "16 cpus of a node of 32");
        assert_eq!(replicas(&cluster(&[]), Some(&request)), 64);
    }

    #[test]
    fn gpus_are_not_in_the_default_models() {
        let request = json!({"resourceRequest": {"cpu": "1", "nvidia.com/gpu": "1"}});
        assert_eq!(replicas(&cluster(&default_models()), Some(&request)), 0);
        assert_eq!(replicas(&cluster(&[]), Some(&request)), 8);
    }

    #[test]
    fn nothing_is_known_before_the_first_summary() {
        assert_eq!(replicas(&json!({}), None), 0);
    }
}
