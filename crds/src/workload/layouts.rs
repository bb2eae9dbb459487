//! The table of kinds that are read by their [`Layout`]: one entry for each.
//!
//! Sources: Kubeflow `training-operator/pkg/apis/kubeflow.org/v1/{common,pytorch,tensorflow}_types.go` with their
//! defaults, and `mpi_types.go` up to release 1.9; `mpi-operator/pkg/apis/kubeflow/v2beta1/{types,default}.go`; KubeRay
//! `ray-operator/apis/ray/v1/{raycluster,rayjob}_types.go`, `controllers/ray/{common/job,utils/util}.go`; JobSet
//! `api/jobset/v1alpha2/jobset_types.go`; LeaderWorkerSet `api/leaderworkerset/v1/leaderworkerset_types.go`; Kubeflow
//! trainer `pkg/apis/trainer/v1alpha1/trainjob_types.go`; spark-operator
//! `api/v1beta2/{sparkapplication_types,defaults}.go`. What of a RayJob or a SparkApplication is refused is refused
//! by Kueue too (`pkg/controller/jobs/{rayjob/rayjob,sparkapplication/sparkapplication}_webhook.go`).

use super::{
    layout::{Count, Demand, End, FieldDemand, Layout, Names, Number, Path, PodMarks, PodSets, StatusTest, TaskMark},
    mpi_job, spark_pod, train_node,
};
use crate::names::caldera::TRAIN_JOB as TRAIN_JOB_LABEL;

const TTL: &str = "a member that deletes the ended job would have Karmada make it again: leave this out";
pub(super) const QUEUE: &str =
    "its pods would be in another queue than the one that is charged: name the same queue, or leave it out";
pub(super) const COMPLETED: &str = "Completed";
pub(super) const FAILED: &str = "Failed";

const KUBEFLOW_NAME: &str = "training.kubeflow.org/job-name";
const KUBEFLOW_TEMPLATE: &[&[&str]] = &[&["template"]];
const KUBEFLOW_ENDS: &[End] = &[
    End { when: &[StatusTest::Condition("Succeeded")], phase: COMPLETED },
    End { when: &[StatusTest::Condition("Failed")], phase: FAILED },
];
const KUBEFLOW_STATUSES: &[&str] = &["replicaStatuses"];
const KUBEFLOW_TTL: Demand =
    Demand { at: &["spec", "runPolicy", "ttlSecondsAfterFinished"], is: FieldDemand::Unset, why: TTL };
/// Absent is `None` to all three operators (`pkg/apis/kubeflow.org/v1/pytorch_defaults.go`, `tensorflow_defaults.go`;
/// mpi-operator `pkg/apis/kubeflow/v2beta1/default.go`): pods that run go on when the job has ended.
const KUBEFLOW_CLEAN: Demand = Demand {
    at: &["spec", "runPolicy", "cleanPodPolicy"],
    is: FieldDemand::SetTo(&["Running", "All"]),
    why: "its pods would run on after its end: set it to Running or All",
};
/// The training operator puts a job that says none in queue `default`.
const KUBEFLOW_QUEUE: Demand =
    Demand { at: &["spec", "runPolicy", "schedulingPolicy", "queue"], is: FieldDemand::OwnQueue, why: QUEUE };
/// What all of Kubeflow's kinds share.
const KUBEFLOW: Layout = Layout {
    pod_sets: &[],
    make_pod: None,
    classes: &[&["spec", "runPolicy", "schedulingPolicy", "priorityClass"]],
    suspend: Some((&["spec", "runPolicy", "suspend"], "spec.runPolicy.suspend")),
    deadline: &["spec", "runPolicy", "activeDeadlineSeconds"],
    demands: &[KUBEFLOW_TTL, KUBEFLOW_CLEAN, KUBEFLOW_QUEUE],
    ends: KUBEFLOW_ENDS,
    running: &[Count::Each(KUBEFLOW_STATUSES, "active")],
    succeeded: &[Count::Each(KUBEFLOW_STATUSES, "succeeded")],
    failed: &[Count::Each(KUBEFLOW_STATUSES, "failed")],
    pods: PodMarks {
        name: KUBEFLOW_NAME,
        also: None,
        through: &[],
        task: TaskMark::Label("training.kubeflow.org/replica-type"),
        logs: KUBEFLOW_NAME,
    },
};

const KUBEFLOW_REPLICAS: &[Number] = &[Number::field_or(&["replicas"], 1)];

/// A task for each entry of such a map.
const fn build_replica_spec_pod_sets(at: Path) -> PodSets {
    PodSets {
        at,
        names: Names::Keys,
        replicas: KUBEFLOW_REPLICAS,
        templates: KUBEFLOW_TEMPLATE,
        requests: &[],
        only_if: None,
    }
}

pub(super) static PYTORCH_JOB: Layout = Layout {
    pod_sets: &[build_replica_spec_pod_sets(&["spec", "pytorchReplicaSpecs"])],
    demands: &[
        KUBEFLOW_TTL,
        KUBEFLOW_CLEAN,
        KUBEFLOW_QUEUE,
        Demand {
            at: &["spec", "elasticPolicy", "metrics"],
            is: FieldDemand::Unset,
            why: "its autoscaler would add pods that were not charged: leave the metrics out",
        },
    ],
    ..KUBEFLOW
};

pub(super) static TF_JOB: Layout =
    Layout { pod_sets: &[build_replica_spec_pod_sets(&["spec", "tfReplicaSpecs"])], ..KUBEFLOW };

const MPI_PODS: &[PodSets] = &[
    PodSets {
        at: mpi_job::LAUNCHER,
        names: Names::Only("launcher"),
        replicas: &[Number::field_or(&["replicas"], 1)],
        templates: KUBEFLOW_TEMPLATE,
        requests: &[],
        only_if: None,
    },
    PodSets {
        at: &["spec", "mpiReplicaSpecs", "Worker"],
        names: Names::Only("worker"),
        replicas: &[Number::field_or(&["replicas"], 0)],
        templates: KUBEFLOW_TEMPLATE,
        requests: &[],
        only_if: None,
    },
];

/// The launcher is a batch Job of the MPIJob. Pods of the training operator have the type of their replica as well, and
/// are the MPIJob's own: both are read by the first kind, since a pod does not say of which version its owner is.
pub(super) static MPI_JOB: Layout = Layout {
    pod_sets: MPI_PODS,
    pods: PodMarks {
        name: KUBEFLOW_NAME,
        also: Some(("training.kubeflow.org/operator-name", "mpi-operator")),
        through: &[("batch", "Job")],
        task: TaskMark::Labels(&["training.kubeflow.org/replica-type", "training.kubeflow.org/job-role"]),
        logs: KUBEFLOW_NAME,
    },
    ..KUBEFLOW
};

/// That of the training operator.
pub(super) static MPI_JOB_V1: Layout = Layout {
    pod_sets: MPI_PODS,
    make_pod: Some(mpi_job::build_pod),
    demands: &[
        KUBEFLOW_TTL,
        KUBEFLOW_QUEUE,
        Demand {
            at: KUBEFLOW_CLEAN.at,
            is: FieldDemand::SetToOrAt(&["Running", "All"], &["spec", "cleanPodPolicy"]),
            why: KUBEFLOW_CLEAN.why,
        },
    ],
    ..KUBEFLOW
};

const RAY_REPLICAS: &[Number] = &[
    Number::field_or(&["replicas"], 0).least(&["minReplicas"]).most(&["maxReplicas"]),
    Number::field_or(&["numOfHosts"], 1),
];
/// KubeRay's `utils/constant.go`, `RayPriorityClassName`: that of the PodGroup, and of the pods before release 1.5.
const RAY_CLASSES: &[Path] = &[&["metadata", "labels", "ray.io/priority-class-name"]];
const RAY_GROUP: TaskMark = TaskMark::Label("ray.io/group");
const RAY_HEAD: &str = "a Ray cluster needs a head";
const RAY_DELETION: &str =
    "it goes before shutdownAfterJobFinishes, and its pods may run on after its end: leave this out";
const RAY_AUTOSCALER: &str = "its autoscaler would change the number of pods that was charged: set it to false";

pub(super) static RAY_CLUSTER: Layout = Layout {
    pod_sets: &[
        PodSets {
            at: &["spec", "headGroupSpec"],
            names: Names::Only("headgroup"),
            replicas: &[],
            templates: &[&["template"]],
            requests: &[],
            only_if: None,
        },
        PodSets {
            at: &["spec", "workerGroupSpecs"],
            names: Names::Field("groupName"),
            replicas: RAY_REPLICAS,
            templates: &[&["template"]],
            requests: &[],
            only_if: None,
        },
    ],
    make_pod: None,
    classes: RAY_CLASSES,
    suspend: Some((&["spec", "suspend"], "spec.suspend")),
    deadline: &[],
    demands: &[
        Demand { at: &["spec", "headGroupSpec"], is: FieldDemand::Set, why: RAY_HEAD },
        Demand { at: &["spec", "enableInTreeAutoscaling"], is: FieldDemand::Unset, why: RAY_AUTOSCALER },
    ],
    ends: &[],
    running: &[Count::Number(&["availableWorkerReplicas"]), Count::OneIf(StatusTest::Condition("HeadPodReady"))],
    succeeded: &[],
    failed: &[],
    pods: PodMarks { name: "ray.io/cluster", also: None, through: &[], task: RAY_GROUP, logs: "ray.io/cluster" },
};

/// Its RayCluster has a name that nobody knows before: [`super::pod_owner`] reads it.
pub(super) static RAY_JOB: Layout = Layout {
    pod_sets: &[
        PodSets {
            at: &["spec", "rayClusterSpec", "headGroupSpec"],
            names: Names::Only("headgroup"),
            replicas: &[],
            templates: &[&["template"]],
            requests: &[],
            only_if: None,
        },
        PodSets {
            at: &["spec", "rayClusterSpec", "workerGroupSpecs"],
            names: Names::Field("groupName"),
            replicas: RAY_REPLICAS,
            templates: &[&["template"]],
            requests: &[],
            only_if: None,
        },
        PodSets {
            at: &["spec"],
            names: Names::Only(SUBMITTER),
            replicas: &[],
            templates: &[&["submitterPodTemplate"]],
            requests: &[("cpu", "500m"), ("memory", "200Mi")],
            only_if: Some((&["spec", "submissionMode"], "K8sJobMode")),
        },
    ],
    make_pod: None,
    classes: RAY_CLASSES,
    suspend: Some((&["spec", "suspend"], "spec.suspend")),
    deadline: &["spec", "activeDeadlineSeconds"],
    demands: &[
        Demand { at: &["spec", "rayClusterSpec", "headGroupSpec"], is: FieldDemand::Set, why: RAY_HEAD },
        Demand {
            at: &["spec", "rayClusterSpec", "enableInTreeAutoscaling"],
            is: FieldDemand::Unset,
            why: RAY_AUTOSCALER,
        },
        Demand {
            at: &["spec", "clusterSelector"],
            is: FieldDemand::Unset,
            why: "a job of an existing cluster has no pods to queue: leave this out",
        },
        Demand {
            at: &["spec", "shutdownAfterJobFinishes"],
            is: FieldDemand::True,
            why: "its pods would run on after its end: set it to true",
        },
        Demand {
            at: &["spec", "ttlSecondsAfterFinished"],
            is: FieldDemand::Zero,
            why: "its pods would run on after its end: set it to 0",
        },
        Demand { at: &["spec", "deletionStrategy"], is: FieldDemand::Unset, why: RAY_DELETION },
        Demand { at: &["spec", "deletionPolicy"], is: FieldDemand::Unset, why: RAY_DELETION },
        Demand {
            at: &["spec", "submissionMode"],
            is: FieldDemand::OneOf(&["K8sJobMode", "HTTPMode", "InteractiveMode"]),
            why: "it is none of K8sJobMode, HTTPMode and InteractiveMode, whose pods are known",
        },
    ],
    ends: &[
        End {
            when: &[
                StatusTest::Field(&["jobDeploymentStatus"], "Complete"),
                StatusTest::Field(&["jobStatus"], "SUCCEEDED"),
            ],
            phase: COMPLETED,
        },
        End { when: &[StatusTest::Field(&["jobDeploymentStatus"], "Complete")], phase: FAILED },
        End { when: &[StatusTest::Field(&["jobDeploymentStatus"], "Failed")], phase: FAILED },
        End { when: &[StatusTest::Field(&["jobDeploymentStatus"], "ValidationFailed")], phase: FAILED },
    ],
    running: &[Count::AllIf(StatusTest::Field(&["jobDeploymentStatus"], "Running"))],
    succeeded: &[],
    failed: &[],
    pods: PodMarks {
        name: "ray.io/originated-from-cr-name",
        also: Some(("ray.io/originated-from-crd", "RayJob")),
        through: &[("batch", "Job"), ("ray.io", "RayCluster")],
        task: RAY_GROUP,
        logs: "batch.kubernetes.io/job-name",
    },
};
/// The pod that hands a RayJob's program to its cluster.
pub(super) const SUBMITTER: &str = "submitter";

pub(super) static JOB_SET: Layout = Layout {
    pod_sets: &[PodSets {
        at: &["spec", "replicatedJobs"],
        names: Names::Field("name"),
        replicas: &[
            Number::field_or(&["replicas"], 1),
            Number::field_or(&["template", "spec", "parallelism"], 1).most(&["template", "spec", "completions"]),
        ],
        templates: &[&["template", "spec", "template"]],
        requests: &[],
        only_if: None,
    }],
    make_pod: None,
    classes: &[],
    suspend: Some((&["spec", "suspend"], "spec.suspend")),
    deadline: &[],
    demands: &[Demand { at: &["spec", "ttlSecondsAfterFinished"], is: FieldDemand::Unset, why: TTL }],
    ends: &[
        End { when: &[StatusTest::Condition("Completed")], phase: COMPLETED },
        End { when: &[StatusTest::Condition("Failed")], phase: FAILED },
    ],
    running: &[Count::Each(&["replicatedJobsStatus"], "ready")],
    succeeded: &[Count::Each(&["replicatedJobsStatus"], "succeeded")],
    failed: &[Count::Each(&["replicatedJobsStatus"], "failed")],
    pods: PodMarks {
        name: "jobset.sigs.k8s.io/jobset-name",
        also: None,
        through: &[("batch", "Job")],
        task: TaskMark::Label("jobset.sigs.k8s.io/replicatedjob-name"),
        logs: "jobset.sigs.k8s.io/jobset-name",
    },
};

pub(super) static LEADER_WORKER_SET: Layout = Layout {
    pod_sets: &[
        PodSets {
            at: &["spec"],
            names: Names::Only("leader"),
            replicas: &[Number::field_or(&["replicas"], 1)],
            templates: &[&["leaderWorkerTemplate", "leaderTemplate"], &["leaderWorkerTemplate", "workerTemplate"]],
            requests: &[],
            only_if: None,
        },
        PodSets {
            at: &["spec"],
            names: Names::Only("worker"),
            replicas: &[
                Number::field_or(&["replicas"], 1),
                Number::field_or(&["leaderWorkerTemplate", "size"], 1).less(1),
            ],
            templates: &[&["leaderWorkerTemplate", "workerTemplate"]],
            requests: &[],
            only_if: None,
        },
    ],
    make_pod: None,
    classes: &[],
    suspend: None,
    deadline: &[],
    demands: &[Demand {
        at: &["spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge"],
        is: FieldDemand::Zero,
        why: "an update would start groups that were not charged: set it to 0",
    }],
    ends: &[],
    running: &[Count::Replicas(&["readyReplicas"])],
    succeeded: &[],
    failed: &[],
    pods: PodMarks {
        name: "leaderworkerset.sigs.k8s.io/name",
        also: None,
        through: &[("apps", "StatefulSet")],
        task: TaskMark::Index("leaderworkerset.sigs.k8s.io/worker-index", ["leader", "worker"]),
        logs: "leaderworkerset.sigs.k8s.io/name",
    },
};

const SPARK_STATE: Path = &["applicationState", "state"];
const SPARK_EXECUTORS: Path = &["executorState"];
const SPARK_NAME: &str = "sparkoperator.k8s.io/app-name";

/// The controller of its executors is the pod of its driver.
pub(super) static SPARK_APPLICATION: Layout = Layout {
    pod_sets: &[
        PodSets {
            at: &["spec", "driver"],
            names: Names::Only("driver"),
            replicas: &[],
            templates: &[&["template"]],
            requests: &[],
            only_if: None,
        },
        PodSets {
            at: &["spec", "executor"],
            names: Names::Only("executor"),
            replicas: &[Number::field_or(&["instances"], 1)],
            templates: &[&["template"]],
            requests: &[],
            only_if: None,
        },
    ],
    make_pod: Some(spark_pod::build_pod),
    classes: &[
        &["spec", "batchSchedulerOptions", "priorityClassName"],
        &["spec", "driver", "priorityClassName"],
        &["spec", "executor", "priorityClassName"],
    ],
    suspend: Some((&["spec", "suspend"], "spec.suspend")),
    deadline: &[],
    demands: &[
        Demand { at: &["spec", "driver"], is: FieldDemand::Set, why: "an application needs a driver" },
        Demand {
            at: &["spec", "mainApplicationFile"],
            is: FieldDemand::Set,
            why: "spark-submit would take the first of the arguments for it, or for an option: say it",
        },
        Demand {
            at: &["spec", "mode"],
            is: FieldDemand::OneOf(&["cluster"]),
            why: "its driver would be no pod that was charged: set it to cluster",
        },
        Demand {
            at: &["spec", "dynamicAllocation", "enabled"],
            is: FieldDemand::Unset,
            why: "its driver would change the number of executors that was charged: set it to false",
        },
        Demand {
            at: &["spec", "executor", "instances"],
            is: FieldDemand::Set,
            why: "Spark and its operator disagree on how many there are without it: set it",
        },
        Demand { at: &["spec", "driver", "sidecars"], is: FieldDemand::Unset, why: spark_pod::SIDECAR },
        Demand { at: &["spec", "executor", "sidecars"], is: FieldDemand::Unset, why: spark_pod::SIDECAR },
        Demand { at: &["spec", "timeToLiveSeconds"], is: FieldDemand::Unset, why: TTL },
        Demand { at: &["spec", "batchSchedulerOptions", "queue"], is: FieldDemand::OwnQueue, why: QUEUE },
    ],
    ends: &[
        End { when: &[StatusTest::Field(SPARK_STATE, "COMPLETED")], phase: COMPLETED },
        End { when: &[StatusTest::Field(SPARK_STATE, "FAILED")], phase: FAILED },
    ],
    running: &[Count::OneIf(StatusTest::Field(SPARK_STATE, "RUNNING")), Count::Entries(SPARK_EXECUTORS, "RUNNING")],
    succeeded: &[
        Count::OneIf(StatusTest::Field(SPARK_STATE, "COMPLETED")),
        Count::Entries(SPARK_EXECUTORS, "COMPLETED"),
    ],
    failed: &[Count::OneIf(StatusTest::Field(SPARK_STATE, "FAILED")), Count::Entries(SPARK_EXECUTORS, "FAILED")],
    pods: PodMarks {
        name: SPARK_NAME,
        also: None,
        through: &[("", "Pod")],
        task: TaskMark::Label("spark-role"),
        logs: SPARK_NAME,
    },
};

/// Its JobSet has its name.
pub(super) static TRAIN_JOB: Layout = Layout {
    pod_sets: &[PodSets {
        at: &["spec"],
        names: Names::Only(train_node::NODE),
        // One job of all nodes.
        replicas: &[Number::field_or(&[], 1), Number::field_or(&["trainer", "numNodes"], 1)],
        templates: &[],
        requests: &[],
        only_if: None,
    }],
    make_pod: Some(train_node::build_pod),
    classes: &[],
    suspend: Some((&["spec", "suspend"], "spec.suspend")),
    deadline: &["spec", "activeDeadlineSeconds"],
    demands: &[
        Demand {
            at: &["spec", "runtimeRef", "apiGroup"],
            is: FieldDemand::OneOf(&["trainer.kubeflow.org"]),
            why: RUNTIME,
        },
        Demand {
            at: &["spec", "runtimeRef", "kind"],
            is: FieldDemand::OneOf(&["ClusterTrainingRuntime"]),
            why: RUNTIME,
        },
        Demand { at: &["spec", "runtimeRef", "name"], is: FieldDemand::SetTo(train_node::RUNTIMES), why: RUNTIME },
        Demand { at: &["spec", "trainer", "numNodes"], is: FieldDemand::Set, why: OF_RUNTIME },
        Demand { at: &["spec", "trainer", "resourcesPerNode"], is: FieldDemand::Set, why: OF_RUNTIME },
    ],
    ends: &[
        End { when: &[StatusTest::Condition("Complete")], phase: COMPLETED },
        End { when: &[StatusTest::Condition("Failed")], phase: FAILED },
    ],
    running: &[Count::Each(&["jobsStatus"], "ready")],
    succeeded: &[Count::Each(&["jobsStatus"], "succeeded")],
    failed: &[Count::Each(&["jobsStatus"], "failed")],
    pods: PodMarks {
        name: TRAIN_JOB_LABEL,
        also: None,
        through: &[("batch", "Job")],
        task: TaskMark::Label("jobset.sigs.k8s.io/replicatedjob-name"),
        logs: TRAIN_JOB_LABEL,
    },
};
const RUNTIME: &str = "what another runtime makes is in an object that is not read: take the ClusterTrainingRuntime \
                       torch-distributed, jax-distributed or xgboost-distributed";
const OF_RUNTIME: &str = "without it the runtime says it, which is not read: set it";

#[cfg(test)]
mod tests;
