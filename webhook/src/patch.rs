//! JSON patches (RFC 6902), as much of them as we write: set, replace, remove.

use serde::Serialize;
use serde_json::Value;

/// One operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Op {
    /// Sets a member, whether it is there or not, or inserts into a list.
    Add {
        /// JSON pointer.
        path: String,
        /// New value.
        value: Value,
    },
    /// Sets what is there.
    Replace {
        /// JSON pointer.
        path: String,
        /// New value.
        value: Value,
    },
    /// Takes away what is there.
    Remove {
        /// JSON pointer.
        path: String,
    },
}

impl Op {
    /// Sets a member, whether it is there or not.
    pub fn set(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Add { path: path.into(), value: value.into() }
    }

    /// Takes away what is there.
    pub fn remove(path: impl Into<String>) -> Self {
        Self::Remove { path: path.into() }
    }

    /// The same for an object that holds the patched one at `prefix`.
    #[must_use]
    pub fn below(mut self, prefix: &str) -> Self {
        let (Self::Add { path, .. } | Self::Replace { path, .. } | Self::Remove { path }) = &mut self;
        path.insert_str(0, prefix);
        self
    }
}

/// A key as part of a JSON pointer.
#[must_use]
pub fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The operations that make `new` of `old`; none if they are equal. Lists of different lengths are replaced whole.
#[must_use]
pub fn between(old: &Value, new: &Value) -> Vec<Op> {
    let mut ops = Vec::new();
    collect(old, new, &mut String::new(), &mut ops);
    ops
}

fn collect(old: &Value, new: &Value, path: &mut String, ops: &mut Vec<Op>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().filter(|key| !b.contains_key(*key)) {
                ops.push(Op::remove(format!("{path}/{}", escape(key))));
            }
            for (key, value) in b {
                let parent = path.len();
                path.push('/');
                path.push_str(&escape(key));
                match a.get(key) {
                    Some(before) => collect(before, value, path, ops),
                    None => ops.push(Op::set(path.clone(), value.clone())),
                }
                path.truncate(parent);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (before, after)) in a.iter().zip(b).enumerate() {
                let parent = path.len();
                path.push_str(&format!("/{i}"));
                collect(before, after, path, ops);
                path.truncate(parent);
            }
        }
        _ => ops.push(Op::Replace { path: path.clone(), value: new.clone() }),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The object after the patch, by an implementation that is not ours.
    pub(crate) fn applied(object: &Value, ops: &[Op]) -> Value {
        let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(ops).unwrap()).unwrap();
        let mut object = object.clone();
        json_patch::patch(&mut object, &patch).unwrap();
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
            let ops = between(&old, &new);
            prop_assert_eq!(&applied(&old, &ops), &new);
            prop_assert_eq!(ops.is_empty(), old == new);
        }
    }

    #[test]
    fn only_what_differs_is_touched() {
        let old = json!({"a": {"b/c": 1, "d": 2}, "e": [1, 2]});
        let new = json!({"a": {"b/c": 3, "d": 2}, "e": [1, 5]});
        let ops = between(&old, &new);
        assert_eq!(
            serde_json::to_value(ops).unwrap(),
            json!([{"op": "replace", "path": "/a/b~1c", "value": 3}, {"op": "replace", "path": "/e/1", "value": 5}])
        );
    }
}
