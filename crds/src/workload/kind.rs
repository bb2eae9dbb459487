//! The kinds of workload that can be queued, and how the API names each.
//!
//! This table, that of [`layouts`], the match arms in this folder and what admins declare
//! ([`declared`](super::declared)) are all that depends on the kind: controller, scheduler, webhook and command line
//! iterate over [`WorkloadKind::list_all`] and ask the kind for the rest.

use std::iter;

use kube::core::ApiResource;
use serde_json::Value;

use super::{
    declared_kind::{DeclaredKind, KindNames, list_declared_kinds},
    layout::{FieldDemand, Layout, follow_path},
    layouts,
};
use crate::object::api_resource;

/// A kind of workload that can be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    /// `batch.volcano.sh` Job.
    VolcanoJob,
    /// `apps` Deployment.
    Deployment,
    /// `apps` StatefulSet.
    StatefulSet,
    /// `batch` Job.
    BatchJob,
    /// Pod.
    Pod,
    /// `kubeflow.org` PyTorchJob.
    PyTorchJob,
    /// `kubeflow.org` TFJob.
    TfJob,
    /// `kubeflow.org` MPIJob, of the MPI operator.
    MpiJob,
    /// `kubeflow.org` MPIJob, of the training operator. A host has one of both: their definitions share a name.
    MpiJobV1,
    /// `ray.io` RayJob.
    RayJob,
    /// `ray.io` RayCluster.
    RayCluster,
    /// `trainer.kubeflow.org` TrainJob.
    TrainJob,
    /// `jobset.x-k8s.io` JobSet.
    JobSet,
    /// `leaderworkerset.x-k8s.io` LeaderWorkerSet.
    LeaderWorkerSet,
    /// `sparkoperator.k8s.io` SparkApplication.
    SparkApplication,
    /// A kind that an admin declared.
    Declared(DeclaredKind),
}

impl WorkloadKind {
    /// Every kind that is told in code.
    pub const ALL: [Self; 15] = [
        Self::VolcanoJob,
        Self::Deployment,
        Self::StatefulSet,
        Self::BatchJob,
        Self::Pod,
        Self::PyTorchJob,
        Self::TfJob,
        Self::MpiJob,
        Self::MpiJobV1,
        Self::RayJob,
        Self::RayCluster,
        // Before JobSet, whose labels its pods have too.
        Self::TrainJob,
        Self::JobSet,
        Self::LeaderWorkerSet,
        Self::SparkApplication,
    ];

    /// Every kind in scope: those that are told in code, and those that are declared.
    pub fn list_all() -> impl Iterator<Item = Self> {
        let declared = iter::once_with(list_declared_kinds);
        let declared = declared.flat_map(|all| (0..all.len()).filter_map(move |at| all.get(at).copied()));
        Self::ALL.into_iter().chain(declared.map(Self::Declared))
    }

    const fn names(self) -> KindNames {
        match self {
            Self::VolcanoJob => KindNames {
                group: "batch.volcano.sh",
                version: "v1alpha1",
                kind: "Job",
                plural: "jobs",
                title: "Volcano Job",
                aliases: &["vcjob", "vj", "jobs.batch.volcano.sh", "job.batch.volcano.sh"],
            },
            Self::Deployment => KindNames {
                group: "apps",
                version: "v1",
                kind: "Deployment",
                plural: "deployments",
                title: "Deployment",
                aliases: &["deployment", "deployments", "deploy"],
            },
            Self::StatefulSet => KindNames {
                group: "apps",
                version: "v1",
                kind: "StatefulSet",
                plural: "statefulsets",
                title: "StatefulSet",
                aliases: &["statefulset", "statefulsets", "sts"],
            },
            Self::BatchJob => KindNames {
                group: "batch",
                version: "v1",
                kind: "Job",
                plural: "jobs",
                title: "Job",
                aliases: &["job", "jobs", "jobs.batch"],
            },
            Self::Pod => KindNames {
                group: "",
                version: "v1",
                kind: "Pod",
                plural: "pods",
                title: "Pod",
                aliases: &["pod", "pods", "po"],
            },
            Self::PyTorchJob => KindNames {
                group: "kubeflow.org",
                version: "v1",
                kind: "PyTorchJob",
                plural: "pytorchjobs",
                title: "PyTorchJob",
                aliases: &["pytorchjob", "pytorchjobs", "pytorch"],
            },
            Self::TfJob => KindNames {
                group: "kubeflow.org",
                version: "v1",
                kind: "TFJob",
                plural: "tfjobs",
                title: "TFJob",
                aliases: &["tfjob", "tfjobs"],
            },
            Self::MpiJob => KindNames {
                group: "kubeflow.org",
                version: "v2beta1",
                kind: "MPIJob",
                plural: "mpijobs",
                title: "MPIJob",
                aliases: &["mpijob", "mpijobs"],
            },
            Self::MpiJobV1 => KindNames {
                group: "kubeflow.org",
                version: "v1",
                kind: "MPIJob",
                plural: "mpijobs",
                title: "MPIJob of the training operator",
                aliases: &["mpijob.v1", "mpijobs.v1", "mpijob.v1.kubeflow.org", "mpijobs.v1.kubeflow.org"],
            },
            Self::RayJob => KindNames {
                group: "ray.io",
                version: "v1",
                kind: "RayJob",
                plural: "rayjobs",
                title: "RayJob",
                aliases: &["rayjob", "rayjobs"],
            },
            Self::RayCluster => KindNames {
                group: "ray.io",
                version: "v1",
                kind: "RayCluster",
                plural: "rayclusters",
                title: "RayCluster",
                aliases: &["raycluster", "rayclusters"],
            },
            Self::TrainJob => KindNames {
                group: "trainer.kubeflow.org",
                version: "v1alpha1",
                kind: "TrainJob",
                plural: "trainjobs",
                title: "TrainJob",
                aliases: &["trainjob", "trainjobs"],
            },
            Self::JobSet => KindNames {
                group: "jobset.x-k8s.io",
                version: "v1alpha2",
                kind: "JobSet",
                plural: "jobsets",
                title: "JobSet",
                aliases: &["jobset", "jobsets"],
            },
            Self::LeaderWorkerSet => KindNames {
                group: "leaderworkerset.x-k8s.io",
                version: "v1",
                kind: "LeaderWorkerSet",
                plural: "leaderworkersets",
                title: "LeaderWorkerSet",
                aliases: &["leaderworkerset", "leaderworkersets", "lws"],
            },
            Self::SparkApplication => KindNames {
                group: "sparkoperator.k8s.io",
                version: "v1beta2",
                kind: "SparkApplication",
                plural: "sparkapplications",
                title: "SparkApplication",
                aliases: &["sparkapplication", "sparkapplications", "sparkapp"],
            },
            Self::Declared(kind) => kind.names(),
        }
    }

    /// The kind that `apiVersion` and `kind` name in any version of the group, if it is in scope: of two versions that
    /// are kinds of their own the one that is named.
    #[must_use]
    pub fn parse(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let exact = Self::list_named(group, kind).find(|known| known.names().version == version);
        exact.or_else(|| Self::from_group_and_kind(group, kind))
    }

    /// The kind of this group and kind, if it is in scope.
    #[must_use]
    pub fn from_group_and_kind(group: &str, kind: &str) -> Option<Self> {
        Self::list_named(group, kind).next()
    }

    fn list_named<'a>(group: &'a str, kind: &'a str) -> impl Iterator<Item = Self> + use<'a> {
        Self::list_all().filter(move |known| known.group() == group && known.kind() == kind)
    }

    /// The kind that people mean by a word, such as `vcjob` or `deploy`.
    #[must_use]
    pub fn parse_alias(word: &str) -> Option<Self> {
        Self::list_all().find(|kind| kind.names().aliases.contains(&word))
    }

    /// The kind of an object, if it is in scope.
    #[must_use]
    pub fn of_object(object: &Value) -> Option<Self> {
        Self::parse(object.get("apiVersion")?.as_str()?, object.get("kind")?.as_str()?)
    }

    /// API group, empty for core.
    #[must_use]
    pub const fn group(self) -> &'static str {
        self.names().group
    }

    /// Kind within the group.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        self.names().kind
    }

    /// A name for people that no other kind has.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.names().title
    }

    /// The word for it in a name: what people type for it, the same in all its versions, and without a dash.
    #[must_use]
    pub fn word(self) -> &'static str {
        let first = self.aliases().first().copied().unwrap_or_default();
        first.split('.').next().unwrap_or(first)
    }

    /// What people type for it on a command line.
    #[must_use]
    pub const fn aliases(self) -> &'static [&'static str] {
        self.names().aliases
    }

    /// The plural of the kind alone, as rules of roles list resources.
    #[must_use]
    pub fn plurals(self) -> &'static [&'static str] {
        let plural = self.names().plural;
        self.aliases().iter().position(|word| *word == plural).map_or(&[], |at| &self.aliases()[at..=at])
    }

    /// `group/version`.
    #[must_use]
    pub fn api_version(self) -> String {
        self.api_resource().api_version
    }

    /// What to ask an API server for.
    #[must_use]
    pub fn api_resource(self) -> ApiResource {
        let KindNames { group, version, kind, plural, .. } = self.names();
        api_resource(group, version, kind, plural)
    }

    /// Whether the workload consists of named tasks, so that a plan places it by task. Other kinds have one template,
    /// and are divided by replicas as karmada-scheduler would.
    #[must_use]
    pub fn has_tasks(self) -> bool {
        self == Self::VolcanoJob || self.layout().is_some()
    }

    /// Whether it is a custom resource that a host may do without: its CRD may come later, or never.
    #[must_use]
    pub fn is_optional(self) -> bool {
        self.layout().is_some()
    }

    /// Whether its own controller makes some of its pods only once others run: those of a Volcano Job start together.
    #[must_use]
    pub fn starts_in_own_order(self) -> bool {
        self.layout().is_some()
    }

    /// Whether a workload of the kind runs to its end, so that what a lost cluster had of it runs again elsewhere.
    #[must_use]
    pub fn runs_to_its_end(self) -> bool {
        match self.layout() {
            Some(layout) => !layout.ends.is_empty(),
            None => matches!(self, Self::VolcanoJob | Self::BatchJob | Self::Pod),
        }
    }

    /// The field by which its user suspends a workload of the kind: its path and its text.
    #[must_use]
    pub fn suspend_field(self) -> Option<(&'static [&'static str], &'static str)> {
        match self.layout() {
            Some(layout) => layout.suspend,
            None => (self == Self::BatchJob).then_some((&["spec", "suspend"], "spec.suspend")),
        }
    }

    /// The field by which its user suspended a workload, if he did.
    #[must_use]
    pub fn find_suspending_field(self, object: &Value) -> Option<&'static str> {
        let (path, text) = self.suspend_field()?;
        (follow_path(object, path) == true).then_some(text)
    }

    /// The fields of its spec that name a queue to its own controller: the one that it is charged in, or none.
    pub fn list_queue_fields(self) -> impl Iterator<Item = &'static [&'static str]> {
        let demands = self.layout().map(|layout| layout.demands).unwrap_or_default();
        demands.iter().filter(|demand| matches!(demand.is, FieldDemand::OwnQueue)).map(|demand| demand.at)
    }

    /// The label by which its pods name the workload, of kinds that are read by a table.
    #[must_use]
    pub fn pod_label(self) -> Option<&'static str> {
        Some(self.layout()?.pods.logs)
    }

    /// Whether its controller may keep pods that its edited template has no more: KubeRay goes on with a RayJob's
    /// cluster as it was made, Kubeflow's operators make what lacks and take nothing away.
    #[must_use]
    pub fn keeps_pods(self) -> bool {
        self.layout().is_some() && self != Self::LeaderWorkerSet
    }

    /// The table by which the kind is read, if it is.
    pub(super) fn layout(self) -> Option<&'static Layout> {
        match self {
            Self::VolcanoJob | Self::Deployment | Self::StatefulSet | Self::BatchJob | Self::Pod => None,
            Self::PyTorchJob => Some(&layouts::PYTORCH_JOB),
            Self::TfJob => Some(&layouts::TF_JOB),
            Self::MpiJob => Some(&layouts::MPI_JOB),
            Self::MpiJobV1 => Some(&layouts::MPI_JOB_V1),
            Self::RayJob => Some(&layouts::RAY_JOB),
            Self::RayCluster => Some(&layouts::RAY_CLUSTER),
            Self::TrainJob => Some(&layouts::TRAIN_JOB),
            Self::JobSet => Some(&layouts::JOB_SET),
            Self::LeaderWorkerSet => Some(&layouts::LEADER_WORKER_SET),
            Self::SparkApplication => Some(&layouts::SPARK_APPLICATION),
            Self::Declared(kind) => Some(kind.layout()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_by_group() {
        assert_eq!(WorkloadKind::parse("batch/v1", "Job"), Some(WorkloadKind::BatchJob));
        assert_eq!(WorkloadKind::parse("batch.volcano.sh/v1alpha1", "Job"), Some(WorkloadKind::VolcanoJob));
        assert_eq!(WorkloadKind::parse("v1", "ConfigMap"), None);
        for kind in WorkloadKind::ALL {
            assert_eq!(WorkloadKind::parse(&kind.api_version(), kind.kind()), Some(kind));
            assert!(kind.aliases().iter().all(|word| WorkloadKind::parse_alias(word) == Some(kind)));
        }
    }

    #[test]
    fn no_two_kinds_that_a_host_has_share_a_word() {
        let defined = |kind: WorkloadKind| (kind.group(), kind.kind());
        for kind in WorkloadKind::ALL {
            assert!(!kind.word().is_empty() && kind.word().chars().all(char::is_alphanumeric), "{}", kind.word());
            let same = WorkloadKind::ALL.into_iter().filter(|other| other.word() == kind.word());
            assert!(same.map(defined).all(|other| other == defined(kind)), "{}", kind.word());
        }
        assert_eq!(WorkloadKind::VolcanoJob.word(), "vcjob");
        assert_eq!(WorkloadKind::MpiJobV1.word(), "mpijob");
    }

    #[test]
    fn nobody_asks_for_the_version() {
        assert_eq!(WorkloadKind::parse("apps/v2", "Deployment"), Some(WorkloadKind::Deployment));
        assert_eq!(WorkloadKind::parse("apps.example.com/v1", "Deployment"), None);
    }

    #[test]
    fn an_mpi_job_is_of_the_operator_whose_version_it_has() {
        assert_eq!(WorkloadKind::parse("kubeflow.org/v1", "MPIJob"), Some(WorkloadKind::MpiJobV1));
        assert_eq!(WorkloadKind::parse("kubeflow.org/v2beta1", "MPIJob"), Some(WorkloadKind::MpiJob));
        assert_eq!(WorkloadKind::parse("kubeflow.org/v3", "MPIJob"), Some(WorkloadKind::MpiJob));
        assert_eq!(WorkloadKind::parse("v1", "MPIJob"), None);
    }
}
