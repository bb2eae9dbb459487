//! A queue, a group or a class that a member would take from another place than the one that is charged.

use super::*;

const QUEUE: &str = "scheduling.volcano.sh/queue-name";
const GROUP: &str = "scheduling.k8s.io/group-name";
const RAY_CLASS: &str = "ray.io/priority-class-name";

/// Where the annotations of pods are.
const PODS: [(WorkloadKind, &str); 14] = [
    (WorkloadKind::PyTorchJob, "/spec/pytorchReplicaSpecs/Worker/template/metadata/annotations"),
    (WorkloadKind::TfJob, "/spec/tfReplicaSpecs/PS/template/metadata/annotations"),
    (WorkloadKind::MpiJob, "/spec/mpiReplicaSpecs/Launcher/template/metadata/annotations"),
    (WorkloadKind::MpiJobV1, "/spec/mpiReplicaSpecs/Worker/template/metadata/annotations"),
    (WorkloadKind::RayJob, "/spec/rayClusterSpec/headGroupSpec/template/metadata/annotations"),
    (WorkloadKind::RayJob, "/spec/submitterPodTemplate/metadata/annotations"),
    (WorkloadKind::RayCluster, "/spec/workerGroupSpecs/1/template/metadata/annotations"),
    (WorkloadKind::JobSet, "/spec/replicatedJobs/1/template/spec/template/metadata/annotations"),
    (WorkloadKind::LeaderWorkerSet, "/spec/leaderWorkerTemplate/leaderTemplate/metadata/annotations"),
    (WorkloadKind::LeaderWorkerSet, "/spec/leaderWorkerTemplate/workerTemplate/metadata/annotations"),
    (WorkloadKind::SparkApplication, "/spec/driver/template/metadata/annotations"),
    (WorkloadKind::SparkApplication, "/spec/driver/annotations"),
    (WorkloadKind::SparkApplication, "/spec/executor/annotations"),
    (
        WorkloadKind::TrainJob,
        "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template/metadata/\
         annotations",
    ),
];

/// The example of a kind with one value more.
fn with(kind: WorkloadKind, at: &str, key: &str, value: &str) -> Value {
    let (_, mut spec, ..) = examples().into_iter().find(|(one, ..)| *one == kind).unwrap();
    if at.contains("runtimePatches") {
        spec["runtimePatches"] = json!([{"manager": "m"}]);
    }
    if at.contains("replicatedJobs/0") {
        let jobs = json!({"spec": {"replicatedJobs": [{"name": "node"}]}});
        spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"] = jobs;
    }
    let mut object = object(kind, spec);
    let place = at.split('/').skip(1).fold(&mut object, |place, part| match part.parse::<usize>() {
        Ok(index) => &mut place[index],
        Err(_) => &mut place[part],
    });
    place[key] = value.into();
    object
}

#[test]
fn a_job_that_names_a_second_queue_anywhere_a_member_reads_one_is_refused() {
    let of_kubeflow = |kind| (kind, "/spec/runPolicy/schedulingPolicy", "queue");
    let own = [
        of_kubeflow(WorkloadKind::PyTorchJob),
        of_kubeflow(WorkloadKind::TfJob),
        of_kubeflow(WorkloadKind::MpiJob),
        of_kubeflow(WorkloadKind::MpiJobV1),
        (WorkloadKind::SparkApplication, "/spec/batchSchedulerOptions", "queue"),
        // Their label says q, and KubeRay reads nothing else.
        (WorkloadKind::RayCluster, "/metadata/annotations", QUEUE),
        (WorkloadKind::RayJob, "/metadata/annotations", QUEUE),
        (WorkloadKind::TrainJob, "/spec/runtimePatches/0/trainingRuntimeSpec/template/metadata/annotations", QUEUE),
    ];
    for (kind, at, key) in own.into_iter().chain(PODS.map(|(kind, at)| (kind, at, QUEUE))) {
        let reported = read_gang(&with(kind, at, key, "theirs")).expect_err(at).to_string();
        assert!(reported.contains("name the same queue, or leave it out"), "{kind:?} {at}: {reported}");
        for same in ["q", ""] {
            read_gang(&with(kind, at, key, same)).expect(at);
        }
    }
}

#[test]
fn a_queue_in_the_spec_is_the_default_one_where_the_job_names_none() {
    let mut object = with(WorkloadKind::PyTorchJob, "/spec/runPolicy/schedulingPolicy", "queue", "default");
    assert!(read_gang(&object).is_err());
    object["metadata"]["labels"] = json!({});
    assert!(read_gang(&object).is_ok());
}

#[test]
fn of_a_second_queue_with_a_long_name_the_beginning_is_reported() {
    let long = "x".repeat(100_000);
    let reported = read_gang(&with(WorkloadKind::RayCluster, "/metadata/annotations", QUEUE, &long)).unwrap_err();
    assert!(reported.to_string().len() < 500, "{reported}");
}

/// The member would schedule them in that group's queue, with its class.
#[test]
fn pods_that_name_a_group_are_refused_in_every_kind_with_a_table() {
    let kinds: Vec<WorkloadKind> = examples().into_iter().map(|(kind, ..)| kind).collect();
    assert!(kinds.into_iter().all(|kind| PODS.iter().any(|(of, _)| *of == kind)));
    for (kind, at) in PODS {
        for key in [GROUP, "scheduling.volcano.sh/group-name"] {
            let reported = read_gang(&with(kind, at, key, "evil")).expect_err(at).to_string();
            assert!(reported.contains(&format!("annotations[{key}]: ")), "{kind:?} {at}: {reported}");
            assert!(reported.ends_with("which nobody charged: leave it out"), "{reported}");
        }
    }
}

/// KubeRay gives it to the pods and to their PodGroup.
#[test]
fn the_priority_class_of_rays_kinds_is_that_of_their_label() {
    for kind in [WorkloadKind::RayCluster, WorkloadKind::RayJob] {
        let mut object = with(kind, "/metadata/labels", RAY_CLASS, "critical");
        assert_eq!(priority_class_of(&object), "critical");
        object["metadata"]["labels"][RAY_CLASS] = "".into();
        assert_eq!(priority_class_of(&object), "");
    }
}
