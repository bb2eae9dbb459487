//! `datadependency.volcano.sh/v1alpha1`: DataSource and DataSourceClaim.
//!
//! Rule: fields and words are those of volcano-global (`docs/deploy/crds` there). Beyond its schema: texts that are
//! needed are not empty, words are from a list, and lists and maps are bounded.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};

use crate::wire::{api_types, object, words};

words! {
    /// What becomes of a source when its last claim is gone.
    ReclaimPolicy { Retain = "Retain", Delete = "Delete", }
}
words! {
    /// How far a claim is.
    ClaimPhase { Pending = "Pending", Bound = "Bound", }
}
object! {
    /// Some data, and the clusters that have it.
    DataSource, "datadependency.volcano.sh", "v1alpha1", "datasources", ClusterResourceScope
    { spec: DataSourceSpec } { status: DataSourceStatus }
}
object! {
    /// Some data that a workload needs.
    DataSourceClaim, "datadependency.volcano.sh", "v1alpha1", "datasourceclaims", NamespaceResourceScope
    { spec: DataSourceClaimSpec } { status: DataSourceClaimStatus }
}

api_types! {
    /// Where the data is.
    pub struct Locality {
        /// Clusters that have it.
        #[schemars(extend("maxItems" = 5000))]
        #[serde_with(skip_apply)]
        #[serde(deserialize_with = "crate::wire::null_is_default")]
        pub cluster_names: Vec<String>,
    }

    /// Which data, and where it is.
    pub struct DataSourceSpec {
        /// What else tells it from other data: a claim has the same.
        #[schemars(extend("maxProperties" = 64))]
        pub attributes: BTreeMap<String, String>,
        /// Where it is.
        pub locality: Locality,
        /// Its name in the system.
        #[schemars(extend("minLength" = 1, "maxLength" = 1024))]
        pub name: String,
        /// What becomes of the object when its last claim is gone: `Retain` if absent.
        pub reclaim_policy: Option<ReclaimPolicy>,
        /// Where it is kept: `hive`, `s3`.
        #[schemars(extend("minLength" = 1, "maxLength" = 1024))]
        pub system: String,
        /// What it is there: `table`, `bucket`.
        #[schemars(extend("minLength" = 1, "maxLength" = 1024))]
        #[serde(rename = "type")]
        pub type_: String,
    }

    /// Who uses it.
    pub struct DataSourceStatus {
        /// Claims that are bound to it.
        pub bound_claims: Option<i32>,
        /// The first of them.
        pub claim_refs: Vec<ObjectReference>,
        /// What is the case, and since when.
        pub conditions: Vec<Condition>,
    }

    /// A workload, by its name.
    pub struct ClaimingWorkload {
        /// Its group and version.
        #[schemars(extend("minLength" = 1, "maxLength" = 317))]
        pub api_version: String,
        /// Its kind.
        #[schemars(extend("minLength" = 1, "maxLength" = 63))]
        pub kind: String,
        /// Its name.
        #[schemars(extend("minLength" = 1, "maxLength" = 253))]
        pub name: String,
        /// The claim's own if absent; a claim for a workload of another one is never bound.
        #[schemars(extend("maxLength" = 63))]
        pub namespace: Option<String>,
    }

    /// Which data, and who needs it.
    pub struct DataSourceClaimSpec {
        /// What else tells it from other data: its source has the same.
        #[schemars(extend("maxProperties" = 64))]
        pub attributes: BTreeMap<String, String>,
        /// Its name in the system.
        #[schemars(extend("minLength" = 1, "maxLength" = 1024))]
        pub data_source_name: String,
        /// What it is there: `table`, `bucket`.
        #[schemars(extend("minLength" = 1, "maxLength" = 1024))]
        pub data_source_type: String,
        /// Where it is kept: `hive`, `s3`.
        #[schemars(extend("minLength" = 1, "maxLength" = 1024))]
        pub system: String,
        /// Who needs it.
        pub workload: ClaimingWorkload,
    }

    /// How far it is.
    pub struct DataSourceClaimStatus {
        /// The source that it is bound to.
        pub bound_data_source: Option<String>,
        /// What is the case, and since when.
        pub conditions: Vec<Condition>,
        /// Bound, or Pending while there is no source.
        #[schemars(extend("default" = "Pending"))]
        pub phase: Option<ClaimPhase>,
    }
}
