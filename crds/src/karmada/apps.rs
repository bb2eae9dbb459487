//! `apps.karmada.io/v1alpha1`: WorkloadRebalancer, which asks for a fresh schedule.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::wire::{api_types, null_is_default, object};

object! {
    /// Asks for a fresh schedule of some workloads.
    WorkloadRebalancer, "apps.karmada.io", "v1alpha1", "workloadrebalancers", ClusterResourceScope
    { spec: WorkloadRebalancerSpec } { status: WorkloadRebalancerStatus }
}

api_types! {
    /// One workload.
    pub struct WorkloadReference {
        pub api_version: String,
        pub kind: String,
        pub name: String,
        pub namespace: Option<String>,
    }

    /// Workloads to be scheduled afresh.
    pub struct WorkloadRebalancerSpec {
        /// How long it is kept once finished.
        pub ttl_seconds_after_finished: Option<i32>,
        #[serde(deserialize_with = "null_is_default")]
        #[serde_with(skip_apply)]
        #[schemars(extend("minItems" = 1))]
        pub workloads: Vec<WorkloadReference>,
    }

    /// One workload and its result.
    pub struct ObservedWorkload {
        pub reason: Option<String>,
        pub result: Option<String>,
        /// What to apply.
        pub workload: WorkloadReference,
    }

    /// What became of it.
    pub struct WorkloadRebalancerStatus {
        pub finish_time: Option<Time>,
        pub observed_generation: Option<i64>,
        pub observed_workloads: Vec<ObservedWorkload>,
    }
}
