//! Of which job a member's pod is, where its controller is not the job itself.
//!
//! Rule: the labels that the job's controller gives its pods, looked at only on pods whose own controller is of a kind
//! that the job's controller makes. KubeRay gives pods of a RayJob no such label; their RayCluster has the job's name
//! with five random characters behind it (`ray-operator/controllers/ray/utils/util.go`, `GenerateRayClusterName`;
//! `k8s.io/apimachinery/pkg/util/rand` for the characters).

use caldera_core::gang::TaskName;
use serde_json::Value;

use super::{WorkloadKind, layouts::SUBMITTER};

/// The characters of random names.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";
const RANDOM_LENGTH: usize = 5;

/// The job that a pod is of, and the pod set: from the kind and name of its controller, and its labels. `None` if it is
/// of no kind that is read by a table.
#[must_use]
pub fn find_job(
    group: &str,
    kind: &str,
    name: &str,
    labels: &Value,
) -> Option<(WorkloadKind, String, Option<TaskName>)> {
    let made = WorkloadKind::list_all().find_map(|job| {
        let marks = &job.layout()?.pods;
        let is_marked = marks.also.is_none_or(|(label, value)| labels[label] == value);
        let named = labels[marks.name].as_str().filter(|_| is_marked && marks.through.contains(&(group, kind)))?;
        Some((job, named.to_owned()))
    });
    let (job, name) = match (made, WorkloadKind::from_group_and_kind(group, kind)?) {
        (Some(made), _) => made,
        (None, WorkloadKind::RayCluster) => match strip_random(name) {
            Some(job) => (WorkloadKind::RayJob, job.to_owned()),
            None => (WorkloadKind::RayCluster, name.to_owned()),
        },
        (None, own) => (own, name.to_owned()),
    };
    let task = job.layout()?.pods.task.read_task_name(labels);
    let is_submitter = job == WorkloadKind::RayJob && group == "batch";
    Some((job, name, task.or_else(|| is_submitter.then(|| TaskName::from(SUBMITTER)))))
}

/// The name before `-xxxxx`, and before `-raycluster-xxxxx` as KubeRay wrote it earlier.
fn strip_random(name: &str) -> Option<&str> {
    let (job, random) = name.rsplit_once('-')?;
    let is_random = random.len() == RANDOM_LENGTH && random.chars().all(|letter| RANDOM.contains(letter));
    is_random.then(|| job.strip_suffix("-raycluster").unwrap_or(job)).filter(|job| !job.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn find(group: &str, kind: &str, name: &str, labels: Value) -> Option<(String, String, String)> {
        let (job, name, task) = find_job(group, kind, name, &labels)?;
        Some((job.title().to_owned(), name, task.map(|task| task.to_string()).unwrap_or_default()))
    }

    #[test]
    fn a_pod_is_of_the_job_whose_controller_made_its_controller() {
        let of = |job: &str, name: &str, task: &str| Some((job.to_owned(), name.to_owned(), task.to_owned()));
        let kubeflow = json!({"training.kubeflow.org/job-name": "t", "training.kubeflow.org/replica-type": "worker"});
        assert_eq!(find("kubeflow.org", "PyTorchJob", "t", kubeflow.clone()), of("PyTorchJob", "t", "worker"));
        let launcher = json!({"training.kubeflow.org/job-name": "m", "training.kubeflow.org/job-role": "launcher",
            "training.kubeflow.org/operator-name": "mpi-operator"});
        assert_eq!(find("batch", "Job", "m-launcher", launcher), of("MPIJob", "m", "launcher"));
        assert_eq!(find("batch", "Job", "t", kubeflow), None, "a batch Job whose template has such a label");
        let of_training_operator = |role: &str, kind: &str| {
            json!({"training.kubeflow.org/job-name": "m", "training.kubeflow.org/replica-type": kind,
                "training.kubeflow.org/job-role": role, "training.kubeflow.org/operator-name": "mpijob-controller"})
        };
        let launcher = of_training_operator("master", "launcher");
        assert_eq!(find("kubeflow.org", "MPIJob", "m", launcher), of("MPIJob", "m", "launcher"));
        let set = json!({"jobset.sigs.k8s.io/jobset-name": "s", "jobset.sigs.k8s.io/replicatedjob-name": "w"});
        assert_eq!(find("batch", "Job", "s-w-0", set.clone()), of("JobSet", "s", "w"));
        let mut node = set.clone();
        node["caldera.dev/train-job"] = "s".into();
        assert_eq!(find("batch", "Job", "s-w-0", node), of("TrainJob", "s", "w"));
        assert_eq!(find("apps", "StatefulSet", "s", set), None);
        let index = |index: &str| {
            json!({"leaderworkerset.sigs.k8s.io/name": "l",
                "leaderworkerset.sigs.k8s.io/worker-index": index})
        };
        assert_eq!(find("apps", "StatefulSet", "l", index("0")), of("LeaderWorkerSet", "l", "leader"));
        assert_eq!(find("apps", "StatefulSet", "l-0", index("3")), of("LeaderWorkerSet", "l", "worker"));
        let role = |role: &str| json!({"sparkoperator.k8s.io/app-name": "a", "spark-role": role});
        let driver = find("sparkoperator.k8s.io", "SparkApplication", "a", role("driver"));
        assert_eq!(driver, of("SparkApplication", "a", "driver"));
        assert_eq!(find("", "Pod", "a-driver", role("executor")), of("SparkApplication", "a", "executor"));
        assert_eq!(find("", "Pod", "a-driver", json!({})), None);
    }

    #[test]
    fn a_ray_cluster_with_a_random_name_is_a_ray_jobs() {
        let group = json!({"ray.io/group": "headgroup"});
        let of = |kind: &str, name: &str| Some((kind.to_owned(), name.to_owned(), "headgroup".to_owned()));
        assert_eq!(find("ray.io", "RayCluster", "train-x7k2q", group.clone()), of("RayJob", "train"));
        assert_eq!(find("ray.io", "RayCluster", "train-raycluster-x7k2q", group.clone()), of("RayJob", "train"));
        for name in ["train", "train-small", "train-x7k2", "-x7k2q"] {
            assert_eq!(find("ray.io", "RayCluster", name, group.clone()), of("RayCluster", name));
        }
        let submitter = json!({"ray.io/originated-from-cr-name": "train", "ray.io/originated-from-crd": "RayJob"});
        let want = Some(("RayJob".to_owned(), "train".to_owned(), SUBMITTER.to_owned()));
        assert_eq!(find("batch", "Job", "train", submitter), want);
    }
}
