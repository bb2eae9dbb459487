//! Names that Karmada gives to what it makes, and the labels, annotations and finalizers it recognises things by.
//!
//! Rule: Karmada `pkg/util/names/names.go`, `pkg/apis/work/v1alpha2/well_known_constants.go`.

use caldera_crds::karmada::work::hash_to_safe_letters;
pub use caldera_crds::karmada::work::work_name;

/// Label: this member object belongs to Karmada.
pub const MANAGED: &str = "karmada.io/managed";
/// Finalizer of a Work.
pub const EXECUTION_FINALIZER: &str = "karmada.io/execution-controller";
/// Finalizer of a ResourceBinding.
pub const BINDING_FINALIZER: &str = "karmada.io/binding-controller";
/// Finalizer of a ClusterResourceBinding.
pub const CLUSTER_BINDING_FINALIZER: &str = "karmada.io/cluster-resource-binding-controller";
/// Finalizer of a Cluster.
pub const CLUSTER_FINALIZER: &str = "karmada.io/cluster-controller";
/// Finalizer of a PropagationPolicy.
pub const POLICY_FINALIZER: &str = "karmada.io/propagation-policy-controller";
/// Finalizer of a ClusterPropagationPolicy.
pub const CLUSTER_POLICY_FINALIZER: &str = "karmada.io/cluster-propagation-policy-controller";
/// Label: permanent id of a PropagationPolicy, on it and on what it claims.
pub const POLICY_ID: &str = "propagationpolicy.karmada.io/permanent-id";
/// Annotation: the claiming PropagationPolicy.
pub const POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
/// Annotation: the claiming PropagationPolicy.
pub const POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
/// Label: permanent id of a ClusterPropagationPolicy.
pub const CLUSTER_POLICY_ID: &str = "clusterpropagationpolicy.karmada.io/permanent-id";
/// Annotation: the claiming ClusterPropagationPolicy.
pub const CLUSTER_POLICY_NAME: &str = "clusterpropagationpolicy.karmada.io/name";
/// Label: permanent id of a ResourceBinding, on it, its Works and their manifests.
pub const BINDING_ID: &str = "resourcebinding.karmada.io/permanent-id";
/// Label: permanent id of a ClusterResourceBinding.
pub const CLUSTER_BINDING_ID: &str = "clusterresourcebinding.karmada.io/permanent-id";
/// Annotation: the ResourceBinding of a Work.
pub const BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
/// Annotation: the ResourceBinding of a Work.
pub const BINDING_NAME: &str = "resourcebinding.karmada.io/name";
/// Annotation: the ClusterResourceBinding of a Work.
pub const CLUSTER_BINDING_NAME: &str = "clusterresourcebinding.karmada.io/name";
/// Annotation on an independent binding: what it depends on (JSON).
pub const BINDING_DEPENDENCIES: &str = "resourcebinding.karmada.io/dependencies";
/// Prefix of the label on an attached binding: who needs it.
pub const DEPENDED_BY: &str = "resourcebinding.karmada.io/depended-by-";
/// Label: a binding that is managed by something other than a policy.
pub const BINDING_MANAGED_BY: &str = "binding.karmada.io/managed-by";
/// Label: permanent id of a Work.
pub const WORK_ID: &str = "work.karmada.io/permanent-id";
/// Annotation on a member object: its Work.
pub const WORK_NAME: &str = "work.karmada.io/name";
/// Annotation on a member object: its Work.
pub const WORK_NAMESPACE: &str = "work.karmada.io/namespace";
/// Annotation: `abort` or `overwrite`.
pub const CONFLICT_RESOLUTION: &str = "work.karmada.io/conflict-resolution";
/// Annotation: the template's generation.
pub const TEMPLATE_GENERATION: &str = "resourcetemplate.karmada.io/generation";
/// Annotation: the template's uid.
pub const TEMPLATE_UID: &str = "resourcetemplate.karmada.io/uid";
/// Annotation: which annotations came from the template.
pub const MANAGED_ANNOTATIONS: &str = "resourcetemplate.karmada.io/managed-annotations";
/// Annotation: which labels came from the template.
pub const MANAGED_LABELS: &str = "resourcetemplate.karmada.io/managed-labels";
/// Label on a template: another controller than the detector looks after it.
pub const TEMPLATE_CLAIMED_BY: &str = "resourcetemplate.karmada.io/claimed-by";
/// Label: the member keeps its own replica count.
pub const RETAIN_REPLICAS: &str = "resourcetemplate.karmada.io/retain-replicas";
/// Annotation of a Work: overrides that were applied.
pub const APPLIED_OVERRIDES: &str = "policy.karmada.io/applied-overrides";
/// Annotation of a Work: cluster overrides that were applied.
pub const APPLIED_CLUSTER_OVERRIDES: &str = "policy.karmada.io/applied-cluster-overrides";
/// Annotation of a binding: the placement its clusters were chosen for.
pub const APPLIED_PLACEMENT: &str = "policy.karmada.io/applied-placement";
/// Where Karmada keeps members' tokens.
pub const CLUSTER_NAMESPACE: &str = "karmada-cluster";

const EXECUTION_PREFIX: &str = "karmada-es-";

/// The namespace of a member's Works.
#[must_use]
pub fn execution_namespace(cluster: &str) -> String {
    format!("{EXECUTION_PREFIX}{cluster}")
}

/// The member whose Works are in this namespace.
#[must_use]
pub fn cluster_of(execution_namespace: &str) -> Option<&str> {
    execution_namespace.strip_prefix(EXECUTION_PREFIX)
}

/// The binding of a template. By kind only: two groups' `Job x` collide.
#[must_use]
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{name}-{kind}").replace(':', ".").to_lowercase()
}

/// The suffix of [`DEPENDED_BY`] for a binding.
#[must_use]
pub fn binding_reference_key(namespace: &str, name: &str) -> String {
    hash_to_safe_letters(&if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") })
}

/// Namespaces that no policy reaches.
#[must_use]
pub fn reserved_namespace(namespace: &str) -> bool {
    namespace == "karmada-system"
        || namespace == CLUSTER_NAMESPACE
        || namespace.starts_with(EXECUTION_PREFIX)
        || namespace.starts_with("kube-")
}

/// 32-bit FNV-1a, which also breaks ties in Karmada's division.
#[must_use]
pub fn fnv32a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_is_named_after_its_template_and_a_hash_of_namespace_name_and_kind() {
        assert_eq!(work_name("Job", "train", "default"), "train-67d97fdb79");
    }

    #[test]
    fn a_binding_is_named_after_kind_alone() {
        assert_eq!(binding_name("Job", "Train:1"), "train.1-job");
    }

    #[test]
    fn reserved_namespaces_are_not_propagated() {
        assert!(reserved_namespace("karmada-es-m1") && reserved_namespace("kube-system"));
        assert!(!reserved_namespace("default"));
    }
}
