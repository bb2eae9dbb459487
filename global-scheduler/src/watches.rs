//! What the scheduler follows on the host, and what of it arrives.

use caldera_crds::{
    karmada::cluster::Cluster,
    links::FederationTopology,
    score::{ClusterScore, Scores},
    workload::WorkloadKind,
};
use caldera_runtime::watch::{Event, follow_json, follow_typed, resource};
use kube::{Api, Client, core::DeserializeGuard, runtime::watcher};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    index::{Asked, Binding, read_workload},
    ranking::{PolicyKey, Stated, read_policy},
};

/// What arrives.
pub(crate) enum Input {
    /// `true` for ClusterResourceBindings.
    Bindings(bool, Box<Event<Binding>>),
    Workloads(WorkloadKind, Event<(caldera_core::gang::WorkloadRef, Asked)>),
    Clusters(Box<Event<Cluster>>),
    /// `true` for ClusterPropagationPolicies.
    Policies(bool, Event<(PolicyKey, Option<Stated>)>),
    Scores(Event<Scores>),
    Links(Box<Event<FederationTopology>>),
}

/// Follows every kind on the host that placement depends on, reading each object into what is kept of it.
pub(crate) fn watch(client: &Client, inputs: &mpsc::Sender<Input>, stop: &CancellationToken) {
    let config = watcher::Config::default;
    for (global, kind, plural) in
        [(false, "ResourceBinding", "resourcebindings"), (true, "ClusterResourceBinding", "clusterresourcebindings")]
    {
        let bindings = resource("work.karmada.io", "v1alpha2", kind, plural);
        let read = move |event: Event<Value>| {
            event.filter_map(|object| Binding::read(&object)).map(|event| Input::Bindings(global, Box::new(event)))
        };
        tokio::spawn(follow_json(client.clone(), bindings, config(), inputs.clone(), read, stop.clone()));
    }
    let clusters: Api<DeserializeGuard<Cluster>> = Api::all(client.clone());
    let read = |event| Some(Input::Clusters(Box::new(event)));
    tokio::spawn(follow_typed(clusters, config(), inputs.clone(), read, stop.clone()));
    for (global, kind, plural) in [
        (false, "PropagationPolicy", "propagationpolicies"),
        (true, "ClusterPropagationPolicy", "clusterpropagationpolicies"),
    ] {
        let policies = resource("policy.karmada.io", "v1alpha1", kind, plural);
        let read = move |event: Event<Value>| {
            event.filter_map(|object| read_policy(&object)).map(|event| Input::Policies(global, event))
        };
        tokio::spawn(follow_json(client.clone(), policies, config(), inputs.clone(), read, stop.clone()));
    }
    let scores: Api<DeserializeGuard<ClusterScore>> = Api::all(client.clone());
    let read = |event: Event<ClusterScore>| event.filter_map(|one| Some(Scores::from(&one))).map(Input::Scores);
    tokio::spawn(follow_typed(scores, config(), inputs.clone(), read, stop.clone()));
    let links: Api<DeserializeGuard<FederationTopology>> = Api::all(client.clone());
    tokio::spawn(follow_typed(
        links,
        config(),
        inputs.clone(),
        |event| Some(Input::Links(Box::new(event))),
        stop.clone(),
    ));
    for kind in WorkloadKind::ALL {
        let read = move |event: Event<Value>| {
            event.filter_map(|object| read_workload(&object)).map(|event| Input::Workloads(kind, event))
        };
        tokio::spawn(follow_json(client.clone(), kind.api_resource(), config(), inputs.clone(), read, stop.clone()));
    }
}
