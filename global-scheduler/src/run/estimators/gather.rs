//! Which estimators are asked for a binding, and when there is enough to decide.
//!
//! Rule: asked are those of clusters whose nodes can not be read, and only for a gang that is to be placed. The binding
//! waits (`None`) until each has answered or is given up; one that is silent leaves its cluster's summary to go by.
//! What is assumed in a cluster for other bindings is told in the question, so that it is counted once.

use std::collections::BTreeMap;

use caldera_core::{fleet::Fleet, inventory::Capacity};

use super::pool::{Assumed, EstimateState, EstimatorPool, Question};
use crate::{
    decide::placement,
    observe::{binding::Binding, cache::WorkloadRequest},
};

/// By cluster, what a binding may go by instead of the cluster's summary; `None` while answers are waited for.
pub fn gather_estimates(
    pool: &mut EstimatorPool,
    binding: &Binding,
    request: Option<&WorkloadRequest>,
    fleet: &Fleet,
) -> Option<BTreeMap<String, Capacity>> {
    if pool.is_empty() {
        return Some(BTreeMap::new());
    }
    let mut unread = fleet.list_unreadable_clusters().filter(|cluster| pool.has_estimator(&cluster.name)).peekable();
    if unread.peek().is_none() {
        return Some(BTreeMap::new());
    }
    // Most bindings are settled and need no answers.
    let Some(gang) = placement::find_gang_to_place(binding, request, fleet) else { return Some(BTreeMap::new()) };
    let key = binding.key.to_string();
    let names: Vec<String> = unread.map(|cluster| cluster.name.clone()).collect();
    let mut known = BTreeMap::new();
    let mut waits = false;
    for cluster in names {
        let held = fleet.list_pods_assumed_by_others(&cluster, &key).map(|(assumed, pods)| Assumed {
            namespace: assumed.workload.namespace.clone(),
            gang: assumed.gang.clone(),
            pods: pods.to_vec(),
        });
        let question = Question {
            key: key.clone(),
            namespace: binding.workload.namespace.clone(),
            gang: gang.clone(),
            assumed: held.collect(),
            cluster: cluster.clone(),
        };
        match pool.get_or_ask_estimate(question) {
            EstimateState::Waiting => waits = true,
            EstimateState::Fits(capacity) => drop(known.insert(cluster, capacity)),
            EstimateState::Silent(_) => {}
        }
    }
    (!waits).then_some(known)
}
