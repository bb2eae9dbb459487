//! The forms of one object: stored in one version, shown in any. Conversion of custom kinds is `None` (only apiVersion
//! changes, then the other schema prunes); Events and autoscalers have two real views.

use std::sync::Arc;

use serde_json::Value;

use crate::call::Payload;
use crate::resource::Resource;
use crate::store::Object;

/// The object as `resource`'s version shows it.
pub fn view_object(resource: &Resource, object: &Arc<Object>) -> Payload {
    if object.form == resource.form {
        return Payload::Stored(object.clone());
    }
    Payload::Value(convert_object(resource, object.value.clone()))
}

/// An owned copy in `resource`'s version.
pub fn view_value(resource: &Resource, object: &Arc<Object>) -> Value {
    view_object(resource, object).into_value()
}

/// A built-in kind that has several forms, in the one of this API version.
pub fn convert_builtin(resource: &Resource, value: Value, to: &str) -> Value {
    match resource.storage.as_str() {
        "events" => crate::event::convert_event(value, to),
        crate::autoscaling::STORAGE => crate::autoscaling::convert_autoscaler(value, to),
        _ => value,
    }
}

/// Brings a stored value into `resource`'s version.
fn convert_object(resource: &Resource, mut value: Value) -> Value {
    let from = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let to = resource.api_version();
    value = convert_builtin(resource, value, &to);
    if let Some(custom) = &resource.custom {
        let version = from.rsplit('/').next().unwrap_or_default();
        if let Some(stored) = custom.schemas.get(version) {
            stored.prune(&mut value);
            stored.default(&mut value);
        }
        if from != to {
            value["apiVersion"] = to.into();
            resource.schema.prune(&mut value);
        }
    }
    value
}

/// The value to store for an object written in `resource`'s version, and its form.
pub fn to_storage(resource: &Resource, mut value: Value) -> (Value, u64) {
    if resource.storage == "events" || resource.storage == crate::autoscaling::STORAGE {
        // Stored as written: each view converts on its own.
        return (value, resource.form);
    }
    match resource.custom.as_ref().and_then(|c| c.storage.as_ref()) {
        Some(storage) => {
            value["apiVersion"] = storage.api_version().into();
            storage.schema.prune(&mut value);
            storage.schema.default(&mut value);
            (value, storage.form)
        }
        None => {
            empty_to_null(resource, &mut value);
            (value, resource.form)
        }
    }
}

/// What a dry run answers: the object as it would come back from the storage (`DryRunnableStorage`), so that what the
/// stored version does not know is gone.
pub fn show_dry_run(resource: &Resource, mut object: Value) -> Value {
    if resource.custom.as_ref().and_then(|c| c.storage.as_ref()).is_none() {
        empty_to_null(resource, &mut object);
        return object;
    }
    convert_object(resource, to_storage(resource, object).0)
}

/// Built-in kinds are stored as protobuf, which cannot tell a list without items from none.
fn empty_to_null(resource: &Resource, value: &mut Value) {
    let list = match resource.plural.as_str() {
        "roles" | "clusterroles" => value.get_mut("rules"),
        "limitranges" => value.pointer_mut("/spec/limits"),
        "endpointslices" => value.get_mut("endpoints"),
        "csinodes" => value.pointer_mut("/spec/drivers"),
        _ => None,
    };
    if let Some(list) = list.filter(|list| list.as_array().is_some_and(Vec::is_empty)) {
        *list = Value::Null;
    }
}
