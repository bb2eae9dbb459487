use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn task(name: &str, replicas: i64) -> Value {
    json!({"name": name, "replicas": replicas, "template": {"spec": {"restartPolicy": "OnFailure", "containers":
        [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]}}})
}

fn job(tasks: impl IntoIterator<Item = Value>) -> Value {
    let tasks: Value = tasks.into_iter().collect();
    json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "train", "namespace": "n"},
        "spec": {"tasks": tasks}})
}

fn defaulted(mut job: Value) -> Value {
    fill_job_defaults(&mut job);
    job
}

fn set(mut job: Value, path: &str, value: Value) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap();
    let parent = job.pointer_mut(parent).unwrap();
    match parent {
        Value::Object(map) => {
            map.insert(key.into(), value);
        }
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        _ => unreachable!(),
    }
    job
}

fn refused(job: &Value) -> String {
    validate_create(&defaulted(job.clone())).join(" | ")
}

#[test]
fn defaults_are_volcanos_in_its_order() {
    let mut tasks = vec![task("", 1), task("worker", 9)];
    tasks[1]["partitionPolicy"] = json!({"totalPartitions": 3, "partitionSize": 3, "minPartitions": 2});
    tasks[0]["template"]["spec"]["hostNetwork"] = json!(true);
    let got = defaulted(set(job(tasks), "/spec/plugins", json!({"mpi": ["--master=default0"]})));
    let spec = &got["spec"];
    assert_eq!(spec["queue"], "default");
    assert_eq!(spec["schedulerName"], "volcano");
    assert_eq!(spec["maxRetry"], 3);
    assert_eq!(spec["tasks"][0]["name"], "default0");
    assert_eq!(spec["tasks"][0]["template"]["spec"]["dnsPolicy"], "ClusterFirstWithHostNet");
    assert_eq!(spec["tasks"][0]["minAvailable"], 1);
    assert_eq!(spec["tasks"][1]["minAvailable"], 6);
    assert_eq!(spec["tasks"][1]["maxRetry"], 3);
    assert_eq!(spec["minAvailable"], 7);
    assert_eq!(spec["plugins"], json!({"mpi": ["--master=default0"], "svc": [], "ssh": []}));
    assert!(validate_create(&got).is_empty(), "{:?}", validate_create(&got));
}

#[test]
fn a_job_minimum_of_zero_becomes_the_sum_of_the_tasks_minimums() {
    let mut tasks = vec![task("a", 4), task("b", 4)];
    tasks[0]["minAvailable"] = json!(0);
    let got = defaulted(set(job(tasks), "/spec/minAvailable", json!(0)));
    assert_eq!(got["spec"]["minAvailable"], 4);
}

#[test]
fn given_values_are_kept() {
    let given = set(job(vec![task("a", 4)]), "/spec/queue", json!("research"));
    let given = set(given, "/spec/minAvailable", json!(2));
    let got = defaulted(given);
    assert_eq!(got["spec"]["queue"], "research");
    assert_eq!(got["spec"]["minAvailable"], 2);
}

#[test]
fn no_task_is_refused() {
    assert_eq!(refused(&job(vec![])), "No task specified in job spec");
    assert_eq!(refused(&json!({"spec": {"tasks": null}})), "No task specified in job spec");
    assert_eq!(refused(&json!(5)), "No task specified in job spec");
}

#[test]
fn minimums_above_replicas_are_refused_with_value_and_limit() {
    let over = set(job(vec![task("a", 3)]), "/spec/minAvailable", json!(5));
    assert_eq!(refused(&over), "job 'minAvailable' should not be greater than total replicas in tasks");
    let sentence = list_creation_refusals(&defaulted(over))[0].sentence();
    assert_eq!(sentence, "spec.minAvailable: 5 is more than the 3 replicas of all tasks");

    let over = set(job(vec![task("a", 3)]), "/spec/tasks/0/minAvailable", json!(5));
    let got = refused(&over);
    assert!(got.contains("'minAvailable' is greater than 'replicas' in task: a, job: train"), "{got}");
    let sentence = list_creation_refusals(&defaulted(over))[0].sentence();
    assert_eq!(sentence, "spec.tasks[0].minAvailable: 5 is more than the task's 3 replicas");
}

#[test]
fn each_thing_wrong_with_a_new_job_is_refused_in_volcanos_words() {
    let good = || job(vec![task("a", 3), task("b", 1)]);
    let cases = [
        ("/spec/minAvailable", json!(-1), "job 'minAvailable' must be >= 0."),
        ("/spec/maxRetry", json!(-1), "'maxRetry' cannot be less than zero."),
        ("/spec/ttlSecondsAfterFinished", json!(-1), "'ttlSecondsAfterFinished' cannot be less than zero."),
        ("/spec/tasks/0/replicas", json!(-2), "'replicas' < 0 in task: a, job: train"),
        ("/spec/tasks/0/minAvailable", json!(-2), "'minAvailable' < 0 in task: a, job: train"),
        ("/spec/tasks/1/name", json!("a"), "duplicated task name a"),
        ("/spec/tasks/1/name", json!("A_b"), "[a lowercase RFC 1123 label"),
        ("/spec/plugins", json!({"big_plugin": []}), "unable to find job plugin: big_plugin"),
        ("/spec/plugins", json!({"mpi": []}), "The specified mpi master task was not found"),
        ("/spec/volumes", json!([{"volumeClaimName": "x"}]), "mountPath is required;"),
        (
            "/spec/volumes",
            json!([{"mountPath": "/v", "volumeClaimName": "x"}, {"mountPath": "/v", "volumeClaimName": "y"}]),
            "duplicated mountPath: /v;",
        ),
        ("/spec/volumes", json!([{"mountPath": "/v"}]), "either VolumeClaim or VolumeClaimName must be specified;"),
        (
            "/spec/volumes",
            json!([{"mountPath": "/v", "volumeClaimName": "x", "volumeClaim": {"accessModes": []}}]),
            "conflict: If you want to use an existing PVC",
        ),
        (
            "/spec/networkTopology",
            json!({"highestTierAllowed": 0, "highestTierName": "rack"}),
            "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously",
        ),
        ("/spec/tasks/1/dependsOn", json!({"name": ["nobody"]}), "doesn't form a directed acyclic graph(DAG)"),
        ("/spec/tasks/1/dependsOn", json!({"name": ["b"]}), "doesn't form a directed acyclic graph(DAG)"),
        (
            "/spec/tasks/0/partitionPolicy",
            json!({"totalPartitions": 2, "partitionSize": 2}),
            "'Replicas' are not equal to TotalPartitions*PartitionSize in task: a, job: train",
        ),
        ("/metadata/name", json!("x".repeat(64)), "must be no more than 63 characters"),
        ("/spec/tasks/0/template/spec/containers", json!([]), "spec.task[0].template.spec.containers: Required value"),
        (
            "/spec/tasks/0/template/spec/containers/0/image",
            json!(""),
            "spec.task[0].template.spec.containers[0].image: Required value",
        ),
        ("/spec/tasks/0/template/spec/restartPolicy", json!("Sometimes"), "Unsupported value: \"Sometimes\""),
    ];
    assert_eq!(refused(&good()), "");
    for (path, value, want) in cases {
        let got = refused(&set(good(), path, value));
        assert!(got.contains(want), "{path}: {got:?} lacks {want:?}");
    }
}

#[test]
fn each_thing_wrong_with_policies_is_refused_in_volcanos_words() {
    let cases = [
        (json!([{"event": "PodFailed", "exitCode": 1, "action": "AbortJob"}]), "must not specify event and exitCode"),
        (json!([{"action": "AbortJob"}]), "either event and exitCode should be specified"),
        (json!([{"event": "OutOfSync", "action": "AbortJob"}]), "Invalid value: \"OutOfSync\": invalid policy event"),
        (json!([{"event": "PodFailed", "action": "SyncJob"}]), "Invalid value: \"SyncJob\": invalid policy action"),
        (json!([{"exitCode": 0, "action": "AbortJob"}]), "0 is not a valid error code"),
        (
            json!([{"exitCode": 1, "action": "AbortJob"}, {"exitCode": 1, "action": "RestartJob"}]),
            "duplicate exitCode 1",
        ),
        (
            json!([{"event": "PodFailed", "action": "AbortJob"}, {"events": ["PodFailed"], "action": "RestartJob"}]),
            "duplicate event PodFailed  across different policy",
        ),
        (
            json!([{"event": "*", "action": "AbortJob"}, {"event": "PodFailed", "action": "RestartJob"}]),
            "if there's * here, no other policy should be here",
        ),
    ];
    for (policies, want) in cases {
        for path in ["/spec/policies", "/spec/tasks/0/policies"] {
            let got = refused(&set(job(vec![task("a", 1)]), path, policies.clone()));
            assert!(got.contains(want) && got.contains("valid events are ["), "{path}: {got:?} lacks {want:?}");
        }
    }
}

#[test]
fn garbage_negative_and_inverted_quantities_are_refused_with_field_value_and_limit() {
    let resources = "/spec/tasks/0/template/spec/containers/0/resources";
    let cases = [
        (json!({"requests": {"cpu": "a lot"}}), "requests[cpu]: Invalid value: \"a lot\": quantities must match"),
        (
            json!({"requests": {"cpu": "-1"}}),
            "requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (json!({"limits": {"memory": true}}), "limits[memory]: Invalid value: \"true\": quantities must match"),
        (
            json!({"requests": {"cpu": "6"}, "limits": {"cpu": "4"}}),
            "requests: Invalid value: \"6\": must be less than or equal to cpu limit of 4",
        ),
        (
            json!({"limits": {"nvidia.com/gpu": "500m"}}),
            "limits[nvidia.com/gpu]: Invalid value: \"500m\": must be an integer",
        ),
        (json!({"requests": {"nvidia.com/gpu": "1"}}), "Limit must be set for non overcommitable resources"),
        (
            json!({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}),
            "must be equal to nvidia.com/gpu limit of 2",
        ),
    ];
    for (value, want) in cases {
        let got = refused(&set(job(vec![task("a", 1)]), resources, value));
        assert!(got.starts_with("spec.task[0].template.spec.containers[0].resources."), "{got}");
        assert!(got.contains(want), "{got:?} lacks {want:?}");
    }
}

#[test]
fn a_numa_policy_wants_whole_cores() {
    let numa = set(job(vec![task("a", 1)]), "/spec/tasks/0/topologyPolicy", json!("restricted"));
    assert_eq!(refused(&numa), "");
    let half = set(numa, "/spec/tasks/0/template/spec/containers/0/resources/requests/cpu", json!("1500m"));
    assert_eq!(refused(&half), "the cpu request isn't an integer in spec.task[0] container[0].");
}

#[test]
fn only_minimums_replicas_and_priority_class_may_change() {
    let old = defaulted(job(vec![task("a", 3), task("b", 1)]));
    let allowed = [
        ("/spec/minAvailable", json!(1)),
        ("/spec/priorityClassName", json!("high")),
        ("/spec/tasks/0/replicas", json!(8)),
        ("/spec/tasks/0/minAvailable", json!(1)),
        ("/metadata/labels", json!({"a": "b"})),
        ("/spec/policies", json!([])),
        ("/spec/tasks/0/template/spec/containers/0/resources/requests/cpu", json!(2)),
        ("/spec/tasks/0/template/spec/containers/0/resources/requests/memory", json!("1024Mi")),
    ];
    for (path, value) in allowed {
        assert_eq!(validate_update(&old, &set(old.clone(), path, value)), [] as [String; 0], "{path}");
    }
    let frozen = [
        ("/spec/queue", json!("other")),
        ("/spec/maxRetry", json!(9)),
        ("/spec/ttlSecondsAfterFinished", json!(9)),
        ("/spec/tasks/0/name", json!("c")),
        ("/spec/tasks/0/maxRetry", json!(9)),
        ("/spec/tasks/0/template/spec/containers/0/image", json!("other")),
    ];
    for (path, value) in frozen {
        let got = validate_update(&old, &set(old.clone(), path, value));
        assert_eq!(got.len(), 1, "{path}");
        assert!(got[0].starts_with("job updates may not change fields other than"), "{path}: {got:?}");
    }
}

#[test]
fn a_frozen_field_is_named() {
    let old = defaulted(job(vec![task("a", 3)]));
    let new = set(old.clone(), "/spec/tasks/0/template/spec/containers/0/image", json!("other"));
    let sentence = list_update_refusals(&old, &new)[0].sentence();
    assert!(sentence.starts_with("spec.tasks[0].template.spec.containers[0].image: may not change"), "{sentence}");
}

#[test]
fn updates_check_numbers_and_the_number_of_tasks() {
    let old = defaulted(job(vec![task("a", 3)]));
    let cases = [
        ("/spec/tasks/0/replicas", json!(-1), "'replicas' must be >= 0 in task: a"),
        ("/spec/tasks/0/minAvailable", json!(-1), "'minAvailable' must be >= 0 in task: a"),
        ("/spec/tasks/0/minAvailable", json!(4), "'minAvailable' must be <= 'replicas' in task: a"),
        ("/spec/minAvailable", json!(4), "job 'minAvailable' must not be greater than total replicas"),
        ("/spec/minAvailable", json!(-4), "job 'minAvailable' must be >= 0"),
        ("/spec/tasks", json!([task("a", 3), task("b", 3)]), "job updates may not add or remove tasks"),
    ];
    for (path, value, want) in cases {
        assert_eq!(validate_update(&old, &set(old.clone(), path, value)), [want], "{path}");
    }
}

#[test]
fn a_partitioned_task_can_not_be_resized() {
    let mut tasks = vec![task("a", 4)];
    tasks[0]["partitionPolicy"] = json!({"totalPartitions": 2, "partitionSize": 2});
    let old = defaulted(job(tasks));
    let by_replicas = set(old.clone(), "/spec/tasks/0/replicas", json!(6));
    assert!(validate_update(&old, &by_replicas)[0].contains("not equal to TotalPartitions*PartitionSize"));
    let both = set(by_replicas, "/spec/tasks/0/partitionPolicy/totalPartitions", json!(3));
    assert!(validate_update(&old, &both)[0].starts_with("job updates may not change fields"));
}

#[test]
fn a_generated_claim_name_may_appear() {
    let volume = json!([{"mountPath": "/v", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}]);
    let old = set(defaulted(job(vec![task("a", 3)])), "/spec/volumes", volume);
    let new = set(old.clone(), "/spec/volumes/0/volumeClaimName", json!("train-volume-x7"));
    assert_eq!(validate_update(&old, &new), [] as [String; 0]);
}

#[test]
fn a_queue_must_exist_be_open_and_be_a_leaf() {
    let texts = |name: &str, queue: Option<QueueView<'_>>| -> Vec<String> {
        queue_refusals(name, queue.as_ref()).into_iter().map(|r| r.volcano).collect()
    };
    let none: [String; 0] = [];
    assert_eq!(texts("q", Some(QueueView { state: "Open", children: 0 })), none);
    assert_eq!(texts("q", None), ["unable to find job queue: queue.scheduling.volcano.sh \"q\" not found"]);
    assert_eq!(
        texts("q", Some(QueueView { state: "Closing", children: 2 })),
        [
            "can only submit job to queue with state `Open`, queue `q` status is `Closing`",
            "can only submit job to leaf queue, queue `q` has 2 child queues",
        ]
    );
    assert_eq!(texts("root", Some(QueueView { state: "Open", children: 2 })), ["can not submit job to root queue"]);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9.-]{0,8}".prop_map(Value::from),
    ];
    let keys = prop_oneof![
        "spec|tasks|template|containers|resources|requests|limits|cpu|name|replicas|minAvailable",
        "partitionPolicy|totalPartitions|partitionSize|plugins|mpi|volumes|dependsOn|policies|event|queue",
    ];
    leaf.prop_recursive(6, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..5).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn defaults_change_nothing_the_second_time(spec in any_json()) {
        let once = defaulted(json!({"spec": spec}));
        prop_assert_eq!(defaulted(once.clone()), once);
    }

    #[test]
    fn no_input_panics(old in any_json(), new in any_json()) {
        let (old, new) = (json!({"spec": old}), json!({"spec": new}));
        let _ = list_creation_refusals(&old);
        let _ = list_update_refusals(&old, &new);
        prop_assert!(list_update_refusals(&new, &new).iter().all(|r| !r.volcano.starts_with("job updates may not")));
    }

    #[test]
    fn a_defaulted_job_of_sane_numbers_is_admitted(replicas in prop::collection::vec(0i64..50, 1..5)) {
        let tasks = replicas.iter().enumerate().map(|(i, r)| task(&format!("t{i}"), *r));
        prop_assert_eq!(refused(&job(tasks)), "");
    }
}

/// A job of `tasks` tasks, each of which waits for the one before it.
fn chain(tasks: usize) -> Value {
    let task = |at: usize| {
        let on: Vec<String> = at.checked_sub(1).map(|before| format!("t{before}")).into_iter().collect();
        json!({
            "name": format!("t{at}"), "replicas": 1, "dependsOn": {"name": on},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        })
    };
    json!({"metadata": {"name": "j"}, "spec": {"tasks": (0..tasks).map(task).collect::<Vec<_>>()}})
}

/// The attack took 20 s of 19,000 tasks; nothing here is bound to the clock of a busy machine by less than a factor of
/// a hundred.
#[test]
fn a_chain_of_tasks_costs_time_in_proportion_to_its_length() {
    let job = chain(MOST_TASKS);
    let began = std::time::Instant::now();
    assert_eq!(list_creation_refusals(&job), []);
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    let mut cycle = chain(1_000);
    cycle["spec"]["tasks"][0]["dependsOn"]["name"] = json!(["t999"]);
    assert_eq!(list_creation_refusals(&cycle)[0].field, "spec.tasks[*].dependsOn");
}

#[test]
fn a_dependency_is_counted_once_and_on_a_task_that_is_there() {
    let depends = |on: Value| {
        let mut job = chain(3);
        job["spec"]["tasks"][2]["dependsOn"]["name"] = on;
        list_creation_refusals(&job).len()
    };
    assert_eq!([depends(json!(["t0", "t0", "t1"])), depends(json!(["t2"])), depends(json!(["nobody"]))], [0, 1, 1]);
}

#[test]
fn more_tasks_than_the_limit_are_refused_in_one_sentence() {
    let tasks = vec![json!({}); MOST_TASKS + 1];
    let refusals = list_creation_refusals(&json!({"metadata": {"name": "j"}, "spec": {"tasks": tasks}}));
    let sentences: Vec<String> = refusals.iter().map(Refusal::sentence).collect();
    assert_eq!(sentences, ["spec.tasks: 10001 tasks are above 10000; pods that are alike are replicas of one task"]);
}

#[test]
fn what_is_wrong_everywhere_is_told_a_hundred_times_and_not_for_ever() {
    let containers = json!({"spec": {"containers": vec![json!({}); 100_000]}});
    let job =
        json!({"metadata": {"name": "j"}, "spec": {"tasks": [{"name": "t", "replicas": 1, "template": containers}]}});
    assert_eq!(list_creation_refusals(&job).len(), 100);
    let name = "n".repeat(1 << 20);
    let job = json!({"metadata": {"name": name}, "spec": {"tasks": vec![json!({"replicas": -1}); 5_000]}});
    assert_eq!(list_creation_refusals(&job).len(), 1);
    let events: Vec<String> = (0..200_000).map(|at| format!("e{at}")).collect();
    let mut job = chain(1);
    job["spec"]["policies"] = json!([{"events": events, "action": "AbortJob"}]);
    assert_eq!(list_creation_refusals(&job).len(), 1);
}

#[test]
fn what_is_filled_in_is_reported() {
    let mut job = chain(2);
    let before = job.clone();
    let filled = fill_defaults(&mut job);
    let mut again = before;
    for Filled { path, value } in &filled {
        let (last, parents) = path.split_last().unwrap();
        let parent = parents.iter().fold(&mut again, |at, token| match token.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[&**token],
        });
        parent[&**last] = value.clone();
    }
    assert_eq!(again, job);
    assert_eq!(fill_defaults(&mut job), []);
}
