//! What Karmada asks a resource interpreter webhook, and what it takes for an answer
//! (`config.karmada.io/v1alpha1` `ResourceInterpreterContext`, POSTed as JSON).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    karmada::work::{AggregatedStatusItem, Component, ReplicaRequirements},
    wire::{null_is_default, words},
};

/// `apiVersion` of a context.
pub const API_VERSION: &str = "config.karmada.io/v1alpha1";
/// `kind` of a context.
pub const KIND: &str = "ResourceInterpreterContext";
/// The only `patchType`.
pub const JSON_PATCH: &str = "JSONPatch";

words! {
    /// What is asked.
    InterpreterOperation {
        InterpretReplica = "InterpretReplica",
        InterpretComponent = "InterpretComponent",
        ReviseReplica = "ReviseReplica",
        InterpretStatus = "InterpretStatus",
        Retain = "Retain",
        AggregateStatus = "AggregateStatus",
        InterpretHealth = "InterpretHealth",
        InterpretDependency = "InterpretDependency",
    }
}

/// A question, or an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceInterpreterContext {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`KIND`].
    pub kind: String,
    /// In the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<ResourceInterpreterRequest>,
    /// In the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<ResourceInterpreterResponse>,
}

/// A question about one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceInterpreterRequest {
    /// To be repeated in the answer.
    pub uid: String,
    /// The object's kind.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: InterpretedKind,
    /// The object's name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The object's namespace, if it has one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// What is asked.
    pub operation: InterpreterOperation,
    /// The object: the template, or the one in the member for InterpretStatus and InterpretHealth.
    pub object: Value,
    /// Retain: the one in the member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_object: Option<Value>,
    /// ReviseReplica: the new number. Karmada sends a zero with every other operation.
    #[serde(rename = "replicas", skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i64>,
    /// AggregateStatus: the status in each cluster.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub aggregated_status: Vec<AggregatedStatusItem>,
}

/// A kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InterpretedKind {
    /// Group, empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// An answer; which fields are needed depends on the operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceInterpreterResponse {
    /// The question's.
    pub uid: String,
    /// False with a `status` is a failure; Karmada tries again.
    pub successful: bool,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<RequestStatus>,
    /// Base64 of a JSON patch. Without it and `patch_type` nothing changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// [`JSON_PATCH`] wherever there is a patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_type: Option<String>,
    /// InterpretReplica: what one replica needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<ReplicaRequirements>,
    /// InterpretReplica: how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// InterpretComponent: by pod template.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Component>,
    /// InterpretDependency: what else must go along.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependentObjectReference>,
    /// InterpretStatus: what to carry to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_status: Option<Value>,
    /// InterpretHealth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
}

/// Why a question could not be answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestStatus {
    /// A sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// As of HTTP.
    pub code: i32,
}

/// An object that must go along.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DependentObjectReference {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name, or a selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Selector, or a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}
