//! What the controller keeps of a member cluster, of a PriorityClass, and of a Namespace.

use super::losses::Presence;
use caldera_core::{inventory::Capacity, place};
use caldera_crds::{
    action::Action, cluster_annotations::list_annotation_faults, karmada::cluster::Cluster, placement,
    tenancy::NamespaceFacts,
};
use k8s_openapi::{
    api::{core::v1::Namespace, scheduling::v1::PriorityClass},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// A PriorityClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFacts {
    /// Name.
    pub name: String,
    /// Value.
    pub value: i32,
    /// For pods that name none.
    pub default: bool,
    /// `preemptionPolicy: Never`.
    pub never_preempts: bool,
}

impl ClassFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &PriorityClass) -> Self {
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            value: object.value,
            default: object.global_default == Some(true),
            never_preempts: object.preemption_policy.as_deref() == Some("Never"),
        }
    }
}

/// A member cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterFacts {
    /// As placement sees it.
    pub cluster: place::Cluster,
    /// What Karmada's summary says is free, for want of better.
    pub summary: Capacity,
    /// Whether it is there.
    pub presence: Presence,
    /// What an admin last did to it, and who.
    pub acted: Option<Box<Action>>,
    /// UID.
    pub uid: String,
    /// Annotations of ours that count for nothing, each with why.
    pub faults: Vec<String>,
}

impl ClusterFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &Cluster) -> Self {
        Self {
            cluster: placement::read_cluster(object),
            summary: placement::read_summary_capacity(object.status.as_ref()),
            presence: Presence::read(object),
            acted: read_action(&object.metadata),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            faults: list_annotation_faults(object.metadata.annotations.as_ref()),
        }
    }
}

/// What the stamps of an object say.
pub(super) fn read_action(metadata: &ObjectMeta) -> Option<Box<Action>> {
    let annotations = metadata.annotations.as_ref()?;
    Action::read(|name| annotations.get(name).map(String::as_str)).map(Box::new)
}

/// The name of a namespace, and what matters of it.
pub(crate) fn read_namespace(namespace: &Namespace) -> (String, NamespaceFacts) {
    (namespace.metadata.name.clone().unwrap_or_default(), NamespaceFacts::read(&namespace.metadata))
}
