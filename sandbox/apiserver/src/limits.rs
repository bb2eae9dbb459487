//! LimitRanges: the defaults and bounds they put on new pods, their containers and claims (plugin LimitRanger).

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::error::Status;
use crate::meta;
use crate::resource::Resource;
use crate::schema::{self, FieldError};
use crate::server::ApiServer;

/// A quantity in billionths, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

impl Amount {
    pub fn parse(value: &Value) -> Option<Self> {
        let number_text;
        let text = match value {
            Value::String(text) => text.as_str(),
            Value::Number(number) => {
                number_text = number.to_string();
                number_text.as_str()
            }
            _ => return None,
        };
        let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
        let (digits, suffix) = text.split_at(end);
        let negative = digits.starts_with('-');
        let digits = digits.trim_start_matches(['+', '-']);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let padded = format!("{fraction:0<9}");
        let nano: i128 = format!("{}{}", if whole.is_empty() { "0" } else { whole }, padded.get(..9)?).parse().ok()?;
        let scaled = match suffix {
            "" => nano,
            "n" => nano / 1_000_000_000,
            "u" => nano / 1_000_000,
            "m" => nano / 1_000,
            "k" => nano.checked_mul(1_000)?,
            "M" => nano.checked_mul(1_000_000)?,
            "G" => nano.checked_mul(1_000_000_000)?,
            "T" => nano.checked_mul(1_000_000_000_000)?,
            "P" => nano.checked_mul(1_000_000_000_000_000)?,
            "Ki" => nano.checked_mul(1 << 10)?,
            "Mi" => nano.checked_mul(1 << 20)?,
            "Gi" => nano.checked_mul(1 << 30)?,
            "Ti" => nano.checked_mul(1 << 40)?,
            "Pi" => nano.checked_mul(1 << 50)?,
            exponent => {
                let power: u32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
                nano.checked_mul(10_i128.checked_pow(power)?)?
            }
        };
        Some(Self(if negative { -scaled } else { scaled }))
    }

    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    pub fn is_whole(self) -> bool {
        self.0 % 1_000_000_000 == 0
    }

    pub fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// How many times the other amount this is, as near as a float comes.
    #[expect(clippy::cast_precision_loss, reason = "the real server divides floats as well")]
    pub fn ratio_to(self, other: Self) -> Option<f64> {
        (other.0 != 0).then(|| self.0 as f64 / other.0 as f64)
    }

    /// The amount as a plain number.
    pub fn as_number(self) -> Option<f64> {
        self.ratio_to(Self(1_000_000_000))
    }
}

/// What a quota measures in whole numbers.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// What a quota measures beside those.
const SHARED: [&str; 10] = [
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
];

/// `IsStandardQuotaResourceName`.
pub fn is_quota_standard(name: &str) -> bool {
    let pages = ["hugepages-", "requests.hugepages-"].iter().any(|prefix| name.starts_with(prefix));
    pages || COUNTED.contains(&name) || SHARED.contains(&name)
}

/// `IsNativeResource`.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// `IsExtendedResourceName`: somebody else's, as long as a quota can name it.
pub fn is_extended(name: &str) -> bool {
    let named = || meta::qualified_name_problems(&format!("requests.{name}")).is_empty();
    !is_native(name) && !name.starts_with("requests.") && named()
}

/// `IsOvercommitAllowed`.
pub fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

/// `IsIntegerResourceName`.
pub fn is_counted(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// The name of anything that is measured (`validateResourceName`).
pub fn name_errors(name: &str, field: &str) -> Vec<FieldError> {
    let mut odd = meta::qualified_name_problems(name);
    if odd.is_empty() && !name.contains('/') && !is_quota_standard(name) && name != "storage" {
        odd.push("must be a standard resource type or fully qualified".into());
    }
    odd.iter().map(|why| FieldError::invalid_text(field, name, why)).collect()
}

/// The limits of the namespace's ranges, those of one type if it is given.
fn find_limits(server: &ApiServer, object: &Value, wanted: Option<&str>) -> Vec<Value> {
    let ranges = server.store().list("limitranges", Some(meta::metadata_text(object, "namespace")));
    ranges
        .iter()
        .flat_map(|r| r.value.pointer("/spec/limits").and_then(Value::as_array).cloned().unwrap_or_default())
        .filter(|l| wanted.is_none_or(|wanted| type_of(l) == wanted))
        .collect()
}

fn type_of(limit: &Value) -> &str {
    limit.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Fills in the defaults of the namespace's ranges.
pub fn default_limits(server: &ApiServer, pod: &mut Value) {
    let limits = find_limits(server, pod, Some("Container"));
    let mut notes = Vec::new();
    let containers = pod.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        for limit in &limits {
            default_container(container, limit, &mut notes);
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        let metadata = meta::metadata_mut(pod);
        metadata.entry("annotations").or_insert_with(|| json!({}))["kubernetes.io/limit-ranger"] = note.into();
    }
}

/// Refuses a valid new pod or claim that is out of bounds.
pub fn check_limits(server: &ApiServer, resource: &Resource, object: &Value) -> Result<(), Status> {
    let mut problems: Vec<String> = match resource.storage.as_str() {
        "pods" => find_limits(server, object, None).iter().flat_map(|limit| pod_violations(object, limit)).collect(),
        "persistentvolumeclaims" => find_limits(server, object, Some("PersistentVolumeClaim"))
            .iter()
            .flat_map(|limit| claim_violations(object, limit))
            .collect(),
        _ => return Ok(()),
    };
    // `utilerrors.NewAggregate` tells each message once.
    let mut told = std::collections::BTreeSet::new();
    problems.retain(|problem| told.insert(problem.clone()));
    let why = match problems.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Err(Status::forbidden("", &resource.plural, meta::object_name(object), &why))
}

/// Requests first, then limits, each with a note of what was set.
fn default_container(container: &mut Value, limit: &Value, notes: &mut Vec<String>) {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (default, kind, word) in [("defaultRequest", "requests", "request"), ("default", "limits", "limit")] {
        let Some(defaults) = limit.get(default).and_then(Value::as_object) else { continue };
        let mut set = Vec::new();
        for (resource, quantity) in defaults {
            let present = container.pointer(&format!("/resources/{kind}")).is_some_and(|m| m.get(resource).is_some());
            if !present {
                container["resources"][kind][resource] = quantity.clone();
                set.push(resource.clone());
            }
        }
        if !set.is_empty() {
            notes.push(format!("{} {word} for container {name}", set.join(", ")));
        }
    }
}

/// `PodValidateLimitFunc`: each container for itself, or all of the pod together.
fn pod_violations(pod: &Value, limit: &Value) -> Vec<String> {
    match type_of(limit) {
        "Container" => ["containers", "initContainers"]
            .into_iter()
            .filter_map(|list| pod["spec"][list].as_array())
            .flatten()
            .flat_map(|container| usage_violations(&container["resources"], limit))
            .collect(),
        "Pod" => usage_violations(&sum_pod(pod), limit),
        _ => Vec::new(),
    }
}

/// `PersistentVolumeClaimValidateLimitFunc`: bounds of the storage that it requests.
fn claim_violations(claim: &Value, limit: &Value) -> Vec<String> {
    let request = &claim["spec"]["resources"]["requests"]["storage"];
    let mut problems = Vec::new();
    for (bound, word, outside) in [("min", "minimum", Ordering::Less), ("max", "maximum", Ordering::Greater)] {
        let bound = &limit[bound]["storage"];
        if !bound.is_null() && compare_amounts(request, bound) == outside {
            let (bound, request) = (show_amount(bound), show_amount(request));
            problems
                .push(format!("{word} storage usage per PersistentVolumeClaim is {bound}, but request is {request}"));
        }
    }
    problems
}

/// `minConstraint`, `maxConstraint` and `limitRequestRatioConstraint`: each bound is complained about once.
fn usage_violations(usage: &Value, limit: &Value) -> Vec<String> {
    let of = |kind: &str, resource: &str| Some(&usage[kind][resource]).filter(|amount| !amount.is_null());
    let bounds = |bound: &str| limit[bound].as_object().into_iter().flatten();
    let who = type_of(limit);
    let mut problems = Vec::new();
    for (bound, word, needed, outside, order) in [
        ("min", "minimum", "request", Ordering::Less, ["request", "limit"]),
        ("max", "maximum", "limit", Ordering::Greater, ["limit", "request"]),
    ] {
        for (resource, allowed) in bounds(bound) {
            let head = format!("{word} {resource} usage per {who} is {}", show_amount(allowed));
            if of(&format!("{needed}s"), resource).is_none() {
                problems.push(format!("{head}.  No {needed} is specified"));
                continue;
            }
            let wrong = order.into_iter().find_map(|kind| {
                let amount = of(&format!("{kind}s"), resource)?;
                (compare_amounts(amount, allowed) == outside).then(|| (kind, show_amount(amount)))
            });
            problems.extend(wrong.map(|(kind, amount)| format!("{head}, but {kind} is {amount}")));
        }
    }
    for (resource, allowed) in bounds("maxLimitRequestRatio") {
        let head = format!("{resource} max limit to request ratio per {who} is {}", show_amount(allowed));
        let positive = |kind: &str| of(kind, resource).and_then(Amount::parse).filter(|amount| amount.is_positive());
        match (positive("requests"), positive("limits")) {
            (None, _) => problems.push(format!("{head}, but no request is specified or request is 0")),
            (_, None) => problems.push(format!("{head}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = limit.0 as f64 / request.0 as f64;
                if Amount::parse(allowed).is_some_and(|allowed| ratio * 1e9 > allowed.0 as f64) {
                    problems.push(format!("{head}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
    problems
}

/// What the containers of a pod request and may use together.
pub fn sum_pod(pod: &Value) -> Value {
    let mut sums = json!({"requests": {}, "limits": {}});
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        for kind in ["requests", "limits"] {
            for (resource, amount) in container["resources"][kind].as_object().into_iter().flatten() {
                let sum = add_amounts(&sums[kind][resource], amount);
                sums[kind][resource] = sum;
            }
        }
    }
    // The first containers run one after the other, before the others.
    for container in pod["spec"]["initContainers"].as_array().into_iter().flatten() {
        for kind in ["requests", "limits"] {
            for (resource, amount) in container["resources"][kind].as_object().into_iter().flatten() {
                if compare_amounts(amount, &sums[kind][resource]).is_gt() {
                    sums[kind][resource] = amount.clone();
                }
            }
        }
    }
    sums
}

/// The sum keeps the unit family of the first amount.
pub fn add_amounts(sum: &Value, more: &Value) -> Value {
    let (Some(first), Some(second)) = (Amount::parse(sum), Amount::parse(more)) else { return more.clone() };
    let (total, whole) = (first.0 + second.0, 1_000_000_000 << 10);
    let binary = show_amount(sum).ends_with('i') && total % whole == 0;
    let text = if binary { format!("{}Ki", total / whole) } else { format!("{total}n") };
    schema::canonical_quantity(&text).unwrap_or(text).into()
}

/// By size, whatever the unit.
pub fn compare_amounts(one: &Value, other: &Value) -> Ordering {
    Amount::parse(one).cmp(&Amount::parse(other))
}

/// As it is written.
pub fn show_amount(amount: &Value) -> String {
    amount.as_str().map_or_else(|| amount.to_string(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_compare_across_units() {
        let amount = |text: &str| Amount::parse(&text.into()).unwrap();
        assert_eq!(amount("0.5"), amount("500m"));
        assert_eq!(amount("1Gi"), amount("1024Mi"));
        assert!(amount("2") > amount("1999m"));
        assert!(amount("-1").is_negative());
        assert_eq!(amount("1e3"), amount("1k"));
        assert!(Amount::parse(&"abc".into()).is_none());
    }

    #[test]
    fn a_container_stays_within_bounds_and_ratio() {
        let limit = json!({"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "1"},
            "maxLimitRequestRatio": {"cpu": "4"}});
        let why =
            |resources: Value| pod_violations(&json!({"spec": {"containers": [{"resources": resources}]}}), &limit);
        assert!(why(json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}})).is_empty());
        assert_eq!(
            why(json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "500m"}})),
            [
                "minimum cpu usage per Container is 50m, but request is 10m",
                "cpu max limit to request ratio per Container is 4, but provided ratio is 50.000000"
            ]
        );
        assert_eq!(
            why(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "2"}})),
            ["maximum cpu usage per Container is 1, but limit is 2"]
        );
    }

    #[test]
    fn a_pod_is_bounded_by_the_sum_of_its_containers() {
        let limit = json!({"type": "Pod", "max": {"memory": "1Gi"}});
        let pod = |sizes: &[&str]| {
            let container = |size: &&str| json!({"resources": {"limits": {"memory": size}}});
            json!({"spec": {"containers": sizes.iter().map(container).collect::<Vec<_>>()}})
        };
        assert!(pod_violations(&pod(&["600Mi", "400Mi"]), &limit).is_empty());
        assert_eq!(
            pod_violations(&pod(&["600Mi", "600Mi", "600Mi"]), &limit),
            ["maximum memory usage per Pod is 1Gi, but limit is 1800Mi"]
        );
        let without = json!({"spec": {"containers": [{"resources": {}}]}});
        assert_eq!(pod_violations(&without, &limit), ["maximum memory usage per Pod is 1Gi.  No limit is specified"]);
    }

    #[test]
    fn a_claim_is_bounded_by_its_request() {
        let limit = json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}});
        let claim = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
        assert!(claim_violations(&claim("5Gi"), &limit).is_empty());
        assert_eq!(
            claim_violations(&claim("500Mi"), &limit),
            ["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi"]
        );
    }
}
