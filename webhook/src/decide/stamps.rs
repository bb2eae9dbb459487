//! Stamps: annotations that are ours, whatever a user writes there.

use json_patch::{PatchOperation, RemoveOperation, jsonptr::PointerBuf};
use serde_json::{Map, Value};

use super::patch::set_field;

const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];

/// An annotation, and what it is to be; nothing to have none.
pub type Stamp = (&'static str, Option<Value>);

/// What gives an object these stamps.
#[must_use]
pub fn set_stamps(object: &Value, stamps: Vec<Stamp>) -> Vec<PatchOperation> {
    let Some(annotations) = object.get("metadata").and_then(|metadata| metadata.get("annotations")?.as_object()) else {
        let all: Map<String, Value> =
            stamps.into_iter().filter_map(|(name, stamp)| Some((name.to_owned(), stamp?))).collect();
        let has_metadata = object.get("metadata").is_some_and(Value::is_object);
        return if has_metadata && !all.is_empty() { vec![set_field(&ANNOTATIONS, all)] } else { Vec::new() };
    };
    let changed = stamps.into_iter().filter(|(name, stamp)| annotations.get(*name) != stamp.as_ref());
    let change = |(name, stamp): Stamp| {
        let [metadata, all] = ANNOTATIONS;
        let path = [metadata, all, name];
        match stamp {
            Some(stamp) => set_field(&path, stamp),
            None => PatchOperation::Remove(RemoveOperation { path: PointerBuf::from_tokens(path) }),
        }
    };
    changed.map(change).collect()
}
