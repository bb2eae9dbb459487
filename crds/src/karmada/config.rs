//! `config.karmada.io/v1alpha1`: resource interpreters, as webhooks or as Lua scripts.

use crate::wire::{api_types, null_is_default, object};

object! {
    /// Webhooks that explain kinds to Karmada.
    ResourceInterpreterWebhookConfiguration, "config.karmada.io", "v1alpha1", "resourceinterpreterwebhookconfigurations", ClusterResourceScope
    { webhooks: Vec<ResourceInterpreterWebhook> } {  }
}
object! {
    /// Scripts that explain one kind to Karmada.
    ResourceInterpreterCustomization, "config.karmada.io", "v1alpha1", "resourceinterpretercustomizations", ClusterResourceScope
    { spec: ResourceInterpreterCustomizationSpec } {  }
}

api_types! {
    /// A Service.
    pub struct ServiceReference {
        pub name: String,
        pub namespace: String,
        pub path: Option<String>,
        pub port: Option<i32>,
    }

    /// Where it is.
    pub struct WebhookClientConfig {
        /// PEM.
        #[schemars(extend("format" = "byte"))]
        pub ca_bundle: Option<String>,
        pub service: Option<ServiceReference>,
        pub url: Option<String>,
    }

    /// What it is asked about.
    pub struct RuleWithOperations {
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        pub api_groups: Vec<String>,
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        pub api_versions: Vec<String>,
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        pub kinds: Vec<String>,
        /// Of the interpreter; `*` is all.
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        pub operations: Vec<String>,
    }

    /// One webhook.
    pub struct ResourceInterpreterWebhook {
        /// Where it is.
        pub client_config: WebhookClientConfig,
        /// Versions it speaks.
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        pub interpreter_context_versions: Vec<String>,
        pub name: String,
        pub rules: Vec<RuleWithOperations>,
        /// 1 to 30.
        pub timeout_seconds: Option<i32>,
    }

    /// A script.
    pub struct LuaScript {
        /// The script.
        pub lua_script: String,
    }

    /// One script per operation.
    pub struct CustomizationRules {
        pub component_resource: Option<LuaScript>,
        pub dependency_interpretation: Option<LuaScript>,
        pub health_interpretation: Option<LuaScript>,
        pub replica_resource: Option<LuaScript>,
        pub replica_revision: Option<LuaScript>,
        /// What to keep of the member's object.
        pub retention: Option<LuaScript>,
        pub status_aggregation: Option<LuaScript>,
        pub status_reflection: Option<LuaScript>,
    }

    /// The kind.
    pub struct CustomizationTarget {
        pub api_version: String,
        pub kind: String,
    }

    /// Scripts that explain one kind to Karmada.
    pub struct ResourceInterpreterCustomizationSpec {
        pub customizations: CustomizationRules,
        /// To which object, by UID.
        pub target: CustomizationTarget,
    }
}
