//! Override rules, which edit manifests for some clusters (`policy.karmada.io/v1alpha1`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    karmada::placement::ClusterAffinity,
    karmada::resource_selector::ResourceSelector,
    schema::any,
    wire::{api_types, null_is_default, object},
};

object! {
    /// Edits of the manifests of one namespace.
    OverridePolicy, "policy.karmada.io", "v1alpha1", "overridepolicies", NamespaceResourceScope
    { spec: OverrideSpec } {  }
}
object! {
    /// Edits of the manifests of every namespace and of cluster-wide objects.
    ClusterOverridePolicy, "policy.karmada.io", "v1alpha1", "clusteroverridepolicies", ClusterResourceScope
    { spec: OverrideSpec } {  }
}

api_types! {
    /// Edits labels or annotations.
    pub struct LabelAnnotationOverrider {
        #[schemars(extend("enum" = ["add", "remove", "replace"]))]
        pub operator: String,
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        pub value: BTreeMap<String, String>,
    }

    /// Edits a container's command or arguments.
    pub struct CommandArgsOverrider {
        pub container_name: String,
        #[schemars(extend("enum" = ["add", "remove"]))]
        pub operator: String,
        pub value: Vec<String>,
    }

    /// One edit of such a document.
    pub struct PatchOperation {
        #[schemars(extend("enum" = ["add", "remove", "replace"]))]
        pub operator: String,
        pub sub_path: String,
        #[schemars(schema_with = "any")]
        pub value: Option<Value>,
    }

    /// Edits a document inside a field.
    pub struct FieldOverrider {
        pub field_path: String,
        pub json: Vec<PatchOperation>,
        pub yaml: Vec<PatchOperation>,
    }

    /// Which image field.
    pub struct ImagePredicate {
        pub path: String,
    }

    /// Edits images.
    pub struct ImageOverrider {
        #[schemars(extend("enum" = ["Registry", "Repository", "Tag"]))]
        pub component: String,
        #[schemars(extend("enum" = ["add", "remove", "replace"]))]
        pub operator: String,
        pub predicate: Option<ImagePredicate>,
        pub value: Option<String>,
    }

    /// Edits any field.
    pub struct PlaintextOverrider {
        #[schemars(extend("enum" = ["add", "remove", "replace"]))]
        pub operator: String,
        pub path: String,
        #[schemars(schema_with = "any")]
        pub value: Option<Value>,
    }

    /// Edits of a manifest.
    pub struct Overriders {
        pub annotations_overrider: Vec<LabelAnnotationOverrider>,
        pub args_overrider: Vec<CommandArgsOverrider>,
        pub command_overrider: Vec<CommandArgsOverrider>,
        pub field_overrider: Vec<FieldOverrider>,
        pub image_overrider: Vec<ImageOverrider>,
        pub labels_overrider: Vec<LabelAnnotationOverrider>,
        pub plaintext: Vec<PlaintextOverrider>,
    }

    /// Edits for some clusters.
    pub struct RuleWithCluster {
        pub overriders: Overriders,
        /// Which clusters.
        pub target_cluster: Option<ClusterAffinity>,
    }

    /// Spec of an OverridePolicy and of its cluster-wide twin.
    pub struct OverrideSpec {
        pub override_rules: Vec<RuleWithCluster>,
        pub overriders: Option<Overriders>,
        /// What the policy selects.
        pub resource_selectors: Vec<ResourceSelector>,
        /// Which clusters.
        pub target_cluster: Option<ClusterAffinity>,
    }
}
