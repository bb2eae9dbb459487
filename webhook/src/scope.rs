//! Which workloads we queue: Volcano Jobs always; Deployments, StatefulSets, Jobs and Pods if they name a queue or their
//! namespace is opted in.
//!
//! Rule for the queue's name: label before annotation, on the pod template before the workload itself, the key
//! `volcano.sh/queue-name` before the older annotation `scheduling.volcano.sh/queue-name`.

use caldera_crds::names::volcano::{DEFAULT_QUEUE, QUEUE, QUEUE_OLD};
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

    /// Where the kind names its PriorityClass.
    #[must_use]
    pub const fn priority_class_path(self) -> &'static str {
        match self {
            Self::VolcanoJob | Self::Pod => "/spec/priorityClassName",
            _ => "/spec/template/spec/priorityClassName",
        }
    }
}

/// The queue a workload names; Volcano Jobs that name none are in the default queue.
#[must_use]
pub fn queue_of(kind: Kind, object: &Value) -> Option<&str> {
    if kind == Kind::VolcanoJob {
        let queue = object.pointer("/spec/queue").and_then(Value::as_str);
        return Some(queue.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_QUEUE));
    }
    let named = |path: &str, key: &str| {
        object.pointer(path).and_then(|map| map.get(key)).and_then(Value::as_str).filter(|name| !name.is_empty())
    };
    let template = "/spec/template/metadata";
    [template, "/metadata"].into_iter().find_map(|at| {
        named(&format!("{at}/labels"), QUEUE)
            .or_else(|| named(&format!("{at}/annotations"), QUEUE))
            .or_else(|| named(&format!("{at}/annotations"), QUEUE_OLD))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volcano_job_is_in_its_queue_or_the_default_one() {
        assert_eq!(queue_of(Kind::VolcanoJob, &json!({"spec": {"queue": "q"}})), Some("q"));
        assert_eq!(queue_of(Kind::VolcanoJob, &json!({"spec": {}})), Some("default"));
        assert_eq!(queue_of(Kind::VolcanoJob, &json!({"spec": {"queue": ""}})), Some("default"));
    }

    #[test]
    fn a_deployments_queue_is_read_in_a_fixed_order() {
        let all = json!({
            "metadata": {"labels": {"volcano.sh/queue-name": "e"}},
            "spec": {"template": {"metadata": {
                "labels": {"volcano.sh/queue-name": "a"},
                "annotations": {"volcano.sh/queue-name": "b", "scheduling.volcano.sh/queue-name": "c"}}}}});
        assert_eq!(queue_of(Kind::Deployment, &all), Some("a"));
        let mut fewer = all;
        for (path, want) in [
            ("/spec/template/metadata/labels", Some("b")),
            ("/spec/template/metadata/annotations", Some("e")),
            ("/metadata/labels", None),
        ] {
            *fewer.pointer_mut(path).unwrap() = json!({});
            assert_eq!(queue_of(Kind::Deployment, &fewer), want);
        }
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
