//! Validation of the webhook configurations themselves (`pkg/apis/admissionregistration`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::condition::compile_condition;
use super::url::split_url;
use crate::meta::{label_errors, label_value_problems, qualified_name_problems, subdomain_problems};
use crate::schema::{CauseReason, FieldError};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const URL_FORM: &str = "; desired format: https://host[/path]";

/// All violations of a configuration after defaulting, in the apiserver's order.
pub fn validate_configuration(configuration: &Value, mutating: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = BTreeSet::new();
    for (i, webhook) in items_of(configuration, "webhooks").iter().enumerate() {
        let path = format!("webhooks[{i}]");
        errors.extend(webhook_errors(&path, webhook, mutating));
        errors.extend(review_version_errors(&format!("{path}.admissionReviewVersions"), webhook));
        let name = text_of(webhook, "name");
        if !name.is_empty() && !names.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
    }
    errors
}

pub(super) fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn items_of<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn webhook_errors(path: &str, webhook: &Value, mutating: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(name_error(&format!("{path}.name"), text_of(webhook, "name")));
    for (i, rule) in items_of(webhook, "rules").iter().enumerate() {
        errors.extend(rule_errors(&format!("{path}.rules[{i}]"), rule));
    }
    let mut one_of = |key: &str, supported: &[&str]| {
        if let Some(value) = webhook.get(key).filter(|v| !v.is_null())
            && !value.as_str().is_some_and(|v| supported.contains(&v))
        {
            errors.push(FieldError::not_supported(format!("{path}.{key}"), value, supported));
        }
    };
    one_of("failurePolicy", &["Fail", "Ignore"]);
    one_of("matchPolicy", &["Equivalent", "Exact"]);
    if webhook.get("sideEffects").is_none_or(Value::is_null) {
        errors.push(FieldError::required(format!("{path}.sideEffects"), "must specify one of None, NoneOnDryRun"));
    } else if !matches!(text_of(webhook, "sideEffects"), "None" | "NoneOnDryRun") {
        let field = format!("{path}.sideEffects");
        errors.push(FieldError::not_supported(field, &webhook["sideEffects"], &["None", "NoneOnDryRun"]));
    }
    if let Some(seconds) = webhook.get("timeoutSeconds").filter(|v| !v.as_i64().is_some_and(|s| (1..=30).contains(&s)))
    {
        let field = format!("{path}.timeoutSeconds");
        errors.push(FieldError::invalid(field, seconds, "the timeout value must be between 1 and 30 seconds"));
    }
    for key in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = webhook.get(key) {
            errors.extend(selector_errors(&format!("{path}.{key}"), selector));
        }
    }
    if mutating
        && let Some(policy) = webhook.get("reinvocationPolicy").filter(|p| !p.is_null())
        && !matches!(policy.as_str(), Some("Never" | "IfNeeded"))
    {
        let field = format!("{path}.reinvocationPolicy");
        errors.push(FieldError::not_supported(field, policy, &["IfNeeded", "Never"]));
    }
    errors.extend(client_errors(&format!("{path}.clientConfig"), webhook.get("clientConfig").unwrap_or(&Value::Null)));
    let conditions = items_of(webhook, "matchConditions");
    errors.extend(condition_errors(&format!("{path}.matchConditions"), conditions, false));
    errors
}

fn name_error(path: &str, name: &str) -> Option<FieldError> {
    if name.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    let problems = subdomain_problems(name);
    if !problems.is_empty() {
        return Some(FieldError::invalid_text(path, name, &problems.join(",")));
    }
    let why = "should be a domain with at least three segments separated by dots";
    (name.split('.').count() < 3).then(|| FieldError::invalid_text(path, name, why))
}

pub(super) fn rule_errors(path: &str, rule: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut listed = |key: &str, what: &str| {
        let list = items_of(rule, key);
        let field = format!("{path}.{key}");
        if list.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if list.len() > 1 && list.iter().any(|v| v == "*") {
            let why = format!("if '*' is present, must not specify other {what}");
            errors.push(FieldError::invalid(field, &Value::from(list.to_vec()), &why));
        }
        if key == "operations" {
            for (i, operation) in list.iter().enumerate() {
                if !operation.as_str().is_some_and(|o| OPERATIONS.contains(&o)) {
                    let field = format!("{path}.{key}[{i}]");
                    errors.push(FieldError::not_supported(field, operation, &OPERATIONS));
                }
            }
        }
        if key == "apiVersions" {
            for i in list.iter().enumerate().filter(|(_, v)| *v == "").map(|(i, _)| i) {
                errors.push(FieldError::required(format!("{path}.{key}[{i}]"), ""));
            }
        }
    };
    listed("operations", "operations");
    listed("apiGroups", "API groups");
    listed("apiVersions", "API versions");
    errors.extend(resource_errors(&format!("{path}.resources"), items_of(rule, "resources")));
    if let Some(scope) = rule.get("scope").filter(|s| !s.is_null())
        && !matches!(scope.as_str(), Some("*" | "Cluster" | "Namespaced"))
    {
        errors.push(FieldError::not_supported(format!("{path}.scope"), scope, &["*", "Cluster", "Namespaced"]));
    }
    errors
}

fn resource_errors(path: &str, resources: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut whole, mut everywhere) = (BTreeSet::new(), BTreeSet::new());
    let (mut double, mut single, mut plain) = (false, false, false);
    for (i, resource) in resources.iter().filter_map(Value::as_str).enumerate() {
        let field = format!("{path}[{i}]");
        if resource.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        double |= resource == "*/*";
        single |= resource == "*";
        let Some((name, sub)) = resource.split_once('/') else {
            plain = resource != "*";
            continue;
        };
        if whole.contains(name) {
            let why = format!("if '{name}/*' is present, must not specify {resource}");
            errors.push(FieldError::invalid_text(field.clone(), resource, &why));
        }
        if everywhere.contains(sub) {
            let why = format!("if '*/{sub}' is present, must not specify {resource}");
            errors.push(FieldError::invalid_text(field, resource, &why));
        }
        if sub == "*" {
            whole.insert(name);
        }
        if name == "*" {
            everywhere.insert(sub);
        }
    }
    let all = Value::from(resources.to_vec());
    if resources.len() > 1 && double {
        errors.push(FieldError::invalid(path, &all, "if '*/*' is present, must not specify other resources"));
    }
    if single && plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, &all, why));
    }
    errors
}

fn review_version_errors(path: &str, webhook: &Value) -> Vec<FieldError> {
    let versions = items_of(webhook, "admissionReviewVersions");
    if versions.is_empty() {
        return vec![FieldError::required(path, "must specify one of v1, v1beta1")];
    }
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, version) in versions.iter().filter_map(Value::as_str).enumerate() {
        let field = format!("{path}[{i}]");
        if !seen.insert(version) {
            errors.push(FieldError::invalid_text(field.clone(), version, "duplicate version"));
        }
        if !is_dns_1035_label(version) {
            errors.push(FieldError::invalid_text(field, version, DNS_1035_TEXT));
        }
    }
    if !seen.iter().any(|v| REVIEW_VERSIONS.contains(v)) {
        errors.push(FieldError::invalid(
            path,
            &Value::from(versions.to_vec()),
            "must include at least one of v1, v1beta1",
        ));
    }
    errors
}

pub(super) const DNS_1035_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

pub(super) fn is_dns_1035_label(label: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    label.len() <= 63
        && label.starts_with(|c: char| c.is_ascii_lowercase())
        && label.ends_with(word)
        && label.chars().all(|c| word(c) || c == '-')
}

/// How a webhook is reached: by a URL or as a service.
pub fn client_errors(path: &str, client: &Value) -> Vec<FieldError> {
    let url = client.get("url").and_then(Value::as_str);
    let service = client.get("service").filter(|s| s.is_object());
    match (url, service) {
        (Some(url), None) => url_errors(&format!("{path}.url"), url),
        (None, Some(service)) => service_errors(&format!("{path}.service"), service),
        _ => vec![FieldError::required(path, "exactly one of url or service is required")],
    }
}

fn url_errors(path: &str, url: &str) -> Vec<FieldError> {
    let parts = match split_url(url) {
        Ok(parts) => parts,
        Err(why) => return vec![FieldError::required(path, &format!("url must be a valid URL: {why}{URL_FORM}"))],
    };
    let mut errors = Vec::new();
    if parts.scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{URL_FORM}");
        errors.push(FieldError::invalid_text(path, parts.scheme, &why));
    }
    if parts.host.is_empty() {
        errors.push(FieldError::invalid_text(path, parts.host, &format!("host must be specified{URL_FORM}")));
    }
    if let Some(user) = parts.user {
        errors.push(FieldError::invalid_text(path, user, "user information is not permitted in the URL"));
    }
    if !parts.fragment.is_empty() {
        errors.push(FieldError::invalid_text(path, parts.fragment, "fragments are not permitted in the URL"));
    }
    if !parts.query.is_empty() {
        errors.push(FieldError::invalid_text(path, parts.query, "query parameters are not permitted in the URL"));
    }
    errors
}

fn service_errors(path: &str, service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The real server takes the one for the other (`ValidateWebhookService` and its callers).
    for (told, key) in [("name", "namespace"), ("namespace", "name")] {
        if text_of(service, key).is_empty() {
            errors.push(FieldError::required(format!("{path}.{told}"), ""));
        }
    }
    if let Some(port) = service.get("port").filter(|p| !p.as_i64().is_some_and(|p| (1..=65535).contains(&p))) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{path}.port"), port, why));
    }
    errors.extend(service_path_errors(&format!("{path}.path"), text_of(service, "path")));
    errors
}

fn service_path_errors(field: &str, path: &str) -> Vec<FieldError> {
    if path.is_empty() || path == "/" {
        return Vec::new();
    }
    if path == "//" {
        return vec![FieldError::invalid_text(field, path, "segment[0] may not be empty")];
    }
    let mut errors = Vec::new();
    if !path.starts_with('/') {
        errors.push(FieldError::invalid_text(field, path, "must start with a '/'"));
    }
    let inner = path.get(1..).unwrap_or_default();
    for (i, segment) in inner.strip_suffix('/').unwrap_or(inner).split('/').enumerate() {
        if segment.is_empty() {
            errors.push(FieldError::invalid_text(field, path, &format!("segment[{i}] may not be empty")));
            continue;
        }
        for problem in subdomain_problems(segment) {
            errors.push(FieldError::invalid_text(field, path, &format!("segment[{i}]: {problem}")));
        }
    }
    errors
}

pub fn selector_errors(path: &str, selector: &Value) -> Vec<FieldError> {
    let mut errors = label_errors(selector.get("matchLabels"), &format!("{path}.matchLabels"));
    for (i, requirement) in items_of(selector, "matchExpressions").iter().enumerate() {
        errors.extend(requirement_errors(&format!("{path}.matchExpressions[{i}]"), requirement));
    }
    errors
}

/// `ValidateLabelSelectorRequirement`.
pub fn requirement_errors(path: &str, requirement: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let values = items_of(requirement, "values");
    match text_of(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            format!("{path}.values"),
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            format!("{path}.values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "Exists" | "DoesNotExist" => {}
        other => {
            errors.push(FieldError::invalid_text(format!("{path}.operator"), other, "not a valid selector operator"));
        }
    }
    let key = text_of(requirement, "key");
    for problem in qualified_name_problems(key) {
        errors.push(FieldError::invalid_text(format!("{path}.key"), key, &problem));
    }
    for (i, value) in values.iter().filter_map(Value::as_str).enumerate() {
        for problem in label_value_problems(value) {
            errors.push(FieldError::invalid_text(format!("{path}.values[{i}]"), value, &problem));
        }
    }
    errors
}

pub(super) fn condition_errors(path: &str, conditions: &[Value], params: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = BTreeSet::new();
    if conditions.len() > 64 {
        let why = format!("{}: must have at most 64 items", conditions.len());
        errors.push(FieldError::plain(CauseReason::TooMany, path, &why));
    }
    for (i, condition) in conditions.iter().enumerate() {
        let (name, expression) = (text_of(condition, "name"), text_of(condition, "expression").trim());
        let field = format!("{path}[{i}].expression");
        if expression.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if let Some(why) = compile_condition(expression, params).error() {
            errors.push(FieldError::invalid_text(field, expression, why));
        }
        let field = format!("{path}[{i}].name");
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        for problem in qualified_name_problems(name) {
            errors.push(FieldError::invalid_text(field.clone(), name, &problem));
        }
        if !names.insert(name) {
            errors.push(FieldError::duplicate(field, &name.into()));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(changes: &Value) -> Vec<String> {
        let mut webhook = json!({
            "name": "a.example.io", "clientConfig": {"url": "https://x.io/p"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        });
        for (key, value) in changes.as_object().unwrap() {
            webhook[key] = value.clone();
        }
        let configuration = json!({"webhooks": [webhook]});
        validate_configuration(&configuration, true).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn a_complete_configuration_is_valid_after_defaulting() {
        assert_eq!(with(&json!({})), Vec::<String>::new());
    }

    /// As kube-apiserver 1.36 answers.
    #[test]
    fn no_side_effects_are_another_mistake_than_empty_ones() {
        let required = "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun";
        assert_eq!(with(&json!({"sideEffects": null})), [required]);
        let empty = "webhooks[0].sideEffects: Unsupported value: \"\": supported values: \"None\", \"NoneOnDryRun\"";
        assert_eq!(with(&json!({"sideEffects": ""})), [empty]);
        let dynamic = with(&json!({"matchConditions": [{"name": "a", "expression": "dyn(1)"}]}));
        let why = "Invalid value: \"dyn(1)\": must evaluate to bool but got dyn";
        assert_eq!(dynamic, [format!("webhooks[0].matchConditions[0].expression: {why}")]);
    }

    #[test]
    fn a_url_has_https_a_host_and_nothing_else() {
        assert_eq!(
            with(&json!({"clientConfig": {"url": "https://u:p@x.io/?a=b#f"}})),
            [
                "webhooks[0].clientConfig.url: Invalid value: \"u:p\": user information is not permitted in the URL",
                "webhooks[0].clientConfig.url: Invalid value: \"f\": fragments are not permitted in the URL",
                "webhooks[0].clientConfig.url: Invalid value: \"a=b\": query parameters are not permitted in the URL",
            ]
        );
    }

    #[test]
    fn a_wildcard_stands_alone() {
        let rules = json!({"rules": [{"operations": ["CREATE"], "apiGroups": ["*", "x"], "apiVersions": ["v1"],
            "resources": ["*/*", "pods"]}]});
        assert_eq!(
            with(&rules),
            [
                "webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"x\"]: if '*' is present, must not specify other API groups",
                "webhooks[0].rules[0].resources: Invalid value: [\"*/*\",\"pods\"]: if '*/*' is present, must not specify other resources",
            ]
        );
    }

    #[test]
    fn a_service_path_has_no_empty_segment() {
        let service =
            |path: &str| with(&json!({"clientConfig": {"service": {"name": "a", "namespace": "b", "path": path}}}));
        assert!(service("/ok/path/").is_empty());
        assert_eq!(
            service("/a//b"),
            ["webhooks[0].clientConfig.service.path: Invalid value: \"/a//b\": segment[1] may not be empty"]
        );
    }
}
