//! InterpretStatus, AggregateStatus and InterpretHealth: the status of a copy, those of all copies of a job as one, and
//! whether a copy is healthy.
//!
//! Rule of the first: Volcano 1.11 and later forget how many pods succeeded, and `taskStatusCount`, as soon as they
//! have ended a job (`killPods` in `pkg/controllers/job/job_controller_actions.go`, volcano#4616). A Completed copy
//! without counts did what it was there for: all pods that its share gave it count as succeeded. Otherwise a part that
//! ended first would be missed by the gang that still runs, and stay charged with it.

use std::collections::BTreeMap;

use caldera_core::{
    gang::ClusterName,
    status::{JobStatus, MemberStatus, Phase, Template, merge_statuses},
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

impl ClusterStatus {
    /// The copy of its cluster has ended.
    pub fn has_ended(&self) -> bool {
        let phase = self.status.as_ref().and_then(|status| status.pointer("/state/phase"));
        phase.and_then(|phase| serde_json::from_value::<Phase>(phase.clone()).ok()).is_some_and(Phase::has_ended)
    }
}

/// AggregateStatus: the job with the merged status. Clusters that hold a share and have not reported yet count as
/// silent, so that a job is not complete because only one cluster has reported.
pub fn aggregate_status(job: &Value, items: &[ClusterStatus], binding: Option<&CachedBinding>) -> Value {
    let read = |status: &Value| serde_json::from_value::<JobStatus>(status.clone()).ok();
    let mut members: BTreeMap<ClusterName, MemberStatus> = BTreeMap::new();
    // A batch Job of the same name has a binding of the same name.
    let binding = binding.filter(|binding| binding.resource.0.starts_with("batch.volcano.sh/"));
    let plan = binding.and_then(|binding| binding.plan.as_ref()?.as_ref().ok());
    for cluster in binding.into_iter().flat_map(|binding| binding.clusters.keys()) {
        members.insert(cluster.as_str().into(), MemberStatus::default());
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
        let is_old =
            |b: &CachedBinding| !b.clusters.contains_key(cluster.as_str()) && !b.held_in.contains(cluster.as_str());
        if let Some(status) = member.status.as_mut()
            && binding.is_some_and(is_old)
        {
            // What restarted it as a whole is counted on the binding by then.
            status.retry_count = 0;
        }
    }
    let previous = job.get("status").and_then(read).unwrap_or_default();
    let number = |pointer: &str| job.pointer(pointer).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let gang_minimum = caldera_crds::workload::read_gang(job).map(|gang| gang.min_available);
    let is_split = binding.is_some_and(is_split_or_restarts);
    let restarts = is_split && caldera_crds::workload::restarts_when_a_pod_fails(job);
    let template = Template {
        min_available: gang_minimum.ok().or_else(|| number("/spec/minAvailable")).unwrap_or_default(),
        min_success: number("/spec/minSuccess").filter(|_| is_split),
        restarts: binding.map_or(0, |binding| binding.restarts),
        restarts_failed_copies: restarts.then(|| caldera_crds::workload::read_max_retry(job)),
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

/// Whether it is one job in several clusters, or leaves them to restart: its old copies still tell how they ended, and
/// so do those that are left in lost clusters. Each copy of a duplicated job is a job of its own.
fn is_split_or_restarts(binding: &CachedBinding) -> bool {
    if binding.clusters.is_empty() {
        return binding.restarts > 0 || binding.held_in.len() > 1;
    }
    let is_duplicated = binding.admission.as_ref().is_some_and(|record| record.copies > 1);
    let plan = binding.plan.as_ref().and_then(|plan| plan.as_ref().ok());
    !is_duplicated && plan.is_some_and(|plan| plan.is_split())
}

/// InterpretStatus: the status of a member's copy, with the counts that its Volcano forgot when it completed.
pub fn restore_forgotten_counts(copy: &Value) -> Value {
    let mut status = copy.get("status").cloned().unwrap_or_else(|| json!({}));
    let forgot =
        serde_json::from_value::<JobStatus>(status.clone()).is_ok_and(|status| has_forgotten_its_pods(&status));
    if !forgot {
        return status;
    }
    let tasks = copy.pointer("/spec/tasks").and_then(Value::as_array).into_iter().flatten();
    let pods = |task: &Value| Some((task.get("name")?.as_str()?.to_owned(), task.get("replicas")?.as_u64()?));
    let pods: Vec<(String, u64)> = tasks.filter_map(pods).filter(|(_, replicas)| *replicas > 0).collect();
    status["succeeded"] = pods.iter().fold(0, |sum: u64, (_, replicas)| sum.saturating_add(*replicas)).into();
    status["taskStatusCount"] =
        pods.into_iter().map(|(task, replicas)| (task, json!({"phase": {"Succeeded": replicas}}))).collect();
    status
}

/// Whether it has completed, nothing of it is left on nodes, and its Volcano says of no pod what became of it.
fn has_forgotten_its_pods(status: &JobStatus) -> bool {
    let counts = [status.pending, status.running, status.succeeded, status.failed, status.terminating, status.unknown];
    status.state.phase == Some(Phase::Completed)
        && counts.iter().all(|pods| *pods == 0)
        && status.task_status_count.values().all(|task| task.phase.values().all(|pods| *pods == 0))
}

/// InterpretHealth: a copy is healthy while it does its work. One that waits for its gang, or that its Volcano has not
/// looked at, is not: a graceful eviction waits for it, and a failover that the user asked for can move it.
pub fn is_healthy(job: &Value) -> bool {
    let phase =
        job.pointer("/status/state/phase").and_then(|phase| serde_json::from_value::<Phase>(phase.clone()).ok());
    phase.is_some_and(Phase::is_healthy)
}
