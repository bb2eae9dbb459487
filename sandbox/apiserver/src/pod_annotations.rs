//! Annotations of pods that mean something: the profiles of containers from before there were fields for them, what a
//! pod costs to delete, and the mark of mirrors (`ValidatePodSpecificAnnotations`, `applyAppArmorVersionSkew`).

use serde_json::{Map, Value, json};

use crate::error::go_quote;
use crate::mount_rules::armor_errors;
use crate::podspec::{NULL, items_of, text_of};
use crate::schema::FieldError;

const ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const MIRROR: &str = "kubernetes.io/config.mirror";
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const LOCAL: &str = "localhost/";
const OLD_ARMOR: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
const OLD_SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";

fn annotations_of(holder: &Value) -> impl Iterator<Item = (&str, &str)> {
    let map = holder.get("metadata").and_then(|meta| meta.get("annotations")).and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

fn annotation_of<'v>(holder: &'v Value, key: &str) -> Option<&'v str> {
    holder.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

fn profile_of<'v>(holder: &'v Value, kind: &str) -> Option<&'v Value> {
    holder.get("securityContext")?.get(kind).filter(|profile| profile.is_object())
}

/// The field that says what the annotation says, if there is one that could.
fn armor_field(annotation: &str) -> Option<Value> {
    let profile = match annotation {
        "unconfined" => json!({"type": "Unconfined"}),
        "runtime/default" => json!({"type": "RuntimeDefault"}),
        other => {
            let name = other.strip_prefix(LOCAL).filter(|name| !name.is_empty())?;
            json!({"type": "Localhost", "localhostProfile": name})
        }
    };
    armor_errors(&json!({"appArmorProfile": profile.clone()}), "").is_empty().then_some(profile)
}

/// Puts the profiles of annotations into the fields of containers that have none. What the writer is warned of.
pub fn settle_armor(pod: &mut Value) -> Vec<String> {
    let spec = pod.get("spec").unwrap_or(&NULL);
    if spec.pointer("/os/name").and_then(Value::as_str) == Some("windows") {
        return Vec::new();
    }
    let whole = profile_of(spec, "appArmorProfile").cloned();
    let mut warnings = Vec::new();
    let mut settled = Vec::new();
    for list in LISTS {
        for (index, container) in items_of(spec, list).iter().enumerate() {
            let key = format!("{ARMOR}{}", text_of(container, "name"));
            let Some(annotation) = annotation_of(pod, &key) else { continue };
            let field = armor_field(annotation);
            if profile_of(container, "appArmorProfile").is_some() || (field.is_some() && field == whole) {
                continue;
            }
            warnings.push(format!("metadata.annotations[{key}]: {OLD_ARMOR}"));
            settled.extend(field.map(|field| (list, index, field)));
        }
    }
    for (list, index, field) in settled {
        if let Some(container) = pod.pointer_mut(&format!("/spec/{list}/{index}")).and_then(Value::as_object_mut) {
            let context = container.entry("securityContext").or_insert_with(|| Value::Object(Map::new()));
            context["appArmorProfile"] = field;
        }
    }
    warnings
}

/// Of a pod, or of a template at this place: annotations that mean nothing now.
pub fn annotation_warnings(holder: &Value, at: &str, template: bool) -> Vec<String> {
    let spec = holder.get("spec").unwrap_or(&NULL);
    let mut warnings = Vec::new();
    let mut warn = |key: &str, why: &str| warnings.push(format!("{at}metadata.annotations[{key}]: {why}"));
    if profile_of(spec, "seccompProfile").is_none() && annotation_of(holder, SECCOMP_OF_POD).is_some() {
        warn(SECCOMP_OF_POD, OLD_SECCOMP);
    }
    let whole = profile_of(spec, "appArmorProfile");
    for container in LISTS.into_iter().flat_map(|list| items_of(spec, list)) {
        let name = text_of(container, "name");
        let seccomp = format!("{SECCOMP}{name}");
        if profile_of(container, "seccompProfile").is_none() && annotation_of(holder, &seccomp).is_some() {
            warn(&seccomp, OLD_SECCOMP);
        }
        let armor = format!("{ARMOR}{name}");
        let given = annotation_of(holder, &armor).filter(|_| template);
        if profile_of(container, "appArmorProfile").is_none()
            && given.is_some_and(|given| whole.is_none() || whole != armor_field(given).as_ref())
        {
            warn(&armor, OLD_ARMOR);
        }
    }
    warnings
}

/// What is wrong with the annotations of a new pod.
pub fn annotation_errors(pod: &Value) -> Vec<FieldError> {
    let spec = pod.get("spec").unwrap_or(&NULL);
    let mut errors = Vec::new();
    for (key, value) in annotations_of(pod) {
        let mut refuse = |given: &str, why: &str| {
            errors.push(FieldError::invalid_text(format!("metadata.annotations[{key}]"), given, why));
        };
        match key.strip_prefix(ARMOR) {
            Some(container) => {
                let named = |list| items_of(spec, list).iter().any(|given| text_of(given, "name") == container);
                if !LISTS.into_iter().any(named) {
                    refuse(container, "container not found");
                }
                if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with(LOCAL) {
                    refuse(value, &format!("invalid AppArmor profile name: {}", go_quote(value)));
                }
            }
            None if key == COST && !is_cost(value) => refuse(value, "must be a 32bit integer"),
            None if key == MIRROR && text_of(spec, "nodeName").is_empty() => {
                refuse(value, "must set spec.nodeName if mirror pod annotation is set");
            }
            None => {}
        }
    }
    errors.extend(mismatch_errors(pod, spec));
    errors
}

/// A number without a plus sign and without zeros before it.
fn is_cost(text: &str) -> bool {
    let begins = text == "0" || text.starts_with(|first: char| first == '-' || ('1'..='9').contains(&first));
    begins && text.parse::<i32>().is_ok()
}

/// An annotation and the field beside it say the same (`validateAppArmorAnnotationsAndFieldsMatchOnCreate`).
fn mismatch_errors(pod: &Value, spec: &Value) -> Vec<FieldError> {
    if spec.pointer("/os/name").and_then(Value::as_str) == Some("windows") {
        return Vec::new();
    }
    let whole = profile_of(spec, "appArmorProfile");
    let mut errors = Vec::new();
    for list in LISTS {
        for (index, container) in items_of(spec, list).iter().enumerate() {
            let annotation = annotation_of(pod, &format!("{ARMOR}{}", text_of(container, "name")));
            let profile = profile_of(container, "appArmorProfile").or(whole);
            let (Some(annotation), Some(profile)) = (annotation, profile) else { continue };
            let local = annotation.strip_prefix(LOCAL);
            let differs = match text_of(profile, "type") {
                "Unconfined" => annotation != "unconfined",
                "RuntimeDefault" => annotation != "runtime/default",
                "Localhost" => local.is_none(),
                _ => continue,
            };
            let at = format!("spec.{list}[{index}].securityContext.appArmorProfile");
            let named = profile.get("localhostProfile").and_then(Value::as_str);
            if differs {
                let why = "apparmor type in annotation and field must match";
                errors.push(FieldError::forbidden(format!("{at}.type"), why));
            } else if local.is_some() && local != named {
                let why = "apparmor profile in annotation and field must match";
                errors.push(FieldError::forbidden(format!("{at}.localhostProfile"), why));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(key: &str, value: &str, container: Value) -> Value {
        let mut container = container;
        container["name"] = json!("c");
        json!({"metadata": {"annotations": {key: value}}, "spec": {"containers": [container]}})
    }

    #[test]
    fn the_profile_of_an_annotation_is_put_into_the_field_with_a_warning() {
        let key = format!("{ARMOR}c");
        let mut given = pod(&key, "localhost/x", json!({}));
        let wanted = format!("metadata.annotations[{key}]: {OLD_ARMOR}");
        assert_eq!(settle_armor(&mut given), std::slice::from_ref(&wanted));
        let profile = &given["spec"]["containers"][0]["securityContext"]["appArmorProfile"];
        assert_eq!(profile, &json!({"type": "Localhost", "localhostProfile": "x"}));
        assert!(settle_armor(&mut given).is_empty() && annotation_errors(&given).is_empty());
        let mut empty = pod(&key, "", json!({}));
        assert_eq!(settle_armor(&mut empty), std::slice::from_ref(&wanted));
        assert_eq!(empty, pod(&key, "", json!({})));
        let warned = annotation_warnings(&empty, "spec.template.", true);
        assert_eq!(warned, [format!("spec.template.{wanted}")]);
        let key = format!("{SECCOMP}c");
        let warned = annotation_warnings(&pod(&key, "unconfined", json!({})), "", false);
        assert_eq!(warned, [format!("metadata.annotations[{key}]: {OLD_SECCOMP}")]);
    }

    #[test]
    fn an_annotation_says_what_its_field_says() {
        let told = |key: &str, value: &str, container: Value| {
            annotation_errors(&pod(key, value, container)).into_iter().map(|e| e.message).collect::<Vec<_>>()
        };
        let armor = format!("{ARMOR}c");
        let field = |kind: &str, name: Value| json!({"securityContext": {"appArmorProfile": {"type": kind, "localhostProfile": name}}});
        assert_eq!(told(&armor, "runtime/default", field("RuntimeDefault", Value::Null)), Vec::<String>::new());
        assert_eq!(told(&armor, "unconfined", field("RuntimeDefault", Value::Null)).len(), 1);
        assert_eq!(told(&armor, "localhost/a", field("Localhost", json!("b"))).len(), 1);
        assert_eq!(told(&armor, "localhost/a", field("Localhost", json!("a"))).len(), 0);
        assert!(told(&armor, "odd", json!({}))[0].ends_with("\"odd\": invalid AppArmor profile name: \"odd\""));
        assert!(told(&format!("{ARMOR}z"), "unconfined", json!({}))[0].ends_with("\"z\": container not found"));
    }

    #[test]
    fn a_cost_of_deletion_is_a_plain_number() {
        for (text, good) in [("5", true), ("-5", true), ("0", true), ("+5", false), ("05", false), ("x", false)] {
            assert_eq!(annotation_errors(&pod(COST, text, json!({}))).is_empty(), good, "{text}");
        }
        assert_eq!(annotation_errors(&pod(MIRROR, "x", json!({}))).len(), 1);
    }
}
