//! How each kind that the controller needs is called, and how a list of it is read: the same for its watches and for
//! who looks once.

use caldera_crds::{
    karmada::{cluster::Cluster, work::ResourceBinding},
    links::FederationTopology,
    names::caldera::{NAMESPACE_OPT_IN, NAMESPACE_OPT_IN_VALUE, WORKLOAD_KIND},
    volcano::scheduling::{PodGroup, Queue},
    workload::WorkloadKind,
};
use caldera_runtime::watch::{Event, api_resource};
use k8s_openapi::api::{core::v1::Namespace, scheduling::v1::PriorityClass};
use kube::api::ApiResource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    facts::{Binding, ClassFacts, ClusterFacts, GroupFacts, QueueFacts, Workload},
    index::{Input, Source},
};

/// Whether a namespace asks for queueing.
pub(crate) fn opted_in(namespace: &Namespace) -> (String, bool) {
    let labels = namespace.metadata.labels.as_ref();
    let opted = labels.and_then(|labels| labels.get(NAMESPACE_OPT_IN)).is_some_and(|v| v == NAMESPACE_OPT_IN_VALUE);
    (namespace.metadata.name.clone().unwrap_or_default(), opted)
}

impl Source {
    /// What to ask the server for.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Queues => api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
            Self::Bindings => api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings"),
            Self::Workloads(kind) => kind.api_resource(),
            Self::Groups => api_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
            Self::Classes => api_resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
            Self::Clusters => api_resource("cluster.karmada.io", "v1alpha1", "Cluster", "clusters"),
            Self::Namespaces => api_resource("", "v1", "Namespace", "namespaces"),
            Self::Links => {
                api_resource("federation.caldera.dev", "v1alpha1", "FederationTopology", "federationtopologies")
            }
        }
    }

    /// Only those with this label.
    #[must_use]
    pub const fn labels(self) -> Option<&'static str> {
        match self {
            Self::Groups => Some(WORKLOAD_KIND),
            _ => None,
        }
    }
}

/// What is kept of the objects of one kind, as they are read one by one.
#[derive(Debug)]
pub enum Listed {
    /// Queues.
    Queues(Vec<QueueFacts>),
    /// Bindings.
    Bindings(Vec<Binding>),
    /// Workloads of one kind.
    Workloads(WorkloadKind, Vec<Workload>),
    /// PodGroups of ours.
    Groups(Vec<GroupFacts>),
    /// PriorityClasses.
    Classes(Vec<ClassFacts>),
    /// Members' objects on the host.
    Clusters(Vec<ClusterFacts>),
    /// Namespaces; true for those that ask for queueing.
    Namespaces(Vec<(String, bool)>),
    /// Declared links between clusters.
    Links(Vec<FederationTopology>),
}

impl Listed {
    /// None yet.
    #[must_use]
    pub const fn new(source: Source) -> Self {
        match source {
            Source::Queues => Self::Queues(Vec::new()),
            Source::Bindings => Self::Bindings(Vec::new()),
            Source::Workloads(kind) => Self::Workloads(kind, Vec::new()),
            Source::Groups => Self::Groups(Vec::new()),
            Source::Classes => Self::Classes(Vec::new()),
            Source::Clusters => Self::Clusters(Vec::new()),
            Source::Namespaces => Self::Namespaces(Vec::new()),
            Source::Links => Self::Links(Vec::new()),
        }
    }

    /// Takes in one more object.
    ///
    /// # Errors
    /// If it does not parse: it is left out, as a watch leaves it out.
    pub fn push(&mut self, object: Value) -> Result<(), serde_json::Error> {
        fn read<K: DeserializeOwned, R>(object: Value, read: fn(&K) -> R) -> Result<R, serde_json::Error> {
            serde_json::from_value::<K>(object).map(|object| read(&object))
        }
        match self {
            Self::Queues(all) => all.push(read::<Queue, _>(object, QueueFacts::read)?),
            Self::Bindings(all) => all.push(read::<ResourceBinding, _>(object, Binding::read)?),
            Self::Workloads(_, all) => all.extend(Workload::read(&object)),
            Self::Groups(all) => all.push(read::<PodGroup, _>(object, GroupFacts::read)?),
            Self::Classes(all) => all.push(read::<PriorityClass, _>(object, ClassFacts::read)?),
            Self::Clusters(all) => all.push(read::<Cluster, _>(object, ClusterFacts::read)?),
            Self::Namespaces(all) => all.push(read::<Namespace, _>(object, opted_in)?),
            Self::Links(all) => all.push(serde_json::from_value(object)?),
        }
        Ok(())
    }

    /// That these are all there are.
    #[must_use]
    pub fn all(self) -> Input {
        match self {
            Self::Queues(all) => Input::Queues(Event::Reset(all)),
            Self::Bindings(all) => Input::Bindings(Event::Reset(all)),
            Self::Workloads(kind, all) => Input::Workloads(kind, Event::Reset(all)),
            Self::Groups(all) => Input::Groups(Event::Reset(all)),
            Self::Classes(all) => Input::Classes(Event::Reset(all)),
            Self::Clusters(all) => Input::Clusters(Event::Reset(all)),
            Self::Namespaces(all) => Input::Namespaces(Event::Reset(all)),
            Self::Links(all) => Input::Links(Event::Reset(all)),
        }
    }

    /// That these are there, and maybe others: the index goes on waiting for the rest.
    #[must_use]
    pub fn some(self) -> Vec<Input> {
        fn each<T>(all: Vec<T>, input: impl Fn(Event<T>) -> Input) -> Vec<Input> {
            all.into_iter().map(|one| input(Event::Applied(one))).collect()
        }
        match self {
            Self::Queues(all) => each(all, Input::Queues),
            Self::Bindings(all) => each(all, Input::Bindings),
            Self::Workloads(kind, all) => each(all, |event| Input::Workloads(kind, event)),
            Self::Groups(all) => each(all, Input::Groups),
            Self::Classes(all) => each(all, Input::Classes),
            Self::Clusters(all) => each(all, Input::Clusters),
            Self::Namespaces(all) => each(all, Input::Namespaces),
            Self::Links(all) => each(all, Input::Links),
        }
    }
}
