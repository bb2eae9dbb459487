//! The kinds that the stand-ins watch or write.

use caldera_runtime::watch::api_resource;
use kube::api::ApiResource;

/// The kinds the stand-ins look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// batch.volcano.sh Job.
    VolcanoJob,
    /// scheduling.volcano.sh PodGroup.
    PodGroup,
    /// scheduling.volcano.sh Queue.
    Queue,
    /// v1 Pod.
    Pod,
    /// v1 Node.
    Node,
    /// apps/v1 Deployment.
    Deployment,
    /// apps/v1 ReplicaSet.
    ReplicaSet,
    /// apps/v1 StatefulSet.
    StatefulSet,
    /// batch/v1 Job.
    BatchJob,
    /// scheduling.k8s.io PriorityClass.
    PriorityClass,
    /// v1 PersistentVolumeClaim.
    PersistentVolumeClaim,
    /// bus.volcano.sh Command.
    Command,
    /// topology.volcano.sh HyperNode.
    HyperNode,
    /// resource.k8s.io ResourceSlice.
    ResourceSlice,
    /// resource.k8s.io DeviceClass.
    DeviceClass,
    /// resource.k8s.io ResourceClaim.
    ResourceClaim,
    /// resource.k8s.io ResourceClaimTemplate.
    ResourceClaimTemplate,
    /// v1 Service; written, never watched.
    Service,
    /// v1 ConfigMap; written, never watched.
    ConfigMap,
    /// v1 Secret; written, never watched.
    Secret,
    /// networking.k8s.io NetworkPolicy; written, never watched.
    NetworkPolicy,
    /// v1 Event; written, never watched.
    Event,
}

impl Kind {
    /// Those that are watched.
    pub const WATCHED: [Self; 17] = [
        Self::VolcanoJob,
        Self::PodGroup,
        Self::Queue,
        Self::Pod,
        Self::Node,
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::BatchJob,
        Self::PriorityClass,
        Self::PersistentVolumeClaim,
        Self::Command,
        Self::HyperNode,
        Self::ResourceSlice,
        Self::DeviceClass,
        Self::ResourceClaim,
        Self::ResourceClaimTemplate,
    ];

    /// Its API resource.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        match self {
            Self::VolcanoJob => api_resource("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
            Self::PodGroup => api_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
            Self::Queue => api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
            Self::Pod => api_resource("", "v1", "Pod", "pods"),
            Self::Node => api_resource("", "v1", "Node", "nodes"),
            Self::Deployment => api_resource("apps", "v1", "Deployment", "deployments"),
            Self::ReplicaSet => api_resource("apps", "v1", "ReplicaSet", "replicasets"),
            Self::StatefulSet => api_resource("apps", "v1", "StatefulSet", "statefulsets"),
            Self::BatchJob => api_resource("batch", "v1", "Job", "jobs"),
            Self::PriorityClass => api_resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
            Self::PersistentVolumeClaim => api_resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::Command => api_resource("bus.volcano.sh", "v1alpha1", "Command", "commands"),
            Self::HyperNode => api_resource("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes"),
            Self::ResourceSlice => api_resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices"),
            Self::DeviceClass => api_resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses"),
            Self::ResourceClaim => api_resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
            Self::ResourceClaimTemplate => {
                api_resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
            }
            Self::Service => api_resource("", "v1", "Service", "services"),
            Self::ConfigMap => api_resource("", "v1", "ConfigMap", "configmaps"),
            Self::Secret => api_resource("", "v1", "Secret", "secrets"),
            Self::NetworkPolicy => api_resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
            Self::Event => api_resource("", "v1", "Event", "events"),
        }
    }
}
