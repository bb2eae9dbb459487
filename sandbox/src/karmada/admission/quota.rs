//! FederatedResourceQuota: what a change of a binding's clusters may use.
//!
//! Rule: Karmada `pkg/webhook/resourcebinding/validating.go`: usage is the request times the scheduled replicas; only a
//! change of it is checked, and then the whole resulting sum, so that after a quota was lowered even a scale-down is
//! refused while it stays above.

use std::collections::BTreeMap;

use caldera_core::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::karmada::{
    interpreter::workload::binary_text,
    object::{ObjectExt, Shared},
};

type Amounts = BTreeMap<String, i128>;

fn read_amounts(list: Option<&Value>) -> Amounts {
    let all = list.and_then(Value::as_object).into_iter().flatten();
    all.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.parse::<Quantity>().ok()?.as_nano()))).collect()
}

/// What a binding uses by its clusters, in billionths.
fn usage_of_binding(binding: &Value) -> Amounts {
    let clusters = binding.items("/spec/clusters");
    let components = binding.items("/spec/components");
    let mut total = Amounts::new();
    let mut add = |requirements: Option<&Value>, times: i64| {
        for (name, amount) in read_amounts(requirements.and_then(|one| one.get("resourceRequest"))) {
            *total.entry(name).or_default() += amount * i128::from(times);
        }
    };
    if components.is_empty() {
        add(binding.pointer("/spec/replicaRequirements"), clusters.iter().map(|one| one.number("/replicas")).sum());
    } else {
        let times = i64::try_from(clusters.len()).unwrap_or(i64::MAX);
        for component in components {
            add(component.get("replicaRequirements"), component.number("/replicas").saturating_mul(times));
        }
    }
    total
}

/// How one quota's `overallUsed` changes, `None` when it does not.
///
/// # Errors
/// With Karmada's words, when the quota is exceeded.
pub fn charge_quota(quota: &Value, new: &Value, old: Option<&Value>) -> Result<Option<Value>, String> {
    let (after, before) = (usage_of_binding(new), old.map(usage_of_binding).unwrap_or_default());
    let limits = read_amounts(quota.pointer("/spec/overall"));
    let mut used = read_amounts(quota.pointer("/status/overallUsed"));
    let mut changed = false;
    for name in limits.keys() {
        let of = |amounts: &Amounts| amounts.get(name).copied().unwrap_or_default();
        let delta = of(&after) - of(&before);
        if delta != 0 {
            changed = true;
            *used.entry(name.clone()).or_default() += delta;
        }
    }
    if !changed {
        return Ok(None);
    }
    for (name, limit) in &limits {
        let sum = used.get(name).copied().unwrap_or_default();
        if sum > *limit {
            return Err(format!(
                "FederatedResourceQuota({}/{}) exceeded for resource {name}: requested sum {}, limit {}.",
                quota.namespace(),
                quota.name(),
                write_amount(name, sum),
                write_amount(name, *limit)
            ));
        }
    }
    let used: Map<String, Value> = used
        .into_iter()
        .filter(|(_, amount)| *amount > 0)
        .map(|(name, amount)| (name.clone(), json!(write_amount(&name, amount))))
        .collect();
    Ok(Some(Value::Object(used)))
}

/// What all bindings of a quota's namespace use of what it limits; `None` when nothing.
#[must_use]
pub fn usage_of_bindings(quota: &Value, bindings: &[Shared]) -> Option<Value> {
    let limits = read_amounts(quota.pointer("/spec/overall"));
    let mut total = Amounts::new();
    for (name, amount) in bindings.iter().flat_map(|binding| usage_of_binding(binding)) {
        if limits.contains_key(&name) {
            *total.entry(name).or_default() += amount;
        }
    }
    let used: Map<String, Value> = total
        .into_iter()
        .filter(|(_, amount)| *amount > 0)
        .map(|(name, amount)| (name.clone(), json!(write_amount(&name, amount))))
        .collect();
    (!used.is_empty()).then_some(Value::Object(used))
}

/// What lists of resources are together; `None` when nothing.
#[must_use]
pub fn sum_of_lists<'a>(lists: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let mut total = Amounts::new();
    for (name, amount) in lists.flat_map(|list| read_amounts(Some(list))) {
        *total.entry(name).or_default() += amount;
    }
    let sum: Map<String, Value> =
        total.into_iter().map(|(name, amount)| (name.clone(), json!(write_amount(&name, amount)))).collect();
    (!sum.is_empty()).then_some(Value::Object(sum))
}

fn write_amount(name: &str, nano: i128) -> String {
    if matches!(name, "memory" | "ephemeral-storage" | "storage") {
        binary_text(nano / 1_000_000_000)
    } else {
        Quantity::from_nano(nano).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(cpu: &str, used: &str) -> Value {
        json!({"metadata": {"namespace": "default", "name": "team"}, "spec": {"overall": {"cpu": cpu}}, "status": {"overallUsed": {"cpu": used}}})
    }

    fn binding(replicas: i64) -> Value {
        json!({"spec": {"clusters": [{"name": "m1", "replicas": replicas}], "replicaRequirements": {"resourceRequest": {"cpu": "500m", "memory": "1Gi"}}}})
    }

    #[test]
    fn the_sum_that_would_result_is_compared() {
        let refused = charge_quota(&quota("4", "0"), &binding(10), None).unwrap_err();
        assert_eq!(
            refused,
            "FederatedResourceQuota(default/team) exceeded for resource cpu: requested sum 5, limit 4."
        );
        assert_eq!(charge_quota(&quota("4", "2"), &binding(8), Some(&binding(4))), Ok(Some(json!({"cpu": "4"}))));
    }

    #[test]
    fn below_a_lowered_quota_even_less_is_refused_and_the_same_is_not_looked_at() {
        assert!(charge_quota(&quota("1", "4"), &binding(6), Some(&binding(8))).is_err());
        assert_eq!(charge_quota(&quota("1", "4"), &binding(8), Some(&binding(8))), Ok(None));
    }
}
