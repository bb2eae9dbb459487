//! What the index is told, and by whom.

use std::{collections::BTreeSet, sync::Arc};

use caldera_core::{fleet::Update, gang::QueueName};
use caldera_crds::{links::FederationTopology, workload::WorkloadKind};
use caldera_runtime::{watch::Event, write::Done};

use crate::{
    facts::{Binding, ClassFacts, ClusterFacts, GroupFacts, Key, QueueFacts, Workload},
    lifecycle::CommandFacts,
};

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// Queues.
    Queues(Event<QueueFacts>),
    /// Bindings.
    Bindings(Event<Binding>),
    /// Workloads of one kind.
    Workloads(WorkloadKind, Event<Workload>),
    /// PodGroups of ours.
    Groups(Event<GroupFacts>),
    /// PriorityClasses.
    Classes(Event<ClassFacts>),
    /// Members' objects on the host.
    Clusters(Event<ClusterFacts>),
    /// Namespaces; true for those that ask for queueing.
    Namespaces(Event<(String, bool)>),
    /// Declared links between clusters.
    Links(Event<FederationTopology>),
    /// Commands for queues.
    Commands(Event<CommandFacts>),
    /// In a member.
    Member(String, Update),
    /// A write of ours was answered.
    Written(Done<Tag>),
}

/// What a write was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tag {
    /// [`Effect::Release`], for this version of the binding.
    Release(Key, Arc<str>),
    /// [`Effect::Evict`] or [`Effect::Shrink`].
    Evict(Key),
    /// A PodGroup of this binding.
    Group(Key),
    /// A PodGroup that is not needed any more.
    OldGroup,
    /// [`Effect::QueueStatus`].
    Queue(QueueName),
    /// [`Effect::QueueState`] or [`Effect::QueueMark`], for this version of the queue.
    QueueState(QueueName, Arc<str>),
    /// [`Effect::QueueNote`].
    QueueNote(QueueName),
    /// [`Effect::DeleteCommand`]: for this queue, with this UID.
    Command(QueueName, Arc<str>),
    /// [`Effect::DefaultQueue`].
    DefaultQueue,
    /// [`Effect::Tell`].
    Tell,
}

/// Kinds that decide; all but links must have been listed first: half a view gives away what the other half holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Queues.
    Queues,
    /// Bindings.
    Bindings,
    /// One kind of workload.
    Workloads(WorkloadKind),
    /// PodGroups.
    Groups,
    /// PriorityClasses.
    Classes,
    /// Clusters.
    Clusters,
    /// Namespaces.
    Namespaces,
    /// Declared links between clusters.
    Links,
}

impl Source {
    /// All of them.
    #[must_use]
    pub fn all() -> BTreeSet<Self> {
        let kinds = WorkloadKind::ALL.into_iter().map(Self::Workloads);
        [Self::Queues, Self::Bindings, Self::Groups, Self::Classes, Self::Clusters, Self::Namespaces, Self::Links]
            .into_iter()
            .chain(kinds)
            .collect()
    }

    /// Those that must have been listed before anything is decided. Not every host has links.
    #[must_use]
    pub fn needed() -> BTreeSet<Self> {
        let mut all = Self::all();
        all.remove(&Self::Links);
        all
    }
}
