//! The kinds of workload that can be queued, and how the API names each.
//!
//! This table and the match arms in this folder are all that depends on the kind: controller, scheduler, webhook and
//! command line iterate over [`WorkloadKind::ALL`] and ask the kind for the rest.

use kube::core::ApiResource;
use serde_json::Value;

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
}

/// How the API and its users name a kind.
struct KindNames {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// For people; no other kind has it.
    title: &'static str,
    /// What people type for it on a command line.
    aliases: &'static [&'static str],
}

impl WorkloadKind {
    /// Every kind in scope.
    pub const ALL: [Self; 5] = [Self::VolcanoJob, Self::Deployment, Self::StatefulSet, Self::BatchJob, Self::Pod];

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
        }
    }

    /// The kind that `apiVersion` and `kind` name in any version of the group, if it is in scope.
    #[must_use]
    pub fn parse(api_version: &str, kind: &str) -> Option<Self> {
        Self::find(api_version.split_once('/').map_or("", |(group, _)| group), kind)
    }

    /// The kind of this group and kind, if it is in scope.
    #[must_use]
    pub fn find(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.group() == group && known.kind() == kind)
    }

    /// The same for the one version that the webhook judges.
    #[must_use]
    pub fn parse_version(api_version: &str, kind: &str) -> Option<Self> {
        Self::parse(api_version, kind).filter(|known| known.api_version() == api_version)
    }

    /// The kind that people mean by a word, such as `vcjob` or `deploy`.
    #[must_use]
    pub fn parse_alias(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.names().aliases.contains(&word))
    }

    /// The kind of an object, if it is in scope.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
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

    /// What people type for it on a command line.
    #[must_use]
    pub const fn aliases(self) -> &'static [&'static str] {
        self.names().aliases
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
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        ApiResource {
            group: group.into(),
            version: version.into(),
            api_version,
            kind: kind.into(),
            plural: plural.into(),
        }
    }

    /// Whether the workload consists of named tasks, so that a plan divides it by task. Other kinds have one template.
    #[must_use]
    pub const fn has_tasks(self) -> bool {
        matches!(self, Self::VolcanoJob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_by_group() {
        assert_eq!(WorkloadKind::parse_version("batch/v1", "Job"), Some(WorkloadKind::BatchJob));
        assert_eq!(WorkloadKind::parse_version("batch.volcano.sh/v1alpha1", "Job"), Some(WorkloadKind::VolcanoJob));
        assert_eq!(WorkloadKind::parse_version("v1", "ConfigMap"), None);
        for kind in WorkloadKind::ALL {
            assert_eq!(WorkloadKind::parse_version(&kind.api_version(), kind.kind()), Some(kind));
            assert!(kind.aliases().iter().all(|word| WorkloadKind::parse_alias(word) == Some(kind)));
        }
    }

    #[test]
    fn only_the_webhook_asks_for_the_version() {
        assert_eq!(WorkloadKind::parse("apps/v2", "Deployment"), Some(WorkloadKind::Deployment));
        assert_eq!(WorkloadKind::parse_version("apps/v2", "Deployment"), None);
    }
}
