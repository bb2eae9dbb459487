//! Events: one object, two views. `core/v1` says involvedObject, message and source; `events.k8s.io/v1` says regarding,
//! note and deprecatedSource, and is strict (`pkg/apis/core/validation/events.go`).

use serde_json::{Map, Value};

use crate::meta;
use crate::schema::{CauseReason, FieldError};

/// Member names in core/v1 and in events.k8s.io/v1, where they differ.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Turns an Event into the other group's view when it is not in it yet.
pub fn convert_event(value: Value, to: &str) -> Value {
    let Value::Object(map) = value else { return value };
    let from_core = map.get("apiVersion").and_then(Value::as_str) == Some("v1");
    let to_core = to == "v1";
    if from_core == to_core {
        return Value::Object(map);
    }
    let mut out = Map::new();
    for (key, value) in map {
        let name = RENAMED.iter().find_map(|(core, new)| {
            if from_core && *core == key {
                Some((*new).to_owned())
            } else if !from_core && *new == key {
                Some((*core).to_owned())
            } else {
                None
            }
        });
        out.insert(name.unwrap_or(key), value);
    }
    out.insert("apiVersion".into(), to.into());
    let mut value = Value::Object(out);
    complete_event(&mut value, to_core);
    value
}

/// The members that Go prints even when they are empty, and those it leaves out.
pub fn complete_event(event: &mut Value, core: bool) {
    let Some(map) = event.as_object_mut() else { return };
    let empty = |v: Option<&Value>| v.is_none_or(|v| v.is_null() || v.as_str() == Some("") || v.as_i64() == Some(0));
    if core {
        for member in ["reportingComponent", "reportingInstance"] {
            map.entry(member).or_insert_with(|| "".into());
        }
        for member in ["firstTimestamp", "lastTimestamp", "eventTime"] {
            map.entry(member).or_insert(Value::Null);
        }
        map.entry("source").or_insert_with(|| Value::Object(Map::new()));
        map.entry("involvedObject").or_insert_with(|| Value::Object(Map::new()));
        return;
    }
    for member in ["eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
        map.entry(member).or_insert(Value::Null);
    }
    map.entry("deprecatedSource").or_insert_with(|| Value::Object(Map::new()));
    map.entry("regarding").or_insert_with(|| Value::Object(Map::new()));
    for member in ["reportingController", "reportingInstance", "action", "deprecatedCount", "note", "reason", "type"] {
        if empty(map.get(member)) {
            map.remove(member);
        }
    }
}

fn text_of<'a>(event: &'a Value, member: &str) -> &'a str {
    event.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Both groups: the involved object's namespace must be the event's.
pub fn core_errors(event: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let namespace = event.pointer("/involvedObject/namespace").and_then(Value::as_str).unwrap_or_default();
    let own = meta::metadata_text(event, "namespace");
    let mut errors = Vec::new();
    if old.is_none() && !event.get("eventTime").is_some_and(Value::is_string) {
        if namespace.is_empty() && own != "default" {
            // An object without a namespace is cluster-scoped: its events live in `default` (or kube-system).
            if own != "kube-system" {
                errors.push(FieldError::invalid_text(
                    "involvedObject.namespace",
                    namespace,
                    "does not match event.namespace",
                ));
            }
        } else if !namespace.is_empty() && namespace != own {
            errors.push(FieldError::invalid_text(
                "involvedObject.namespace",
                namespace,
                "does not match event.namespace",
            ));
        }
    }
    if old.is_none() && event.get("eventTime").is_some_and(Value::is_string) {
        errors.extend(homeless_error(namespace, own));
        // An event of the new style is held to the new rules, under its old names.
        let new = convert_event(event.clone(), "events.k8s.io/v1");
        let shared = ["reportingController", "reportingInstance", "action", "reason"];
        for mut error in validate_event(&new, None).into_iter().filter(|e| shared.contains(&e.field.as_str())) {
            if error.field == "reportingController" {
                error.field = "reportingComponent".into();
            }
            errors.push(error);
        }
    }
    errors
}

/// An object without a namespace has its events in `default` or `kube-system`.
fn homeless_error(namespace: &str, own: &str) -> Option<FieldError> {
    let misplaced = namespace.is_empty() && !matches!(own, "default" | "kube-system");
    let why = "does not match event.namespace";
    misplaced.then(|| FieldError::invalid_text("involvedObject.namespace", namespace, why))
}

/// What an event of the new style may not have any more, and what its series has (`ValidateEventCreate`).
fn new_style_errors(event: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let set = |pointer: &str| match event.pointer(pointer) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(other) => other.as_i64() != Some(0),
    };
    for (shown, pointers) in [
        ("firstTimestamp", &["/deprecatedFirstTimestamp"][..]),
        ("lastTimestamp", &["/deprecatedLastTimestamp"]),
        ("count", &["/deprecatedCount"]),
        ("source", &["/deprecatedSource/component", "/deprecatedSource/host"]),
    ] {
        if pointers.iter().any(|pointer| set(pointer)) {
            errors.push(FieldError::invalid_text(shown, "", "needs to be unset"));
        }
    }
    errors.extend(series_errors(event));
    errors
}

fn series_errors(event: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(series) = event.get("series").filter(|series| series.is_object()) {
        if series.get("count").and_then(Value::as_i64).unwrap_or(0) < 2 {
            errors.push(FieldError::invalid_text("series.count", "", "should be at least 2"));
        }
        if series.get("lastObservedTime").and_then(Value::as_str).is_none_or(str::is_empty) {
            errors.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    errors
}

/// The strict rules of events.k8s.io/v1. The real server checks the internal type, so some fields show their core
/// names.
pub fn validate_event(event: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(old) = old {
        let time = event.get("eventTime").is_some_and(Value::is_string);
        let namespace = event.pointer("/regarding/namespace").and_then(Value::as_str).unwrap_or_default();
        errors.extend(homeless_error(namespace, meta::metadata_text(event, "namespace")).filter(|_| time));
        if event.get("series") != old.get("series") {
            errors.extend(series_errors(event));
        }
        errors.extend(immutable_errors(event, old));
        return errors;
    }
    if !event.get("eventTime").is_some_and(Value::is_string) {
        errors.push(FieldError::required("eventTime", ""));
        // The old rules come first; they know the object by its old name.
        let core = convert_event(event.clone(), "v1");
        errors.extend(core_errors(&core, None));
        let kind = text_of(event, "type");
        if !matches!(kind, "Normal" | "Warning") {
            errors.push(FieldError::invalid_text("type", "", &format!("has invalid value: {kind}")));
        }
        return errors;
    }
    let namespace = event.pointer("/regarding/namespace").and_then(Value::as_str).unwrap_or_default();
    errors.extend(homeless_error(namespace, meta::metadata_text(event, "namespace")));
    errors.extend(new_style_errors(event));
    let controller = text_of(event, "reportingController");
    if controller.is_empty() {
        errors.push(FieldError::required("reportingController", ""));
    }
    for problem in meta::qualified_name_problems(controller) {
        errors.push(FieldError::invalid_text("reportingController", controller, &problem));
    }
    for (member, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = text_of(event, member);
        if value.is_empty() {
            errors.push(FieldError::required(member, ""));
        }
        if value.len() > limit {
            let why = format!("can have at most {limit} characters");
            errors.push(FieldError::invalid_text(member, "", &why));
        }
    }
    let kind = text_of(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid_text("type", "", &format!("has invalid value: {kind}")));
    }
    if text_of(event, "note").len() > 1024 {
        errors.push(FieldError::invalid_text("message", "", "can have at most 1024 characters"));
    }
    errors
}

/// The fields of an owner who wrote through the other group cannot be shown in this one: the entries go with the next
/// write (`merge.Updater` drops what it cannot convert).
pub fn drop_foreign_owners(event: &mut Value, api_version: &str) {
    let Some(metadata) = event.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) else { return };
    entries.retain(|entry| entry["apiVersion"] == api_version);
    if entries.is_empty() {
        metadata.remove("managedFields");
    }
}

/// A value as Go prints the internal type.
fn internal_value(member: &str, value: Option<&Value>) -> String {
    let text = |name: &str| {
        let text = value.and_then(|value| value.get(name)).and_then(Value::as_str).unwrap_or_default();
        crate::error::go_quote(text)
    };
    match member {
        "regarding" | "related" if value.is_some_and(Value::is_object) || member == "regarding" => format!(
            "{{\"Kind\":{},\"Namespace\":{},\"Name\":{},\"UID\":{},\"APIVersion\":{},\"ResourceVersion\":{},\
             \"FieldPath\":{}}}",
            text("kind"),
            text("namespace"),
            text("name"),
            text("uid"),
            text("apiVersion"),
            text("resourceVersion"),
            text("fieldPath")
        ),
        "deprecatedSource" => format!("{{\"Component\":{},\"Host\":{}}}", text("component"), text("host")),
        "deprecatedCount" => value.and_then(Value::as_i64).unwrap_or(0).to_string(),
        "related" | "eventTime" | "deprecatedFirstTimestamp" | "deprecatedLastTimestamp" => {
            value.map_or_else(|| "null".to_owned(), Value::to_string)
        }
        _ => value.map_or_else(|| "\"\"".to_owned(), Value::to_string),
    }
}

/// What an update may not change, with how many times the real server says so.
fn immutable_errors<'a>(event: &'a Value, old: &'a Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let fields = [
        ("regarding", "involvedObject", 1),
        ("reason", "reason", 2),
        ("note", "message", 1),
        ("deprecatedSource", "source", 1),
        ("deprecatedFirstTimestamp", "firstTimestamp", 1),
        ("deprecatedLastTimestamp", "lastTimestamp", 1),
        ("deprecatedCount", "count", 1),
        ("type", "type", 1),
        ("eventTime", "eventTime", 1),
        ("action", "action", 1),
        ("related", "related", 1),
        ("reportingController", "reportingController", 1),
        ("reportingInstance", "reportingInstance", 1),
    ];
    for (member, shown, times) in fields {
        let filled = |event: &'a Value| event.get(member).filter(|value| !value.is_null());
        let (before, after) = (filled(old), filled(event));
        if before != after {
            let message = format!("Invalid value: {}: field is immutable", internal_value(member, after));
            for _ in 0..times {
                errors.push(FieldError::new(CauseReason::Invalid, shown, message.clone()));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The answers of kube-apiserver 1.36 to such events.
    #[test]
    fn an_event_of_the_new_style_has_nothing_of_the_old() {
        let told = |members: Value| {
            let mut event = json!({"kind": "Event", "apiVersion": "events.k8s.io/v1",
                "metadata": {"name": "e", "namespace": "n"}, "eventTime": "2020-01-01T00:00:00.000000Z",
                "regarding": {"namespace": "other"}, "reportingController": "a.b/c", "reportingInstance": "i",
                "action": "a", "reason": "r", "type": "Normal"});
            event = crate::patch::merge_patch(&event, &members).unwrap();
            let errors = validate_event(&event, None);
            errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect::<Vec<_>>()
        };
        assert!(told(json!({})).is_empty());
        let misplaced = ["involvedObject.namespace: Invalid value: \"\": does not match event.namespace"];
        assert_eq!(told(json!({"regarding": {"namespace": null, "kind": "Node"}})), misplaced);
        assert_eq!(told(json!({"deprecatedCount": 1})), ["count: Invalid value: \"\": needs to be unset"]);
        let from = json!({"deprecatedSource": {"host": "a"}, "deprecatedCount": 0});
        assert_eq!(told(from), ["source: Invalid value: \"\": needs to be unset"]);
        assert_eq!(
            told(json!({"series": {"count": 1}})),
            ["series.count: Invalid value: \"\": should be at least 2", "series.lastObservedTime: Required value"]
        );
    }

    #[test]
    fn an_update_shows_what_it_may_not_change_as_go_prints_it() {
        let old = json!({"metadata": {"namespace": "n"}, "eventTime": "2020-01-01T00:00:00.000000Z",
            "regarding": {"kind": "Pod", "namespace": "n"}, "deprecatedCount": 5});
        let told = |members: Value| {
            let event = crate::patch::merge_patch(&old, &members).unwrap();
            let errors = validate_event(&event, Some(&old));
            errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect::<Vec<_>>()
        };
        assert!(told(json!({})).is_empty());
        assert_eq!(told(json!({"deprecatedCount": null})), ["count: Invalid value: 0: field is immutable"]);
        assert_eq!(told(json!({"eventTime": null})), ["eventTime: Invalid value: null: field is immutable"]);
        let shown = "{\"Kind\":\"\",\"Namespace\":\"\",\"Name\":\"q\",\"UID\":\"\",\"APIVersion\":\"\",\
                     \"ResourceVersion\":\"\",\"FieldPath\":\"\"}";
        let why = format!("related: Invalid value: {shown}: field is immutable");
        assert_eq!(told(json!({"related": {"name": "q"}})), [why]);
        let series =
            ["series.count: Invalid value: \"\": should be at least 2", "series.lastObservedTime: Required value"];
        assert_eq!(told(json!({"series": {"count": 0}})), series);
        let homeless = told(json!({"regarding": {"namespace": null}}));
        assert_eq!(homeless[0], "involvedObject.namespace: Invalid value: \"\": does not match event.namespace");
    }

    #[test]
    fn a_write_through_one_group_ends_the_ownership_of_the_other() {
        let owners = |versions: &[&str]| {
            let entries: Vec<Value> = versions.iter().map(|version| json!({"apiVersion": version})).collect();
            json!({"metadata": {"managedFields": entries}})
        };
        let mut event = owners(&["v1", "events.k8s.io/v1"]);
        drop_foreign_owners(&mut event, "v1");
        assert_eq!(event, owners(&["v1"]));
        drop_foreign_owners(&mut event, "events.k8s.io/v1");
        assert_eq!(event, json!({"metadata": {}}));
    }

    #[test]
    fn the_views_rename_and_come_back() {
        let core = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod"}, "message": "m", "source": {"component": "c"},
            "firstTimestamp": null, "lastTimestamp": null, "count": 2, "eventTime": null,
            "reportingComponent": "", "reportingInstance": "",
        });
        let new = convert_event(core.clone(), "events.k8s.io/v1");
        assert_eq!((&new["note"], &new["deprecatedCount"]), (&json!("m"), &json!(2)));
        assert!(new.get("reportingController").is_none());
        assert_eq!(convert_event(new, "v1"), core);
    }
}
