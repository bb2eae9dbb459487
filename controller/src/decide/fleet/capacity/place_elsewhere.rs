//! Where a gang would go if it were in no cluster yet: for whoever asks whether it can be moved.

use std::collections::BTreeMap;

use caldera_core::{
    gang::Gang,
    inventory::Capacity,
    place::{self, Cluster},
    queue::Fit,
};

use super::{FleetCapacity, PlacementQuestion, build_placement_request};

/// Pods by cluster.
pub type PodsByCluster = BTreeMap<String, u64>;

impl FleetCapacity {
    /// Where it would go, with what it holds itself, or why nowhere.
    ///
    /// # Errors
    /// [`Fit::No`], with what is short.
    pub fn find_place_elsewhere(&mut self, question: PlacementQuestion<'_>, id: &str) -> Result<PodsByCluster, Fit> {
        if !self.fleet.clusters().any(|(cluster, _)| may_go_to(question.binding, cluster)) {
            let detail = "its policy selects none of the clusters that are left".to_owned();
            return Err(Fit::No { never: true, detail });
        }
        self.fleet.refresh_capacities();
        let own = self.fleet.compute_capacities_without_binding(id);
        let with_own = |(cluster, capacity): (_, _)| {
            let (cluster, capacity): (&Cluster, &Capacity) = (cluster, capacity);
            (cluster, own.get(&cluster.name).unwrap_or(capacity))
        };
        let clusters = self.fleet.clusters().map(with_own).collect();
        let request = build_placement_request(question, &self.fleet, clusters);
        let detail = match place::place_binding(&request) {
            Ok(decision) => return Ok(count_pods(&decision, question.gang)),
            Err(refusal) => place::append_reasons(refusal.to_string(), &request, self.fleet.list_soonest_nodes()),
        };
        let with_upcoming = |clusters: Vec<(&Cluster, &Capacity)>, delay| {
            place::place_binding(&build_placement_request(question.with_delay(delay), &self.fleet, clusters)).ok()
        };
        if let Some(decision) = self.fleet.find_with_upcoming_nodes_on(&own, with_upcoming) {
            return Ok(count_pods(&decision, question.gang));
        }
        Err(match self.explain_never_fits(question) {
            Some(never) => Fit::No { never: true, detail: never.to_string() },
            None => Fit::No { never: false, detail },
        })
    }
}

fn may_go_to(binding: &place::Binding, cluster: &Cluster) -> bool {
    !cluster.deleting && binding.is_allowed_by_user(&cluster.name) && place::may_select(binding, cluster)
}

pub(super) fn count_pods(decision: &place::Decision, gang: &Gang) -> PodsByCluster {
    let sum = |pods: Vec<u32>| pods.into_iter().map(u64::from).sum();
    decision.count_pods_by_cluster(gang).into_iter().map(|(cluster, pods)| (cluster, sum(pods))).collect()
}
