//! `ObjectMeta`: reading it, what an update keeps of it, and what it warns of.

mod decode;
mod names;
mod validate;

use serde_json::{Map, Value};

use crate::error::go_quote;

pub use decode::{decode_metadata, drop_undecodable, json_type};
pub use names::{
    label_problems, label_value_problems, path_segment_problems, qualified_name_problems, subdomain_problems,
};
pub use validate::{go_text, is_known_finalizer, label_errors, validate_metadata, validate_update};

/// The Go type that kind and version are read into.
pub const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// `metadata` of an object, as a map.
pub fn metadata_of(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata").and_then(Value::as_object)
}

/// `metadata` of an object, made if missing.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if object.get("metadata").and_then(Value::as_object).is_none() {
        object["metadata"] = Value::Object(Map::new());
    }
    match object.get_mut("metadata") {
        Some(Value::Object(map)) => map,
        // Just made: cannot be anything else.
        _ => unreachable!("metadata is an object"),
    }
}

/// A text member of `metadata`, empty when absent.
pub fn metadata_text<'a>(object: &'a Value, member: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(member)).and_then(Value::as_str).unwrap_or_default()
}

pub fn object_name(object: &Value) -> &str {
    metadata_text(object, "name")
}

pub fn is_deleting(object: &Value) -> bool {
    !metadata_text(object, "deletionTimestamp").is_empty()
}

pub fn finalizers_of(object: &Value) -> Vec<&str> {
    let list = object.get("metadata").and_then(|m| m.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

pub fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let metadata = metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.iter().map(|f| Value::from(f.as_str())).collect());
    }
}

/// Warnings for a custom resource's finalizers, and for repeated owners (which are removed here).
pub fn metadata_warnings(object: &mut Value, old: Option<&Value>, custom: bool, patched: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if custom {
        let before = old.map(finalizers_of).unwrap_or_default();
        for finalizer in finalizers_of(object) {
            if !is_known_finalizer(finalizer) && !before.contains(&finalizer) {
                warnings.push(format!(
                    "metadata.finalizers: {}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other \
                     finalizer writers",
                    go_quote(finalizer)
                ));
            }
        }
    }
    if let Some(Value::Array(owners)) = object.get_mut("metadata").and_then(|m| m.get_mut("ownerReferences")) {
        let mut seen: Vec<Value> = Vec::new();
        let mut repeated: Vec<String> = Vec::new();
        owners.retain(|owner| {
            let fresh = !seen.contains(owner);
            if fresh {
                seen.push(owner.clone());
            } else if let Some(uid) = owner.get("uid").and_then(Value::as_str) {
                repeated.push(uid.to_owned());
            }
            fresh
        });
        if !repeated.is_empty() {
            repeated.dedup();
            // A patch is only known after admission.
            let found = if patched { " after mutating admission happens" } else { "" };
            warnings.push(format!(
                ".metadata.ownerReferences contains duplicate entries{found}; API server dedups owner references in 1.20+, and may reject \
                 such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
                repeated.join(", ")
            ));
        }
    }
    warnings
}

/// Members the server owns: an update keeps the stored ones where the client left them out.
pub fn unsent_members(object: &Value) -> Vec<&'static str> {
    let sent = |member: &&str| metadata_of(object).is_some_and(|m| m.contains_key(*member));
    let members = ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];
    members.into_iter().filter(|member| !sent(member)).collect()
}

pub fn keep_server_members(new: &mut Value, old: &Value, has_namespace: bool) {
    let old_metadata = metadata_of(old).cloned().unwrap_or_default();
    let metadata = metadata_mut(new);
    let mut keep = |member: &str, always: bool| match old_metadata.get(member) {
        Some(value) if always || !metadata.contains_key(member) => {
            metadata.insert(member.into(), value.clone());
        }
        None if always => {
            metadata.remove(member);
        }
        _ => {}
    };
    keep("uid", false);
    keep("creationTimestamp", true);
    keep("generation", true);
    // A deletion that is under way keeps its time, whatever is sent (`ValidateObjectMetaAccessorUpdate`).
    keep("deletionTimestamp", is_deleting(old));
    keep("deletionGracePeriodSeconds", false);
    keep("namespace", !has_namespace);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subdomains_follow_rfc_1123() {
        for good in ["a", "a-b.c", "0"] {
            assert!(subdomain_problems(good).is_empty(), "{good}");
        }
        for bad in ["", "A", "-a", "a..b", "a_b", "a/b", "a."] {
            assert!(!subdomain_problems(bad).is_empty(), "{bad}");
        }
    }

    #[test]
    fn decoding_drops_what_go_would_not_print() {
        let mut object =
            json!({"metadata": {"name": "a", "labels": {}, "creationTimestamp": null, "nope": 1, "selfLink": "/x"}});
        assert_eq!(decode_metadata(&mut object).unwrap(), ["metadata.nope"]);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn decoding_refuses_wrong_types() {
        assert!(decode_metadata(&mut json!({"metadata": {"labels": {"a": 5}}})).is_err());
        assert!(decode_metadata(&mut json!({"metadata": "x"})).is_err());
        assert!(decode_metadata(&mut json!({"metadata": {"finalizers": "x"}})).is_err());
    }

    #[test]
    fn repeated_owners_are_removed_with_a_warning() {
        let owner = json!({"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, owner]}});
        assert_eq!(metadata_warnings(&mut object, None, false, false).len(), 1);
        assert_eq!(object["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn what_was_not_sent_is_known() {
        let sent = json!({"metadata": {"name": "a", "uid": "u"}});
        assert!(!unsent_members(&sent).contains(&"uid") && unsent_members(&sent).contains(&"creationTimestamp"));
    }
}
