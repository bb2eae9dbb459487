//! JSON patches (RFC 6902): what makes one object of another, and how answers carry it.
//!
//! It is the least that does, up to [`MOST_OPERATIONS`]: beyond that one operation replaces what holds all changes. An
//! answer has it in base64, which is appended piece by piece.

use std::io::{BufWriter, Write};

use base64::{engine::general_purpose::STANDARD, write::EncoderStringWriter};
use json_patch::{AddOperation, PatchOperation, ReplaceOperation, jsonptr::PointerBuf};
use serde_json::Value;

/// Operations of one patch at most, give or take a few: an API server takes 10,000.
pub const MOST_OPERATIONS: usize = 1_000;

/// Sets the member at this path, whether it is there or not.
pub fn set_field(path: &[impl AsRef<str>], value: impl Into<Value>) -> PatchOperation {
    let path = PointerBuf::from_tokens(path.iter().map(AsRef::as_ref));
    PatchOperation::Add(AddOperation { path, value: value.into() })
}

/// The operations that make `new` of `old`; none if they are equal. Where there would be many, one replaces what holds
/// all that changes.
#[must_use]
pub fn patch_between(old: &Value, new: &Value) -> Vec<PatchOperation> {
    let operations = json_patch::diff(old, new).0;
    if operations.len() <= MOST_OPERATIONS {
        return operations;
    }
    let holder =
        |operation: &PatchOperation| operation.path().as_str().rsplit_once('/').map(|(holder, _)| holder.to_owned());
    let common = operations.iter().map(|operation| holder(operation).unwrap_or_default()).reduce(|one, other| {
        let same = one.split('/').zip(other.split('/')).take_while(|(one, other)| one == other);
        same.map(|(token, _)| token).collect::<Vec<_>>().join("/")
    });
    let path = common.unwrap_or_default();
    match (PointerBuf::parse(path.as_str()), new.pointer(&path)) {
        (Ok(pointer), Some(value)) => {
            vec![PatchOperation::Replace(ReplaceOperation { path: pointer, value: value.clone() })]
        }
        _ => operations,
    }
}

/// A patch as answers carry it: base64 of its JSON. A patch is made of plain values, which always have a JSON form.
pub(crate) fn encode_patch(patch: &[PatchOperation]) -> String {
    let mut encoded = String::new();
    append_patch(patch, &mut encoded);
    encoded
}

/// The same, appended piece by piece: the JSON of a large patch is never there as a whole.
pub(crate) fn append_patch(patch: &[PatchOperation], to: &mut String) {
    let into = EncoderStringWriter::from_consumer(to, &STANDARD);
    let mut pieces = BufWriter::with_capacity(ENCODED_BYTES, into);
    // Neither of the two can fail: a string takes all.
    let _ = serde_json::to_writer(&mut pieces, patch);
    let _ = pieces.flush();
}

/// Bytes that are encoded at once: a multiple of three, so that none are left over.
const ENCODED_BYTES: usize = 12 * 1024;

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The object after the patch.
    pub(crate) fn applied(object: &Value, ops: &[PatchOperation]) -> Value {
        let mut object = object.clone();
        json_patch::patch(&mut object, ops).unwrap();
        object
    }

    pub(crate) fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3i64..3).prop_map(Value::from),
            "[a~/]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab~/]{1,2}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_patch_makes_the_new_of_the_old(old in any_json(), new in any_json()) {
            let ops = patch_between(&old, &new);
            prop_assert_eq!(&applied(&old, &ops), &new);
            prop_assert_eq!(ops.is_empty(), old == new);
        }
    }

    #[test]
    fn only_what_differs_is_touched() {
        let old = json!({"a": {"b/c": 1, "d": 2}, "e": [1, 2]});
        let new = json!({"a": {"b/c": 3, "d": 2}, "e": [1, 5]});
        let ops = patch_between(&old, &new);
        assert_eq!(
            serde_json::to_value(ops).unwrap(),
            json!([{"op": "replace", "path": "/a/b~1c", "value": 3}, {"op": "replace", "path": "/e/1", "value": 5}])
        );
    }

    #[test]
    fn many_changes_are_one_of_what_holds_them() {
        let tasks = |replicas: u32| -> Vec<Value> {
            (0..5_000).map(|at| json!({"name": format!("t{at}"), "replicas": replicas})).collect()
        };
        let work = |replicas: u32| json!({"a~b": {"x": [{"spec": {"tasks": tasks(replicas), "n": replicas}, "kept": 1}]}, "b": 2});
        let (old, new) = (work(1), work(2));
        let patch = patch_between(&old, &new);
        assert_eq!((patch.len(), patch[0].path().as_str()), (1, "/a~0b/x/0/spec"));
        assert_eq!(applied(&old, &patch), new);
    }
}
