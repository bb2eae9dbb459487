#![allow(clippy::needless_pass_by_value)] // `json!` makes values

mod node_rules;
mod one_cluster;
mod queueing;

use std::collections::BTreeMap;

use caldera_core::quantity::Quantity;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::job_admission::fill_job_defaults;

fn job(spec: Value) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": { "name": "j", "namespace": "ns" },
        "spec": spec,
    })
}

fn job_of(task: Value) -> Value {
    job(json!({ "tasks": [task] }))
}

fn pod(spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": spec })
}

fn read(object: &Value) -> Gang {
    read_gang(object).expect("a gang")
}

fn refused(object: &Value) -> String {
    read_gang(object).expect_err("a refusal").to_string()
}

fn requests(cpu: &str) -> Value {
    json!({ "resources": { "requests": { "cpu": cpu } } })
}

fn cpu(gang: &Gang) -> String {
    gang.tasks[0].request.get("cpu").to_string()
}

#[test]
fn tasks_without_a_name_are_numbered_by_their_place() {
    let gang = read(&job(json!({ "tasks": [{ "replicas": 1, "name": "a" }, { "replicas": 1 }] })));
    let names: Vec<&str> = gang.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["a", "default1"]);
}

#[test]
fn a_task_without_a_minimum_needs_all_its_replicas_or_its_needed_partitions() {
    let all = read(&job_of(json!({ "replicas": 6 })));
    assert_eq!(all.tasks[0].min_available, 6);
    let policy = json!({ "totalPartitions": 3, "partitionSize": 2, "minPartitions": 2 });
    let parts = read(&job_of(json!({ "replicas": 6, "partitionPolicy": policy })));
    assert_eq!(parts.tasks[0].min_available, 4);
    assert_eq!(
        parts.tasks[0].partition,
        Some(caldera_core::gang::Partition { total: 3, size: 2, min: 2, topology: None })
    );
}

#[test]
fn partitions_say_how_close_their_pods_must_be() {
    let of = |topology: serde_json::Value| {
        let policy = json!({ "totalPartitions": 3, "partitionSize": 2, "networkTopology": topology });
        read_gang(&job_of(json!({ "replicas": 6, "partitionPolicy": policy })))
    };
    let gang = of(json!({ "highestTierAllowed": 1 })).unwrap();
    let close = gang.tasks[0].hard_partition_topology().unwrap();
    assert_eq!((close.highest_tier, close.hard, gang.topology.is_none()), (Some(1), true, true));
    for loose in [json!(null), json!({}), json!({ "mode": "soft", "highestTierName": "rack" })] {
        assert!(!of(loose).unwrap().has_close_partitions());
    }
    let both = of(json!({ "highestTierAllowed": 1, "highestTierName": "rack" })).unwrap_err().to_string();
    assert!(both.contains("spec.tasks[0].partitionPolicy.networkTopology"), "{both}");
}

#[test]
fn a_job_minimum_of_zero_or_none_is_the_sum_of_the_task_minimums() {
    let tasks = json!([{ "replicas": 4, "minAvailable": 1 }, { "replicas": 2 }]);
    assert_eq!(read(&job(json!({ "tasks": tasks }))).min_available, 3);
    assert_eq!(read(&job(json!({ "tasks": tasks, "minAvailable": 0 }))).min_available, 3);
    assert_eq!(read(&job(json!({ "tasks": tasks, "minAvailable": 5 }))).min_available, 5);
}

/// The peer counts the first task alone.
#[test]
fn demand_is_the_sum_over_all_tasks() {
    let gang = read(&job(json!({ "tasks": [
        { "name": "launcher", "replicas": 1, "template": { "spec": { "containers": [requests("1")] } } },
        { "name": "worker", "replicas": 512, "template": { "spec": { "containers": [requests("2")] } } },
    ] })));
    assert_eq!(gang.sum_full_demand().get("cpu"), Quantity::from_units(1025));
    assert_eq!(gang.sum_full_demand().get("pods"), Quantity::from_units(513));
}

/// The peer lets jobs without requests through for nothing.
#[test]
fn a_pod_without_requests_costs_a_pod() {
    let gang = read(&pod(json!({ "containers": [{}] })));
    assert_eq!(gang.tasks[0].request.to_string(), "pods 1");
}

#[test]
fn a_limit_stands_in_for_a_missing_request() {
    let containers = json!([{ "resources": {
        "limits": { "cpu": "2", "nvidia.com/gpu": 8 },
        "requests": { "cpu": "500m" },
    } }]);
    let gang = read(&pod(json!({ "containers": containers })));
    assert_eq!(cpu(&gang), "500m");
    assert_eq!(gang.tasks[0].request.get("nvidia.com/gpu"), Quantity::from_units(8));
}

#[test]
fn init_containers_count_at_their_peak_beside_the_sidecars_before_them() {
    let sidecar = json!({ "restartPolicy": "Always", "resources": { "requests": { "cpu": "1" } } });
    let init = |cpu| requests(cpu);
    let peak = |inits: Value| cpu(&read(&pod(json!({ "initContainers": inits, "containers": [requests("2")] }))));
    assert_eq!(peak(json!([init("1")])), "2", "less than what runs later");
    assert_eq!(peak(json!([init("5")])), "5", "more than what runs later");
    assert_eq!(peak(json!([sidecar, init("1")])), "3", "a sidecar runs on beside the containers");
    assert_eq!(peak(json!([sidecar, init("5")])), "6", "and beside later init containers");
    assert_eq!(peak(json!([init("5"), sidecar])), "5", "but not beside earlier ones");
}

#[test]
fn overhead_is_added_and_the_pods_own_figures_replace_its_containers() {
    let overhead = json!({ "overhead": { "cpu": "250m" }, "containers": [requests("1")] });
    assert_eq!(cpu(&read(&pod(overhead))), "1250m");
    let own =
        json!({ "resources": { "requests": { "cpu": "3", "example.com/x": "1" } }, "containers": [requests("1")] });
    let gang = read(&pod(own));
    assert_eq!(cpu(&gang), "3");
    assert!(gang.tasks[0].request.get("example.com/x").is_zero(), "only cpu, memory and huge pages can be a pod's own");
}

#[test]
fn a_zero_request_asks_for_nothing() {
    let gang = read(&pod(json!({ "containers": [{ "resources": { "requests": { "nvidia.com/gpu": "0" } } }] })));
    assert_eq!(gang.tasks[0].request.to_string(), "pods 1");
}

/// They were charged nothing: a quota for cards was none.
#[test]
fn devices_are_claimed_in_every_kind_by_what_the_template_carries_alone() {
    let claims = json!([{ "name": "gpu", "resourceClaimTemplateName": "one-gpu" }]);
    let why = "resourceClaims[0]: what ResourceClaimTemplate \"one-gpu\" asks for is not written down in annotation \
               caldera.dev/device-claims of the pod template; Caldera's webhook writes it when the object is created";
    let spec = json!({ "resourceClaims": claims, "containers": [requests("1")] });
    assert_eq!(refused(&pod(spec.clone())), format!("spec.{why}"));
    let of_a_job = job_of(json!({ "replicas": 1, "template": { "spec": spec } }));
    assert_eq!(refused(&of_a_job), format!("spec.tasks[0].template.spec.{why}"));
    let asks = json!({ "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "gpu.io" } }] } });
    let mut written = pod(spec.clone());
    written["metadata"]["annotations"] = json!({ "caldera.dev/device-claims": json!({ "one-gpu": asks }).to_string() });
    let want = "cpu 1, deviceclass/gpu.io 1, pods 1";
    assert_eq!(read(&written).tasks[0].request.to_string(), want);
    let spark = json!({
        "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": { "name": "s" },
        "spec": { "type": "Scala", "driver": { "template": { "spec": spec } }, "executor": { "instances": 1 } },
    });
    assert!(refused(&spark).ends_with("pods of a SparkApplication can not claim devices"), "{}", refused(&spark));
    for none in [json!([]), Value::Null] {
        read(&pod(json!({ "resourceClaims": none, "containers": [requests("1")] })));
    }
}

#[test]
fn names_that_no_resource_has_and_too_many_of_them_are_refused() {
    let asks = |request: Value| {
        let containers = json!([{ "resources": { "requests": request } }]);
        job_of(json!({ "replicas": 1, "template": { "spec": { "containers": containers } } }))
    };
    assert_eq!(
        refused(&asks(json!({ "nvidia.com/gpu:A100": "1" }))),
        "spec.tasks[0].template.spec: its pod asks for \"nvidia.com/gpu:A100\", which is no name of a resource: a \
         card's model is named by a nodeSelector"
    );
    let many = |count: usize| asks((0..count).map(|i| (format!("x.io/r{i}"), json!("1"))).collect());
    // One of the node's pods is asked for beside them.
    assert_eq!(read(&many(63)).tasks[0].request.iter().count(), 64);
    let reported = "spec: its pods ask for 65 resources and card models, and 64 are the most";
    assert_eq!(refused(&many(64)), reported);
    // Over all tasks, and with the models that they name.
    let of_model = |i: usize| {
        json!({ "replicas": 1, "template": { "spec": {
            "nodeSelector": { "x.io/gpu.product": format!("m{i}") },
            "containers": [{ "resources": { "requests": { "x.io/gpu": "1" } } }],
        } } })
    };
    let models = |count: usize| job(json!({ "tasks": (0..count).map(of_model).collect::<Vec<_>>() }));
    assert_eq!(read(&models(62)).tasks.len(), 62);
    assert_eq!(refused(&models(63)), reported);
}

#[test]
fn bad_values_are_refused_with_field_value_and_limit() {
    let with_cpu = |cpu: Value| {
        let containers = json!([{ "resources": { "requests": { "cpu": cpu } } }]);
        job_of(json!({ "replicas": 1, "template": { "spec": { "containers": containers } } }))
    };
    let field = "spec.tasks[0].template.spec.containers[0].resources.requests.cpu";
    let cases = [
        (job(json!({})), "spec.tasks: a job needs at least one task".to_owned()),
        (job(json!({ "tasks": [] })), "spec.tasks: a job needs at least one task".to_owned()),
        (job(json!({ "tasks": vec![json!({}); 10_001] })), "spec.tasks: 10001 tasks are above 10000".to_owned()),
        (job(json!({ "tasks": "x" })), "spec.tasks: \"x\" is not a list".to_owned()),
        (job_of(json!({ "replicas": -1 })), "spec.tasks[0].replicas: -1 is below 0".to_owned()),
        (job_of(json!({ "replicas": "2" })), "spec.tasks[0].replicas: \"2\" is not a whole number".to_owned()),
        (
            job_of(json!({ "replicas": 4_000_000_000_u64 })),
            "spec.tasks[0].replicas: 4000000000 is above 2147483647".to_owned(),
        ),
        (
            job_of(json!({ "replicas": 2, "minAvailable": 3 })),
            "spec.tasks[0].minAvailable: 3 is more than the task's 2 replicas".to_owned(),
        ),
        (
            job(json!({ "minAvailable": 5, "tasks": [{ "replicas": 2 }, { "replicas": 2 }] })),
            "spec.minAvailable: 5 is more than the 4 replicas of all tasks".to_owned(),
        ),
        (job(json!({ "minSuccess": 0, "tasks": [{}] })), "spec.minSuccess: 0 is below 1".to_owned()),
        (with_cpu(json!("-1")), format!("{field}: -1 is below 0")),
        (
            with_cpu(json!("lots")),
            format!("{field}: \"lots\" is not a quantity: want a number with an optional suffix such as m, k, M, Gi"),
        ),
        (with_cpu(json!("1Gb")), format!("{field}: \"1Gb\" has the unknown suffix \"Gb\"")),
        (with_cpu(json!([])), format!("{field}: [] is not a quantity")),
        (
            job(json!({ "tasks": [{ "name": "a" }, { "name": "a" }] })),
            "spec.tasks[1].name: \"a\" is the name of an earlier task".to_owned(),
        ),
        (
            job_of(json!({ "replicas": 5, "partitionPolicy": { "totalPartitions": 2, "partitionSize": 2 } })),
            "spec.tasks[0].replicas: 5 is not 2 partitions of 2 pods".to_owned(),
        ),
        (
            job_of(json!({ "replicas": 0, "partitionPolicy": { "totalPartitions": 2, "partitionSize": 0 } })),
            "spec.tasks[0].partitionPolicy.partitionSize: 0 is below 1".to_owned(),
        ),
        (
            json!({ "apiVersion": "v1", "kind": "ConfigMap" }),
            "v1 ConfigMap is not a workload that can be queued".to_owned(),
        ),
    ];
    for (object, sentence) in cases {
        assert_eq!(refused(&object), sentence);
    }
}

#[test]
fn a_batch_job_runs_no_more_pods_than_it_has_to_complete() {
    let replicas = |spec: Value| {
        let mut object = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" }, "spec": spec });
        object["spec"]["template"] = json!({ "spec": { "containers": [requests("1")] } });
        read(&object).replicas()
    };
    assert_eq!(replicas(json!({})), 1);
    assert_eq!(replicas(json!({ "completions": 5 })), 1);
    assert_eq!(replicas(json!({ "parallelism": 4 })), 4);
    assert_eq!(replicas(json!({ "parallelism": 4, "completions": 3 })), 3);
    let endless = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" }, "spec": {
        "completions": 9, "parallelism": 2, "template": { "spec": { "containers": [requests("1")] } },
    } });
    assert_eq!((read(&endless).replicas(), read(&endless).min_success), (2, Some(9)));
}

#[test]
fn pods_of_a_service_are_useful_alone_unless_its_annotation_says_otherwise() {
    let deployment = |annotations: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d", "annotations": annotations },
            "spec": { "replicas": 3, "template": { "spec": { "containers": [requests("1")] } } },
        })
    };
    assert_eq!((read(&deployment(json!({}))).replicas(), read(&deployment(json!({}))).min_available), (3, 1));
    assert_eq!(read(&deployment(json!({ GROUP_MIN_MEMBER: "3" }))).min_available, 3);
    assert_eq!(
        refused(&deployment(json!({ GROUP_MIN_MEMBER: "4" }))),
        "metadata.annotations[scheduling.volcano.sh/group-min-member]: 4 is more than the 3 replicas"
    );
    let mut none = deployment(json!({}));
    none["spec"]["replicas"] = json!(0);
    assert_eq!(read(&none).min_available, 0);
}

#[test]
fn hard_topology_binds_only_with_a_tier() {
    let with = |topology: Value| {
        read(&job(json!({ "networkTopology": topology, "tasks": [{ "replicas": 1 }] }))).topology.expect("a topology")
    };
    assert!(with(json!({ "highestTierAllowed": 2 })).hard, "hard is the default");
    assert!(!with(json!({ "mode": "hard" })).hard);
    assert!(!with(json!({ "mode": "soft", "highestTierAllowed": 2 })).hard);
    let both = json!({ "highestTierAllowed": 2, "highestTierName": "rack" });
    assert!(refused(&job(json!({ "networkTopology": both, "tasks": [{ "replicas": 1 }] }))).contains("not both"));
}

#[test]
fn node_claims_hold_selector_required_affinity_and_tolerations() {
    let terms = json!([{ "matchExpressions": [{ "key": "gpu", "operator": "In", "values": ["a100"] }] }, {}]);
    let gang = read(&pod(json!({
        "nodeSelector": { "zone": "z" },
        "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
        } },
        "tolerations": [{ "operator": "Exists" }, { "key": "k", "value": "v", "effect": "NoSchedule" }],
    })));
    let claim = &gang.tasks[0].node;
    assert_eq!(claim.selector["zone"], "z");
    assert_eq!(claim.affinity.len(), 1, "a term without expressions matches nothing");
    assert_eq!(claim.affinity[0].labels[0].values, ["a100"]);
    assert!(claim.tolerations[0].exists && !claim.tolerations[1].exists);
}

#[test]
fn preferred_terms_are_read_with_their_weights_the_first_of_many_and_none_that_says_nothing() {
    let preferring = |terms: Value| {
        let affinity = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": terms } });
        pod(json!({ "affinity": affinity, "containers": [requests("1")] }))
    };
    let ssd = || json!({ "matchExpressions": [{ "key": "disk", "operator": "In", "values": ["ssd"] }] });
    let read_terms = |terms: Value| read(&preferring(terms)).tasks[0].node.preferred.clone();
    let terms = read_terms(json!([{ "weight": 700, "preference": ssd() }, { "weight": 5, "preference": {} }]));
    assert_eq!((terms.len(), terms[0].weight, terms[0].term.labels[0].key.as_str()), (1, 100, "disk"));
    assert_eq!(read_terms(vec![json!({ "weight": 1, "preference": ssd() }); 1000].into()).len(), 16);
    let of_values = |count: usize| {
        let values: Vec<String> = (0..count).map(|at| at.to_string()).collect();
        let expression = json!({"key": "disk", "operator": "In", "values": values});
        json!([{"weight": 1, "preference": {"matchExpressions": [expression]}}])
    };
    assert_eq!([64, 65].map(|count| read_terms(of_values(count)).len()), [1, 0], "a long list of values");
    let reported = refused(&preferring(json!([{ "weight": "x", "preference": ssd() }])));
    assert!(reported.contains("preferredDuringSchedulingIgnoredDuringExecution[0].weight: "), "{reported}");
}

/// Jobs as their users write them: pods, minimum and whether they must stay in one cluster.
#[test]
fn real_jobs_are_read_as_volcano_reads_them() {
    let folder = caldera_fixtures::find_folder("CALDERA_SHARED_DIR", "").join("examples");
    let mut seen = BTreeMap::new();
    for file in caldera_fixtures::list_files(&folder, "yaml") {
        let text = caldera_fixtures::read_text(&file);
        for object in serde_saphyr::from_multiple::<Value>(&text).expect("YAML") {
            if WorkloadKind::of_object(&object).is_none() {
                continue;
            }
            let name = format!("{}/{}", file.file_stem().expect("a name").to_string_lossy(), name_of(&object));
            let summary = match read_gang(&object) {
                Ok(gang) => format!("{}/{} {}", gang.min_available, gang.replicas(), gang.one_cluster.is_some()),
                Err(error) => error.to_string(),
            };
            if WorkloadKind::of_object(&object) == Some(WorkloadKind::VolcanoJob) {
                let typed: crate::volcano::batch::Job = serde_json::from_value(object).expect("a typed job");
                assert!(!typed.spec.tasks.is_empty());
            }
            seen.insert(name, summary);
        }
    }
    let expected = [
        ("mindspore-cpu/mindspore-cpu", "1/8 true"),
        ("volcano-global-mindspore-cpu/mindspore-cpu", "1/2 true"),
        ("task-start-dependency/job", "1/11 true"),
        ("mpi-example/lm-mpi-job", "3/3 true"),
        ("tf-dist-mnist-example/tensorflow-dist-mnist", "3/3 true"),
        ("job-plugin/test-job-plugin", "3/3 true"),
        ("deployment/deploy-with-volcano", "1/1 false"),
        (
            "minAvailable-webhook-deny/test-job-webhook-disallow",
            "spec.minAvailable: 5 is more than the 4 replicas of all tasks",
        ),
    ];
    for (name, summary) in expected {
        assert_eq!(seen.get(name).map(String::as_str), Some(summary), "{name}");
    }
    let refused: Vec<_> = seen.iter().filter(|(_, summary)| summary.contains(':')).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

fn full_job() -> Value {
    job(json!({
        "minAvailable": 3, "queue": "q", "minSuccess": 1, "plugins": { "svc": [], "env": [] },
        "networkTopology": { "mode": "hard", "highestTierAllowed": 2 },
        "tasks": [
            { "name": "a", "replicas": 2, "minAvailable": 1, "template": {
                "metadata": { "annotations": { QUEUE_OLD: "x" } },
                "spec": {
                    "nodeSelector": { "k": "v" },
                    "tolerations": [{ "key": "k", "operator": "Exists" }],
                    "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{ "matchFields": [
                            { "key": "metadata.name", "operator": "In", "values": ["n"] },
                        ] }],
                    } } },
                    "initContainers": [{ "restartPolicy": "Always", "resources": { "limits": { "cpu": 1 } } }],
                    "containers": [{ "command": ["x"], "resources": {
                        "requests": { "cpu": "1", "memory": "1Gi" }, "limits": { "nvidia.com/gpu": 1 },
                    } }],
                },
            } },
            { "replicas": 4, "partitionPolicy": { "totalPartitions": 2, "partitionSize": 2, "minPartitions": 1 } },
        ],
    }))
}

fn full_service(kind: &str, version: &str) -> Value {
    let job = full_job();
    json!({
        "apiVersion": version, "kind": kind,
        "metadata": { "name": "s", "annotations": { GROUP_MIN_MEMBER: "1" } },
        "spec": {
            "replicas": 2, "parallelism": 3, "completions": 4,
            "template": job["spec"]["tasks"][0]["template"],
            "containers": job["spec"]["tasks"][0]["template"]["spec"]["containers"],
        },
    })
}

/// Every place in a value, as JSON pointers.
fn pointers(at: &str, value: &Value, into: &mut Vec<String>) {
    into.push(at.to_owned());
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                pointers(&format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), value, into);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointers(&format!("{at}/{index}"), item, into);
            }
        }
        _ => {}
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3i64..10).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
        "[0-9]{0,40}(\\.[0-9]{0,40})?(n|m|k|Gi|Ei|e[0-9]{1,12})?".prop_map(Value::from),
        Just(json!([])),
        Just(json!([[]])),
        Just(json!({})),
        Just(json!({ "": { "": null } })),
        Just(json!(["é".repeat(200)])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { fork: false, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn no_object_makes_gang_panic_and_every_gang_is_sound(
        kind in 0usize..5,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any_value()), 1..5),
    ) {
        let mut object = match kind {
            0 => full_job(),
            1 => full_service("Deployment", "apps/v1"),
            2 => full_service("StatefulSet", "apps/v1"),
            3 => full_service("Job", "batch/v1"),
            _ => full_service("Pod", "v1"),
        };
        for (index, value) in edits {
            let mut places = Vec::new();
            pointers("", &object, &mut places);
            let place = index.get(&places).clone();
            *object.pointer_mut(&place).expect("a place") = value;
        }
        let _ = (queue_of(&object), names_queue(&object), priority_class_of(&object).len(), reference_of(&object));
        if let Ok(gang) = read_gang(&object) {
            prop_assert!(gang.min_available <= gang.replicas());
            for task in &gang.tasks {
                prop_assert!(task.min_available <= task.replicas);
                prop_assert!(task.request.get("pods") >= Quantity::from_units(1));
                prop_assert!(task.request.iter().all(|(_, amount)| !amount.is_negative()));
                if let Some(partition) = &task.partition {
                    prop_assert_eq!(partition.total * partition.size, task.replicas);
                }
            }
            if WorkloadKind::of_object(&object) == Some(WorkloadKind::VolcanoJob) {
                let mut defaulted = object.clone();
                fill_job_defaults(&mut defaulted);
                prop_assert_eq!(super::read_gang(&defaulted), Ok(gang), "Volcano's own defaults change nothing");
            }
        }
    }
}
