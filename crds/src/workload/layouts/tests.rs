//! An object of each kind in its project's own form, and what is read of it.

mod member_queue;

use serde_json::{Value, json};

use crate::workload::{
    WorkloadKind, names_queue, priority_class_of,
    progress::{has_copy_begun, has_copy_ended, read_progress},
    queue_of, read_gang, running_estimate,
};

/// A template whose pods ask for so much cpu.
fn pods(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn object(kind: WorkloadKind, spec: Value) -> Value {
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind(),
        "metadata": {"name": "x", "namespace": "ns", "labels": {"volcano.sh/queue-name": "q"}}, "spec": spec,
    })
}

fn ray_cluster() -> Value {
    json!({
        "headGroupSpec": {"rayStartParams": {}, "template": pods("1")},
        "workerGroupSpecs": [
            {"groupName": "small", "replicas": 2, "minReplicas": 1, "maxReplicas": 5, "template": pods("500m")},
            {"groupName": "hosts", "replicas": 1, "numOfHosts": 4, "template": pods("250m")},
        ],
    })
}

fn replica_specs(specs: &[(&str, u32, &str)]) -> Value {
    let spec = |(name, replicas, cpu): &(&str, u32, &str)| {
        ((*name).to_owned(), json!({"replicas": replicas, "restartPolicy": "OnFailure", "template": pods(cpu)}))
    };
    Value::Object(specs.iter().map(spec).collect())
}

/// A kind, an object of its form, its tasks with their pods, and what they ask for.
type LayoutExample = (WorkloadKind, Value, Vec<(&'static str, u32)>, &'static str);

/// The spec of each kind, the tasks that are read of it, and their whole cpu.
fn examples() -> Vec<LayoutExample> {
    let ray = vec![("headgroup", 1), ("small", 2), ("hosts", 4)];
    let mut ray_job = ray.clone();
    ray_job.push(("submitter", 1));
    vec![
        (
            WorkloadKind::PyTorchJob,
            json!({"runPolicy": {"activeDeadlineSeconds": 90, "cleanPodPolicy": "All"},
                "pytorchReplicaSpecs": replica_specs(&[("Master", 1, "1"), ("Worker", 3, "2")])}),
            vec![("master", 1), ("worker", 3)],
            "7",
        ),
        (
            WorkloadKind::TfJob,
            json!({"runPolicy": {"cleanPodPolicy": "Running"},
                "tfReplicaSpecs": replica_specs(&[("Chief", 1, "1"), ("PS", 2, "500m"), ("Worker", 2, "1")])}),
            vec![("chief", 1), ("ps", 2), ("worker", 2)],
            "4",
        ),
        (
            WorkloadKind::MpiJob,
            json!({"runPolicy": {"cleanPodPolicy": "Running"},
                "mpiReplicaSpecs": replica_specs(&[("Launcher", 1, "100m"), ("Worker", 2, "1")])}),
            vec![("launcher", 1), ("worker", 2)],
            "2100m",
        ),
        (
            // Its launcher asks for what the operator adds to it.
            WorkloadKind::MpiJobV1,
            json!({"slotsPerWorker": 1, "cleanPodPolicy": "Running",
                "mpiReplicaSpecs": replica_specs(&[("Launcher", 1, "10m"), ("Worker", 2, "1")])}),
            vec![("launcher", 1), ("worker", 2)],
            "2100m",
        ),
        (
            WorkloadKind::RayJob,
            json!({"entrypoint": "python x.py", "shutdownAfterJobFinishes": true, "rayClusterSpec": ray_cluster()}),
            ray_job,
            "3500m",
        ),
        (WorkloadKind::RayCluster, ray_cluster(), ray, "3"),
        (
            WorkloadKind::TrainJob,
            json!({"runtimeRef": {"name": "torch-distributed"}, "activeDeadlineSeconds": 90, "trainer": {
                "numNodes": 3, "command": ["torchrun", "x.py"], "resourcesPerNode": {"requests": {"cpu": "2"}},
            }}),
            vec![("node", 3)],
            "6",
        ),
        (
            WorkloadKind::JobSet,
            json!({"replicatedJobs": [
                {"name": "leader", "template": {"spec": {"template": pods("1")}}},
                {"name": "workers", "replicas": 2, "template": {"spec": {
                    "parallelism": 4, "completions": 3, "template": pods("500m"),
                }}},
            ]}),
            vec![("leader", 1), ("workers", 6)],
            "4",
        ),
        (
            WorkloadKind::LeaderWorkerSet,
            json!({"replicas": 2, "leaderWorkerTemplate": {
                "size": 4, "leaderTemplate": pods("1"), "workerTemplate": pods("500m"),
            }}),
            vec![("leader", 2), ("worker", 6)],
            "5",
        ),
        (
            WorkloadKind::SparkApplication,
            json!({"type": "Scala", "mode": "cluster", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///x.jar",
                "driver": {"cores": 1, "coreRequest": "500m", "memory": "512m", "serviceAccount": "spark"},
                "executor": {"cores": 2, "instances": 3, "memory": "2g"}}),
            vec![("driver", 1), ("executor", 3)],
            "6500m",
        ),
    ]
}

#[test]
fn every_kind_with_a_table_is_read_with_all_its_pods_and_goes_whole_to_one_cluster() {
    let kinds: Vec<WorkloadKind> = examples().into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(kinds, WorkloadKind::ALL.into_iter().filter(|kind| kind.is_optional()).collect::<Vec<_>>());
    for (kind, spec, tasks, cpu) in examples() {
        let object = object(kind, spec);
        let gang = read_gang(&object).unwrap();
        let read: Vec<(&str, u32)> = gang.tasks.iter().map(|task| (task.name.as_str(), task.replicas)).collect();
        assert_eq!(read, tasks, "{kind:?}");
        assert!(gang.tasks.iter().all(|task| task.min_available == task.replicas), "{kind:?}");
        assert_eq!(gang.min_available, gang.replicas(), "{kind:?}");
        assert_eq!(gang.sum_full_demand().get("cpu"), cpu.parse().unwrap(), "{kind:?}");
        assert!(gang.one_cluster.as_deref().unwrap_or("").contains(kind.kind()), "{kind:?}");
        assert!(names_queue(&object) && queue_of(&object).as_str() == "q");
    }
}

#[test]
fn a_job_without_templates_is_wrong_and_says_where() {
    for kind in WorkloadKind::ALL.into_iter().filter(|kind| kind.is_optional()) {
        for spec in
            [json!({}), json!(null), json!([]), json!("x"), json!({"replicas": -1, "shutdownAfterJobFinishes": true})]
        {
            let reported = read_gang(&object(kind, spec)).unwrap_err().to_string();
            assert!(reported.starts_with("spec"), "{kind:?}: {reported}");
        }
    }
}

#[test]
fn defaults_are_those_of_the_kinds_own_controller() {
    let count = |kind: WorkloadKind, spec: Value| read_gang(&object(kind, spec)).unwrap().replicas();
    let bare = |name: &str| json!({name: {"template": pods("1")}});
    let clean = json!({"cleanPodPolicy": "All"});
    assert_eq!(count(WorkloadKind::PyTorchJob, json!({"runPolicy": clean, "pytorchReplicaSpecs": bare("Worker")})), 1);
    let mut mpi = bare("Launcher");
    mpi["Worker"] = json!({"template": pods("1")});
    assert_eq!(
        count(WorkloadKind::MpiJob, json!({"runPolicy": clean, "mpiReplicaSpecs": mpi})),
        1,
        "no workers unless told"
    );
    let group = |group: Value| json!({"headGroupSpec": {"template": pods("1")}, "workerGroupSpecs": [group]});
    let ray = |group_spec: Value| count(WorkloadKind::RayCluster, group(group_spec)) - 1;
    assert_eq!(ray(json!({"groupName": "g", "minReplicas": 3, "template": pods("1")})), 3);
    assert_eq!(ray(json!({"groupName": "g", "replicas": 9, "maxReplicas": 2, "template": pods("1")})), 2);
    let lws = json!({"leaderWorkerTemplate": {"workerTemplate": pods("1")}});
    assert_eq!(count(WorkloadKind::LeaderWorkerSet, lws), 1, "a leader of the workers' template");
}

#[test]
fn what_a_controller_could_change_behind_the_charge_is_refused() {
    let with = |kind: WorkloadKind, pointer: &str, value: Value| {
        let (_, mut spec, ..) = examples().into_iter().find(|(one, ..)| *one == kind).unwrap();
        let (owner, field) = pointer.rsplit_once('/').unwrap();
        spec.pointer_mut(owner).unwrap()[field] = value;
        read_gang(&object(kind, spec)).map_err(|error| error.to_string())
    };
    for (kind, pointer, value) in [
        (WorkloadKind::PyTorchJob, "/runPolicy/ttlSecondsAfterFinished", json!(0)),
        (WorkloadKind::PyTorchJob, "/elasticPolicy", json!({"metrics": [{"type": "Resource"}]})),
        (WorkloadKind::RayJob, "/shutdownAfterJobFinishes", json!(false)),
        (WorkloadKind::RayJob, "/ttlSecondsAfterFinished", json!(60)),
        (WorkloadKind::RayJob, "/clusterSelector", json!({"a": "b"})),
        (WorkloadKind::RayJob, "/submissionMode", json!("SidecarMode")),
        (WorkloadKind::RayJob, "/rayClusterSpec/enableInTreeAutoscaling", json!(true)),
        (WorkloadKind::RayCluster, "/enableInTreeAutoscaling", json!(true)),
        (WorkloadKind::JobSet, "/ttlSecondsAfterFinished", json!(100)),
        (WorkloadKind::LeaderWorkerSet, "/rolloutStrategy", json!({"rollingUpdateConfiguration": {"maxSurge": "25%"}})),
        (WorkloadKind::TrainJob, "/runtimeRef/name", json!("deepspeed-distributed")),
        (WorkloadKind::TrainJob, "/runtimeRef/kind", json!("TrainingRuntime")),
        (WorkloadKind::TrainJob, "/trainer/numNodes", json!(null)),
        (WorkloadKind::TrainJob, "/trainer/resourcesPerNode", json!(null)),
        (WorkloadKind::SparkApplication, "/mode", json!("in-cluster-client")),
        (WorkloadKind::SparkApplication, "/dynamicAllocation", json!({"enabled": true, "maxExecutors": 9})),
        (WorkloadKind::SparkApplication, "/executor/instances", json!(null)),
        (WorkloadKind::SparkApplication, "/driver/sidecars", json!([{"name": "logs"}])),
        (WorkloadKind::SparkApplication, "/timeToLiveSeconds", json!(60)),
    ] {
        let reported = with(kind, pointer, value).unwrap_err();
        assert!(reported.starts_with(&format!("spec{}", pointer.replace('/', "."))), "{reported}");
    }
    let http = with(WorkloadKind::RayJob, "/submissionMode", json!("HTTPMode")).unwrap();
    assert_eq!(http.replicas(), 7, "nobody submits it from a pod");
    assert!(with(WorkloadKind::RayJob, "/ttlSecondsAfterFinished", json!(0)).is_ok());
}

#[test]
fn more_pods_than_can_be_counted_are_refused() {
    let most = i32::MAX;
    let jobs = json!({"replicatedJobs": [
        {"name": "a", "replicas": most, "template": {"spec": {"parallelism": most, "template": pods("1")}}},
    ]});
    let reported = read_gang(&object(WorkloadKind::JobSet, jobs)).unwrap_err().to_string();
    assert!(reported.contains("are above 2147483647"), "{reported}");
    let one = json!({"name": "a", "template": {"spec": {"template": pods("1")}}});
    let twice = json!({"replicatedJobs": [one, one]});
    assert!(read_gang(&object(WorkloadKind::JobSet, twice)).is_err());
}

#[test]
fn the_jobs_own_priority_class_comes_before_its_pods() {
    let mut template = pods("1");
    template["spec"]["priorityClassName"] = "of-pods".into();
    let spec = json!({
        "runPolicy": {"cleanPodPolicy": "All"}, "pytorchReplicaSpecs": {"Worker": {"template": template}},
    });
    let mut object = object(WorkloadKind::PyTorchJob, spec);
    assert_eq!(priority_class_of(&object), "of-pods");
    object["spec"]["runPolicy"]["schedulingPolicy"]["priorityClass"] = "own".into();
    object["spec"]["runPolicy"]["activeDeadlineSeconds"] = 90.into();
    assert_eq!(priority_class_of(&object), "own");
    assert_eq!(running_estimate(&object), Some(90));
}

#[test]
fn a_spark_applications_pods_ask_for_cores_and_memory_with_what_is_beside_it() {
    let (kind, spec, ..) = examples().into_iter().find(|(kind, ..)| *kind == WorkloadKind::SparkApplication).unwrap();
    let mut object = object(kind, spec);
    let gang = read_gang(&object).unwrap();
    let amount = |task: usize, name: &str| gang.tasks[task].request.get(name).to_string();
    assert_eq!((amount(0, "cpu"), amount(0, "memory")), ("500m".to_owned(), "896Mi".to_owned()));
    assert_eq!((amount(1, "cpu"), amount(1, "memory")), ("2".to_owned(), "2432Mi".to_owned()));
    object["spec"]["executor"]["priorityClassName"] = "low".into();
    assert_eq!(priority_class_of(&object), "low");
    object["spec"]["driver"]["priorityClassName"] = "high".into();
    assert_eq!(priority_class_of(&object), "high");
    object["spec"]["sparkConf"] = json!({"spark.executor.instances": "100"});
    let reported = read_gang(&object).unwrap_err().to_string();
    assert!(reported.starts_with("spec.sparkConf[spark.executor.instances]"), "{reported}");
}

#[test]
fn a_launcher_of_the_training_operator_asks_for_the_container_that_it_adds() {
    let launcher = |cpu: &str| {
        let spec = json!({"cleanPodPolicy": "All", "mpiReplicaSpecs": replica_specs(&[("Launcher", 1, cpu)])});
        let gang = read_gang(&object(WorkloadKind::MpiJobV1, spec)).unwrap();
        ["cpu", "memory", "ephemeral-storage"].map(|name| gang.tasks[0].request.get(name).to_string())
    };
    assert_eq!(launcher("10m"), ["100m", "512Mi", "5Gi"]);
    assert_eq!(launcher("2"), ["2", "512Mi", "5Gi"]);
}

#[test]
fn a_train_jobs_nodes_run_where_its_patches_say() {
    let (kind, mut spec, ..) = examples().into_iter().find(|(kind, ..)| *kind == WorkloadKind::TrainJob).unwrap();
    let patch = |name: &str, pod: Value| {
        let job = json!({"name": name, "template": {"spec": {"template": {"spec": pod}}}});
        json!({"manager": "m", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}})
    };
    spec["runtimePatches"] = json!([
        patch("node", json!({"nodeSelector": {"a": "1"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]})),
        patch("node", json!({"nodeSelector": {"b": "2"}})),
        patch("launcher", json!({"nodeSelector": {"c": "3"}})),
    ]);
    let gang = read_gang(&object(kind, spec)).unwrap();
    let node = &gang.tasks[0].node;
    assert_eq!(node.selector.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(node.tolerations.len(), 1);
}

#[test]
fn a_suspend_field_is_read_where_the_kind_has_one() {
    for (kind, pointer, text) in [
        (WorkloadKind::PyTorchJob, "/runPolicy", "spec.runPolicy.suspend"),
        (WorkloadKind::MpiJob, "/runPolicy", "spec.runPolicy.suspend"),
        (WorkloadKind::MpiJobV1, "/runPolicy", "spec.runPolicy.suspend"),
        (WorkloadKind::RayJob, "", "spec.suspend"),
        (WorkloadKind::RayCluster, "", "spec.suspend"),
        (WorkloadKind::JobSet, "", "spec.suspend"),
        (WorkloadKind::TrainJob, "", "spec.suspend"),
        (WorkloadKind::SparkApplication, "", "spec.suspend"),
        (WorkloadKind::BatchJob, "", "spec.suspend"),
    ] {
        let mut object = object(kind, json!({"runPolicy": {}}));
        assert_eq!(kind.find_suspending_field(&object), None);
        object.pointer_mut(&format!("/spec{pointer}")).unwrap()["suspend"] = true.into();
        assert_eq!(kind.find_suspending_field(&object), Some(text), "{kind:?}");
    }
    assert_eq!(WorkloadKind::LeaderWorkerSet.suspend_field(), None);
}

/// How each project writes that all pods run.
fn running_status(kind: WorkloadKind) -> Value {
    let condition = |name: &str| json!([{"type": name, "status": "True"}]);
    match kind {
        WorkloadKind::PyTorchJob => json!({"conditions": condition("Running"),
            "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 3}}}),
        WorkloadKind::TfJob => json!({"conditions": condition("Running"),
            "replicaStatuses": {"Chief": {"active": 1}, "PS": {"active": 2}, "Worker": {"active": 2}}}),
        WorkloadKind::MpiJob | WorkloadKind::MpiJobV1 => json!({"conditions": condition("Running"),
            "replicaStatuses": {"Launcher": {"active": 1}, "Worker": {"active": 2}}}),
        WorkloadKind::RayJob => json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}),
        WorkloadKind::RayCluster => json!({"state": "ready", "availableWorkerReplicas": 6, "desiredWorkerReplicas": 6,
            "conditions": condition("HeadPodReady")}),
        WorkloadKind::JobSet => json!({"replicatedJobsStatus": [
            {"name": "leader", "ready": 1, "active": 1}, {"name": "workers", "ready": 2, "active": 2},
        ]}),
        WorkloadKind::LeaderWorkerSet => {
            json!({"replicas": 2, "readyReplicas": 2, "conditions": condition("Available")})
        }
        WorkloadKind::TrainJob => json!({"jobsStatus": [{"name": "node", "ready": 1, "active": 1, "succeeded": 0}]}),
        WorkloadKind::SparkApplication => json!({"applicationState": {"state": "RUNNING"}, "executorState": {
            "x-1-exec-1": "RUNNING", "x-1-exec-2": "RUNNING", "x-1-exec-3": "RUNNING", "x-1-exec-4": "FAILED",
        }}),
        _ => unreachable!(),
    }
}

#[test]
fn all_its_pods_run_where_the_kinds_own_status_says_so() {
    for (kind, spec, ..) in examples() {
        let mut object = object(kind, spec);
        let gang = read_gang(&object).unwrap();
        assert_eq!(read_progress(kind, &object, Some(&gang)).running, 0, "{kind:?}");
        object["status"] = running_status(kind);
        let progress = read_progress(kind, &object, Some(&gang));
        assert_eq!((progress.running, progress.ended), (gang.replicas(), None), "{kind:?}");
    }
}

#[test]
fn a_job_ends_as_its_kind_writes_it() {
    let condition = |name: &str, status: &str| json!({"conditions": [{"type": name, "status": status}]});
    let ray = |deployment: &str, job: &str| json!({"jobDeploymentStatus": deployment, "jobStatus": job});
    let spark = |state: &str| json!({"applicationState": {"state": state}, "executorState": {"e": "RUNNING"}});
    let kubeflow = [WorkloadKind::PyTorchJob, WorkloadKind::TfJob, WorkloadKind::MpiJob, WorkloadKind::MpiJobV1];
    let mut table = vec![
        (WorkloadKind::JobSet, condition("Completed", "True"), Some("Completed")),
        (WorkloadKind::JobSet, condition("Failed", "True"), Some("Failed")),
        (WorkloadKind::JobSet, condition("Suspended", "True"), None),
        (WorkloadKind::TrainJob, condition("Complete", "True"), Some("Completed")),
        (WorkloadKind::TrainJob, condition("Failed", "True"), Some("Failed")),
        (WorkloadKind::TrainJob, condition("Suspended", "True"), None),
        (WorkloadKind::RayJob, ray("Complete", "SUCCEEDED"), Some("Completed")),
        (WorkloadKind::RayJob, ray("Complete", "STOPPED"), Some("Failed")),
        (WorkloadKind::RayJob, ray("Failed", "FAILED"), Some("Failed")),
        (WorkloadKind::RayJob, ray("Retrying", "FAILED"), None),
        (WorkloadKind::RayCluster, json!({"state": "failed"}), None),
        (WorkloadKind::LeaderWorkerSet, condition("Available", "True"), None),
        (WorkloadKind::SparkApplication, spark("COMPLETED"), Some("Completed")),
        (WorkloadKind::SparkApplication, spark("FAILED"), Some("Failed")),
        (WorkloadKind::SparkApplication, spark("SUBMISSION_FAILED"), None),
        (WorkloadKind::SparkApplication, spark("SUCCEEDING"), None),
    ];
    for kind in kubeflow {
        table.push((kind, condition("Succeeded", "True"), Some("Completed")));
        table.push((kind, condition("Failed", "True"), Some("Failed")));
        table.push((kind, condition("Failed", "False"), None));
        table.push((kind, condition("Restarting", "True"), None));
    }
    for (kind, status, want) in table {
        let ended = read_progress(kind, &json!({"status": status}), None).ended;
        assert_eq!(ended.as_deref(), want, "{kind:?} {status}");
        assert_eq!(has_copy_ended(kind, &status), want.is_some());
    }
}

/// KubeRay looks at `deletionStrategy` before `shutdownAfterJobFinishes`; Kubeflow's operators clean nothing by
/// default.
#[test]
fn what_would_run_on_after_its_end_is_refused() {
    let refusal = |kind: WorkloadKind, change: fn(&mut Value)| {
        let mut spec = examples().into_iter().find(|example| example.0 == kind).unwrap().1;
        change(&mut spec);
        read_gang(&object(kind, spec)).unwrap_err().to_string()
    };
    for kind in [WorkloadKind::PyTorchJob, WorkloadKind::TfJob, WorkloadKind::MpiJob] {
        for change in [
            |spec: &mut Value| drop(spec["runPolicy"].take()),
            |spec: &mut Value| spec["runPolicy"]["cleanPodPolicy"] = "None".into(),
        ] {
            assert!(refusal(kind, change).starts_with("spec.runPolicy.cleanPodPolicy"), "{kind:?}");
        }
    }
    let reported = refusal(WorkloadKind::MpiJobV1, |spec| drop(spec["cleanPodPolicy"].take()));
    assert!(reported.starts_with("spec.runPolicy.cleanPodPolicy"), "{reported}");
    // Where both say it, the training operator takes that of the run policy.
    let reported = refusal(WorkloadKind::MpiJobV1, |spec| spec["runPolicy"]["cleanPodPolicy"] = "None".into());
    assert!(reported.starts_with("spec.runPolicy.cleanPodPolicy"), "{reported}");
    let reported = refusal(WorkloadKind::RayJob, |spec| spec["deletionStrategy"] = json!({"deletionRules": []}));
    assert!(reported.starts_with("spec.deletionStrategy"), "{reported}");
    let reported = refusal(WorkloadKind::RayJob, |spec| spec["deletionPolicy"] = "DeleteSelf".into());
    assert!(reported.starts_with("spec.deletionPolicy"), "{reported}");
}

#[test]
fn a_copy_of_which_a_pod_ran_has_begun() {
    let says = |active: u32| json!({"replicaStatuses": {"Worker": {"active": active}}});
    assert!(has_copy_begun(WorkloadKind::PyTorchJob, &says(1)));
    assert!(!has_copy_begun(WorkloadKind::PyTorchJob, &says(0)));
    assert!(has_copy_begun(WorkloadKind::VolcanoJob, &json!({"state": {"phase": "Running"}})));
    assert!(!has_copy_begun(WorkloadKind::VolcanoJob, &json!({"state": {"phase": "Pending"}})));
}
