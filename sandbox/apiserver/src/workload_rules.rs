//! What Jobs, CronJobs, StatefulSets and DaemonSets may say beside their selectors and pods
//! (`pkg/apis/{apps,batch}/validation`).

use serde_json::Value;

use crate::meta::{label_errors, label_problems, qualified_name_problems};
use crate::podspec::{items_of, text_of};
use crate::rollout::{is_nothing, share_error};
use crate::schema::{CauseReason, FieldError};

const NEGATIVE: &str = "must be greater than or equal to 0";
const INDEXED_ONLY: &str = "requires indexed completion mode";
/// `maxParallelismForIndexedJob`, and the same number for failed indexes.
const MOST_INDEXED: i64 = 100_000;

fn number_of(value: &Value, key: &str) -> Option<i64> {
    value.get(key).and_then(Value::as_i64)
}

pub(crate) fn negative(spec: &Value, at: &str, members: &[&str]) -> Vec<FieldError> {
    let below = members.iter().filter_map(|key| number_of(spec, key).filter(|n| *n < 0).map(|n| (key, n)));
    below.map(|(key, n)| FieldError::invalid(format!("{at}.{key}"), &n.into(), NEGATIVE)).collect()
}

fn required_one(field: String, value: &str, known: &[&str]) -> Option<FieldError> {
    match value {
        "" => {
            let listed: Vec<String> = known.iter().map(|k| format!("\"{k}\"")).collect();
            Some(FieldError::required(field, &format!("valid values: [{}]", listed.join(" "))))
        }
        other if known.contains(&other) => None,
        other => Some(FieldError::not_supported(field, &other.into(), known)),
    }
}

/// What annotations may take together.
const LARGEST_ANNOTATIONS: usize = 256 * 1024;

/// The labels and annotations of a pod template, which has no containers for debugging.
pub fn template_errors(template: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = label_errors(template.pointer("/metadata/labels"), &format!("{at}.labels"));
    let field = format!("{at}.annotations");
    let mut size = 0;
    let annotations = template.pointer("/metadata/annotations").and_then(Value::as_object);
    for (key, value) in annotations.into_iter().flatten() {
        let problems = qualified_name_problems(&key.to_lowercase());
        errors.extend(problems.iter().map(|why| FieldError::invalid_text(field.as_str(), key, why)));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > LARGEST_ANNOTATIONS {
        errors.push(FieldError::too_long(field, LARGEST_ANNOTATIONS));
    }
    if template.get("spec").is_some_and(|spec| !items_of(spec, "ephemeralContainers").is_empty()) {
        let why = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(format!("{at}.spec.ephemeralContainers"), why));
    }
    errors
}

/// `validateJobSpec` of what is about completions and failures; `at` is the path of the spec.
pub fn job_errors(spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = negative(spec, at, &["backoffLimitPerIndex", "maxFailedIndexes"]);
    let (per_index, failed) = (number_of(spec, "backoffLimitPerIndex"), number_of(spec, "maxFailedIndexes"));
    if failed.is_some() && per_index.is_none() {
        let why = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(format!("{at}.backoffLimitPerIndex"), why));
    }
    if let Some(manager) = spec.get("managedBy").and_then(Value::as_str) {
        errors.extend(manager_error(&format!("{at}.managedBy"), manager));
    }
    let mode = text_of(spec, "completionMode");
    let indexed = mode == "Indexed";
    if !matches!(mode, "" | "Indexed" | "NonIndexed") {
        let field = format!("{at}.completionMode");
        errors.push(FieldError::not_supported(field, &mode.into(), &["NonIndexed", "Indexed"]));
    }
    if indexed {
        errors.extend(indexed_errors(spec, at));
    } else if mode.is_empty() || mode == "NonIndexed" {
        for (key, number) in [("backoffLimitPerIndex", per_index), ("maxFailedIndexes", failed)] {
            errors.extend(number.map(|n| FieldError::invalid(format!("{at}.{key}"), &n.into(), INDEXED_ONLY)));
        }
    }
    let rules = spec.get("podFailurePolicy").map_or(&[][..], |policy| items_of(policy, "rules"));
    for (index, rule) in rules.iter().enumerate() {
        let at = format!("{at}.podFailurePolicy.rules[{index}]");
        errors.extend(failure_rule_errors(spec, rule, &at));
        errors.extend(crate::job_policies::failure_details(spec, rule, &at));
    }
    if let Some(policy) = spec.get("successPolicy").filter(|policy| policy.is_object()) {
        let rules = items_of(policy, "rules");
        if !indexed {
            let shown = if rules.is_empty() { "{\"Rules\":[]}".to_owned() } else { success_shown(rules) };
            errors.push(FieldError::invalid_shown(format!("{at}.successPolicy"), &shown, INDEXED_ONLY));
        } else if rules.is_empty() {
            let why = "at least one rules must be specified when the successPolicy is specified";
            errors.push(FieldError::required(format!("{at}.successPolicy.rules"), why));
        } else if let Some(completions) = number_of(spec, "completions") {
            for (index, rule) in rules.iter().enumerate() {
                let at = format!("{at}.successPolicy.rules[{index}]");
                errors.extend(crate::job_policies::success_errors(rule, completions, &at));
            }
        }
    }
    // Where failures are judged, a pod is replaced only when it has failed.
    let judged = spec.get("podFailurePolicy").is_some_and(Value::is_object);
    let policies = if judged { &["Failed"][..] } else { &["Failed", "TerminatingOrFailed"] };
    let replaced = spec.get("podReplacementPolicy").and_then(Value::as_str);
    if let Some(replaced) = replaced.filter(|given| !policies.contains(given)) {
        let field = format!("{at}.podReplacementPolicy");
        errors.push(FieldError::not_supported(field, &replaced.into(), policies));
    }
    errors
}

fn success_shown(rules: &[Value]) -> String {
    let shown = rules.iter().map(|rule| {
        let of = |key: &str| rule.get(key).map_or("null".to_owned(), Value::to_string);
        format!("{{\"SucceededIndexes\":{},\"SucceededCount\":{}}}", of("succeededIndexes"), of("succeededCount"))
    });
    format!("{{\"Rules\":[{}]}}", shown.collect::<Vec<_>>().join(","))
}

fn manager_error(field: &str, manager: &str) -> Option<FieldError> {
    if manager.is_empty() {
        return Some(FieldError::required(field, ""));
    }
    let prefixed = manager.split_once('/').is_some_and(|(domain, path)| !domain.is_empty() && !path.is_empty());
    let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
    (!prefixed).then(|| FieldError::invalid_text(field, manager, why))
}

fn indexed_errors(spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let completions = number_of(spec, "completions");
    if completions.is_none() {
        let why = "when completion mode is Indexed";
        errors.push(FieldError::required(format!("{at}.completions"), why));
    }
    if let Some(number) = number_of(spec, "parallelism").filter(|n| *n > MOST_INDEXED) {
        let why = format!("must be less than or equal to {MOST_INDEXED} when completion mode is Indexed");
        errors.push(FieldError::invalid(format!("{at}.parallelism"), &number.into(), &why));
    }
    let Some(failed) = number_of(spec, "maxFailedIndexes") else { return errors };
    let mut refuse =
        |why: &str| errors.push(FieldError::invalid(format!("{at}.maxFailedIndexes"), &failed.into(), why));
    if completions.is_some_and(|completions| failed > completions) {
        refuse("must be less than or equal to completions");
    }
    if failed > MOST_INDEXED {
        refuse(&format!("must be less than or equal to {MOST_INDEXED}"));
    }
    errors
}

fn failure_rule_errors(spec: &Value, rule: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let action = text_of(rule, "action");
    if action == "FailIndex" {
        if number_of(spec, "backoffLimitPerIndex").is_none() {
            let why = "requires the backoffLimitPerIndex to be set";
            errors.push(FieldError::invalid_text(format!("{at}.action"), action, why));
        }
    } else {
        errors.extend(required_one(format!("{at}.action"), action, &["Count", "FailIndex", "FailJob", "Ignore"]));
    }
    let codes = rule.get("onExitCodes").filter(|codes| codes.is_object());
    errors.extend(codes.into_iter().flat_map(|codes| exit_code_errors(codes, &format!("{at}.onExitCodes"))));
    let conditions = !items_of(rule, "onPodConditions").is_empty();
    let why = match (codes.is_some(), conditions) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return errors,
    };
    errors.push(FieldError::plain(CauseReason::Invalid, at, why));
    errors
}

fn exit_code_errors(codes: &Value, at: &str) -> Vec<FieldError> {
    let operator = text_of(codes, "operator");
    let mut errors: Vec<FieldError> =
        required_one(format!("{at}.operator"), operator, &["In", "NotIn"]).into_iter().collect();
    let values = items_of(codes, "values");
    let numbers: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    let field = format!("{at}.values");
    if values.is_empty() {
        let shown = codes.get("values").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(field.as_str(), shown, "at least one value is required"));
    }
    for (index, number) in numbers.iter().enumerate() {
        if *number == 0 && operator == "In" {
            let why = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(format!("{field}[{index}]"), &0.into(), why));
        }
        if numbers.iter().take(index).any(|other| other == number) {
            errors.push(FieldError::duplicate(format!("{field}[{index}]"), &(*number).into()));
        }
    }
    if numbers.windows(2).any(|pair| pair[0] > pair[1]) {
        errors.push(FieldError::invalid(field, &Value::from(values.to_vec()), "must be ordered"));
    }
    errors
}

/// A CronJob without its schedule and policy: its zone, its limits, and the Job that it makes.
pub fn cron_errors(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = negative(spec, "spec", &["startingDeadlineSeconds"]);
    let zone = |spec: &Value| spec.get("timeZone").and_then(Value::as_str).map(str::to_owned);
    if let Some(zone) = zone(spec).filter(|given| old.and_then(zone).as_ref() != Some(given)) {
        errors.extend(zone_error(&zone));
    }
    let template = spec.pointer("/jobTemplate/spec").unwrap_or(&Value::Null);
    errors.extend(job_errors(template, "spec.jobTemplate.spec"));
    if let Some(selector) = template.get("selector").filter(|selector| selector.is_object()) {
        let why = "`selector` will be auto-generated";
        errors.push(FieldError::invalid("spec.jobTemplate.spec.selector", selector, why));
    }
    if template.get("manualSelector") == Some(&Value::Bool(true)) {
        let field = "spec.jobTemplate.spec.manualSelector";
        errors.push(FieldError::not_supported(field, &true.into(), &["nil", "false"]));
    }
    errors.extend(negative(spec, "spec", &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"]));
    errors
}

/// The areas of the time zone database; its cities are too many to know here.
const AREAS: [&str; 14] = [
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Brazil",
    "Canada",
    "Etc",
    "Europe",
    "Indian",
    "Pacific",
    "US",
];

fn is_zone(zone: &str) -> bool {
    let word = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        !part.is_empty() && !part.starts_with(['-', '.']) && part.chars().all(fits)
    };
    match zone.split_once('/') {
        Some((area, city)) => AREAS.contains(&area) && city.split('/').all(word),
        None => word(zone) && zone.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()),
    }
}

fn zone_error(zone: &str) -> Option<FieldError> {
    let why = match zone {
        "" => "timeZone must be nil or non-empty string".to_owned(),
        _ if zone.eq_ignore_ascii_case("local") => {
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned()
        }
        _ if is_zone(zone) => return None,
        _ => format!("unknown time zone {zone}"),
    };
    Some(FieldError::invalid_text("spec.timeZone", zone, &why))
}

/// A StatefulSet's policies, numbers and claims.
pub fn set_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policy = text_of(spec, "podManagementPolicy");
    if !matches!(policy, "" | "OrderedReady" | "Parallel") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid_text("spec.podManagementPolicy", policy, why));
    }
    let strategy = spec.get("updateStrategy").unwrap_or(&Value::Null);
    let rolling = strategy.get("rollingUpdate").filter(|r| r.is_object());
    let kind = text_of(strategy, "type");
    match (kind, rolling) {
        ("OnDelete", Some(rolling)) => {
            let of = |key: &str| rolling.get(key).map_or("null".to_owned(), Value::to_string);
            let partition = number_of(rolling, "partition").unwrap_or(0);
            let shown = format!("{{\"Partition\":{partition},\"MaxUnavailable\":{}}}", of("maxUnavailable"));
            let why = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(FieldError::invalid_shown("spec.updateStrategy.rollingUpdate", &shown, why));
        }
        ("RollingUpdate", Some(rolling)) => {
            errors.extend(negative(rolling, "spec.updateStrategy.rollingUpdate", &["partition"]));
        }
        ("" | "OnDelete" | "RollingUpdate", _) => {}
        (other, rolling) => {
            let rolling = rolling.map(|rolling| {
                let of = |key: &str| rolling.get(key).cloned().unwrap_or(Value::Null);
                serde_json::json!({"partition": of("partition"), "maxUnavailable": of("maxUnavailable")})
            });
            let shown = crate::rollout::show_strategy(other, rolling.as_ref(), &["Partition", "MaxUnavailable"]);
            let why = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid_shown("spec.updateStrategy", &shown, why));
        }
    }
    let kept = spec.get("persistentVolumeClaimRetentionPolicy").unwrap_or(&Value::Null);
    for key in ["whenDeleted", "whenScaled"] {
        let known = ["Retain", "Delete"];
        let given = kept.get(key).and_then(Value::as_str).filter(|given| !known.contains(given));
        let field = format!("spec.persistentVolumeClaimRetentionPolicy.{key}");
        errors.extend(given.map(|given| FieldError::not_supported(field, &given.into(), &known)));
    }
    for (index, claim) in items_of(spec, "volumeClaimTemplates").iter().enumerate() {
        errors.extend(claim_name_errors(claim, &format!("spec.template.spec.volumes[{index}]")));
        let details = crate::storage_rules::claim_details(claim);
        for mut error in crate::small_kinds::claim_errors(claim).into_iter().chain(details) {
            error.field = format!("spec.volumeClaimTemplates[{index}].{}", error.field);
            errors.push(error);
        }
    }
    errors.extend(negative(spec, "spec", &["minReadySeconds"]));
    errors.extend(spec.get("ordinals").into_iter().flat_map(|o| negative(o, "spec.ordinals", &["start"])));
    let service = text_of(spec, "serviceName");
    let problems = if service.is_empty() { Vec::new() } else { label_problems(service) };
    errors.extend(problems.iter().map(|why| FieldError::invalid_text("spec.serviceName", service, why)));
    errors
}

/// Each claim is a volume of the pods, before those that they have themselves.
fn claim_name_errors(claim: &Value, at: &str) -> Vec<FieldError> {
    let name = claim.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        let fields = [format!("{at}.name"), format!("{at}.persistentVolumeClaim.claimName")];
        return fields.into_iter().map(|field| FieldError::required(field, "")).collect();
    }
    let problems = label_problems(name);
    problems.iter().map(|why| FieldError::invalid_text(format!("{at}.name"), name, why)).collect()
}

/// A DaemonSet's numbers and its rolling update.
pub fn daemon_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = negative(spec, "spec", &["minReadySeconds"]);
    let strategy = spec.get("updateStrategy").unwrap_or(&Value::Null);
    let kind = text_of(strategy, "type");
    if !matches!(kind, "" | "OnDelete" | "RollingUpdate") {
        let rolling = strategy.get("rollingUpdate").filter(|rolling| rolling.is_object());
        let shown = crate::rollout::show_strategy(kind, rolling, &["MaxUnavailable", "MaxSurge"]);
        errors.push(FieldError {
            reason: CauseReason::NotSupported,
            field: "spec.updateStrategy".into(),
            message: format!("Unsupported value: {shown}: supported values: \"RollingUpdate\", \"OnDelete\""),
        });
    }
    if let Some(rolling) = strategy.get("rollingUpdate").filter(|r| r.is_object() && kind == "RollingUpdate") {
        errors.extend(daemon_rollout_errors(rolling));
    }
    errors.extend(negative(spec, "spec", &["revisionHistoryLimit"]));
    errors
}

/// Exactly one of what may be missing and what may be too much.
fn daemon_rollout_errors(rolling: &Value) -> Vec<FieldError> {
    let field = |part: &str| format!("spec.updateStrategy.rollingUpdate.{part}");
    let parts = ["maxUnavailable", "maxSurge"];
    let mut errors = Vec::new();
    for part in parts {
        errors.extend(rolling.get(part).and_then(|value| share_error(&field(part), value)));
    }
    for part in parts {
        if let Some(text) = rolling.get(part).and_then(Value::as_str)
            && text.strip_suffix('%').and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n > 100)
        {
            errors.push(FieldError::invalid_text(field(part), text, "must not be greater than 100%"));
        }
    }
    // What is no share counts as none.
    let some = |part: &str| rolling.get(part).is_some_and(|v| !is_nothing(v) && share_error("", v).is_none());
    match (some("maxUnavailable"), some("maxSurge")) {
        (true, true) => {
            let value = rolling.get("maxSurge").unwrap_or(&Value::Null);
            errors.push(FieldError::invalid(
                field("maxSurge"),
                value,
                "may not be set when maxUnavailable is non-zero",
            ));
        }
        (false, false) => {
            errors.push(FieldError::required(field("maxUnavailable"), "cannot be 0 when maxSurge is 0"));
        }
        _ => {}
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|e| e.field.as_str()).collect()
    }

    #[test]
    fn a_template_is_named_and_noted_well() {
        let template = json!({"metadata": {"labels": {"x y": "z"}, "annotations": {"A b": "c"}},
            "spec": {"ephemeralContainers": [{"name": "e"}]}});
        let found: Vec<String> = template_errors(&template, "t").into_iter().map(|e| e.field).collect();
        assert_eq!(found, ["t.labels", "t.annotations", "t.spec.ephemeralContainers"]);
        let large = json!({"metadata": {"annotations": {"a": "x".repeat(LARGEST_ANNOTATIONS)}}});
        assert_eq!(template_errors(&large, "t").len(), 1);
    }

    #[test]
    fn limits_for_each_index_need_indexes() {
        let spec = json!({"maxFailedIndexes": 1});
        assert_eq!(fields(&job_errors(&spec, "spec")), ["spec.backoffLimitPerIndex", "spec.maxFailedIndexes"]);
        let spec = json!({"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 1});
        assert!(job_errors(&spec, "spec").is_empty());
    }

    #[test]
    fn a_rule_of_failures_is_about_codes_or_about_conditions() {
        let rule = |rule: Value| failure_rule_errors(&Value::Null, &rule, "r").len();
        assert_eq!(rule(json!({"action": "Ignore"})), 1);
        assert_eq!(rule(json!({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1, 2]}})), 0);
        assert_eq!(rule(json!({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [2, 0, 2]}})), 3);
    }

    #[test]
    fn a_time_zone_is_one_of_the_database() {
        assert!(zone_error("Europe/Berlin").is_none() && zone_error("UTC").is_none());
        assert!(zone_error("Local").is_some() && zone_error("Nowhere/X").is_some() && zone_error("").is_some());
    }

    #[test]
    fn a_daemon_set_rolls_with_gaps_or_with_extras() {
        let count = |rolling: Value| daemon_rollout_errors(&rolling).len();
        assert_eq!(count(json!({"maxUnavailable": 1, "maxSurge": 0})), 0);
        assert_eq!(count(json!({"maxUnavailable": 1, "maxSurge": 1})), 1);
        assert_eq!(count(json!({"maxUnavailable": "x", "maxSurge": 0})), 2);
    }

    #[test]
    fn a_stateful_set_has_known_policies() {
        let spec = json!({"podManagementPolicy": "x", "updateStrategy": {"type": "y"}, "ordinals": {"start": -1}});
        assert_eq!(
            fields(&set_errors(&spec)),
            ["spec.podManagementPolicy", "spec.updateStrategy", "spec.ordinals.start"]
        );
    }
}
