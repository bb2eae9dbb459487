//! What a workload's PodGroup on the host should be: spec by Volcano's rules, status by where its binding stands.
//!
//! Rule: Volcano's job controller (`pkg/controllers/job/job_controller_actions.go:796-968`, `1086-1158`): minMember,
//! minTaskMember, minResources, queue, priorityClassName, networkTopology, and a sub-group policy for each partitioned
//! task. Phases: Pending until the gate opens, Inqueue until the minimum runs, Running, Completed
//! (`framework/session.go:581-614`). Its name is `observe::pod_group`'s.

use std::collections::BTreeMap;

use caldera_core::{
    gang::{ClusterName, Gang, Task, Topology},
    pod_group::compute_pod_group_minimum,
    queue::ledger::AdmissionStage,
    reason::Reason,
    resources::Resources,
    text::name_some,
};
use caldera_crds::{
    names::{caldera, volcano},
    volcano::{
        batch::{NetworkTopologyMode, NetworkTopologySpec},
        scheduling::{PodGroupSpec, SubGroupPolicySpec},
    },
    wire::ResourceList,
    workload::WorkloadKind,
};
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::LabelSelector};
use serde_json::{Value, json};

use crate::observe::{Key, PodGroupStatus, Workload, fingerprint};

/// The label that Volcano gives the pods of one partition.
const PARTITION: &str = "volcano.sh/partition-id";

/// Its spec. A workload that is no gang has one that asks for nothing.
#[must_use]
pub fn build_spec(workload: &Workload, priority_of_class: impl Fn(&str) -> i32) -> PodGroupSpec {
    let topology = |value: &Value| serde_json::from_value::<NetworkTopologySpec>(value.clone()).ok();
    let mut spec = PodGroupSpec {
        queue: Some(workload.queue.to_string()),
        priority_class_name: Some(workload.class.to_string()).filter(|class| !class.is_empty()),
        network_topology: workload.topology.as_deref().and_then(topology),
        ..PodGroupSpec::default()
    };
    let Ok(gang) = &workload.gang else { return spec };
    let needs = compute_pod_group_minimum(gang, priority_of_class);
    spec.min_member = Some(to_count(needs.min_member));
    spec.min_task_member = match workload.kind {
        WorkloadKind::VolcanoJob => {
            needs.min_task_member.iter().map(|(task, pods)| (task.to_string(), to_count(*pods))).collect()
        }
        _ => BTreeMap::new(),
    };
    spec.min_resources = convert_amounts(&needs.min_resources);
    spec.sub_group_policy = gang.tasks.iter().filter_map(build_sub_group).collect();
    spec
}

fn build_sub_group(task: &Task) -> Option<SubGroupPolicySpec> {
    let partition = task.partition.as_ref()?;
    let labels = [(volcano::TASK_SPEC.to_owned(), task.name.to_string())].into();
    Some(SubGroupPolicySpec {
        name: Some(task.name.to_string()),
        sub_group_size: Some(to_count(partition.size)),
        min_sub_groups: Some(to_count(partition.min)),
        label_selector: Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }),
        match_label_keys: vec![PARTITION.to_owned()],
        network_topology: partition.topology.as_ref().map(build_topology),
    })
}

fn build_topology(of: &Topology) -> NetworkTopologySpec {
    NetworkTopologySpec {
        highest_tier_allowed: of.highest_tier.map(i64::from),
        highest_tier_name: of.highest_tier_name.clone(),
        mode: Some(if of.hard { NetworkTopologyMode::Hard } else { NetworkTopologyMode::Soft }),
    }
}

/// Amounts as the API has them.
#[must_use]
pub fn convert_amounts(amounts: &Resources) -> ResourceList {
    amounts.iter().map(|(name, amount)| (name.to_string(), Quantity(amount.to_string()))).collect()
}

fn to_count(pods: u32) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}

/// The object to create under this name.
#[must_use]
pub fn build_object(key: &Key, workload: &Workload, spec: &PodGroupSpec, status: &PodGroupStatus) -> Value {
    let mut labels = json!({caldera::WORKLOAD_KIND: workload.reference.kind});
    // A label's value has at most 63 characters.
    if workload.reference.name.len() <= 63 {
        labels[caldera::WORKLOAD_NAME] = workload.reference.name.as_str().into();
    }
    let placed = Some((caldera::PLACED_CLUSTERS, &*status.clusters)).filter(|(_, clusters)| !clusters.is_empty());
    let annotations: BTreeMap<&str, &str> = placed.into_iter().collect();
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": &*key.name,
            "namespace": &*key.namespace,
            "annotations": annotations,
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": &*workload.api_version,
                "kind": workload.reference.kind,
                "name": workload.reference.name,
                "uid": &*workload.uid,
                "controller": true,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": spec,
        "status": status_to_json(workload, status),
    })
}

/// A status as the API has it.
#[must_use]
pub fn status_to_json(workload: &Workload, status: &PodGroupStatus) -> Value {
    json!({
        "phase": status.phase,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "conditions": [{
            "type": status.condition,
            "status": "True",
            "reason": status.reason,
            "message": status.message,
            "lastTransitionTime": status.since,
            "transitionID": format!("{:016x}", fingerprint(&(&workload.uid, &status.reason, &status.since))),
        }],
    })
}

/// Volcano's phase of a PodGroup. `stage` is `None` while its binding holds nothing.
#[must_use]
pub fn phase_of(workload: &Workload, stage: Option<AdmissionStage>) -> &'static str {
    let progress = &workload.progress;
    let least = workload.gang.as_deref().map_or(1, |gang: &Gang| gang.min_available.max(1));
    let runs =
        workload.count_running_pods() > 0 && workload.count_running_pods().saturating_add(progress.succeeded) >= least;
    match stage {
        None | Some(AdmissionStage::Waiting) => "Pending",
        Some(AdmissionStage::Finished) => "Completed",
        Some(AdmissionStage::Placed | AdmissionStage::Foreign) if runs => "Running",
        Some(_) => "Inqueue",
    }
}

/// The status for where a binding stands. `since` is when this reason began.
#[must_use]
pub fn build_status(
    workload: &Workload,
    stage: Option<AdmissionStage>,
    reason: &Reason,
    note: &str,
    clusters: &[(ClusterName, u32)],
    since: String,
) -> PodGroupStatus {
    let progress = &workload.progress;
    let scheduled = reason.is_released() && !matches!(reason, Reason::NotPlaced { .. } | Reason::CopyRefused { .. });
    PodGroupStatus {
        phase: phase_of(workload, stage).to_owned(),
        condition: if scheduled { "Scheduled" } else { "Unschedulable" }.to_owned(),
        reason: reason.token().to_owned(),
        message: format!("{reason}{note}"),
        since,
        clusters: name_some(clusters.iter().map(|(cluster, _)| cluster)),
        running: to_count(workload.count_running_pods()),
        succeeded: to_count(progress.succeeded),
        failed: to_count(progress.failed),
    }
}
