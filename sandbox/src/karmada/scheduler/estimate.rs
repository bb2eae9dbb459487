//! How many replicas Karmada believes a cluster can take: the estimate of `caldera_core::place::general`, of objects.

use caldera_core::{quantity::Quantity, resources::Resources};
use caldera_crds::{karmada::cluster::Cluster, placement};
use serde_json::Value;

/// Replicas with these requirements that a cluster can take.
#[must_use]
pub fn replicas(cluster: &Value, requirements: Option<&Value>) -> i64 {
    let request = requirements.map(|requirements| {
        let amount = |amount: &Value| amount.as_str().and_then(|text| text.parse().ok()).unwrap_or(Quantity::ZERO);
        let list = requirements["resourceRequest"].as_object().into_iter().flatten();
        list.map(|(name, value)| (name.as_str(), amount(value))).collect::<Resources>()
    });
    let cluster = serde_json::from_value::<Cluster>(cluster.clone()).ok();
    cluster.as_ref().and_then(placement::published).map_or(0, |published| published.replicas(request.as_ref()))
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
        assert_eq!(replicas(&json!({"metadata": {"name": "m"}, "spec": {}}), None), 0);
    }
}
