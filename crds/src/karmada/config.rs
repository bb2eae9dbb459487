//! `config.karmada.io/v1alpha1`: who explains a kind to Karmada, and how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::{null_is_default, object};

pub use super::interpreter::*;

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

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceReference {
    pub name: String,
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// Where it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookClientConfig {
    /// PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "byte"))]
    pub ca_bundle: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// What it is asked about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleWithOperations {
    #[serde(deserialize_with = "null_is_default")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub api_versions: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub kinds: Vec<String>,
    /// Of the interpreter; `*` is all.
    #[serde(deserialize_with = "null_is_default")]
    pub operations: Vec<String>,
}

/// One webhook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInterpreterWebhook {
    /// Where it is.
    pub client_config: WebhookClientConfig,
    /// Versions it speaks.
    #[serde(deserialize_with = "null_is_default")]
    pub interpreter_context_versions: Vec<String>,
    pub name: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleWithOperations>,
    /// 1 to 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
}

/// A script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LuaScript {
    /// The script.
    pub lua_script: String,
}

/// One script per operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationRules {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component_resource: Option<LuaScript>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency_interpretation: Option<LuaScript>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_interpretation: Option<LuaScript>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_resource: Option<LuaScript>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_revision: Option<LuaScript>,
    /// What to keep of the member's object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<LuaScript>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_aggregation: Option<LuaScript>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_reflection: Option<LuaScript>,
}

/// The kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationTarget {
    pub api_version: String,
    pub kind: String,
}

/// Scripts that explain one kind to Karmada.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInterpreterCustomizationSpec {
    pub customizations: CustomizationRules,
    /// To which object, by UID.
    pub target: CustomizationTarget,
}
