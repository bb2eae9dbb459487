//! What each member has for a job that is not placed: the nearest miss, cluster by cluster.

use caldera_core::{
    fleet::Origin,
    gang::ClusterName,
    place::{self, Cluster, data_locality::compute_data_costs, filter},
    queue::Ask,
    resources::Resources,
    split,
};
use serde::Serialize;

use super::amount_form::write_amounts;
use crate::{
    decide::{Controller, admission::assess::predict_run, fleet::affinity::build_binding_with_peers},
    observe::{Key, ObjectKind},
};

/// Clusters of which it is said what data costs there.
const MOST_DATA_COSTS: usize = 16;

/// One member, as a job sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// Which.
    pub name: ClusterName,
    /// Why it is out of the question, if it is.
    pub refusal: Option<String>,
    /// Pods of the job that would fit there now, all by themselves.
    pub fit: u64,
    /// Pods that the job needs at least, of `copies` clusters in each.
    pub needs: u64,
    /// What is free of the resources that the job asks for.
    #[serde(serialize_with = "write_amounts")]
    pub free: Resources,
    /// Why the numbers are not those of its nodes, where they are not.
    pub doubt: Option<String>,
    /// When its collector last saw the member, where the numbers are those that it published.
    pub published: Option<String>,
}

fn describe_refusal(binding: &place::Binding, cluster: &place::Cluster) -> Option<String> {
    let reason = filter::find_first_refusal(binding, cluster)?;
    match (reason, binding.peers.anti_affinity_peer_in(&cluster.name)) {
        (filter::FilterReason::GroupThere, Some(name)) => Some(format!("{reason}: {name}")),
        _ => Some(reason.to_string()),
    }
}

/// What data that is not there costs in each cluster that it may go to, for a job that says where its data is.
pub(super) fn describe_data_costs(controller: &Controller, key: &Key) -> Option<String> {
    let Controller { objects, capacity, .. } = controller;
    let binding = objects.bindings.get(key)?;
    let gang = objects.gang_to_place(binding, objects.workload_of(binding)?).filter(|gang| gang.data.is_some())?;
    let placement = build_binding_with_peers(objects, capacity, binding)?;
    let all: Vec<&Cluster> = capacity.fleet().clusters().map(|(cluster, _)| cluster).collect();
    let may_go = |one: &&Cluster| !one.deleting && place::may_select(&placement, one);
    let may_go: Vec<&Cluster> = all.iter().copied().filter(may_go).collect();
    let costs = compute_data_costs(&gang, &placement, &may_go, &all);
    let by_cluster = may_go.iter().zip(&costs.of).take(MOST_DATA_COSTS);
    let by_cluster: Vec<String> = by_cluster.map(|(cluster, cost)| format!("{} {cost}", cluster.name)).collect();
    (!by_cluster.is_empty()).then(|| format!("{}: {}", costs.unit, by_cluster.join(", ")))
}

/// The best first: those that may take it, by how much of it fits.
pub(super) fn list_clusters(controller: &mut Controller, key: &Key, ask: Option<&Ask>) -> Vec<ClusterView> {
    if controller.list_unlisted_kinds().contains(&ObjectKind::Clusters) {
        return Vec::new();
    }
    controller.capacity.sum_fleet();
    let Controller { objects, capacity, jobs, now, .. } = &*controller;
    let Some((binding, ask)) = objects.bindings.get(key).zip(ask) else { return Vec::new() };
    let Some(workload) = objects.workload_of(binding) else { return Vec::new() };
    let (gang, run) = (objects.gang_to_place(binding, workload), predict_run(objects, workload, *now));
    let (Some(placement), Some(gang)) = (build_binding_with_peers(objects, capacity, binding), gang) else {
        return Vec::new();
    };
    let gang = gang.keep_to_card(jobs.engine.pending_card(binding.id.as_str()));
    let wanted = ask.demand_of_all_pods().without_cards();
    let needs = ask.tasks.iter().map(|task| u64::from(task.min)).sum();
    let filter = filter::Filter::new(&placement).with_run(Some(run), &gang, workload.kind.has_tasks());
    let fleet = capacity.fleet();
    let mut all: Vec<ClusterView> = fleet
        .clusters()
        .map(|(cluster, free_there)| {
            let not_ready = (!cluster.ready).then(|| "it is not ready".to_owned());
            let deleting = cluster.deleting.then(|| "it is being deleted".to_owned());
            let free_there = filter.keep_outside_windows(cluster, free_there);
            let free = free_there.sum_free();
            ClusterView {
                name: cluster.name.as_str().into(),
                refusal: deleting
                    .or(not_ready)
                    .or_else(|| describe_refusal(&placement, cluster))
                    .or_else(|| filter.describe_window(cluster).filter(|_| filter.has_maintenance_conflict(cluster))),
                fit: split::count_pods_that_fit(&gang, &free_there).min(u64::from(gang.replicas())),
                needs,
                free: wanted.iter().map(|(name, _)| (name.clone(), free.get(name.as_str()))).collect(),
                doubt: fleet.describe_capacity_caveat(&cluster.name),
                published: match fleet.inventory_origin(&cluster.name) {
                    Some(Origin::Published { seen_at, .. }) => Some(seen_at.clone()),
                    Some(Origin::Member) | None => None,
                },
            }
        })
        .collect();
    all.sort_by(|a, b| (a.refusal.is_some(), b.fit, &a.name).cmp(&(b.refusal.is_some(), a.fit, &b.name)));
    all
}
