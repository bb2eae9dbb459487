//! What the agent of a Pull member answers by our scripts is what the webhook answers: in the cases of the
//! interpreter's own tests, on random jobs, and on all that was asked, and all jobs that were seen, in recordings of a
//! real Karmada.
//!
//! The scripts run in the sandbox's Lua machine, which is held to Karmada's. What Lua can not say is left out on both
//! sides: `null`, lists and maps of nothing else, and all that is empty in a status.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_crds::job_admission::{fill_job_defaults, validate_update};
use caldera_sandbox::karmada::{
    interpreter::{
        Operation,
        lua::{Script, choose_scripts, read_script, validate_customization},
    },
    object::{Gvk, Shared},
};
use caldera_webhook::{
    build_member_customization,
    decide::interpreter::{Interpretation, interpret_request},
    observe::cache::{Cache, LiveRead},
};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The webhook's answer.
fn ask_webhook(operation: &str, object: &Value, observed: &Value) -> Value {
    let request = json!({
        "uid": "u", "kind": {"group": "batch.volcano.sh", "kind": "Job"}, "name": "j", "namespace": "ns",
        "operation": operation, "object": object, "observedObject": observed,
    });
    let body = json!({"request": request}).to_string();
    let answer = interpret_request(body.as_bytes(), &Cache::default(), Some(&LiveRead::Binding(None)));
    let Interpretation::Reply(reply) = answer else { panic!("{answer:?}") };
    let mut answer: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(answer["response"]["successful"], true, "{answer}");
    answer["response"].take()
}

fn with_script<T>(operation: Operation, run: impl FnOnce(&Script<'_>) -> Result<T, String>) -> Result<T, String> {
    let customization = build_member_customization();
    run(&Script { text: read_script(&customization, operation), now: Timestamp::UNIX_EPOCH })
}

/// Without what Lua can not say. `None` is nothing at all.
fn strip(value: &Value, also_empty: bool) -> Option<Value> {
    let is_kept = |value: &Value| !value.is_null();
    match value {
        Value::Null => None,
        Value::Array(list) if !list.is_empty() || also_empty => {
            list.iter().any(is_kept).then(|| list.iter().filter_map(|one| strip(one, also_empty)).collect())
        }
        Value::Object(fields) if !fields.is_empty() || also_empty => {
            let stripped = || fields.iter().filter_map(|(key, one)| Some((key.clone(), strip(one, also_empty)?)));
            fields.values().any(is_kept).then(|| stripped().collect())
        }
        value => Some(value.clone()),
    }
}

/// The member's object as both retain it, which is the same.
#[track_caller]
fn retain_alike(desired: &Value, observed: &Value) -> Value {
    let response = ask_webhook("Retain", desired, observed);
    let mut by_webhook = desired.clone();
    if let Some(patch) = response.get("patch") {
        let patch: json_patch::Patch =
            serde_json::from_slice(&STANDARD.decode(patch.as_str().unwrap()).unwrap()).unwrap();
        json_patch::patch(&mut by_webhook, &patch).unwrap();
    }
    let by_script = with_script(Operation::Retain, |script| script.retain_fields(desired, observed)).unwrap();
    assert_eq!(Some(&by_script), strip(&by_webhook, false).as_ref(), "of {desired} over {observed}");
    by_script
}

/// The status of a copy as both reflect it, which is the same.
#[track_caller]
fn reflect_alike(copy: &Value) -> Value {
    let by_webhook = ask_webhook("InterpretStatus", copy, &Value::Null)["rawStatus"].clone();
    let by_script = with_script(Operation::InterpretStatus, |script| script.reflect_status(copy)).unwrap();
    assert_eq!(by_script, strip(&by_webhook, true).unwrap_or_else(|| json!({})), "of {copy}");
    by_script
}

/// Whether both find a copy healthy, which is the same.
#[track_caller]
fn judge_alike(copy: &Value) -> bool {
    let by_webhook = ask_webhook("InterpretHealth", copy, &Value::Null)["healthy"].clone();
    let by_script = with_script(Operation::InterpretHealth, |script| script.is_healthy(copy)).unwrap();
    assert_eq!(by_webhook, by_script, "of {copy}");
    by_script
}

fn job(replicas: &[u64]) -> Value {
    let task = |(at, replicas): (usize, &u64)| {
        json!({"name": format!("t{at}"), "replicas": replicas, "minAvailable": replicas, "template": {
            "metadata": {"creationTimestamp": null},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}], "volumes": [{"name": "v", "emptyDir": {}}]},
        }})
    };
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", "labels": {}, "finalizers": []},
        "spec": {
            "minAvailable": replicas.iter().sum::<u64>(), "queue": "q", "plugins": {"env": [], "svc": []},
            "tasks": replicas.iter().enumerate().map(task).collect::<Vec<_>>(),
        },
    })
}

/// As the member has it after its Volcano's defaults.
fn in_the_member(replicas: &[u64]) -> Value {
    let mut observed = job(replicas);
    fill_job_defaults(&mut observed);
    observed
}

fn remove(object: &mut Value, field: &str) {
    object.as_object_mut().unwrap().remove(field);
}

#[test]
fn scripts_retain_what_the_webhook_retains() {
    let mut observed = in_the_member(&[2, 3]);
    let claim = json!({"accessModes": ["ReadWriteOnce"]});
    observed["spec"]["volumes"] = json!([{"mountPath": "/v", "volumeClaimName": "made-here", "volumeClaim": claim}]);
    observed["spec"]["priorityClassName"] = "low".into();
    let mut desired = job(&[4, 3]);
    desired["spec"]["volumes"] = json!([{"mountPath": "/v", "volumeClaim": claim}]);
    remove(&mut desired["spec"], "queue");
    let kept = retain_alike(&desired, &observed);
    assert_eq!((&kept["spec"]["tasks"][0]["replicas"], &kept["spec"]["minAvailable"]), (&json!(4), &json!(7)));
    assert_eq!(kept["spec"]["volumes"], observed["spec"]["volumes"]);
    assert_eq!(kept["spec"].get("priorityClassName"), None);
    let template = &kept["spec"]["tasks"][0]["template"]["spec"];
    assert_eq!((&template["volumes"][0]["emptyDir"], &kept["metadata"]["finalizers"]), (&json!({}), &json!([])));
    assert_eq!(retain_alike(&kept, &observed), kept, "a second time changes nothing");

    // A minimum that nobody says is the default of the new size, and a new one arrives.
    let mut shrunk = job(&[1, 4]);
    remove(&mut shrunk["spec"], "minAvailable");
    for task in shrunk["spec"]["tasks"].as_array_mut().unwrap() {
        remove(task, "minAvailable");
    }
    let kept = retain_alike(&shrunk, &in_the_member(&[1, 9]));
    assert_eq!((&kept["spec"]["tasks"][1]["minAvailable"], &kept["spec"]["minAvailable"]), (&json!(4), &json!(5)));
    let mut looser = job(&[4]);
    (looser["spec"]["minAvailable"], looser["spec"]["tasks"][0]["minAvailable"]) = (2.into(), 2.into());
    assert_eq!(retain_alike(&looser, &in_the_member(&[4]))["spec"]["minAvailable"], 2);

    // Other tasks, none, and no spec.
    for desired in [job(&[5]), job(&[5, 5, 5]), job(&[]), json!({"kind": "Job", "metadata": {"name": "j"}})] {
        let kept = retain_alike(&desired, &in_the_member(&[1, 9]));
        assert_eq!(kept["spec"]["tasks"][1]["replicas"], 9);
    }
    for observed in [json!({"kind": "Job"}), json!({"kind": "Job", "spec": {}}), job(&[])] {
        retain_alike(&job(&[2]), &observed);
    }
    // More than Kubernetes counts to.
    let mut vast = job(&[1, 1]);
    vast["spec"]["minAvailable"] = 0.into();
    for task in vast["spec"]["tasks"].as_array_mut().unwrap() {
        (task["replicas"], task["minAvailable"]) = (5_000_000_000u64.into(), 5_000_000_000u64.into());
    }
    assert_eq!(retain_alike(&vast, &vast)["spec"]["minAvailable"], 2 * u64::from(u32::MAX));
}

#[test]
fn scripts_find_healthy_what_the_webhook_finds_healthy() {
    for (phase, healthy) in [
        ("Running", true),
        ("Completing", true),
        ("Completed", true),
        ("Pending", false),
        ("Restarting", false),
        ("Failed", false),
        ("Aborting", false),
        ("Aborted", false),
        ("Terminating", false),
        ("Terminated", false),
        ("Dreaming", false),
        ("", false),
    ] {
        let mut copy = job(&[1]);
        copy["status"] = json!({"state": {"phase": phase}});
        assert_eq!(judge_alike(&copy), healthy, "{phase}");
    }
    for status in [json!(null), json!({}), json!({"state": {}}), json!({"state": 5}), json!("x"), json!({"state": "x"})]
    {
        let mut copy = job(&[1]);
        copy["status"] = status;
        assert!(!judge_alike(&copy));
    }
    assert!(!judge_alike(&job(&[1])));
}

#[test]
fn scripts_reflect_a_status_as_the_webhook_does_and_restore_what_volcano_forgot() {
    let copy = |status: Value| {
        let mut copy = job(&[1, 3, 0]);
        copy["status"] = status;
        copy
    };
    let whole = json!({"state": {"phase": "Running"}, "retryCount": 2, "anything": {"else": 1}});
    assert_eq!(reflect_alike(&copy(whole.clone())), whole);
    assert_eq!(reflect_alike(&job(&[1])), json!({}));
    // What is empty is left out, which says the same.
    let empty = json!({"state": {}, "conditions": [], "taskStatusCount": {"t0": {"phase": {}}}});
    assert_eq!(reflect_alike(&copy(empty)), json!({"taskStatusCount": {"t0": {}}}));
    let forgotten = json!({"state": {"phase": "Completed"}, "minAvailable": 4, "version": 1});
    let told = reflect_alike(&copy(forgotten.clone()));
    let counts = json!({"t0": {"phase": {"Succeeded": 1}}, "t1": {"phase": {"Succeeded": 3}}});
    assert_eq!((&told["succeeded"], &told["taskStatusCount"], &told["version"]), (&json!(4), &counts, &json!(1)));
    for (field, value) in [
        ("succeeded", json!(2)),
        ("failed", json!(1)),
        ("running", json!(1)),
        ("pending", json!(1)),
        ("unknown", json!(1)),
        ("terminating", json!(2)),
        ("taskStatusCount", json!({"t0": {"phase": {"Succeeded": 1}}})),
        ("state", json!({"phase": "Running"})),
        ("state", json!({"phase": "Failed"})),
    ] {
        let mut status = forgotten.clone();
        status[field] = value;
        assert_eq!(reflect_alike(&copy(status.clone())), status);
    }
    for none in [json!({"succeeded": 0}), json!({"taskStatusCount": {"t0": {"phase": {"Succeeded": 0}}, "t1": {}}})] {
        let mut status = forgotten.clone();
        status.as_object_mut().unwrap().extend(none.as_object().unwrap().clone());
        assert_eq!(reflect_alike(&copy(status))["succeeded"], 4);
    }
    let mut nameless = copy(forgotten);
    remove(&mut nameless["spec"]["tasks"][1], "name");
    assert_eq!(reflect_alike(&nameless)["succeeded"], 1);
}

fn any_count() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => Just(None), 5 => (0u64..9).prop_map(Some), 1 => (4_294_967_290u64..4_294_967_300).prop_map(Some)]
}

fn any_task() -> impl Strategy<Value = Value> {
    (any_count(), any_count(), 0..6u8, "[ab]{0,2}").prop_map(|(replicas, minimum, odd, name)| {
        let mut task = json!({"name": name, "template": {"spec": {"volumes": [{"emptyDir": {}}], "args": []}}});
        // What is absent and what is null is the same.
        for (field, count) in [("replicas", replicas), ("minAvailable", minimum)] {
            if count.is_some() || odd == 0 {
                task[field] = json!(count);
            }
        }
        if odd == 1 {
            task["partitionPolicy"] = json!({"totalPartitions": 2, "partitionSize": 1});
        }
        if odd == 2 {
            task["replicas"] = json!(2.5);
        }
        if odd == 3 {
            task["minAvailable"] = json!(-1);
        }
        task
    })
}

fn any_job() -> impl Strategy<Value = Value> {
    let class = prop_oneof![Just(Value::Null), Just(json!("high")), Just(json!(7))];
    (prop::option::of(prop::collection::vec(any_task(), 0..4)), any_count(), class).prop_map(
        |(tasks, minimum, class)| {
            let mut job = job(&[]);
            job["spec"] = json!({"queue": "q", "priorityClassName": class, "policies": [], "plugins": {"svc": []}});
            if let Some(tasks) = tasks {
                job["spec"]["tasks"] = tasks.into();
            }
            if let Some(minimum) = minimum {
                job["spec"]["minAvailable"] = minimum.into();
            }
            job
        },
    )
}

fn any_status() -> impl Strategy<Value = Value> {
    let phase = prop_oneof![Just("Completed"), Just("Completed"), Just("Running"), Just("Failed"), Just("")];
    let few = || prop::option::weighted(0.1, 0u32..2);
    let counts = prop::collection::btree_map("[ab]{1,2}", prop::collection::btree_map("[SF]", 0u32..2, 0..2), 0..3);
    (phase, (few(), few(), few(), few(), few(), few()), counts).prop_map(|(phase, counted, counts)| {
        let mut status = json!({"state": {"phase": phase, "reason": ""}, "conditions": [], "minAvailable": 2});
        let (pending, running, succeeded, failed, terminating, unknown) = counted;
        for (field, count) in [
            ("pending", pending),
            ("running", running),
            ("succeeded", succeeded),
            ("failed", failed),
            ("terminating", terminating),
            ("unknown", unknown),
        ] {
            if let Some(count) = count {
                status[field] = count.into();
            }
        }
        status["taskStatusCount"] =
            counts.into_iter().map(|(task, pods)| (task, json!({"phase": pods}))).collect::<Value>();
        status
    })
}

proptest! {
    #[test]
    fn scripts_and_webhook_say_the_same_of_any_job(desired in any_job(), observed in any_job(), status in any_status()) {
        let mut observed = observed;
        retain_alike(&desired, &observed);
        observed["status"] = status;
        retain_alike(&desired, &observed);
        reflect_alike(&observed);
        judge_alike(&observed);
    }

    #[test]
    fn volcano_takes_whatever_a_script_retains(
        before in prop::collection::vec(0u64..9, 1..4), after in prop::collection::vec(0u64..9, 1..4),
    ) {
        let observed = in_the_member(&before);
        let kept = retain_alike(&job(&after), &observed);
        prop_assert_eq!(validate_update(&observed, &kept), Vec::<String>::new());
    }
}

/// Recordings by their ids.
fn list_recordings() -> Vec<(String, Value)> {
    let folder = caldera_fixtures::find_folder("CALDERA_TRANSCRIPTS_DIR", "transcripts");
    let read = |file: &std::path::PathBuf| {
        let recording: Value = serde_json::from_str(&caldera_fixtures::read_text(file)).unwrap();
        (recording["id"].as_str().unwrap_or_default().to_owned(), recording)
    };
    caldera_fixtures::list_files(&folder, "json").iter().map(read).collect()
}

fn is_job(object: &Value) -> bool {
    object["apiVersion"] == "batch.volcano.sh/v1alpha1" && object["kind"] == "Job" && object["spec"].is_object()
}

/// All Volcano Jobs in it: of users, in Works and in members.
fn find_jobs<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(_) if is_job(value) => found.push(value),
        Value::Object(fields) => fields.values().for_each(|one| find_jobs(one, found)),
        Value::Array(list) => list.iter().for_each(|one| find_jobs(one, found)),
        _ => {}
    }
}

#[test]
fn scripts_and_webhook_say_the_same_of_what_was_recorded() {
    let (mut asked, mut pairs, mut with_scripts) = (0, 0, 0);
    for (id, recording) in list_recordings() {
        for call in recording["interpreter_calls"].as_array().into_iter().flatten() {
            let request = &call["request"]["request"];
            let object = &request["object"];
            match request["operation"].as_str().unwrap_or_default() {
                "Retain" => drop(retain_alike(object, &request["observedObject"])),
                "InterpretStatus" => drop(reflect_alike(object)),
                "InterpretHealth" => drop(judge_alike(object)),
                _ => continue,
            }
            asked += 1;
        }
        let mut jobs = Vec::new();
        find_jobs(&recording["timeline"], &mut jobs);
        for observed in &jobs {
            reflect_alike(observed);
            judge_alike(observed);
            for desired in &jobs {
                retain_alike(desired, observed);
                pairs += 1;
            }
        }
        let scripts = recording["inputs"].as_array().into_iter().flatten();
        let mut scripts = scripts.filter(|one| one["kind"] == "ResourceInterpreterCustomization" && !jobs.is_empty());
        if scripts.next().is_some() {
            println!("{id}: {} jobs beside users' scripts", jobs.len());
            with_scripts += 1;
        }
    }
    println!("scripts {asked} questions, {pairs} pairs of jobs, {with_scripts} recordings with users' scripts");
    assert!(std::env::var_os("CALDERA_TRANSCRIPTS_DIR").is_some() || asked >= 20 && pairs >= 100 && with_scripts >= 4);
}

/// Karmada refuses two customizations with a script for the same operation, and asks each for what it has.
#[test]
fn a_users_scripts_for_the_host_stand_beside_ours() {
    let ours: Shared = Arc::new(build_member_customization());
    let jobs = Gvk::new("batch.volcano.sh/v1alpha1", "Job");
    let mut seen = 0;
    for (id, recording) in list_recordings().into_iter().filter(|(id, _)| id.starts_with("04")) {
        let inputs = recording["inputs"].as_array().into_iter().flatten();
        for users in inputs.filter(|one| one["kind"] == "ResourceInterpreterCustomization") {
            let users: Shared = Arc::new(users.clone());
            assert_eq!(validate_customization(&ours, std::slice::from_ref(&users)), Ok(()), "{id}");
            let both = [users.clone(), ours.clone()];
            for operation in Operation::ALL {
                let script =
                    [&ours, &users].map(|one| read_script(one, operation)).into_iter().find(|it| !it.is_empty());
                let chosen = choose_scripts(&both, &jobs, operation);
                assert_eq!(chosen.first().map(String::as_str), script, "{id} {operation:?}");
            }
            seen += 1;
        }
    }
    assert!(std::env::var_os("CALDERA_TRANSCRIPTS_DIR").is_some() || seen >= 4, "{seen}");
}
