//! AggregateStatus and InterpretHealth: the statuses of all copies of a job as one, and whether a copy is healthy.

use std::collections::BTreeMap;

use caldera_core::{
    gang::ClusterName,
    status::{JobStatus, Member, Phase, Template, merge_statuses},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::observe::cache::CachedBinding;

/// `aggregatedStatus[*]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    cluster_name: String,
    #[serde(default)]
    status: Option<Value>,
}

/// AggregateStatus: the job with the merged status. Clusters that hold a share and have not reported yet count as
/// silent, so that a job is not complete because only one cluster has reported.
pub fn aggregate_status(job: &Value, items: &[ClusterStatus], binding: Option<&CachedBinding>) -> Value {
    let read = |status: &Value| serde_json::from_value::<JobStatus>(status.clone()).ok();
    let mut members: BTreeMap<ClusterName, Member> = BTreeMap::new();
    // A batch Job of the same name has a binding of the same name.
    let binding = binding.filter(|binding| binding.resource.0.starts_with("batch.volcano.sh/"));
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
        // A copy that is being left still counts, but the gang does not need it.
        let left = binding.is_some_and(|b| !b.clusters.is_empty() && !b.clusters.contains_key(cluster.as_str()));
        let share = plan.and_then(|plan| plan.clusters.get(cluster)).map(|share| share.min_available);
        member.share_minimum = if left { Some(0) } else { share };
    }
    let previous = job.get("status").and_then(read).unwrap_or_default();
    let number = |pointer: &str| job.pointer(pointer).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let gang_minimum = caldera_crds::workload::read_gang(job).map(|gang| gang.min_available);
    let template = Template {
        min_available: gang_minimum.ok().or_else(|| number("/spec/minAvailable")).unwrap_or_default(),
        min_success: number("/spec/minSuccess"),
    };
    let merged = merge_statuses(template, &previous, &members);
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

/// InterpretHealth: a copy is healthy while it does its work. One that waits for its gang, or that its Volcano has not
/// looked at, is not: a graceful eviction waits for it, and a failover that the user asked for can move it.
pub fn is_healthy(job: &Value) -> bool {
    let phase =
        job.pointer("/status/state/phase").and_then(|phase| serde_json::from_value::<Phase>(phase.clone()).ok());
    phase.is_some_and(Phase::is_healthy)
}
