//! The kinds that are followed on the host, and how each event brings the cache up to date.

use std::{hash::Hash, sync::Arc};

use caldera_crds::{policy_selection::PolicySelection, tenancy::NamespaceFacts, workload::WorkloadKind};
use caldera_runtime::watch::{Event, Follower, WatchOptions, api_resource};
use kube::runtime::watcher;
use serde_json::Value;

use super::{
    cache::{BindingKey, Cache, CachedBinding, CachedWorkload, PriorityClass, WorkloadKey},
    sharded::Sharded,
};

/// An event of one of the kinds, with what is kept of its objects.
pub enum HostEvent {
    /// Of workloads of a kind.
    Workloads(WorkloadKind, Event<(WorkloadKey, CachedWorkload)>),
    /// Of ResourceBindings.
    Bindings(Event<(BindingKey, CachedBinding)>),
    /// Of PriorityClasses.
    PriorityClasses(Event<(String, PriorityClass)>),
    /// Of Namespaces.
    Namespaces(Event<(String, NamespaceFacts)>),
    /// Of Queues.
    Queues(Event<(String, Value)>),
    /// Of PropagationPolicies.
    Policies(Event<(BindingKey, PolicySelection)>),
    /// Of ClusterPropagationPolicies.
    ClusterPolicies(Event<(String, PolicySelection)>),
}

impl HostEvent {
    /// The kind on the host that this is an event of: of workloads by its title, as two kinds are named Job.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Workloads(kind, _) => kind.title(),
            Self::Bindings(_) => "ResourceBinding",
            Self::PriorityClasses(_) => "PriorityClass",
            Self::Namespaces(_) => "Namespace",
            Self::Queues(_) => "Queue",
            Self::Policies(_) => "PropagationPolicy",
            Self::ClusterPolicies(_) => "ClusterPropagationPolicy",
        }
    }
}

/// Policies in a page of a list. While one is read, it takes many times its text: a page of the largest about 100 MB.
const POLICIES_IN_PAGE: u32 = 5;

/// Follows every kind on the host that reviews depend on.
pub fn watch_host(follower: &Follower<HostEvent>) {
    let all = watcher::Config::default;
    let follow = |follower: &Follower<HostEvent>, kind: WorkloadKind, options: WatchOptions| {
        let read = move |object: Value| {
            let (namespace, name) = key_of(&object);
            Some((WorkloadKey { kind, namespace, name }, CachedWorkload::from_object(kind, &object)))
        };
        let event = move |event| HostEvent::Workloads(kind, event);
        follower.follow_json(kind.api_resource(), options, read, event);
    };
    for kind in WorkloadKind::ALL {
        follow(follower, kind, WatchOptions::from(all()).allow_absent_kind(kind.is_optional()));
    }
    follower.follow_declared_kinds(follow);
    let bindings = api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings");
    let read = |object: Value| Some((key_of(&object), CachedBinding::from_object(&object)));
    follower.follow_json(bindings, all(), read, HostEvent::Bindings);
    let classes = api_resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses");
    let read = |object: Value| Some((key_of(&object).1, PriorityClass::from_object(&object)));
    follower.follow_json(classes, all(), read, HostEvent::PriorityClasses);
    let read = |object: Value| Some((key_of(&object).1, NamespaceFacts::from_object(&object)));
    follower.follow_json(api_resource("", "v1", "Namespace", "namespaces"), all(), read, HostEvent::Namespaces);
    let queues = api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues");
    follower.follow_json(queues, all(), |object| Some((key_of(&object).1, object)), HostEvent::Queues);
    let policy = |kind: &str, plural: &str| api_resource("policy.karmada.io", "v1alpha1", kind, plural);
    let few = || all().page_size(POLICIES_IN_PAGE);
    let read = |object: Value| Some((key_of(&object), PolicySelection::of_policy(&object)));
    follower.follow_json(policy("PropagationPolicy", "propagationpolicies"), few(), read, HostEvent::Policies);
    let read = |object: Value| Some((key_of(&object).1, PolicySelection::of_policy(&object)));
    let of_all = policy("ClusterPropagationPolicy", "clusterpropagationpolicies");
    follower.follow_json(of_all, few(), read, HostEvent::ClusterPolicies);
}

fn key_of(object: &Value) -> BindingKey {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

fn apply_change<K: Ord + Hash + Clone, V>(event: Event<(K, V)>, objects: &mut Sharded<K, V>) {
    match event {
        Event::Reset(all) => *objects = all.into_iter().collect(),
        Event::Applied((key, object)) => objects.insert(key, object),
        Event::Deleted((key, _)) => objects.remove(&key),
    }
}

/// The policies of an event; one that is gone selects nothing.
fn list_policies<K>(event: Event<(K, PolicySelection)>) -> Vec<(K, PolicySelection)> {
    match event {
        Event::Reset(all) => all,
        Event::Applied(one) => vec![one],
        Event::Deleted((key, _)) => vec![(key, PolicySelection::default())],
    }
}

impl Cache {
    /// Brings the cache up to date.
    pub fn apply_event(&mut self, event: HostEvent) {
        self.listed.insert(event.kind());
        match event {
            // Workloads of all kinds are in one map.
            HostEvent::Workloads(kind, Event::Reset(all)) => {
                self.workloads.retain(|key| key.kind != kind);
                self.workloads.extend(all);
            }
            HostEvent::Workloads(_, event) => apply_change(event, &mut self.workloads),
            HostEvent::Bindings(event) => {
                let (stored, gone) = event.split_changes(self.bindings.keys().cloned(), |(key, _)| key.clone());
                gone.iter().for_each(|key| self.remove_binding(key));
                stored.into_iter().for_each(|(key, binding)| self.put_binding(key, binding));
            }
            HostEvent::PriorityClasses(event) => apply_change(event, &mut self.priority_classes),
            HostEvent::Namespaces(event) => apply_change(event, &mut self.namespaces),
            HostEvent::Queues(event) => apply_change(event, &mut self.queues),
            HostEvent::Policies(event) => {
                if matches!(event, Event::Reset(_)) {
                    self.policies = Sharded::default();
                }
                list_policies(event).into_iter().for_each(|(key, selection)| self.put_policy(key, &selection));
            }
            HostEvent::ClusterPolicies(event) => {
                if matches!(event, Event::Reset(_)) {
                    self.cluster_policies = Arc::default();
                }
                for (name, selection) in list_policies(event) {
                    if self.cluster_policies.changes_with(&name, &selection) {
                        Arc::make_mut(&mut self.cluster_policies).put_policy(&name, &selection);
                    }
                }
            }
        }
    }
}
