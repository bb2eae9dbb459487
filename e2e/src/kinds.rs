//! The kinds scenarios use.

use caldera_crds::workload::WorkloadKind;
use caldera_runtime::watch::api_resource;
use kube::api::ApiResource;

/// A kind's resource, by the short name that scenarios use for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// batch.volcano.sh Job.
    Job,
    /// scheduling.volcano.sh Queue.
    Queue,
    /// scheduling.volcano.sh PodGroup.
    PodGroup,
    /// work.karmada.io ResourceBinding.
    Binding,
    /// work.karmada.io Work.
    Work,
    /// policy.karmada.io PropagationPolicy.
    Policy,
    /// policy.karmada.io OverridePolicy.
    OverridePolicy,
    /// cluster.karmada.io Cluster.
    Cluster,
    /// apps Deployment.
    Deployment,
    /// batch Job of Kubernetes.
    BatchJob,
    /// v1 Pod.
    Pod,
    /// v1 Node.
    Node,
    /// metrics.k8s.io NodeMetrics.
    NodeMetrics,
    /// v1 Event.
    Event,
    /// v1 Namespace.
    Namespace,
    /// v1 ConfigMap.
    ConfigMap,
    /// v1 Secret.
    Secret,
    /// admissionregistration.k8s.io ValidatingAdmissionPolicy.
    AdmissionPolicy,
    /// admissionregistration.k8s.io ValidatingAdmissionPolicyBinding.
    AdmissionPolicyBinding,
    /// scheduling.k8s.io PriorityClass.
    PriorityClass,
    /// bus.volcano.sh Command.
    Command,
    /// batch CronJob.
    BatchCronJob,
    /// batch.volcano.sh CronJob.
    CronJob,
    /// training.volcano.sh HyperJob.
    HyperJob,
    /// datadependency.volcano.sh DataSource.
    DataSource,
    /// datadependency.volcano.sh DataSourceClaim.
    DataClaim,
    /// resource.k8s.io DeviceClass.
    DeviceClass,
    /// resource.k8s.io ResourceSlice.
    ResourceSlice,
    /// resource.k8s.io ResourceClaim.
    ResourceClaim,
    /// resource.k8s.io ResourceClaimTemplate.
    ResourceClaimTemplate,
    /// topology.volcano.sh HyperNode.
    HyperNode,
    /// nodeinfo.volcano.sh Numatopology.
    Numatopology,
    /// federation.caldera.dev ClusterInventory.
    Inventory,
    /// federation.caldera.dev FederationTopology.
    Links,
    /// federation.caldera.dev CapacityReservation.
    CapacityReservation,
    /// apiextensions.k8s.io CustomResourceDefinition.
    Definition,
    /// config.karmada.io ResourceInterpreterCustomization.
    Customization,
    /// rbac.authorization.k8s.io ClusterRole.
    ClusterRole,
    /// rbac.authorization.k8s.io ClusterRoleBinding.
    ClusterRoleBinding,
    /// federation.caldera.dev WorkloadKind.
    KindDeclaration,
    /// training.example.com TrainRun, a declared kind.
    TrainRun,
    /// Any kind that can be queued.
    Queued(WorkloadKind),
}

impl Kind {
    /// Its API resource.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Job => api_resource("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
            Self::Queue => api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
            Self::PodGroup => api_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
            Self::Binding => api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings"),
            Self::Work => api_resource("work.karmada.io", "v1alpha1", "Work", "works"),
            Self::Policy => api_resource("policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies"),
            Self::OverridePolicy => api_resource("policy.karmada.io", "v1alpha1", "OverridePolicy", "overridepolicies"),
            Self::Cluster => api_resource("cluster.karmada.io", "v1alpha1", "Cluster", "clusters"),
            Self::Deployment => api_resource("apps", "v1", "Deployment", "deployments"),
            Self::BatchJob => api_resource("batch", "v1", "Job", "jobs"),
            Self::Pod => api_resource("", "v1", "Pod", "pods"),
            Self::Node => api_resource("", "v1", "Node", "nodes"),
            Self::NodeMetrics => api_resource("metrics.k8s.io", "v1beta1", "NodeMetrics", "nodes"),
            Self::Event => api_resource("", "v1", "Event", "events"),
            Self::Namespace => api_resource("", "v1", "Namespace", "namespaces"),
            Self::ConfigMap => api_resource("", "v1", "ConfigMap", "configmaps"),
            Self::Secret => api_resource("", "v1", "Secret", "secrets"),
            Self::AdmissionPolicy => api_resource(
                "admissionregistration.k8s.io",
                "v1",
                "ValidatingAdmissionPolicy",
                "validatingadmissionpolicies",
            ),
            Self::AdmissionPolicyBinding => api_resource(
                "admissionregistration.k8s.io",
                "v1",
                "ValidatingAdmissionPolicyBinding",
                "validatingadmissionpolicybindings",
            ),
            Self::Command => api_resource("bus.volcano.sh", "v1alpha1", "Command", "commands"),
            Self::BatchCronJob => api_resource("batch", "v1", "CronJob", "cronjobs"),
            Self::CronJob => api_resource("batch.volcano.sh", "v1alpha1", "CronJob", "cronjobs"),
            Self::HyperJob => api_resource("training.volcano.sh", "v1alpha1", "HyperJob", "hyperjobs"),
            Self::DataSource => api_resource("datadependency.volcano.sh", "v1alpha1", "DataSource", "datasources"),
            Self::DataClaim => {
                api_resource("datadependency.volcano.sh", "v1alpha1", "DataSourceClaim", "datasourceclaims")
            }
            Self::DeviceClass => api_resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses"),
            Self::ResourceSlice => api_resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices"),
            Self::ResourceClaim => api_resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
            Self::ResourceClaimTemplate => {
                api_resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
            }
            Self::HyperNode => api_resource("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes"),
            Self::Numatopology => api_resource("nodeinfo.volcano.sh", "v1alpha1", "Numatopology", "numatopologies"),
            Self::Inventory => {
                api_resource("federation.caldera.dev", "v1alpha1", "ClusterInventory", "clusterinventories")
            }
            Self::Links => {
                api_resource("federation.caldera.dev", "v1alpha1", "FederationTopology", "federationtopologies")
            }
            Self::CapacityReservation => {
                api_resource("federation.caldera.dev", "v1alpha1", "CapacityReservation", "capacityreservations")
            }
            Self::Definition => {
                api_resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
            }
            Self::Customization => api_resource(
                "config.karmada.io",
                "v1alpha1",
                "ResourceInterpreterCustomization",
                "resourceinterpretercustomizations",
            ),
            Self::ClusterRole => api_resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles"),
            Self::ClusterRoleBinding => {
                api_resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")
            }
            Self::KindDeclaration => {
                api_resource("federation.caldera.dev", "v1alpha1", "WorkloadKind", "workloadkinds")
            }
            Self::TrainRun => api_resource("training.example.com", "v1", "TrainRun", "trainruns"),
            Self::Queued(kind) => kind.api_resource(),
            Self::PriorityClass => api_resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
        }
    }

    /// Whether objects of the kind have no namespace.
    #[must_use]
    pub const fn is_cluster_scoped(self) -> bool {
        matches!(
            self,
            Self::Queue
                | Self::Cluster
                | Self::Node
                | Self::NodeMetrics
                | Self::Namespace
                | Self::PriorityClass
                | Self::DataSource
                | Self::HyperNode
                | Self::DeviceClass
                | Self::ResourceSlice
                | Self::Numatopology
                | Self::Inventory
                | Self::Links
                | Self::CapacityReservation
                | Self::AdmissionPolicy
                | Self::AdmissionPolicyBinding
                | Self::Definition
                | Self::Customization
                | Self::ClusterRole
                | Self::ClusterRoleBinding
                | Self::KindDeclaration
        )
    }
}
