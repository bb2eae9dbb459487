//! The rules of this module together, and against recordings of a real API server.
#![allow(clippy::needless_pass_by_value)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read_lines(path: &std::path::Path) -> Vec<Value> {
    caldera_fixtures::read_text(path).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn default_crd(crd: &mut Value) {
    crd::default_spec(crd.as_object_mut().unwrap());
}

fn sorted_causes(causes: impl IntoIterator<Item = Value>) -> Vec<String> {
    let mut texts: Vec<String> = causes.into_iter().map(|cause| cause.to_string()).collect();
    texts.sort();
    texts
}

#[test]
fn recorded_creations_are_judged_as_recorded() {
    let dir = caldera_fixtures::find_folder("CALDERA_CONFORMANCE_DIR", "conformance");
    let crds = read_lines(&dir.join("fixtures/crds.jsonl"));
    let version = |crd: &Value| crd["body"]["spec"]["versions"][0].clone();
    let widget = crds.iter().find(|crd| crd["name"] == "widgets.conf.example.io").map(version).unwrap();
    let schema = TypeSchema::from_crd(&widget["schema"]["openAPIV3Schema"], false);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for case in read_lines(&dir.join("crd_validation.jsonl")) {
        for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let request = &step["request"];
            let (body, response) = (&request["body"], &step["response"]);
            if request["method"] != "POST" || body["kind"] != "Widget" || response["status"] == 400 {
                continue;
            }
            seen += 1;
            let mut object = body.clone();
            let unknown: Vec<String> = schema
                .prune(&mut object)
                .iter()
                .map(|path| format!("299 - \"unknown field \\\"{path}\\\"\""))
                .collect();
            object.as_object_mut().unwrap().remove("status");
            schema.default(&mut object);
            let before = scale_errors(&object, &widget["subresources"]["scale"], true);
            let errors = schema.validate_after(before, &object, None);
            let got = sorted_causes(errors.iter().map(|error| {
                let reason = error.reason.as_str();
                json!({"reason": reason, "message": error.message, "field": error.field})
            }));
            let wanted = response["body"]["details"]["causes"].as_array().cloned().unwrap_or_default();
            let wanted = sorted_causes(wanted);
            if got != wanted {
                wrong.push(format!("{} {index}\n   got    {got:#?}\n   wanted {wanted:#?}", case["id"]));
            } else if wanted.is_empty() && object["spec"] != response["body"]["spec"] {
                wrong.push(format!("{} {index}: {} is not {}", case["id"], object["spec"], response["body"]["spec"]));
            } else if wanted.is_empty()
                && json!(unknown) != response["headers"].get("warning").cloned().unwrap_or(json!([]))
            {
                wrong.push(format!("{} {index}: warned {unknown:?}", case["id"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {seen} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(seen > 50, "only {seen} creations found");
}

/// Not a benchmark, but enough to notice a rule that compiles or copies on every call. The shortest time counts: a busy
/// machine makes any single one long.
#[test]
fn an_object_of_eight_kibibytes_is_judged_quickly() {
    let items: Vec<Value> = (0..120)
        .map(|index| json!({"name": format!("item-{index}"), "image": "registry.example.com/some/image:1", "n": index}))
        .collect();
    let schema = TypeSchema::from_crd(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0"}]},
            "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "pattern": "^[a-z0-9-]+$"},
                    "image": {"type": "string", "maxLength": 100}, "n": {"type": "integer", "minimum": 0},
                    "policy": {"type": "string", "default": "Always", "enum": ["Always", "Never"]}}}}}}}}),
        false,
    );
    let object =
        json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {"name": "a"}, "spec": {"n": 1, "items": items}});
    assert!(object.to_string().len() > 8 * 1024);
    let rounds: u32 = 50;
    let mut shortest = std::time::Duration::MAX;
    let started = std::time::Instant::now();
    for _ in 0..rounds {
        let mut object = object.clone();
        let each = std::time::Instant::now();
        assert!(schema.prune(&mut object).is_empty());
        schema.default(&mut object);
        assert!(schema.validate_after(Vec::new(), &object, None).is_empty());
        shortest = shortest.min(each.elapsed());
    }
    println!("{:?} on average with the copy, {shortest:?} at least", started.elapsed() / rounds);
    assert!(shortest < std::time::Duration::from_millis(250), "{shortest:?}");
}

fn sample() -> TypeSchema {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string", "default": "x"},
        "b": {"type": "integer", "nullable": true, "default": 1},
        "deep": {"type": "object", "default": {}, "properties": {"c": {"type": "integer", "default": 3}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"d": {"type": "string", "default": "d"}}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"e": {"type": "string", "default": "e"}}}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object", "properties": {"k": {"type": "string"}}}}},
        "port": {"x-kubernetes-int-or-string": true},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "n": {"type": "integer", "minimum": 0, "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "no shrinking"}]}
    }}}});
    TypeSchema::from_crd(&schema, false)
}

#[test]
fn pruning_names_what_it_removes() {
    let mut object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "odd": 1, "labels": {}}, "extra": 1,
        "spec": {"q": 1, "list": [{"e": "1", "f": 2}], "map": {"k": {"z": 1}}, "open": {"any": {"thing": 1}, "known": {"no": 1}}}});
    let unknown = sample().prune(&mut object);
    let wanted = ["extra", "spec.list[0].f", "spec.map.k.z", "spec.open.known.no", "spec.q", "metadata.odd"];
    assert_eq!(unknown, wanted);
    assert_eq!(object["spec"]["open"], json!({"any": {"thing": 1}, "known": {}}));
    assert_eq!(object["metadata"], json!({"name": "a"}));
}

#[test]
fn defaults_fill_from_the_outside_and_respect_nullable() {
    let mut object = json!({"spec": {"b": null, "a": null, "list": [{}], "map": {"k": {}}, "port": null}});
    sample().default(&mut object);
    let wanted =
        json!({"spec": {"a": "x", "b": null, "deep": {"c": 3}, "list": [{"e": "e"}], "map": {"k": {"d": "d"}}}});
    assert_eq!(object, wanted);
}

#[test]
fn transition_rules_run_only_between_corresponding_values() {
    let schema = sample();
    let at = |n: i64| json!({"spec": {"n": n}});
    assert!(schema.validate_after(Vec::new(), &at(1), None).is_empty());
    assert!(schema.validate_after(Vec::new(), &at(3), Some(&at(2))).is_empty());
    let errors = schema.validate_after(Vec::new(), &at(1), Some(&at(2)));
    assert_eq!(errors[0].message, "Invalid value: 1: no shrinking");
    assert_eq!(errors[0].field, "spec.n");
}

#[test]
fn what_an_update_leaves_alone_is_not_judged_again() {
    let schema = sample();
    let old = json!({"spec": {"n": -1, "a": "x"}});
    let errors = schema.validate_after(Vec::new(), &json!({"spec": {"n": -1, "a": "y"}}), Some(&old));
    assert!(errors.is_empty(), "{errors:?}");
    let errors = schema.validate_after(Vec::new(), &json!({"spec": {"n": -2, "a": "y"}}), Some(&old));
    assert_eq!(errors.len(), 2, "both the minimum and the rule: {errors:?}");
}

#[test]
fn the_errors_of_the_status_start_at_the_status() {
    let schema = TypeSchema::from_crd(
        &json!({"type": "object", "properties": {"status": {"type": "object", "properties": {"phase": {"type": "string"}}}}}),
        false,
    );
    let errors = schema.validate_status(Vec::new(), &json!({"spec": 1, "status": {"phase": 5}}), None);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].field, "status.phase");
    assert_eq!(errors[0].message, "Invalid value: \"integer\": phase in body must be of type string: \"integer\"");
}

fn definition(schema: Value) -> Value {
    json!({"metadata": {"name": "things.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        "status": {}})
}

fn definition_errors(schema: Value) -> Vec<String> {
    let mut crd = definition(schema);
    default_crd(&mut crd);
    let errors = validate_crd(&crd, None);
    errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
}

#[test]
fn a_definition_gets_its_names_and_is_sound() {
    let mut crd = definition(json!({"type": "object"}));
    default_crd(&mut crd);
    assert_eq!(crd["spec"]["names"]["singular"], "thing");
    assert_eq!(crd["spec"]["names"]["listKind"], "ThingList");
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(validate_crd(&crd, None), []);
}

#[test]
fn schemas_must_be_structural() {
    let spec = |inner: Value| json!({"type": "object", "properties": {"a": inner}});
    let head = "spec.validation.openAPIV3Schema";
    for (schema, wanted) in [
        (json!({}), format!("{head}.type: Required value: must not be empty at the root")),
        (
            spec(json!({})),
            format!("{head}.properties[a].type: Required value: must not be empty for specified object fields"),
        ),
        (spec(json!({"type": "array"})), format!("{head}.properties[a].items: Required value: must be specified")),
        (
            spec(json!({"type": "string", "anyOf": [{"type": "string"}]})),
            format!("{head}.properties[a].anyOf[0].type: Forbidden: must be empty to be structural"),
        ),
        (
            json!({"type": "object", "anyOf": [{"properties": {"b": {"minimum": 1}}}]}),
            format!("{head}.properties[b]: Required value: because it is defined in {head}.anyOf[0].properties[b]"),
        ),
        (
            spec(json!({"type": "integer", "default": "x"})),
            format!(
                "{head}.properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\""
            ),
        ),
        (
            spec(json!({"type": "object", "default": {"z": 1}, "properties": {}})),
            format!("{head}.properties[a].default: Invalid value: {{\"z\":1}}: must not have unknown fields"),
        ),
        (
            spec(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}})),
            format!(
                "{head}.properties[a].items.properties[k].default: Required value: this property is in \
                     x-kubernetes-list-map-keys, so it must have a default or be a required property"
            ),
        ),
        (
            spec(
                json!({"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}),
            ),
            format!(
                "{head}.properties[a].items.x-kubernetes-validations[0].rule: Invalid value: \"self >= oldSelf\": oldSelf \
                     cannot be used on the uncorrelatable portion of the schema within {head}.properties[a]"
            ),
        ),
    ] {
        assert_eq!(definition_errors(schema.clone()), [wanted], "{schema}");
    }
    let sound = spec(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}));
    assert_eq!(definition_errors(sound), Vec::<String>::new());
}

#[test]
fn rules_must_be_written_for_their_schema() {
    let of = |rule: &str| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "n": {"type": "integer"}, "s": {"type": "string"}, "my-name": {"type": "string"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "l": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}},
            "x-kubernetes-validations": [{"rule": rule}]}}});
        definition_errors(schema)
    };
    for sound in [
        "self.n > 0",
        "self.?n.orValue(0) > 0",
        "has(self.s) && self.s.startsWith('a')",
        "self.l.all(x, x.k != '')",
        "self.l.exists_one(x, x.k == 'a') || size(self.l) == 0",
        "self.m.all(k, self.m[k].size() < 3)",
        "self.my__dash__name == 'a'",
        "has(self.n) ? self.n > 1 : true",
        "(has(self.n) ? 1 : 0) + (has(self.s) ? 1 : 0) <= 1",
        "[1, 2].exists(x, self.n == x)",
        "self == oldSelf",
    ] {
        assert_eq!(of(sound), Vec::<String>::new(), "{sound}");
    }
    for (rule, complaint) in [
        ("self.nope > 1", "undefined field 'nope'\n | self.nope > 1\n | ....^"),
        ("self.l.all(x, x.nope == '')", "undefined field 'nope'"),
        ("self.free.any == 1", "undefined field 'any'"),
        ("self.s == null", "found no matching overload for '_==_' applied to '(string, null)'"),
        ("foo > 1", "undeclared reference to 'foo'"),
        ("self.n", "must evaluate to a bool"),
        ("self.s > 1", "found no matching overload for '_>_' applied to '(string, int)'"),
        ("self.n.startsWith('a')", "found no matching overload for 'startsWith'"),
        ("self.n >", "compilation failed"),
    ] {
        let errors = of(rule);
        assert_eq!(errors.len(), 1, "{rule}: {errors:?}");
        assert!(errors[0].contains(".rule: Invalid value: {") && errors[0].contains(complaint), "{rule}: {errors:?}");
    }
    let costly = of("self.l.all(x, self.l.all(y, self.l.all(z, x.k != y.k)))");
    assert_eq!(costly.len(), 3, "{costly:?}");
    let costly = of("self.l.map(x, x.k).size() > 0");
    assert!(costly[0].contains("estimated rule cost exceeds budget by factor of 1.468006x (try"), "{costly:?}");
}

#[test]
fn recorded_definitions_are_accepted() {
    let dir = caldera_fixtures::find_folder("CALDERA_CONFORMANCE_DIR", "conformance");
    for fixture in read_lines(&dir.join("fixtures/crds.jsonl")) {
        let mut crd = fixture["body"].clone();
        crd["status"] = json!({});
        let schema = TypeSchema::builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        schema.default(&mut crd);
        assert_eq!(validate_crd(&crd, None), [], "{}", fixture["name"]);
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..3i64).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "a", "b", "c", "d", "e", "deep", "map", "list", "open", "known", "template", "metadata", "port",
    ]);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_twice_removes_nothing_more(spec in any_value()) {
        let schema = sample();
        let mut once = json!({"spec": spec});
        schema.prune(&mut once);
        let mut twice = once.clone();
        prop_assert_eq!(schema.prune(&mut twice), Vec::<String>::new());
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn defaulting_twice_adds_nothing_more(spec in any_value()) {
        let schema = sample();
        let mut once = json!({"spec": spec});
        schema.default(&mut once);
        let mut twice = once.clone();
        schema.default(&mut twice);
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn an_unchanged_object_has_no_errors_on_update(spec in any_value()) {
        let object = json!({"spec": spec});
        let errors = sample().validate_after(Vec::new(), &object, Some(&object));
        let lists_only = errors.iter().all(|error| error.reason == CauseReason::Required || error.field.contains("template") || error.field == "<nil>");
        prop_assert!(lists_only, "{:?}", errors);
    }
}

#[test]
fn a_version_that_is_stored_and_listed_twice_is_missed_once() {
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let told = |versions: Value| -> Vec<String> {
        let mut crd = json!({"metadata": {"name": "foos.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"}, "versions": versions}, "status": {}});
        default_crd(&mut crd);
        let errors = validate_crd(&crd, None).into_iter().filter(|error| error.field == "status.storedVersions");
        errors.map(|error| error.message).collect()
    };
    assert_eq!(told(json!([version, version])), ["Invalid value: [\"v1\"]: must have the storage version v1"]);
    let mut unnamed = version.clone();
    unnamed["name"] = "".into();
    assert!(told(json!([unnamed])).is_empty());
}

#[test]
fn a_default_of_the_root_is_a_whole_resource() {
    let mut crd = json!({"metadata": {"name": "foos.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "default": {}}}}]}, "status": {}});
    default_crd(&mut crd);
    let fields: Vec<String> = validate_crd(&crd, None).into_iter().map(|error| error.field).collect();
    let at = "spec.validation.openAPIV3Schema.default";
    assert_eq!(fields, [format!("{at}.apiVersion"), format!("{at}.kind")]);
}

#[test]
fn rules_count_characters_and_fail_in_the_words_of_go() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self.size() <= 3"}]},
        "b": {"type": "string", "x-kubernetes-validations": [{"rule": "int(self) > 1"}]}}});
    let schema = TypeSchema::from_crd(&schema, false);
    assert!(schema.validate_after(Vec::new(), &json!({"a": "äöü"}), None).is_empty());
    let errors = schema.validate_after(Vec::new(), &json!({"b": "x"}), None);
    let why = "Invalid value: \"string\": type conversion error from 'string' to 'int' evaluating rule: int(self) > 1";
    assert_eq!(errors[0].message, why);
}
