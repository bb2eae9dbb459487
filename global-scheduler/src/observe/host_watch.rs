//! The kinds that the scheduler follows on the host, and their events.

use caldera_core::data_source::{DataClaim, DataSource};
use caldera_crds::{
    data_source::{read_claim, read_source},
    karmada::cluster::Cluster,
    links::FederationTopology,
    score::{ClusterScore, Scores},
    workload::WorkloadKind,
};
use caldera_runtime::watch::{Event, Follower, WatchOptions, api_resource};
use kube::runtime::watcher;

use super::{
    binding::Binding,
    cache::data_arrival::Versioned,
    cache::{WorkloadRequest, read_workload},
    ranking::{PolicyKey, StatedWeights, read_policy_weights},
};

/// An event of one of the kinds, with what is kept of its objects.
pub(crate) enum HostEvent {
    /// `true` for ClusterResourceBindings.
    Bindings(bool, Box<Event<Binding>>),
    Workloads(WorkloadKind, Event<(caldera_core::gang::WorkloadRef, WorkloadRequest)>),
    Clusters(Box<Event<Cluster>>),
    /// `true` for ClusterPropagationPolicies.
    Policies(bool, Event<(PolicyKey, Option<StatedWeights>)>),
    Scores(Event<Scores>),
    DataSources(Event<Versioned<DataSource>>),
    DataClaims(Event<Versioned<DataClaim>>),
    Links(Box<Event<FederationTopology>>),
}

impl HostEvent {
    /// The kind on the host that this is an event of: of workloads by its title, as two kinds are named Job.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Bindings(false, _) => "ResourceBinding",
            Self::Bindings(true, _) => "ClusterResourceBinding",
            Self::Workloads(kind, _) => kind.title(),
            Self::Clusters(_) => "Cluster",
            Self::Policies(false, _) => "PropagationPolicy",
            Self::Policies(true, _) => "ClusterPropagationPolicy",
            Self::Scores(_) => "ClusterScore",
            Self::DataSources(_) => "DataSource",
            Self::DataClaims(_) => "DataSourceClaim",
            Self::Links(_) => "FederationTopology",
        }
    }
}

/// Follows every kind on the host that placement depends on.
pub(crate) fn watch_host(follower: &Follower<HostEvent>) {
    let all = watcher::Config::default;
    for (global, kind, plural) in
        [(false, "ResourceBinding", "resourcebindings"), (true, "ClusterResourceBinding", "clusterresourcebindings")]
    {
        let resource = api_resource("work.karmada.io", "v1alpha2", kind, plural);
        let input = move |event| HostEvent::Bindings(global, Box::new(event));
        follower.follow_json(resource, all(), |object| Binding::parse_binding(&object), input);
    }
    for (global, kind, plural) in [
        (false, "PropagationPolicy", "propagationpolicies"),
        (true, "ClusterPropagationPolicy", "clusterpropagationpolicies"),
    ] {
        let resource = api_resource("policy.karmada.io", "v1alpha1", kind, plural);
        let input = move |event| HostEvent::Policies(global, event);
        follower.follow_json(resource, all(), |object| read_policy_weights(&object), input);
    }
    let follow = |follower: &Follower<HostEvent>, kind: WorkloadKind, options: WatchOptions| {
        let input = move |event| HostEvent::Workloads(kind, event);
        follower.follow_json(kind.api_resource(), options, |object| read_workload(&object), input);
    };
    for kind in WorkloadKind::ALL {
        follow(follower, kind, WatchOptions::from(all()).allow_absent_kind(kind.is_optional()));
    }
    follower.follow_declared_kinds(follow);
    let optional = || WatchOptions::from(all()).allow_absent_kind(true);
    let source = |source| Some(Versioned { version: parse_version(&source), object: read_source(&source) });
    follower.follow_typed(optional(), source, HostEvent::DataSources);
    let claim = |claim| Some(Versioned { version: parse_version(&claim), object: read_claim(&claim) });
    follower.follow_typed(optional(), claim, HostEvent::DataClaims);
    follower.follow_typed::<Cluster, _, _>(all(), Some, |event| HostEvent::Clusters(Box::new(event)));
    follower.follow_typed(all(), |score: ClusterScore| Some(Scores::from(&score)), HostEvent::Scores);
    follower.follow_typed::<FederationTopology, _, _>(all(), Some, |event| HostEvent::Links(Box::new(event)));
}

fn parse_version(object: &impl kube::ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_kinds_that_are_followed_share_a_name() {
        let of_workloads = WorkloadKind::ALL.map(|kind| HostEvent::Workloads(kind, Event::Reset(Vec::new())).kind());
        let mut names = std::collections::BTreeSet::from(of_workloads);
        names
            .extend([false, true].map(|global| HostEvent::Bindings(global, Box::new(Event::Reset(Vec::new()))).kind()));
        assert_eq!(names.len(), WorkloadKind::ALL.len() + 2, "{names:?}");
    }
}
