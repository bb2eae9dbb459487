//! Ownership rules one by one, and that an apply that repeats itself changes nothing.
#![allow(clippy::needless_pass_by_value)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn widget() -> TypeSchema {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "code": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {"port": {"type": "integer"}, "name": {"type": "string"},
                    "protocol": {"type": "string", "default": "TCP"}}}},
            "steps": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "extra": {"type": "object", "additionalProperties": {"type": "string"}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}}
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
    }});
    TypeSchema::from_crd(&schema, false)
}

fn writer<'a>(manager: &'a str, now: &'a str) -> Writer<'a> {
    Writer { manager, subresource: "", api_version: "x.io/v1", now }
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
}

fn fields(object: &Value, manager: &str) -> Value {
    let list = object.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    list.iter().find(|entry| entry["manager"] == manager).map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

fn applied(live: Option<&Value>, spec: Value, manager: &str, force: bool) -> Result<Value, ApplyError> {
    apply(live, &object(spec), &writer(manager, "t1"), force, &widget())
}

#[test]
fn an_applier_owns_what_it_sends_and_no_defaults() {
    let live =
        applied(None, json!({"size": 1, "tags": ["x"], "ports": [{"port": 80}], "whole": {"a": "1"}}), "one", false)
            .unwrap();
    let wanted = json!({"f:spec": {"f:size": {}, "f:tags": {"v:\"x\"": {}}, "f:whole": {},
        "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}});
    assert_eq!(fields(&live, "one"), wanted);
    assert_eq!(live["metadata"]["managedFields"][0]["time"], "t1");
}

#[test]
fn a_different_value_conflicts_and_an_equal_one_is_shared() {
    let live = applied(None, json!({"size": 1, "code": "a"}), "one", false).unwrap();
    let error = applied(Some(&live), json!({"size": 1, "code": "b"}), "two", false).unwrap_err();
    let conflict = Conflict { message: "conflict with \"one\"".to_owned(), field: ".spec.code".to_owned() };
    assert_eq!(error, ApplyError::Conflicts(vec![conflict]));
    let shared = applied(Some(&live), json!({"size": 1}), "two", false).unwrap();
    assert_eq!(fields(&shared, "two"), json!({"f:spec": {"f:size": {}}}));
    let entries = shared["metadata"]["managedFields"].as_array().unwrap();
    let two = entries.iter().find(|entry| entry["manager"] == "two").unwrap();
    assert!(two.get("time").is_none(), "taking a share changes nothing and has no time");
}

#[test]
fn force_takes_a_field_away_from_its_owner() {
    let live = applied(None, json!({"size": 1, "code": "a"}), "one", false).unwrap();
    let forced = applied(Some(&live), json!({"size": 2}), "two", true).unwrap();
    assert_eq!(forced["spec"], json!({"size": 2, "code": "a"}));
    assert_eq!(fields(&forced, "one"), json!({"f:spec": {"f:code": {}}}));
}

#[test]
fn a_field_no_longer_applied_goes_unless_someone_else_owns_it() {
    let live = applied(None, json!({"size": 1, "code": "a", "extra": {"k": "v", "l": "w"}}), "one", false).unwrap();
    let live = applied(Some(&live), json!({"code": "a"}), "two", false).unwrap();
    let next = applied(Some(&live), json!({"extra": {"k": "v"}}), "one", false).unwrap();
    assert_eq!(next["spec"], json!({"code": "a", "extra": {"k": "v"}}));
}

#[test]
fn a_field_an_updater_set_stays_when_the_applier_drops_its_own() {
    let mut live = object(json!({"code": "a"}));
    track_update(None, &mut live, &writer("up", "t0"), &widget());
    let live = applied(Some(&live), json!({"size": 1, "ports": [{"port": 1}]}), "one", false).unwrap();
    let next = applied(Some(&live), json!({}), "one", false).unwrap();
    assert_eq!(next["spec"], json!({"code": "a"}));
}

#[test]
fn conflicts_with_a_plain_writer_name_its_version() {
    let mut live = object(json!({"code": "a"}));
    let scaler = Writer { subresource: "scale", ..writer("up", "t0") };
    track_update(None, &mut live, &scaler, &widget());
    let Err(ApplyError::Conflicts(conflicts)) = applied(Some(&live), json!({"code": "b"}), "one", false) else {
        panic!("expected conflicts");
    };
    assert_eq!(conflicts[0].message, "conflict with \"up\" with subresource \"scale\" using x.io/v1");
}

#[test]
fn objects_without_entries_get_a_first_owner_when_applied_to() {
    let live = object(json!({"size": 1, "code": "a"}));
    let next = applied(Some(&live), json!({"size": 1}), "one", false).unwrap();
    assert_eq!(fields(&next, "before-first-apply"), json!({"f:spec": {".": {}, "f:code": {}, "f:size": {}}}));
    let error = applied(Some(&live), json!({"size": 2}), "one", false).unwrap_err();
    assert!(matches!(error, ApplyError::Conflicts(list) if list[0].message.contains("before-first-apply")));
}

#[test]
fn lists_merge_by_key_and_sets_by_value_in_the_applied_order() {
    let live =
        applied(None, json!({"tags": ["a", "b"], "ports": [{"port": 1, "name": "x"}, {"port": 2}]}), "one", false)
            .unwrap();
    let next = applied(
        Some(&live),
        json!({"tags": ["c", "b"], "ports": [{"port": 3}, {"port": 1, "protocol": "TCP"}]}),
        "two",
        false,
    )
    .unwrap();
    assert_eq!(next["spec"]["tags"], json!(["a", "c", "b"]));
    let ports = json!([{"port": 3}, {"port": 1, "name": "x", "protocol": "TCP"}, {"port": 2}]);
    assert_eq!(next["spec"]["ports"], ports);
}

#[test]
fn an_applied_object_must_fit_its_type() {
    let text = |spec: Value| applied(None, spec, "one", false).unwrap_err().to_string();
    let head = "failed to create typed patch object (/a; x.io/v1, Kind=Widget): ";
    assert_eq!(text(json!({"bogus": 1})), format!("{head}.spec.bogus: field not declared in schema"));
    assert_eq!(
        text(json!({"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]})),
        format!("{head}.spec.ports: duplicate entries for key [port=80,protocol=\"TCP\"]")
    );
    assert_eq!(text(json!({"tags": ["a", "a"]})), format!("{head}.spec.tags: duplicate entries for key [=\"a\"]"));
    assert_eq!(
        text(json!({"code": 1})),
        format!("{head}.spec.code: expected string, got &value.valueUnstructured{{Value:1}}")
    );
    let nested = "map[string]interface {}{\"a\":[]interface {}{interface {}(nil), 1.5}}";
    assert_eq!(
        text(json!({"code": {"a": [null, 1.5]}})),
        format!("{head}.spec.code: expected string, got &value.valueUnstructured{{Value:{nested}}}")
    );
    let with_entries = json!({"metadata": {"name": "a", "managedFields": []}});
    let error = apply(None, &with_entries, &writer("one", "t"), false, &widget()).unwrap_err();
    assert!(matches!(error, ApplyError::BadRequest(_)));
}

#[test]
fn a_plain_writer_owns_what_it_changes() {
    let schema = TypeSchema::builtin("", "v1", "ConfigMap");
    let by = |manager| Writer { api_version: "v1", ..writer(manager, "t1") };
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "u"}, "data": data});
    let mut first = map(json!({"a": "1", "b": "1"}));
    first["metadata"].as_object_mut().unwrap().remove("uid");
    track_update(None, &mut first, &by("creator"), &schema);
    assert_eq!(fields(&first, "creator"), json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}));
    first["metadata"]["uid"] = "u".into();
    let mut second = map(json!({"a": "2", "b": "1"}));
    track_update(Some(&first), &mut second, &by("patcher"), &schema);
    assert_eq!(fields(&second, "creator"), json!({"f:data": {".": {}, "f:b": {}}}));
    assert_eq!(fields(&second, "patcher"), json!({"f:data": {"f:a": {}}}));
    let mut third = map(json!({"b": "1"}));
    track_update(Some(&second), &mut third, &by("putter"), &schema);
    assert_eq!(fields(&third, "patcher"), Value::Null, "who owns nothing has no entry");
    let mut same = third.clone();
    track_update(Some(&third), &mut same, &by("nobody"), &schema);
    assert_eq!(same, third);
    let mut reset = third.clone();
    reset["metadata"]["managedFields"] = json!([{}]);
    track_update(Some(&third), &mut reset, &by("x"), &schema);
    assert!(reset["metadata"].get("managedFields").is_none());
    let mut later = reset.clone();
    later["data"]["z"] = "1".into();
    track_update(Some(&reset), &mut later, &by("x"), &schema);
    assert!(later["metadata"].get("managedFields").is_none(), "untracked objects stay untracked");
}

#[test]
fn structs_that_are_always_there_are_not_owned() {
    let schema = TypeSchema::builtin("", "v1", "Pod");
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    schema.default(&mut pod);
    track_update(None, &mut pod, &Writer { api_version: "v1", ..writer("m", "t") }, &schema);
    let owned = fields(&pod, "m");
    assert!(owned["f:spec"].get(".").is_none());
    assert!(owned["f:spec"]["f:containers"].get(".").is_none());
    assert_eq!(owned["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:resources"], json!({}));
}

#[test]
fn many_writers_are_merged_into_ancient_ones() {
    let schema = widget();
    let mut live = object(json!({"extra": {}}));
    live["metadata"]["uid"] = "u".into();
    track_update(None, &mut live, &writer("w00", "t00"), &schema);
    live["metadata"]["managedFields"] = json!([{"manager": "w00", "operation": "Update", "apiVersion": "x.io/v1",
        "time": "t00", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]);
    for index in 1..=12 {
        let mut next = live.clone();
        next["spec"]["extra"][format!("k{index}")] = "v".into();
        let (name, time) = (format!("w{index:02}"), format!("t{index:02}"));
        track_update(Some(&live), &mut next, &writer(&name, &time), &schema);
        live = next;
    }
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert!(entries.iter().any(|entry| entry["manager"] == "ancient-changes"));
}

#[test]
fn only_a_new_time_is_no_change() {
    let old = applied(None, json!({"size": 1}), "one", false).unwrap();
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = "t9".into();
    keep_times(&old, &mut new);
    assert_eq!(new, old);
    new["spec"]["size"] = 2.into();
    new["metadata"]["managedFields"][0]["time"] = "t9".into();
    keep_times(&old, &mut new);
    assert_eq!(new["metadata"]["managedFields"][0]["time"], "t9");
}

fn any_spec() -> impl Strategy<Value = Value> {
    let port = (1..4i64, prop::option::of("[ab]")).prop_map(|(port, name)| match name {
        Some(name) => json!({"port": port, "name": name}),
        None => json!({"port": port}),
    });
    (
        prop::option::of(0..3i64),
        prop::option::of("[ab]"),
        prop::collection::btree_set("[a-d]", 0..4),
        prop::collection::vec(port, 0..4),
        prop::collection::btree_map("[a-c]", "[xy]", 0..3),
        prop::option::of(0..2i64),
    )
        .prop_map(|(size, code, tags, mut ports, extra, step)| {
            ports.sort_by_key(|port| port["port"].as_i64());
            ports.dedup_by_key(|port| port["port"].as_i64());
            let mut spec = json!({"tags": tags, "ports": ports, "extra": extra});
            if let Some(size) = size {
                spec["size"] = size.into();
            }
            if let Some(code) = code {
                spec["code"] = code.into();
            }
            if let Some(step) = step {
                spec["steps"] = json!([{"n": step}]);
            }
            spec
        })
}

proptest! {
    #[test]
    fn applying_twice_changes_nothing_the_second_time(first in any_spec(), other in any_spec(), mine in any_spec()) {
        let schema = widget();
        let live = apply(None, &object(first), &writer("one", "t1"), false, &schema).unwrap();
        let mut updated = object(other);
        track_update(Some(&live), &mut updated, &writer("up", "t2"), &schema);
        let once = apply(Some(&updated), &object(mine.clone()), &writer("two", "t3"), true, &schema).unwrap();
        let twice = apply(Some(&once), &object(mine.clone()), &writer("two", "t4"), false, &schema).unwrap();
        prop_assert_eq!(&twice, &once);
        // What was applied is there.
        for (key, value) in mine.as_object().unwrap() {
            if !value.is_array() && !value.is_object() {
                prop_assert_eq!(&once["spec"][key], value);
            }
        }
    }

    #[test]
    fn encoded_sets_read_back_as_they_were(spec in any_spec()) {
        let schema = widget();
        let set = typed::field_set(&object(spec), Type::root(schema.node()));
        prop_assert_eq!(Set::decode(&set.encode()), Some(set));
    }
}

#[test]
fn conflicts_come_in_the_order_of_the_owners_entries() {
    let managers = |subresource: &str| super::managed::Manager {
        name: "m".to_owned(),
        applies: false,
        version: "v1".to_owned(),
        subresource: subresource.to_owned(),
    };
    assert!(managers("scale").identifier() < managers("").identifier());
}
