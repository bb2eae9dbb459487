//! Where containers mount volumes, and the profiles that confine them (`ValidateVolumeMounts`,
//! `validateAppArmorProfileField` of `pkg/apis/core/validation`).

use serde_json::Value;

use crate::podspec::{items_of, text_of};
use crate::schema::{CauseReason, FieldError};

/// A path of the longest kind, without its end.
const LONGEST_PROFILE: usize = 4095;

/// The mounts and the claims of a container; `at` is the container.
pub fn mount_errors(container: &Value, spec: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, mount) in items_of(container, "volumeMounts").iter().enumerate() {
        errors.extend(one_mount(container, mount, at, index));
    }
    let claims = items_of(spec, "resourceClaims");
    let asked = container.get("resources").map_or(&[][..], |resources| items_of(resources, "claims"));
    for (index, claim) in asked.iter().enumerate() {
        let name = text_of(claim, "name");
        let field = format!("{at}.resources.claims[{index}]");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        } else if !claims.iter().any(|known| text_of(known, "name") == name) {
            let why = match claims.is_empty() {
                true => "must be one of the names in pod.spec.resourceClaims which is empty",
                false => "must be one of the names in pod.spec.resourceClaims",
            };
            errors.push(FieldError::value(CauseReason::NotFound, field, &name.into(), why));
        }
    }
    errors
}

/// Most of the messages name the list and not the mount.
fn one_mount(container: &Value, mount: &Value, at: &str, index: usize) -> Vec<FieldError> {
    let list = format!("{at}.volumeMounts");
    let mut errors = Vec::new();
    let (path, expression) = (text_of(mount, "subPath"), text_of(mount, "subPathExpr"));
    if !path.is_empty() && !expression.is_empty() {
        let field = format!("{list}[{index}].subPathExpr");
        errors.push(FieldError::invalid_text(field, expression, "subPathExpr and subPath are mutually exclusive"));
    }
    for (key, path) in [("subPath", path), ("subPathExpr", expression)] {
        errors.extend(descending_errors(path, &format!("{list}.{key}")));
    }
    let privileged = container.pointer("/securityContext/privileged") == Some(&Value::Bool(true));
    if text_of(mount, "mountPropagation") == "Bidirectional" && !privileged {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(FieldError::forbidden(format!("{list}.mountPropagation"), why));
    }
    let field = format!("{list}.recursiveReadOnly");
    match mount.get("recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.get("readOnly") != Some(&Value::Bool(true)) {
                errors.push(FieldError::forbidden(field.as_str(), "may only be specified when readOnly is true"));
            }
            if !matches!(text_of(mount, "mountPropagation"), "" | "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(field, why));
            }
        }
        Some(other) => {
            let known = ["Disabled", "Enabled", "IfPossible"];
            errors.push(FieldError::not_supported(field, &other.into(), &known));
        }
    }
    errors
}

/// A path that only leads down (`validateLocalDescendingPath`).
pub fn descending_errors(path: &str, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if path.starts_with('/') {
        errors.push(FieldError::invalid_text(field, path, "must be a relative path"));
    }
    if path.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid_text(field, path, "must not contain '..'"));
    }
    errors
}

/// The profile of AppArmor in a security context.
pub fn armor_errors(context: &Value, at: &str) -> Vec<FieldError> {
    let Some(profile) = context.get("appArmorProfile").filter(|p| p.is_object()) else { return Vec::new() };
    let at = format!("{at}.appArmorProfile");
    let (kind, name) = (text_of(profile, "type"), text_of(profile, "localhostProfile"));
    let field = format!("{at}.localhostProfile");
    match kind {
        "Localhost" => {
            let mut errors = Vec::new();
            if name.trim() != name {
                errors.push(FieldError::invalid_text(field.as_str(), name, "must not be padded with whitespace"));
            } else if name.is_empty() {
                errors.push(FieldError::required(field.as_str(), "must be set when AppArmor type is Localhost"));
            }
            if name.len() > LONGEST_PROFILE {
                errors.push(FieldError::too_long(field, LONGEST_PROFILE));
            }
            errors
        }
        "RuntimeDefault" | "Unconfined" => {
            let given = profile.get("localhostProfile").filter(|name| name.is_string()).into_iter();
            let why = "can only be set when AppArmor type is Localhost";
            given.map(|name| FieldError::invalid(field.as_str(), name, why)).collect()
        }
        "" => vec![FieldError::required(format!("{at}.type"), "type is required when appArmorProfile is set")],
        other => {
            let known = ["Localhost", "RuntimeDefault", "Unconfined"];
            vec![FieldError::not_supported(format!("{at}.type"), &other.into(), &known)]
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(mount: Value) -> Vec<String> {
        let container = json!({"volumeMounts": [mount], "resources": {}});
        mount_errors(&container, &json!({}), "c").into_iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn a_mount_leads_down_and_is_read_as_it_says() {
        assert!(told(json!({"subPath": "a/b", "readOnly": true, "recursiveReadOnly": "Enabled"})).is_empty());
        let why = "c.volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'";
        assert_eq!(told(json!({"subPath": "../x"})), [why]);
        let why = "c.volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true";
        assert_eq!(told(json!({"recursiveReadOnly": "Enabled"})), [why]);
        assert_eq!(told(json!({"mountPropagation": "Bidirectional", "subPath": "a", "subPathExpr": "b"})).len(), 2);
    }

    #[test]
    fn a_claim_is_one_of_the_pod() {
        let container = json!({"resources": {"claims": [{"name": "x"}]}});
        let found = mount_errors(&container, &json!({}), "c");
        let why = "Not found: \"x\": must be one of the names in pod.spec.resourceClaims which is empty";
        assert_eq!(found[0].message, why);
        assert!(mount_errors(&container, &json!({"resourceClaims": [{"name": "x"}]}), "c").is_empty());
    }

    #[test]
    fn a_profile_of_the_node_has_a_name() {
        let told = |profile: Value| armor_errors(&json!({"appArmorProfile": profile}), "c").len();
        let named = |name: &str| {
            let errors =
                armor_errors(&json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": name}}), "c");
            errors.into_iter().map(|e| e.reason).collect::<Vec<_>>()
        };
        assert_eq!(named("x"), []);
        assert_eq!(named(""), [CauseReason::Required]);
        assert_eq!(named(" "), [CauseReason::Invalid]);
        assert_eq!(named(" x"), [CauseReason::Invalid]);
        assert_eq!(named(&"x".repeat(4096)), [CauseReason::TooLong]);
        assert_eq!(told(json!({"type": "Unconfined", "localhostProfile": ""})), 1);
        assert_eq!(told(json!({"type": "Localhost"})), 1);
        assert_eq!(told(json!({"type": "RuntimeDefault", "localhostProfile": "x"})), 1);
    }
}
