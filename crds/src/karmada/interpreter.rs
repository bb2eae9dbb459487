//! Requests to and responses of a resource interpreter webhook (`config.karmada.io/v1alpha1`
//! `ResourceInterpreterContext`, POSTed as JSON).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::{
    karmada::work::{AggregatedStatusItem, Component, ReplicaRequirements},
    wire::{api_types, null_is_default, words},
};

/// `apiVersion` of a context.
pub const API_VERSION: &str = "config.karmada.io/v1alpha1";
/// `kind` of a context.
pub const KIND: &str = "ResourceInterpreterContext";

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

api_types! {
    /// A question, or an answer.
    #[serde(default)]
    pub struct ResourceInterpreterContext {
        /// [`API_VERSION`].
        pub api_version: String,
        /// [`KIND`].
        pub kind: String,
        /// In the question.
        pub request: Option<ResourceInterpreterRequest>,
        /// In the answer.
        pub response: Option<ResourceInterpreterResponse>,
    }

    /// A question about one object.
    #[serde(default)]
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
        pub observed_object: Option<Value>,
        /// ReviseReplica: the new number. Karmada sends a zero with every other operation.
        #[serde(rename = "replicas")]
        pub desired_replicas: Option<i64>,
        /// AggregateStatus: the status in each cluster.
        pub aggregated_status: Vec<AggregatedStatusItem>,
    }

    /// A kind.
    #[serde(default)]
    pub struct InterpretedKind {
        /// Group, empty for core.
        pub group: String,
        /// Version.
        pub version: String,
        /// Kind.
        pub kind: String,
    }

    /// An answer; which fields are needed depends on the operation.
    #[serde(default)]
    pub struct ResourceInterpreterResponse {
        /// The question's.
        pub uid: String,
        /// False with a `status` is a failure; Karmada tries again.
        pub successful: bool,
        /// Why it failed.
        pub status: Option<RequestStatus>,
        /// Base64 of a JSON patch. Without it and `patch_type` nothing changes.
        pub patch: Option<String>,
        /// `JSONPatch` wherever there is a patch.
        pub patch_type: Option<String>,
        /// InterpretReplica: what one replica needs.
        pub replica_requirements: Option<ReplicaRequirements>,
        /// InterpretReplica: how many.
        pub replicas: Option<i32>,
        /// InterpretComponent: by pod template.
        pub components: Vec<Component>,
        /// InterpretDependency: what else must go along.
        pub dependencies: Vec<DependentObjectReference>,
        /// InterpretStatus: what to carry to the host.
        pub raw_status: Option<Value>,
        /// InterpretHealth.
        pub healthy: Option<bool>,
    }

    /// Why a question could not be answered.
    #[serde(default)]
    pub struct RequestStatus {
        /// A sentence.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// As of HTTP.
        pub code: i32,
    }

    /// An object that must go along.
    #[serde(default)]
    pub struct DependentObjectReference {
        /// `group/version`.
        pub api_version: String,
        /// Kind.
        pub kind: String,
        /// Namespace, if it has one.
        pub namespace: Option<String>,
        /// Name, or a selector.
        pub name: Option<String>,
        /// Selector, or a name.
        pub label_selector: Option<LabelSelector>,
    }
}
