//! JSON patches (RFC 6902): the least that makes one object of another.

use base64::{Engine, engine::general_purpose::STANDARD};
use json_patch::{AddOperation, PatchOperation, jsonptr::PointerBuf};
use serde_json::Value;

/// Sets the member at this path, whether it is there or not.
pub fn set_field(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path.iter().copied()), value: value.into() })
}

/// The operations that make `new` of `old`; none if they are equal.
#[must_use]
pub fn patch_between(old: &Value, new: &Value) -> Vec<PatchOperation> {
    json_patch::diff(old, new).0
}

/// A patch as answers carry it: base64 of its JSON. A patch is made of plain values, which always have a JSON form.
pub(crate) fn encode_patch(patch: &[PatchOperation]) -> String {
    STANDARD.encode(serde_json::to_vec(patch).unwrap_or_default())
}

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
}
