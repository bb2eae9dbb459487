use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;

use super::*;
use crate::{decide::patch::tests::any_json, observe::cache::CachedBinding};

fn job(replicas: &[u64]) -> Value {
    let task = |(cache, replicas): (usize, &u64)| {
        json!({
            "name": format!("t{cache}"), "replicas": replicas, "minAvailable": replicas,
            "template": {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": format!("{}00m", cache + 1)}}}]}},
        })
    };
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"},
        "spec": {"minAvailable": replicas.iter().sum::<u64>(), "queue": "q", "tasks": replicas.iter().enumerate().map(task).collect::<Vec<_>>()},
    })
}

/// The answer where the API server has what the cache has.
fn interpret(body: &[u8], cache: &Cache) -> Reply {
    let answer = match interpret_request(body, cache, None) {
        Interpretation::Read(Lookup::Binding(key)) => {
            let live = LiveRead::Binding(cache.bindings.get(&key).cloned().map(Box::new));
            interpret_request(body, cache, Some(&live))
        }
        answer => answer,
    };
    let Interpretation::Reply(reply) = answer else { panic!("{answer:?}") };
    reply
}

#[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
fn ask_with(operation: &str, object: &Value, more: Value, cache: &Cache) -> Value {
    let mut request = json!({
        "uid": "u", "kind": {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}, "name": "j",
        "namespace": "ns", "operation": operation, "object": object, "replicas": 0,
    });
    for (key, value) in more.as_object().unwrap() {
        request[key] = value.clone();
    }
    let reply = interpret(json!({"request": request}).to_string().as_bytes(), cache);
    assert_eq!(reply.status, 200);
    let answer: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(answer["response"]["uid"], "u");
    answer["response"].clone()
}

fn ask(operation: &str, object: &Value, more: Value) -> Value {
    ask_with(operation, object, more, &Cache::default())
}

fn applied(object: &Value, response: &Value) -> Value {
    let Some(patch) = response.get("patch") else { return object.clone() };
    assert_eq!(response["patchType"], "JSONPatch");
    let patch: json_patch::Patch = serde_json::from_slice(&STANDARD.decode(patch.as_str().unwrap()).unwrap()).unwrap();
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).unwrap();
    object
}

#[test]
fn a2_02_replicas_and_requirements_cover_all_tasks() {
    let response = ask("InterpretReplica", &job(&[1, 3]), json!({}));
    assert_eq!(response["replicas"], 4);
    // 100m + 3 x 200m = 700m over four pods: 175m.
    assert_eq!(response["replicaRequirements"]["resourceRequest"], json!({"cpu": "175m"}));
    let response = ask("InterpretComponent", &job(&[1, 3]), json!({}));
    assert_eq!(response["components"][1]["replicas"], 3);
    assert_eq!(response["components"][1]["replicaRequirements"]["resourceRequest"], json!({"cpu": "200m"}));
}

#[test]
fn an_average_is_rounded_up_in_the_unit_that_karmada_counts() {
    let mut object = job(&[1, 2]);
    let requests = "/template/spec/containers/0/resources/requests";
    for (task, request) in [(0, json!({"cpu": "1", "memory": "1Gi"})), (1, json!({"cpu": "2", "memory": "3Gi"}))] {
        *object["spec"]["tasks"][task].pointer_mut(requests).unwrap() = request;
    }
    let gpus = json!({"cpu": "2", "memory": "3Gi", "nvidia.com/gpu": 8});
    *object["spec"]["tasks"][1].pointer_mut(requests).unwrap() = gpus.clone();
    let response = ask("InterpretReplica", &object, json!({}));
    let want = json!({"cpu": "1667m", "memory": "2505397590", "nvidia.com/gpu": "6"});
    assert_eq!(response["replicaRequirements"]["resourceRequest"], want);
    *object["spec"]["tasks"][0].pointer_mut(requests).unwrap() = gpus;
    let response = ask("InterpretReplica", &object, json!({}));
    assert_eq!(response["replicaRequirements"]["resourceRequest"]["memory"], "3Gi");
}

#[test]
fn a_job_scaled_to_nothing_is_still_a_workload_to_karmada() {
    // Without requirements it would count as a plain object and go whole to every cluster.
    let response = ask("InterpretReplica", &job(&[0]), json!({}));
    assert_eq!(response["replicas"], 0);
    assert!(response["replicaRequirements"].is_object());
}

#[test]
fn a2_30_revised_copies_are_valid_by_themselves() {
    let whole = job(&[1, 9]);
    let same = applied(&whole, &ask("ReviseReplica", &whole, json!({"replicas": 10})));
    assert_eq!(same["spec"], whole["spec"]);
    assert_eq!(same["metadata"]["annotations"]["caldera.dev/revised-replicas"], "10");
    let part = applied(&whole, &ask("ReviseReplica", &whole, json!({"replicas": 4})));
    assert_eq!(caldera_crds::job_admission::validate_create(&part), Vec::<String>::new());
    assert_eq!(part["spec"]["minAvailable"], 4);
}

#[test]
fn numbers_beyond_what_kubernetes_counts_to_are_divided_and_summed_all_the_same() {
    let mut whole = job(&[1, 1]);
    for task in whole["spec"]["tasks"].as_array_mut().unwrap() {
        (task["replicas"], task["minAvailable"]) = (u64::MAX.into(), u64::MAX.into());
    }
    let part = applied(&whole, &ask("ReviseReplica", &whole, json!({"replicas": 10})));
    assert_eq!([&part["spec"]["tasks"][0]["replicas"], &part["spec"]["tasks"][1]["replicas"]], [5, 5]);
    whole["spec"]["minAvailable"] = 0.into();
    assert_eq!(ask("Retain", &whole, json!({"observedObject": whole}))["successful"], true);
}

#[test]
fn a_job_of_many_tasks_is_revised_in_few_operations_and_like_one_of_few() {
    let counts: Vec<u64> = (0..2_000).map(|at| at % 7).collect();
    let whole = job(&counts);
    let response = ask("ReviseReplica", &whole, json!({"replicas": 1_000}));
    let part = applied(&whole, &response);
    let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
    assert!(patch.len() < 10, "{}", patch.len());
    let tasks = part["spec"]["tasks"].as_array().unwrap();
    assert_eq!(tasks.iter().map(|task| task["replicas"].as_u64().unwrap()).sum::<u64>(), 1_000);
    for (task, before) in tasks.iter().zip(whole["spec"]["tasks"].as_array().unwrap()) {
        assert_eq!((&task["name"], &task["template"]), (&before["name"], &before["template"]));
        assert!(task["minAvailable"].as_u64() <= task["replicas"].as_u64());
    }
    assert_eq!(part["spec"]["minAvailable"], 1_000);
    // Nothing is said where nothing changes.
    assert_eq!(ask("ReviseReplica", &part, json!({"replicas": 1_000}))["patch"], Value::Null);
}

#[test]
fn a2_31_retain_keeps_what_the_member_would_refuse_to_change() {
    let mut observed = job(&[2, 3]);
    caldera_crds::job_admission::fill_job_defaults(&mut observed);
    observed["spec"]["volumes"] = json!([{"mountPath": "/a", "volumeClaimName": "made-by-the-member"}]);
    let mut desired = job(&[4, 3]);
    desired["spec"]["volumes"] = json!([{"mountPath": "/a"}]);
    desired["spec"].as_object_mut().unwrap().remove("queue");
    let kept = applied(&desired, &ask("Retain", &desired, json!({"observedObject": observed})));
    assert_eq!(caldera_crds::job_admission::validate_update(&observed, &kept), Vec::<String>::new());
    assert_eq!(kept["spec"]["tasks"][0]["replicas"], 4);
    assert_eq!(kept["spec"]["minAvailable"], 7);
    assert_eq!(kept["spec"]["volumes"][0]["volumeClaimName"], "made-by-the-member");
    // Different task lists do not fail.
    let fewer = job(&[1]);
    assert_eq!(ask("Retain", &fewer, json!({"observedObject": observed}))["successful"], true);
}

fn kept(desired: &Value, observed: &Value) -> Value {
    applied(desired, &ask("Retain", desired, json!({"observedObject": observed})))
}

/// As the member has it after its Volcano's defaults.
fn in_the_member(replicas: &[u64]) -> Value {
    let mut observed = job(replicas);
    caldera_crds::job_admission::fill_job_defaults(&mut observed);
    observed
}

#[test]
fn a_task_may_shrink_below_the_minimum_that_volcano_filled_in() {
    let observed = in_the_member(&[1, 9]);
    let mut desired = job(&[1, 4]);
    for task in desired["spec"]["tasks"].as_array_mut().unwrap() {
        task.as_object_mut().unwrap().remove("minAvailable");
    }
    desired["spec"].as_object_mut().unwrap().remove("minAvailable");
    let got = kept(&desired, &observed);
    assert_eq!(caldera_crds::job_admission::validate_update(&observed, &got), Vec::<String>::new());
    assert_eq!(got["spec"]["tasks"][1]["minAvailable"], 4);
    assert_eq!(got["spec"]["minAvailable"], 5);
}

#[test]
fn a2_31_a_new_minimum_reaches_the_member() {
    let mut desired = job(&[4]);
    desired["spec"]["minAvailable"] = 2.into();
    desired["spec"]["tasks"][0]["minAvailable"] = 2.into();
    let got = kept(&desired, &in_the_member(&[4]));
    assert_eq!((&got["spec"]["minAvailable"], &got["spec"]["tasks"][0]["minAvailable"]), (&json!(2), &json!(2)));
}

#[test]
fn a2_31_other_tasks_than_observed_keep_the_members() {
    let observed = in_the_member(&[1, 9]);
    for desired in [job(&[5]), job(&[5, 5, 5])] {
        let got = kept(&desired, &observed);
        assert_eq!(got["spec"]["tasks"], observed["spec"]["tasks"]);
        assert_eq!(caldera_crds::job_admission::validate_update(&observed, &got), Vec::<String>::new());
    }
}

#[test]
fn a2_36_a_claim_name_that_the_member_made_stays() {
    let mut observed = in_the_member(&[2]);
    let claim = json!({"accessModes": ["ReadWriteOnce"]});
    observed["spec"]["volumes"] = json!([{"mountPath": "/v", "volumeClaimName": "j-volume-x7", "volumeClaim": claim}]);
    let mut desired = job(&[2]);
    desired["spec"]["volumes"] = json!([{"mountPath": "/v", "volumeClaim": claim}]);
    assert_eq!(kept(&desired, &observed)["spec"]["volumes"], observed["spec"]["volumes"]);
}

#[test]
fn a2_27_failed_copies_are_unhealthy() {
    for (phase, healthy) in [
        ("Running", true),
        ("Completing", true),
        ("Completed", true),
        ("Pending", false),
        ("Restarting", false),
        ("Failed", false),
        ("Aborting", false),
        ("Aborted", false),
        ("Terminated", false),
        ("Dreaming", false),
    ] {
        let mut object = job(&[1]);
        object["status"] = json!({"state": {"phase": phase}});
        assert_eq!(ask("InterpretHealth", &object, json!({}))["healthy"], healthy, "{phase}");
    }
    assert_eq!(ask("InterpretHealth", &job(&[1]), json!({}))["healthy"], false);
}

#[test]
fn a2_28_the_whole_status_is_reflected() {
    let mut object = job(&[1]);
    object["status"] =
        json!({"state": {"phase": "Running"}, "retryCount": 2, "conditions": [], "anything": {"else": 1}});
    assert_eq!(ask("InterpretStatus", &object, json!({}))["rawStatus"], object["status"]);
}

#[test]
fn a2_29_a_silent_cluster_keeps_a_job_from_being_completed() {
    let mut cache = Cache::default();
    let binding = json!({
        "metadata": {"annotations": {"caldera.dev/gate": "open"}},
        "spec": {
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"},
            "clusters": [{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}],
        },
    });
    cache.put_binding(("ns".into(), "j-job".into()), CachedBinding::from_object(&binding));
    let object = job(&[4]);
    let completed = |cluster: &str| {
        json!({"clusterName": cluster, "applied": true, "status": {
            "state": {"phase": "Completed", "lastTransitionTime": "2026-01-01T00:00:00Z"}, "succeeded": 2, "minAvailable": 2,
        }})
    };
    let one =
        applied(&object, &ask_with("AggregateStatus", &object, json!({"aggregatedStatus": [completed("m1")]}), &cache));
    assert_ne!(one["status"]["state"]["phase"], "Completed");
    let both = json!({"aggregatedStatus": [completed("m1"), completed("m2")]});
    let all = applied(&one, &ask_with("AggregateStatus", &one, both.clone(), &cache));
    assert_eq!(all["status"]["state"]["phase"], "Completed");
    assert_eq!(all["status"]["succeeded"], 4);
    // Nothing new: no patch, so no write.
    assert!(ask_with("AggregateStatus", &all, both, &cache).get("patch").is_none());
}

#[test]
fn a_completed_copy_whose_volcano_forgot_its_counts_tells_those_of_its_share() {
    let copy = |status: Value| {
        let mut copy = job(&[1, 3, 0]);
        copy["status"] = status;
        copy
    };
    let forgotten = json!({"state": {"phase": "Completed"}, "minAvailable": 4, "version": 1});
    let reported = ask("InterpretStatus", &copy(forgotten.clone()), json!({}))["rawStatus"].clone();
    let counts = json!({"t0": {"phase": {"Succeeded": 1}}, "t1": {"phase": {"Succeeded": 3}}});
    assert_eq!((&reported["succeeded"], &reported["taskStatusCount"]), (&json!(4), &counts));
    assert_eq!((&reported["version"], &reported["minAvailable"]), (&json!(1), &json!(4)));
    // What a Volcano does tell is told, and what is not Completed, or still goes, is left alone.
    for (field, value) in [
        ("succeeded", json!(2)),
        ("failed", json!(1)),
        ("running", json!(1)),
        ("terminating", json!(2)),
        ("taskStatusCount", json!({"t0": {"phase": {"Succeeded": 1}}})),
        ("state", json!({"phase": "Running"})),
        ("state", json!({"phase": "Failed"})),
    ] {
        let mut status = forgotten.clone();
        status[field] = value;
        assert_eq!(ask("InterpretStatus", &copy(status.clone()), json!({}))["rawStatus"], status);
    }
}

#[test]
fn a_part_that_completed_first_keeps_the_gang_running() {
    let mut first = job(&[2]);
    first["status"] = json!({"state": {"phase": "Completed"}, "minAvailable": 2});
    let first = ask("InterpretStatus", &first, json!({}))["rawStatus"].clone();
    let second = json!({"state": {"phase": "Running"}, "running": 2, "minAvailable": 2,
        "taskStatusCount": {"t0": {"phase": {"Running": 2}}}});
    let items = json!({"aggregatedStatus": [
        {"clusterName": "m1", "status": first}, {"clusterName": "m2", "status": second},
    ]});
    let object = job(&[4]);
    let whole = applied(&object, &ask("AggregateStatus", &object, items));
    assert_eq!(whole["status"]["state"]["phase"], "Running");
    assert_eq!((&whole["status"]["running"], &whole["status"]["succeeded"]), (&json!(2), &json!(2)));
    let gang = caldera_crds::workload::read_gang(&whole).unwrap();
    let kind = caldera_crds::workload::WorkloadKind::VolcanoJob;
    let progress = caldera_crds::workload::progress::read_progress(kind, &whole, Some(&gang));
    assert_eq!(progress.finished, [("t0".into(), 2)].into(), "a part that completed holds nothing");
}

#[test]
fn a_copy_that_is_being_left_does_not_fail_the_job() {
    let mut cache = Cache::default();
    let binding = json!({"spec": {
        "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"},
        "clusters": [{"name": "m2", "replicas": 4}],
    }});
    cache.put_binding(("ns".into(), "j-job".into()), CachedBinding::from_object(&binding));
    let items = json!({"aggregatedStatus": [
        {"clusterName": "m1", "status": {"state": {"phase": "Failed"}, "failed": 1}},
        {"clusterName": "m2", "status": {"state": {"phase": "Running"}, "running": 4}},
    ]});
    let object = job(&[4]);
    let got = applied(&object, &ask_with("AggregateStatus", &object, items, &cache));
    assert_eq!(got["status"]["state"]["phase"], "Running");
}

/// Its Volcano saw all its pods fail before it looked at the policy; then the whole job restarts, and the copy goes.
#[test]
fn a_failed_copy_of_a_split_job_that_its_policies_restart_does_not_fail_the_job() {
    let reported = json!({"aggregatedStatus": [
        {"clusterName": "m1", "status": {"state": {"phase": "Running"}, "running": 3}},
        {"clusterName": "m2", "status": {"state": {"phase": "Failed"}, "version": 2}},
    ]});
    let share = |pods: u32| json!({"tasks": {"t0": {"replicas": pods, "minAvailable": pods}}, "minAvailable": pods});
    let split = json!({"clusters": {"m1": share(3), "m2": share(1)}}).to_string();
    let in_one = json!({"clusters": {"m2": share(4)}}).to_string();
    let restarted = json!({
        "count": 0, "restarts": 1, "at": 1, "until": 1, "preemptor": "", "reason": "RestartedByPolicy", "message": "m",
    });
    let restarted = restarted.to_string();
    let both = json!([{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]);
    let none = json!([]);
    let hold = |cluster| json!({"fromCluster": cluster, "producer": "caldera-controller", "suppressDeletion": true});
    let (in_both, in_m2) = (json!([hold("m1"), hold("m2")]), json!([hold("m2")]));
    for (plan, eviction, clusters, held, action, phase) in [
        (Some(&split), None, &both, &none, "RestartJob", "Restarting"),
        (Some(&split), None, &both, &none, "AbortJob", "Failed"),
        (None, Some(&restarted), &none, &none, "RestartJob", "Restarting"),
        (Some(&in_one), Some(&restarted), &json!([{"name": "m2", "replicas": 4}]), &none, "RestartJob", "Failed"),
        // Left in lost clusters: of a job that was split, and of one that was whole.
        (None, None, &none, &in_both, "RestartJob", "Restarting"),
        (None, None, &none, &in_m2, "RestartJob", "Failed"),
    ] {
        let mut object = job(&[4]);
        object["spec"]["policies"] = json!([{"event": "PodFailed", "action": action}]);
        let mut cache = Cache::default();
        let binding = json!({
            "metadata": {"annotations": {"caldera.dev/plan": plan, "caldera.dev/eviction": eviction}},
            "spec": {
                "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}, "clusters": clusters,
                "gracefulEvictionTasks": held,
            },
        });
        cache.put_binding(("ns".into(), "j-job".into()), CachedBinding::from_object(&binding));
        let got = applied(&object, &ask_with("AggregateStatus", &object, reported.clone(), &cache));
        assert_eq!(got["status"]["state"]["phase"], phase, "{binding}");
    }
}

#[test]
fn a_restart_of_the_whole_job_is_counted_once_however_long_its_old_copies_tell_of_it() {
    let mut cache = Cache::default();
    let reported = |retries: u32| {
        json!({"aggregatedStatus": [{"clusterName": "m1", "applied": true, "status": {
            "state": {"phase": "Running"}, "running": 1, "retryCount": retries, "version": retries,
        }}]})
    };
    let mut object = job(&[4]);
    // The copy restarts; then the job does, and the copy goes; then a copy made anew restarts.
    for (placed, restarts, retries, expected) in [(true, 0, 1, 1), (false, 1, 1, 1), (true, 1, 0, 1), (true, 1, 1, 2)] {
        let clusters = if placed { [("m1".to_owned(), 4)].into() } else { BTreeMap::new() };
        let resource = ("batch.volcano.sh/v1alpha1".into(), "Job".into());
        cache.put_binding(
            ("ns".into(), "j-job".into()),
            CachedBinding { resource, clusters, restarts, ..CachedBinding::default() },
        );
        object = applied(&object, &ask_with("AggregateStatus", &object, reported(retries), &cache));
        assert_eq!(object["status"]["retryCount"], expected, "{placed} {restarts} {retries}");
    }
}

#[test]
fn the_binding_of_another_kind_with_the_same_name_is_not_asked() {
    let mut cache = Cache::default();
    let binding = json!({"spec": {
        "resource": {"apiVersion": "batch/v1", "kind": "Job"}, "clusters": [{"name": "m9", "replicas": 4}],
    }});
    cache.put_binding(("ns".into(), "j-job".into()), CachedBinding::from_object(&binding));
    let done = json!({"aggregatedStatus": [
        {"clusterName": "m1", "status": {"state": {"phase": "Completed"}, "succeeded": 4}},
    ]});
    let object = job(&[4]);
    let got = applied(&object, &ask_with("AggregateStatus", &object, done, &cache));
    assert_eq!(got["status"]["state"]["phase"], "Completed");
}

#[test]
fn dependencies_are_reported_once_and_sorted() {
    let mut object = job(&[1, 1]);
    for task in 0..2 {
        object["spec"]["tasks"][task]["template"]["spec"]["volumes"] =
            json!([{"configMap": {"name": "b"}}, {"secret": {"secretName": "s"}}, {"configMap": {"name": "a"}}]);
        object["spec"]["tasks"][task]["template"]["spec"]["serviceAccountName"] = "default".into();
    }
    let response = ask("InterpretDependency", &object, json!({}));
    let names: Vec<_> =
        response["dependencies"].as_array().unwrap().iter().map(|d| d["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "s"]);
}

#[test]
fn a_job_that_meets_over_a_clusterset_depends_on_the_export_of_its_service() {
    let mut object = job(&[1, 1]);
    let reported = |object: &Value| ask("InterpretDependency", object, json!({}))["dependencies"].clone();
    for other in [json!(null), json!({"caldera.dev/rendezvous": "none"})] {
        object["metadata"]["annotations"] = other;
        assert_eq!(reported(&object), json!([]));
    }
    object["metadata"]["annotations"] = json!({"caldera.dev/rendezvous": "clusterset"});
    let export = &reported(&object)[0];
    assert_eq!(
        (&export["apiVersion"], &export["kind"], &export["name"]),
        (&json!("multicluster.x-k8s.io/v1alpha1"), &json!("ServiceExport"), &object["metadata"]["name"]),
    );
}

#[test]
fn what_is_not_ours_or_not_known_is_unsuccessful_with_a_status() {
    let response = ask("Dance", &job(&[1]), json!({}));
    assert_eq!(response["successful"], false);
    assert!(response["status"]["message"].as_str().unwrap().contains("Dance"));
    let response = ask("InterpretReplica", &job(&[1]), json!({"kind": {"group": "apps", "kind": "Deployment"}}));
    assert_eq!(response["successful"], false);
    assert_eq!(interpret(b"{}", &Cache::default()).status, 400);
}

/// Of a duplicated job one copy completed while the next one was placed, and the job was called Completed.
#[test]
fn a_job_is_not_called_ended_before_the_clusters_that_it_has_by_now_are_known() {
    let of = |phase: &str| {
        json!({"request": {
            "uid": "u", "kind": {"group": "batch.volcano.sh", "kind": "Job"}, "name": "j", "namespace": "ns",
            "operation": "AggregateStatus", "object": job(&[1]),
            "aggregatedStatus": [{"clusterName": "m1", "status": {"state": {"phase": phase}}}],
        }})
        .to_string()
    };
    let key = || ("ns".to_owned(), "j-job".to_owned());
    let binding = |clusters: &[&str]| CachedBinding {
        resource: ("batch.volcano.sh/v1alpha1".into(), "Job".into()),
        clusters: clusters.iter().map(|name| ((*name).to_owned(), 1)).collect(),
        ..CachedBinding::default()
    };
    let is_reply = |answer: &Interpretation| matches!(answer, Interpretation::Reply(_));
    let mut cache = Cache::default();
    let read = Interpretation::Read(Lookup::Binding(key()));
    assert_eq!(interpret_request(of("Completed").as_bytes(), &cache, None), read, "no binding was listed yet");
    assert!(is_reply(&interpret_request(of("Running").as_bytes(), &cache, None)));
    cache.put_binding(key(), binding(&["m1"]));
    assert!(is_reply(&interpret_request(of("Completed").as_bytes(), &cache, None)));
    cache.note_reviewed_plan(key(), 12_345);
    assert_eq!(interpret_request(of("Completed").as_bytes(), &cache, None), read, "another plan was just reviewed");
    let phase = |live: &LiveRead| {
        let answer = interpret_request(of("Completed").as_bytes(), &cache, Some(live));
        let Interpretation::Reply(reply) = answer else { panic!("{answer:?}") };
        let response: Value = serde_json::from_slice(&reply.body).unwrap();
        let merged = applied(&job(&[1]), &response["response"]);
        (response["response"]["successful"].clone(), merged["status"]["state"]["phase"].clone())
    };
    assert_eq!(phase(&LiveRead::Binding(Some(Box::new(binding(&["m1"]))))), (json!(true), json!("Completed")));
    let (successful, now) = phase(&LiveRead::Binding(Some(Box::new(binding(&["m1", "m2"])))));
    assert!(successful == true && now != "Completed", "{now}");
    assert_eq!(phase(&LiveRead::Failed("no answer".into())).0, false, "Karmada asks again");
}

proptest! {
    #[test]
    fn no_json_makes_it_panic(object in any_json(), observed in any_json(), operation in 0usize..8) {
        let operation = ["InterpretReplica", "InterpretComponent", "ReviseReplica", "Retain", "AggregateStatus",
            "InterpretStatus", "InterpretHealth", "InterpretDependency"][operation];
        let body = json!({"request": {
            "uid": "u", "kind": {"group": "batch.volcano.sh", "kind": "Job"}, "operation": operation, "object": object,
            "observedObject": observed, "replicas": 3,
        }});
        let _ = interpret(body.to_string().as_bytes(), &Cache::default());
    }

    #[test]
    fn volcano_takes_whatever_is_retained(
        before in prop::collection::vec(0u64..9, 1..4), after in prop::collection::vec(0u64..9, 1..4),
        job_minimum in prop::option::of(0u64..30), minimums in any::<bool>(),
    ) {
        let observed = in_the_member(&before);
        let mut desired = job(&after);
        desired["spec"]["minAvailable"] = json!(job_minimum);
        if !minimums {
            for task in desired["spec"]["tasks"].as_array_mut().unwrap() {
                task["minAvailable"] = Value::Null;
            }
        }
        let got = kept(&desired, &observed);
        prop_assert_eq!(caldera_crds::job_admission::validate_update(&observed, &got), Vec::<String>::new());
        prop_assert_eq!(&kept(&got, &observed), &got);
        if before.len() == after.len() {
            for (task, replicas) in got["spec"]["tasks"].as_array().unwrap().iter().zip(&after) {
                prop_assert_eq!(&task["replicas"], &json!(replicas));
            }
        }
    }

    #[test]
    fn a_revised_copy_has_the_replicas_asked_for(replicas in prop::collection::vec(0u64..20, 1..5), part in 0u64..100) {
        let whole: u64 = replicas.iter().sum();
        let part = part.min(whole);
        let object = job(&replicas);
        let revised = applied(&object, &ask("ReviseReplica", &object, json!({"replicas": part})));
        let tasks = revised["spec"]["tasks"].as_array().unwrap();
        prop_assert_eq!(tasks.iter().map(|task| task["replicas"].as_u64().unwrap()).sum::<u64>(), part);
        for task in tasks {
            prop_assert!(task["minAvailable"].as_u64() <= task["replicas"].as_u64());
        }
        prop_assert!(revised["spec"]["minAvailable"].as_u64().unwrap() <= part);
    }
}
