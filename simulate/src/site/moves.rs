//! Jobs that leave their clusters while they run: what is free then, where they would go, what they avoid from then on,
//! and how much later a run ends that lacked something.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    gang::ClusterName,
    inventory::{self, Capacity},
    place::{self, Cluster},
    resources::Resources,
    split,
};

use super::{JobState, Site, question};
use crate::{members::Part, time::Millis, world::Hold};

impl Site<'_> {
    /// Where all of a job would go now if it may go to these clusters alone, and these parts go there before it.
    pub fn find_in_clusters(&mut self, job: usize, open: &BTreeSet<String>, before: &[Part]) -> Option<Vec<Part>> {
        let (shape, run) = (self.shape_on(job, None), self.predict_run(job));
        self.members.refresh();
        let (all, linked, _) = self.members.view();
        let left = |(at, (cluster, capacity)): (usize, (&'_ Cluster, &Capacity))| {
            let there = before.iter().filter(|part| part.cluster == at);
            let take =
                |left: Capacity, part: &Part| split::subtract_assumed_pods(left, &part.gang, &part.pods, &part.within);
            (cluster.clone(), there.fold(capacity.clone(), take))
        };
        let is_open = |(_, (cluster, _)): &(usize, (&Cluster, &Capacity))| open.contains(&cluster.name);
        let after: Vec<(Cluster, Capacity)> = all.into_iter().enumerate().filter(is_open).map(left).collect();
        let clusters = after.iter().map(|(cluster, capacity)| (cluster, capacity)).collect();
        let request = place::Request { linked, run, ..question(shape, &shape.gang, clusters) };
        let decision = place::place_binding(&request).ok()?;
        Some(self.list_parts(job, &shape.gang, &decision))
    }

    /// Clusters that a job is to avoid.
    #[must_use]
    pub fn avoided_by(&self, job: usize) -> Option<&BTreeSet<ClusterName>> {
        self.avoided.get(&job)
    }

    /// From now on a job avoids these clusters, as far as there are others.
    pub fn avoid_clusters(&mut self, job: usize, clusters: BTreeSet<ClusterName>) {
        self.avoided.insert(job, clusters);
    }

    /// What a job does now takes so much longer.
    pub fn delay_end(&mut self, job: usize, by: Millis) {
        if let JobState::Running { ends, .. } = &mut self.states[job] {
            *ends = ends.plus(by);
            self.runs[job] += 1;
            self.ends.push(Reverse((*ends, job, self.runs[job])));
            self.recorder.delayed(job, *ends);
        }
    }
}

/// The same question without the clusters that are to be avoided: where none of the others has a place, all count, as
/// the scheduler has it.
pub(super) fn leave_out_avoided<'a>(
    request: &place::Request<'a>,
    avoided: &BTreeSet<ClusterName>,
) -> place::Request<'a> {
    let others = request.clusters.iter().filter(|(cluster, _)| !avoided.contains(cluster.name.as_str()));
    place::Request { clusters: others.copied().collect(), ..request.clone() }
}

/// The capacity with these parts of its nodes free.
pub(super) fn with_freed_holds(capacity: &Capacity, holds: &[&Hold]) -> Capacity {
    let mut by_node: BTreeMap<&Arc<str>, Resources> = BTreeMap::new();
    for hold in holds {
        by_node.entry(&hold.node).or_default().add(&hold.amount);
    }
    let mut after = Vec::with_capacity(capacity.shapes.len());
    for shape in &capacity.shapes {
        let (touched, same): (Vec<_>, Vec<_>) =
            shape.nodes.iter().cloned().partition(|node| by_node.contains_key(node.name()));
        if !same.is_empty() {
            after.push(inventory::NodeShape { nodes: same, ..shape.clone() });
        }
        for node in touched {
            let mut one = inventory::NodeShape { nodes: vec![node.clone()], ..shape.clone() };
            for (name, amount) in by_node[node.name()].iter() {
                if let Some(free) = Arc::make_mut(&mut one.free).get_mut(name) {
                    *free = free.saturating_add(amount);
                }
            }
            after.push(one);
        }
    }
    capacity.with_shapes(after)
}
