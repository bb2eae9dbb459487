//! Reads label, field and node selectors as requirements, and refuses those that Kubernetes would refuse.
//!
//! Rule: Kubernetes `LabelSelectorAsSelector` (apimachinery `pkg/apis/meta/v1/helpers.go`) and `labels.NewRequirement`
//! (`pkg/labels/selector.go`): an operator has the right number of values, and keys and values can be labels.

use caldera_core::gang::{Operator, Requirement};
use k8s_openapi::{api::core::v1::NodeSelectorRequirement, apimachinery::pkg::apis::meta::v1::LabelSelector};
use serde::Deserialize as _;
use serde_json::Value;

/// A label selector in JSON; `None` if Kubernetes would not take it.
pub(crate) fn label_selector(selector: &Value) -> Option<Vec<Requirement>> {
    label_requirements(&LabelSelector::deserialize(selector).ok()?)
}

/// A label selector's requirements; `None` if Kubernetes would not take it (`LabelSelectorAsSelector`).
#[must_use]
pub fn label_requirements(selector: &LabelSelector) -> Option<Vec<Requirement>> {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
        let values = vec![value.clone()];
        Some(Requirement { key: key.clone(), operator: Operator::In, values })
    });
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let operator =
            Operator::parse(&expression.operator).filter(|known| !matches!(known, Operator::Gt | Operator::Lt))?;
        let values: Vec<String> = expression.values.iter().flatten().cloned().collect();
        Some(Requirement { key: expression.key.clone(), operator, values })
    });
    labels.chain(expressions).map(|requirement| requirement.filter(is_valid)).collect()
}

/// A field selector's requirement; `None` if Kubernetes would not take it. Zones are never checked.
pub(crate) fn field_requirement(requirement: &NodeSelectorRequirement) -> Option<Requirement> {
    let requirement = node_requirement(requirement)?;
    (requirement.key == "zone" || is_valid(&requirement)).then_some(requirement)
}

/// One expression of a node affinity; `None` for an operator that does not exist.
#[must_use]
pub fn node_requirement(requirement: &NodeSelectorRequirement) -> Option<Requirement> {
    let operator = Operator::parse(&requirement.operator)?;
    let values = requirement.values.iter().flatten().cloned().collect();
    Some(Requirement { key: requirement.key.clone(), operator, values })
}

/// `labels.NewRequirement`: the right number of values, and a key and values that can be labels.
fn is_valid(requirement: &Requirement) -> bool {
    let values = &requirement.values;
    let counted = match requirement.operator {
        Operator::In | Operator::NotIn => !values.is_empty(),
        Operator::Exists | Operator::DoesNotExist => values.is_empty(),
        Operator::Gt | Operator::Lt => matches!(values.as_slice(), [value] if value.parse::<i64>().is_ok()),
    };
    counted && is_key(&requirement.key) && values.iter().all(|value| value.is_empty() || is_name(value))
}

fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => {
            let part = |part: &str| {
                is_name(part) && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            };
            prefix.len() <= 253 && prefix.split('.').all(part) && is_name(name)
        }
        None => is_name(key),
    }
}

fn is_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let ends = name.bytes().next().zip(name.bytes().next_back());
    name.len() <= 63
        && name.bytes().all(inner)
        && ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
}
