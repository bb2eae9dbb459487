//! What members say of a job, as one status; and whether a copy is healthy.

use std::collections::BTreeMap;

use caldera_core::{
    gang::ClusterName,
    status::{JobStatus, Member, Template, merge},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::index::Binding;

/// `aggregatedStatus[*]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    cluster_name: String,
    #[serde(default)]
    status: Option<Value>,
}

/// AggregateStatus: the job with the merged status. Clusters that hold a share and said nothing yet count as silent, so
/// that a job is not complete because only one cluster has spoken.
pub fn aggregate(job: &Value, items: &[Item], binding: Option<&Binding>) -> Value {
    let read = |status: &Value| serde_json::from_value::<JobStatus>(status.clone()).ok();
    let mut members: BTreeMap<ClusterName, Member> = BTreeMap::new();
    let plan = binding.and_then(|binding| binding.plan.as_ref()?.as_ref().ok());
    for cluster in binding.into_iter().flat_map(|binding| binding.clusters.keys()) {
        members.insert(cluster.as_str().into(), Member::default());
    }
    for item in items {
        let member = members.entry(item.cluster_name.as_str().into()).or_default();
        member.status =
            item.status.as_ref().filter(|status| status.as_object().is_some_and(|s| !s.is_empty())).and_then(read);
    }
    for (cluster, member) in &mut members {
        member.share_minimum = plan.and_then(|plan| plan.clusters.get(cluster)).map(|share| share.min_available);
    }
    let previous = job.get("status").and_then(read).unwrap_or_default();
    let number = |pointer: &str| job.pointer(pointer).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let gang_minimum = caldera_crds::workload::gang(job).map(|gang| gang.min_available);
    let template = Template {
        min_available: gang_minimum.ok().or_else(|| number("/spec/minAvailable")).unwrap_or_default(),
        min_success: number("/spec/minSuccess"),
    };
    let merged = merge(template, &previous, &members);
    let mut aggregated = job.clone();
    if let Ok(mut status) = serde_json::to_value(&merged) {
        // An empty state is no statement: leave what is absent absent.
        if status.get("state") == Some(&json!({})) && job.pointer("/status/state").is_none() {
            status.as_object_mut().map(|status| status.remove("state"));
        }
        if status != json!({}) || job.get("status").is_some() {
            aggregated["status"] = status;
        }
    }
    aggregated
}

/// InterpretHealth. A copy that has no status yet is on its way, not ill: Karmada's failover waits for `Unhealthy`.
pub fn is_healthy(job: &Value) -> bool {
    let phase = job.pointer("/status/state/phase").and_then(Value::as_str);
    !matches!(phase, Some("Failed" | "Aborted" | "Aborting" | "Terminated" | "Terminating"))
}
