//! Each rule of the three formats, and that a difference expressed as a JSON patch leads from one value to the other.
#![allow(clippy::needless_pass_by_value)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn patched(target: Value, operations: Value) -> Result<Value, PatchError> {
    json_patch(&target, &operations)
}

#[test]
fn json_patch_is_lenient_where_the_library_is() {
    let target = json!({"a": {"b": 1}, "l": [1, 2]});
    let ok = |operations| patched(target.clone(), operations).unwrap();
    assert_eq!(ok(json!([{"op": "replace", "path": "/a/c", "value": 2}]))["a"]["c"], 2);
    assert_eq!(ok(json!([{"op": "copy", "from": "/a/c", "path": "/a/d"}]))["a"]["d"], Value::Null);
    assert_eq!(ok(json!([{"op": "add", "path": "/l/-1", "value": 3}]))["l"], json!([1, 2, 3]));
    assert_eq!(ok(json!([{"op": "test", "path": "/a/none", "value": null}])), target);
    assert_eq!(ok(json!([{"op": "add", "path": "/a~1b", "value": 1}]))["a/b"], 1);
}

#[test]
fn a_map_whose_strategy_is_to_replace_is_taken_as_it_is() {
    let schema = crate::schema::TypeSchema::builtin("policy", "v1", "PodDisruptionBudget");
    let budget = json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    let patch = json!({"spec": {"selector": {"matchLabels": {"c": "d"}}}});
    let patched = strategic_merge(&budget, &patch, &schema).unwrap();
    assert_eq!(patched["spec"], json!({"minAvailable": 1, "selector": {"matchLabels": {"c": "d"}}}));
}

#[test]
fn json_patch_refuses_what_is_not_there() {
    let target = json!({"a": {"b": 1}, "l": [1, 2]});
    for operation in [
        json!({"op": "remove", "path": "/x"}),
        json!({"op": "move", "from": "/x", "path": "/y"}),
        json!({"op": "copy", "from": "/x/y", "path": "/y"}),
        json!({"op": "add", "path": "/x/y", "value": 1}),
        json!({"op": "add", "path": "/l/5", "value": 1}),
        json!({"op": "remove", "path": "/l/2"}),
        json!({"op": "replace", "path": "/l/2", "value": 1}),
        json!({"op": "add", "path": "/a/b/c", "value": 1}),
        json!({"op": "test", "path": "/a/b", "value": 1.0}),
        json!({"op": "odd", "path": "/a"}),
        json!({"op": "add"}),
    ] {
        let error = patched(target.clone(), json!([operation])).unwrap_err();
        assert!(matches!(error, PatchError::Inapplicable(_)), "{operation}: {error:?}");
    }
    assert!(matches!(patched(target, json!({})), Err(PatchError::Malformed(_))));
}

#[test]
fn json_patch_is_decoded_as_a_whole_before_anything_is_done() {
    let target = json!({"a": 1});
    for operations in [json!([{"op": "remove", "path": "/none"}, 7]), json!([{"op": "remove", "path": 7}])] {
        let error = patched(target.clone(), operations).unwrap_err();
        assert!(matches!(&error, PatchError::Malformed(why) if why.contains("cannot unmarshal")), "{error:?}");
    }
    let odd = json!([{"op": "test", "path": "/a", "value": 1, "extra": 1, "from": null}]);
    assert_eq!(unknown_members(&odd), ["json patch unknown field \"[0].extra\""]);
}

#[test]
fn merge_patch_drops_nulls_in_what_it_adds() {
    let target = json!({"x": {"a": 1}, "l": [9], "o": {"p": 1}});
    let patch = json!({"x": null, "new": {"n": null, "m": 1}, "l": [null, {"a": null}], "o": [{"a": null}]});
    let wanted = json!({"new": {"m": 1}, "l": [null, {}], "o": [{"a": null}]});
    assert_eq!(merge_patch(&target, &patch).unwrap(), wanted);
    assert!(matches!(merge_patch(&target, &json!([])), Err(PatchError::Malformed(_))));
}

fn pod(containers: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})
}

fn strategic(target: &Value, patch: Value) -> Result<Value, PatchError> {
    strategic_merge(target, &patch, &TypeSchema::builtin("", "v1", "Pod"))
}

fn names(value: &Value) -> Vec<&str> {
    value["spec"]["containers"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect()
}

#[test]
fn strategic_merge_finds_elements_by_their_merge_key() {
    let target =
        pod(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1", "env": [{"name": "E", "value": "1"}]}]));
    let patch =
        pod(json!([{"name": "b", "image": "2", "env": [{"name": "F", "value": "2"}, {"name": "E", "value": "3"}]}]));
    let merged = strategic(&target, patch).unwrap();
    assert_eq!(names(&merged), ["a", "b"]);
    assert_eq!(merged["spec"]["containers"][1]["image"], "2");
    let env = json!([{"name": "F", "value": "2"}, {"name": "E", "value": "3"}]);
    assert_eq!(merged["spec"]["containers"][1]["env"], env);
    // A new element comes first: nothing stored says where it belongs.
    let merged = strategic(&target, pod(json!([{"name": "n", "image": "1"}]))).unwrap();
    assert_eq!(names(&merged), ["n", "a", "b"]);
}

#[test]
fn strategic_directives_delete_replace_order_and_retain() {
    let target = pod(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}, {"name": "c", "image": "1"}]));
    let deleted = strategic(&target, pod(json!([{"name": "b", "$patch": "delete"}]))).unwrap();
    assert_eq!(names(&deleted), ["a", "c"]);
    let replaced = strategic(&target, pod(json!([{"name": "x", "image": "1"}, {"$patch": "replace"}]))).unwrap();
    assert_eq!(names(&replaced), ["x"]);
    let order = json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]}});
    assert_eq!(names(&strategic(&target, order).unwrap()), ["c", "b", "a"]);
    let volumes = json!({"spec": {"containers": [], "volumes": [{"name": "v", "configMap": {"name": "x"}}]}});
    let keep = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}});
    let kept = strategic(&volumes, keep).unwrap();
    assert_eq!(kept["spec"]["volumes"], json!([{"name": "v", "emptyDir": {}}]));
    let both = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "emptyDir": {}}]}});
    assert!(matches!(strategic(&volumes, both), Err(PatchError::Malformed(_))));
    let emptied = strategic(&target, json!({"metadata": {"$patch": "delete"}})).unwrap();
    assert_eq!(emptied["metadata"], json!({}));
}

#[test]
fn strategic_merge_treats_lists_of_scalars_as_sets_or_replaces_them() {
    let target = json!({"metadata": {"name": "p", "finalizers": ["x/a", "x/b"]},
        "spec": {"containers": [{"name": "m", "args": ["1", "2"]}]}});
    let merged = strategic(&target, json!({"metadata": {"finalizers": ["x/c", "x/a"]}})).unwrap();
    assert_eq!(merged["metadata"]["finalizers"], json!(["x/c", "x/a", "x/b"]));
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}});
    assert_eq!(strategic(&target, patch).unwrap()["metadata"]["finalizers"], json!(["x/b"]));
    let merged = strategic(&target, pod(json!([{"name": "m", "args": ["3"]}]))).unwrap();
    assert_eq!(merged["spec"]["containers"][0]["args"], json!(["3"]));
}

#[test]
fn strategic_merge_complains_in_the_library_s_words() {
    let target = pod(json!([{"name": "a", "image": "1"}]));
    let text = |patch| strategic(&target, patch).unwrap_err().to_string();
    assert_eq!(text(pod(json!([{"image": "x"}]))), "map: map[image:x] does not contain declared merge key: name");
    assert_eq!(text(pod(json!("x"))), "cannot restore slice from string");
    assert_eq!(text(pod(json!(["x"]))), "list element types are not identical: [[map[image:1 name:a]] [x]]");
    let mismatch = strategic(&target, json!({"spec": {"priority": "x"}})).unwrap_err();
    let wanted = PatchError::Mismatch {
        patch: "map[spec:map[priority:x]]".to_owned(),
        detail: "unrecognized type: int32".to_owned(),
    };
    assert_eq!(mismatch, wanted);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c~/]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c~/]{1,2}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The merge patch that leads from one object to another without nulls.
fn difference(from: &Value, to: &Value) -> Value {
    let (Some(from), Some(to)) = (from.as_object(), to.as_object()) else { return to.clone() };
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let set = to
        .iter()
        .filter(|(key, value)| from.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), difference(from.get(key).unwrap_or(&Value::Null), value)));
    Value::Object(gone.chain(set).collect())
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

proptest! {
    #[test]
    fn a_json_diff_leads_from_one_value_to_the_other(from in any_value(), to in any_value()) {
        // Nothing else is patched: a document is an object or a list.
        prop_assume!(to.is_object() || to.is_array());
        let diff = ::json_patch::diff(&from, &to);
        let operations = serde_json::to_value(diff).unwrap();
        prop_assert_eq!(json_patch(&from, &operations).unwrap(), to);
    }

    #[test]
    fn a_merge_diff_leads_from_one_object_to_the_other(from in any_value(), to in any_value()) {
        let (from, to) = (json!({"o": without_nulls(from)}), json!({"o": without_nulls(to)}));
        let patch = difference(&from, &to);
        if to["o"] != Value::Null {
            prop_assert_eq!(merge_patch(&from, &patch).unwrap(), to);
        }
    }
}
