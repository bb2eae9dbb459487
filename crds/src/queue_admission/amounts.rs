//! A queue's amounts by resource: reads, checks, sums, compares and formats them as Volcano does
//! (`pkg/scheduler/api/resource_info.go`, `ValidateResourceQuantityValue`).

use std::collections::BTreeMap;

use caldera_core::{quantity::Quantity, resources::ResourceName};
use serde_json::Value;

use crate::job_admission::Refusal;

/// Amounts by resource name, as submitted; unlike `Resources` a zero stays, for a stated zero is not an absent name.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Names that Kubernetes counts in whole numbers, besides extended resources.
const WHOLE_NUMBER_RESOURCES: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// The amounts at `spec/<kind>`, or the first that is no quantity.
pub(super) fn read_amounts(queue: &Value, kind: &str) -> Result<Amounts, Box<Refusal>> {
    let entries = queue.pointer(&format!("/spec/{kind}")).and_then(Value::as_object).into_iter().flatten();
    entries
        .map(|(resource, amount)| {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            let read = text.parse::<Quantity>().map_err(|error| {
                let field = format!("spec.{}.{resource}", kind.replace('/', "."));
                Box::new(Refusal::new(
                    &field,
                    format!(
                        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$': \
                         {text:?}"
                    ),
                    error.to_string(),
                ))
            });
            Ok((resource.clone(), read?))
        })
        .collect()
}

/// `ValidateResourceQuantityValue`: not negative, and whole where only whole numbers make sense.
pub(super) fn check_amount(kind: &str, resource: &str, amount: Quantity) -> Option<Refusal> {
    let field = format!("spec.{kind}.{resource}");
    let refusal = |volcano: &str, why: String| {
        Some(Refusal::new(&field, format!("requestBody.{field}: Invalid value: \"{amount}\": {volcano}"), why))
    };
    if amount.is_negative() {
        return refusal("must be greater than or equal to 0", format!("{amount} is below 0"));
    }
    if (WHOLE_NUMBER_RESOURCES.contains(&resource) || is_extended(resource)) && amount.milli_ceil() % 1000 != 0 {
        return refusal("must be an integer", format!("{amount} is not a whole number"));
    }
    None
}

/// A name with a domain that is not Kubernetes' own.
fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.starts_with("requests.") && !resource.contains("kubernetes.io/")
}

/// What the scheduler keeps of them: it drops `count/*`, `requests.*`, `limits.*` and names it does not know.
pub(super) fn keep_requestable_amounts(amounts: &Amounts) -> Amounts {
    let kept = |name: &str| ResourceName::from(name).is_requestable();
    amounts.iter().filter(|(name, _)| kept(name)).map(|(name, amount)| (name.clone(), *amount)).collect()
}

/// Adds `more` to `sum`.
pub(super) fn add_amounts(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_default();
        *entry = entry.saturating_add(*amount);
    }
}

/// `LessPartly(.., Zero)`: `limit` is less than `sum` somewhere; a name that `limit` does not have is always less.
pub(super) fn exceeds_limit(sum: &Amounts, limit: &Amounts) -> bool {
    sum.iter().any(|(name, amount)| match limit.get(name) {
        Some(limit) => limit < amount,
        None => !matches!(name.as_str(), "cpu" | "memory") || *amount > Quantity::ZERO,
    })
}

/// `Resource.String()`: cpu and scalars in thousandths, memory in bytes, two digits.
pub(super) fn format_amounts(amounts: &Amounts) -> String {
    let get = |name: &str| amounts.get(name).copied().unwrap_or_default();
    let mut text = format!("cpu {}.00, memory {}.00", get("cpu").milli_ceil(), get("memory").units_ceil());
    for (name, amount) in amounts.iter().filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory")) {
        let number = if name == "pods" { amount.units_ceil() } else { amount.milli_ceil() };
        text += &format!(", {name} {number}.00");
    }
    text
}
