//! Whether a job could be in other clusters than it is in, for whoever would move it.
//!
//! Rule: the question goes to placement, as if nothing of the job were anywhere, on the nodes and clusters that its
//! queue uses now: a job that is moved is admitted anew. It says nothing of quota: it waits in line like any other.

use std::{collections::BTreeSet, sync::Arc};

use caldera_core::{
    cluster_choice::ClusterChoice,
    place::{self, Cluster, filter::Filter},
    queue::Fit,
};

use crate::{
    decide::{
        Controller,
        admission::assess::predict_run,
        fleet::{
            affinity::build_unplaced_binding,
            capacity::{PlacementQuestion, PodsByCluster},
        },
    },
    observe::{Key, ObjectKind},
};

/// What would become of a job whose user lets it go to these clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveAnswer {
    /// It would go there now: pods by cluster.
    Fits(PodsByCluster),
    /// There is no capacity now.
    Waits(String),
    /// It could never start there.
    Never(String),
    /// Not everything that decides can be seen.
    Unknown,
}

/// See the module; `None` if there is no such binding.
pub fn explain_move(controller: &mut Controller, key: &Key, choice: ClusterChoice) -> Option<MoveAnswer> {
    let is_seen = !controller.list_unlisted_kinds().contains(&ObjectKind::Clusters);
    let Controller { objects, capacity, now, .. } = &mut *controller;
    let binding = objects.bindings.get(key)?;
    let workload = objects.workload_of(binding)?;
    let (Some(placement), Ok(gang)) = (build_unplaced_binding(objects, capacity, binding), &workload.gang) else {
        return Some(MoveAnswer::Unknown);
    };
    if !is_seen {
        return Some(MoveAnswer::Unknown);
    }
    let choice = Some(choice).filter(|choice| !choice.is_empty()).map(Arc::new);
    let placement = place::Binding { choice, fresh: true, ..placement };
    let gang = &gang.restrict_to_nodes(&objects.nodes_of_queue(&workload.queue));
    let run = Some(predict_run(objects, workload, *now));
    let question = PlacementQuestion {
        binding: &placement,
        gang,
        whole: workload.kind.has_tasks(),
        previous: None,
        run,
        with: &[],
    };
    Some(match capacity.find_place_elsewhere(question, binding.id.as_str()) {
        Ok(pods) => MoveAnswer::Fits(pods),
        Err(Fit::No { never: true, detail }) => MoveAnswer::Never(detail),
        Err(Fit::No { detail, .. } | Fit::Reserved { detail }) => MoveAnswer::Waits(detail),
        Err(Fit::Yes) => MoveAnswer::Unknown,
    })
}

/// Why each of these clusters is out of the question for a job whatever its user chooses, if it is.
#[must_use]
pub fn explain_refusals(controller: &Controller, key: &Key, clusters: &BTreeSet<String>) -> Vec<String> {
    let binding = controller.objects.bindings.get(key);
    let placement = binding.and_then(|it| build_unplaced_binding(&controller.objects, &controller.capacity, it));
    let Some(placement) = placement else { return Vec::new() };
    let placement = place::Binding { choice: None, ..placement };
    let filter = Filter::new(&placement);
    let refusal = |cluster: &Cluster| {
        let reason = filter.reasons(cluster).next().map(|reason| reason.to_string());
        let reason = reason.or_else(|| (!cluster.ready).then(|| "it is not ready".to_owned()))?;
        Some(format!("{}: {reason}", cluster.name))
    };
    let named = controller.capacity.fleet().clusters().filter(|(cluster, _)| clusters.contains(&cluster.name));
    named.filter_map(|(cluster, _)| refusal(cluster)).collect()
}
