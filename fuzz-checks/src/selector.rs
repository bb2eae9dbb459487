//! Label selectors and node affinities: what is read of them matches what Kubernetes' words say, of any labels; and the
//! other things that users write in annotations of workloads.

use std::collections::BTreeMap;

use crate::{
    cost::{Bound, within},
    expand::expand,
};
use caldera_core::{
    declared_data::Data,
    gang::{NodeClaim, NodeTerm, Operator, Requirement},
    place::score::ScoreWeights,
};
use caldera_crds::{
    selector::{label_requirements, node_requirement},
    workload::{read_data_location, read_existing_pod_request, read_gang},
};
use k8s_openapi::{api::core::v1::NodeSelectorRequirement, apimachinery::pkg::apis::meta::v1::LabelSelector};
use serde_json::Value;

const BOUND: Bound = Bound { ms: 100, ns_per_byte: 1_000, kib: 256, bytes_per_byte: 100 };

/// Panics where an input does what must not be.
pub fn check_input(bytes: &[u8]) {
    let Ok(short) = serde_json::from_slice::<Value>(bytes) else { return };
    let input = expand(&short);
    let length = input.to_string().len();
    within("selectors", BOUND, length, || check_selectors(&input));
    within("a workload", BOUND, length, || read_workload(&input["workload"]));
}

fn check_selectors(input: &Value) {
    let labels: BTreeMap<String, String> = serde_json::from_value(input["labels"].clone()).unwrap_or_default();
    if let Ok(selector) = serde_json::from_value::<LabelSelector>(input["selector"].clone())
        && let Some(requirements) = label_requirements(&selector)
    {
        let matched = requirements.iter().all(|one| one.matches(labels.get(&one.key).map(String::as_str)));
        assert_eq!(matched, selects(&selector, &labels), "{selector:?} of {labels:?}");
    }
    let terms: Vec<NodeSelectorRequirement> = serde_json::from_value(input["affinity"].clone()).unwrap_or_default();
    let Some(read) = terms.iter().map(node_requirement).collect::<Option<Vec<Requirement>>>() else { return };
    for (one, term) in read.iter().zip(&terms) {
        let value = labels.get(&one.key).map(String::as_str);
        let other = Requirement { operator: opposite(one.operator), ..one.clone() };
        if !matches!(one.operator, Operator::Gt | Operator::Lt) {
            assert_ne!(one.matches(value), other.matches(value), "{term:?} of {value:?}");
        }
        assert!(!(one.operator == Operator::Gt && one.matches(value) && other.matches(value)), "{term:?} of {value:?}");
    }
    let term = NodeTerm { labels: read, fields: vec![] };
    let claim = NodeClaim { affinity: vec![term], ..NodeClaim::default() };
    let within_itself = claim.restrict_to(&[claim.affinity[0].labels.clone()]);
    assert_eq!(claim.admits("n", &labels, &[]), within_itself.admits("n", &labels, &[]), "{claim:?}");
}

/// By the definition, with no code of ours.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let listed = |key: &String, values: &Option<Vec<String>>| {
        labels.get(key).is_some_and(|value| values.iter().flatten().any(|one| one == value))
    };
    selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().flatten().all(|one| match one.operator.as_str() {
            "In" => listed(&one.key, &one.values),
            "NotIn" => !listed(&one.key, &one.values),
            "Exists" => labels.contains_key(&one.key),
            _ => !labels.contains_key(&one.key),
        })
}

fn opposite(operator: Operator) -> Operator {
    match operator {
        Operator::In => Operator::NotIn,
        Operator::NotIn => Operator::In,
        Operator::Exists => Operator::DoesNotExist,
        Operator::DoesNotExist => Operator::Exists,
        Operator::Gt => Operator::Lt,
        Operator::Lt => Operator::Gt,
    }
}

fn read_workload(workload: &Value) {
    if let Ok(gang) = read_gang(workload) {
        assert!(gang.tasks.iter().all(|task| task.min_available <= task.replicas.max(task.min_available)));
        let _ = (gang.replicas(), gang.tasks.iter().map(|task| task.request.times(3)).collect::<Vec<_>>());
    }
    let _ = read_existing_pod_request(workload);
    if let Some(Ok(data)) = read_data_location(workload) {
        assert!(data.list_missing(|_| false).count() >= data.list_missing(|_| true).count());
    }
    if let Some(text) = workload["text"].as_str() {
        if let Ok(weights) = text.parse::<ScoreWeights>() {
            assert!(weights.names().count() < 1_000);
        }
        let _ = text.parse::<Data>();
    }
}
