//! Validation of roles and bindings (`pkg/apis/rbac/validation`).

use serde_json::Value;

use crate::error::go_struct;
use crate::schema::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

fn text_of<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn items_of<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A Role or ClusterRole: every rule names verbs, and either resources or (cluster-wide) URLs.
pub fn role_errors(role: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, rule) in items_of(role, "rules").iter().enumerate() {
        rule_errors(&format!("rules[{i}]"), rule, namespaced, &mut errors);
    }
    if let Some(aggregation) = role.get("aggregationRule").filter(|a| !a.is_null()) {
        let selectors = items_of(aggregation, "clusterRoleSelectors");
        if selectors.is_empty() {
            let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.push(FieldError::required("aggregationRule.clusterRoleSelectors", why));
        }
        for (i, selector) in selectors.iter().enumerate() {
            let field = format!("aggregationRule.clusterRoleSelectors[{i}]");
            let found = crate::admission::selector_errors(&field, selector);
            let broken = !found.is_empty();
            errors.extend(found);
            if broken {
                errors.push(FieldError::invalid(field, &Value::Null, "invalid label selector."));
            }
        }
    }
    errors
}

fn rule_errors(path: &str, rule: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let has = |key: &str| !items_of(rule, key).is_empty();
    if !has("verbs") {
        errors.push(FieldError::required(format!("{path}.verbs"), "verbs must contain at least one value"));
    }
    if has("nonResourceURLs") {
        let urls = Value::from(items_of(rule, "nonResourceURLs").to_vec());
        let field = format!("{path}.nonResourceURLs");
        if namespaced {
            errors.push(FieldError::invalid(
                field.clone(),
                &urls,
                "namespaced rules cannot apply to non-resource URLs",
            ));
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(field, &urls, why));
        }
        return;
    }
    if !has("apiGroups") {
        let why = "resource rules must supply at least one api group";
        errors.push(FieldError::required(format!("{path}.apiGroups"), why));
    }
    if !has("resources") {
        let why = "resource rules must supply at least one resource";
        errors.push(FieldError::required(format!("{path}.resources"), why));
    }
}

/// A RoleBinding or ClusterRoleBinding; the role it refers to never changes.
pub fn binding_errors(binding: &Value, old: Option<&Value>, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let reference = binding.get("roleRef").unwrap_or(&Value::Null);
    if text_of(reference, "apiGroup") != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", &text_of(reference, "apiGroup").into(), &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text_of(reference, "kind")) {
        errors.push(FieldError::not_supported("roleRef.kind", &text_of(reference, "kind").into(), kinds));
    }
    if text_of(reference, "name").is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    } else {
        for problem in crate::meta::path_segment_problems(text_of(reference, "name"), false) {
            errors.push(FieldError::invalid_text("roleRef.name", text_of(reference, "name"), &problem));
        }
    }
    for (i, subject) in items_of(binding, "subjects").iter().enumerate() {
        subject_errors(&format!("subjects[{i}]"), subject, namespaced, &mut errors);
    }
    if old.and_then(|o| o.get("roleRef")).is_some_and(|old| old != reference) {
        let members = [("APIGroup", "apiGroup", "\"\""), ("Kind", "kind", "\"\""), ("Name", "name", "\"\"")];
        let shown = go_struct(reference, &members);
        errors.push(FieldError::invalid_shown("roleRef", &shown, "cannot change roleRef"));
    }
    errors
}

fn subject_errors(path: &str, subject: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let (kind, group) = (text_of(subject, "kind"), text_of(subject, "apiGroup"));
    if text_of(subject, "name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let wanted = match kind {
        "ServiceAccount" => {
            let name = text_of(subject, "name");
            for problem in crate::meta::subdomain_problems(name).iter().filter(|_| !name.is_empty()) {
                errors.push(FieldError::invalid_text(format!("{path}.name"), name, problem));
            }
            ""
        }
        "User" | "Group" => GROUP,
        _ => {
            let supported = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(format!("{path}.kind"), &kind.into(), &supported));
            return;
        }
    };
    if group != wanted {
        errors.push(FieldError::not_supported(format!("{path}.apiGroup"), &group.into(), &[wanted]));
    }
    if kind == "ServiceAccount" && !namespaced && text_of(subject, "namespace").is_empty() {
        errors.push(FieldError::required(format!("{path}.namespace"), ""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn a_rule_is_about_resources_or_about_urls() {
        let urls = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]});
        assert!(role_errors(&urls, false).is_empty());
        assert_eq!(
            shown(&role_errors(&urls, true)),
            ["rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs"]
        );
        assert_eq!(shown(&role_errors(&json!({"rules": [{}]}), true)).len(), 3);
    }

    #[test]
    fn the_role_of_a_binding_stays() {
        let to = |name: &str| json!({"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}});
        assert!(binding_errors(&to("a"), Some(&to("a")), false).is_empty());
        assert!(shown(&binding_errors(&to("b"), Some(&to("a")), false))[0].ends_with("cannot change roleRef"));
    }

    #[test]
    fn an_aggregation_selects_something() {
        let role = |selectors: Value| json!({"rules": [], "aggregationRule": {"clusterRoleSelectors": selectors}});
        assert_eq!(role_errors(&role(json!([])), false)[0].field, "aggregationRule.clusterRoleSelectors");
        assert!(role_errors(&role(json!([{"matchLabels": {"a": "b"}}])), false).is_empty());
    }

    #[test]
    fn a_service_account_has_a_name_that_could_be_one() {
        let subject = json!({"kind": "ServiceAccount", "name": "A_b", "namespace": "x"});
        let binding = json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "a"}, "subjects": [subject]});
        assert_eq!(binding_errors(&binding, None, true)[0].field, "subjects[0].name");
    }
}
