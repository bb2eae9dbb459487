//! The answers of estimators about members whose nodes can not be read, for one binding at a time.

use std::collections::BTreeMap;

use caldera_core::{fleet::Fleet, inventory::Capacity};
use caldera_estimator::desk::{Answer, Desk, Held, Question};

use crate::{
    decide::placement,
    observe::{binding::Binding, cache::WorkloadRequest},
};

/// By cluster, what a binding may go by instead of the cluster's summary; `None` while answers are waited for.
pub fn gather_estimates(
    desk: &mut Desk,
    binding: &Binding,
    request: Option<&WorkloadRequest>,
    fleet: &Fleet,
) -> Option<BTreeMap<String, Capacity>> {
    if desk.is_empty() {
        return Some(BTreeMap::new());
    }
    let mut unread = fleet.unreadable_clusters().filter(|cluster| desk.knows(&cluster.name)).peekable();
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
        let held = fleet.pods_assumed_by_others(&cluster, &key).map(|(promise, pods)| Held {
            namespace: promise.workload.namespace.clone(),
            gang: promise.gang.clone(),
            pods: pods.to_vec(),
        });
        let question = Question {
            key: key.clone(),
            namespace: binding.workload.namespace.clone(),
            gang: gang.clone(),
            held: held.collect(),
            cluster: cluster.clone(),
        };
        match desk.ask(question) {
            Answer::Waiting => waits = true,
            Answer::Fits(capacity) => drop(known.insert(cluster, capacity)),
            Answer::Silent(_) => {}
        }
    }
    (!waits).then_some(known)
}
