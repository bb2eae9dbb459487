//! Which workloads we queue: Volcano Jobs always; Deployments, StatefulSets, Jobs and Pods if they name a queue or their
//! namespace is opted in.

use caldera_crds::workload;
use serde_json::Value;

/// A kind that can be in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `batch.volcano.sh/v1alpha1 Job`.
    VolcanoJob,
    /// `apps/v1 Deployment`.
    Deployment,
    /// `apps/v1 StatefulSet`.
    StatefulSet,
    /// `batch/v1 Job`.
    Job,
    /// `v1 Pod`.
    Pod,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::VolcanoJob, Self::Deployment, Self::StatefulSet, Self::Job, Self::Pod];

    /// Group (empty for core), version, kind, plural.
    #[must_use]
    pub const fn resource(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::VolcanoJob => ("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::StatefulSet => ("apps", "v1", "StatefulSet", "statefulsets"),
            Self::Job => ("batch", "v1", "Job", "jobs"),
            Self::Pod => ("", "v1", "Pod", "pods"),
        }
    }

    /// By `apiVersion` and `kind`; other versions of a group are not ours to judge.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("batch.volcano.sh/v1alpha1", "Job") => Some(Self::VolcanoJob),
            ("apps/v1", "Deployment") => Some(Self::Deployment),
            ("apps/v1", "StatefulSet") => Some(Self::StatefulSet),
            ("batch/v1", "Job") => Some(Self::Job),
            ("v1", "Pod") => Some(Self::Pod),
            _ => None,
        }
    }

    /// One word that no other kind has.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::VolcanoJob => "VolcanoJob",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::Job => "BatchJob",
            Self::Pod => "Pod",
        }
    }
}

/// The queue a workload names; a Volcano Job that names none is in the default queue.
#[must_use]
pub fn queue_of(kind: Kind, object: &Value) -> Option<String> {
    (kind == Kind::VolcanoJob || workload::names_queue(object)).then(|| workload::queue_of(object).as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volcano_job_is_always_in_a_queue_and_other_kinds_if_they_name_one() {
        let job = |spec: Value| json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": spec});
        assert_eq!(queue_of(Kind::VolcanoJob, &job(json!({"queue": "q"}))).as_deref(), Some("q"));
        assert_eq!(queue_of(Kind::VolcanoJob, &job(json!({}))).as_deref(), Some("default"));
        let deployment = |annotations: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": annotations}});
        assert_eq!(queue_of(Kind::Deployment, &deployment(json!({}))), None);
        let named = deployment(json!({"volcano.sh/queue-name": "q"}));
        assert_eq!(queue_of(Kind::Deployment, &named).as_deref(), Some("q"));
    }

    #[test]
    fn kinds_are_told_apart_by_group() {
        assert_eq!(Kind::of("batch/v1", "Job"), Some(Kind::Job));
        assert_eq!(Kind::of("batch.volcano.sh/v1alpha1", "Job"), Some(Kind::VolcanoJob));
        assert_eq!(Kind::of("v1", "ConfigMap"), None);
        for kind in Kind::ALL {
            let (group, version, name, _) = kind.resource();
            let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            assert_eq!(Kind::of(&api_version, name), Some(kind));
        }
    }
}
