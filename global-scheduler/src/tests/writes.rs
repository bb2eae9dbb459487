//! What is written of a decision.

use caldera_runtime::write::Write;

use super::*;

#[test]
fn one_patch_places_with_a_precondition_and_touches_nothing_else() {
    let mut world = index(&[2, 4], &[job(6, 6), binding(6)]);
    let Step::Place(decision) = verdict(&mut world).step else { panic!("not placed") };
    let Body::JsonPatch(patch) = binding_writes::build_placement_write(&world.bindings[&key()], &decision).body else {
        panic!("no patch")
    };
    let mut object = binding(6);
    let before = object.clone();
    let operations: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
    // The server holds the version that the test names.
    json_patch::patch(&mut object, &operations).unwrap();
    assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}));
    assert_eq!(object["spec"]["clusters"], json!([{"name": "m0", "replicas": 2}, {"name": "m1", "replicas": 4}]));
    object["spec"].as_object_mut().unwrap().remove("clusters");
    for key in ["caldera.dev/plan", "policy.karmada.io/applied-placement"] {
        assert!(object["metadata"]["annotations"].as_object_mut().unwrap().remove(key).is_some());
    }
    assert_eq!(object, before);
    assert_eq!(
        binding_writes::describe_success(&decision.targets),
        "Binding has been scheduled successfully. Result: {m0:2, m1:4}"
    );
}

#[test]
fn the_status_patch_keeps_other_conditions_and_the_time_of_the_last_change() {
    let mut object = binding(6);
    object["status"]["conditions"] = json!([
        {"type": "FullyApplied", "status": "True"},
        {"type": "Scheduled", "status": "True", "reason": "Success", "lastTransitionTime": "2020-01-01T00:00:00Z"},
    ]);
    let binding = Binding::parse_binding(&object).unwrap();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let Body::MergePatch(patch) = binding_writes::build_scheduled_status_write(&binding, None, None, now).body else {
        panic!("no patch")
    };
    assert_eq!(patch["status"]["conditions"][0], json!({"type": "FullyApplied", "status": "True"}));
    assert_eq!(patch["status"]["conditions"][1]["lastTransitionTime"], "2020-01-01T00:00:00Z");
    assert_eq!(patch["status"]["schedulerObservedGeneration"], 2);
    assert_eq!(patch["status"].get("lastScheduledTime"), None);
    let Body::MergePatch(patch) =
        binding_writes::build_refused_status_write(&binding, "Unschedulable", "why", now).body
    else {
        panic!()
    };
    assert_eq!(patch["status"]["conditions"][1]["lastTransitionTime"], "2026-01-01T00:00:00Z");
}

#[test]
fn a_status_is_built_of_the_binding_as_it_is_when_it_is_sent() {
    let mut cache = Cache::default();
    let observe = |cache: &mut Cache, change: &dyn Fn(&mut Value)| {
        let mut object = binding(6);
        change(&mut object);
        cache.apply_bindings(false, Event::Applied(Binding::parse_binding(&object).unwrap()));
    };
    observe(&mut cache, &|_| {});
    let placed = cache.bindings[&key()].clone();
    let mut confirmations = Confirmations::default();
    (0..3).for_each(|_| confirmations.queue_confirmation(&placed, None, Some(now())));
    // Karmada has added its finalizer and a condition meanwhile.
    observe(&mut cache, &|object| {
        object["metadata"]["resourceVersion"] = "8".into();
        object["status"]["conditions"] = json!([{"type": "FullyApplied", "status": "True"}]);
    });
    let Some((_, Some(write))) = confirmations.take_next(&cache.bindings, true, now()) else { panic!("not sent") };
    let Body::MergePatch(patch) = write.body else { panic!("no patch") };
    assert_eq!(patch["metadata"]["resourceVersion"], "8");
    assert_eq!(patch["status"]["conditions"][0]["type"], "FullyApplied");
    // What it would confirm was taken away, or is another binding's.
    let meta = |name: &'static str, value: Value| {
        move |object: &mut Value| {
            object["metadata"]["resourceVersion"] = "9".into();
            object["metadata"][name] = value.clone();
        }
    };
    observe(&mut cache, &meta("generation", 3.into()));
    assert_eq!(confirmations.take_next(&cache.bindings, true, now()), Some((key(), None)));
    observe(&mut cache, &meta("uid", "another".into()));
    assert_eq!(confirmations.take_next(&cache.bindings, true, now()), Some((key(), None)));
    assert_eq!(confirmations.take_next(&cache.bindings, true, now()), None);
}

#[test]
fn while_there_is_no_room_each_answer_lets_one_status_go() {
    let (mut confirmations, bindings) = (Confirmations::default(), BTreeMap::new());
    let placed = Binding::parse_binding(&binding(6)).unwrap();
    (0..3).for_each(|_| confirmations.queue_confirmation(&placed, None, Some(now())));
    let sends = |confirmations: &mut Confirmations, has_capacity: bool| {
        confirmations.take_next(&bindings, has_capacity, now()).is_some()
    };
    assert!(!sends(&mut confirmations, false));
    confirmations.note_answered_write();
    confirmations.note_answered_write();
    assert!(sends(&mut confirmations, false), "placements would hold it up for ever");
    assert!(!sends(&mut confirmations, false), "statuses would hold placements up");
    assert!(sends(&mut confirmations, true) && sends(&mut confirmations, true));
}

#[test]
fn nothing_is_recorded_on_a_template_whose_name_or_namespace_can_not_be_one() {
    let regarding = |object: &Value, success: bool| -> Vec<Value> {
        let binding = Binding::parse_binding(object).unwrap();
        let events = binding_writes::build_schedule_events(&binding, success, "why", now());
        let about = |write: Write| match write.body {
            Body::Create(event) if write.namespace == "ns" => event["involvedObject"]["kind"].clone(),
            other => panic!("{other:?}"),
        };
        events.into_iter().map(about).collect()
    };
    assert_eq!(regarding(&binding(2), true), ["Job"]);
    assert_eq!(regarding(&binding(2), false), ["ResourceBinding", "Job"]);
    let many_letters = format!("a{}", "\u{e9}".repeat(115));
    for (field, text) in
        [("name", many_letters.as_str()), ("name", ""), ("name", "x?y="), ("namespace", "ns/secrets?x=")]
    {
        let mut object = binding(2);
        object["spec"]["resource"][field] = text.into();
        assert_eq!(regarding(&object, true), [""; 0], "{text}");
        assert_eq!(regarding(&object, false), ["ResourceBinding"], "{text}");
    }
}
