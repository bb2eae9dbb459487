//! Which templates a policy selects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::wire::api_types;

api_types! {
    /// Selects templates.
    pub struct ResourceSelector {
        /// `group/version`.
        pub api_version: String,
        /// Kind.
        pub kind: String,
        /// By label.
        pub label_selector: Option<LabelSelector>,
        /// By name.
        pub name: Option<String>,
        /// In this namespace.
        pub namespace: Option<String>,
    }
}
