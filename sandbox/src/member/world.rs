//! What the member's stand-ins know: the objects of the watched kinds, and what is on its way.
//!
//! A state machine without I/O. An object that a write of ours returned counts as seen at once, so that a decision is
//! never repeated for want of a watch event; older news about it is ignored by resource version.

use std::collections::{BTreeMap, BTreeSet};

use caldera_runtime::{
    watch::{Event, resource},
    write::{Body, Write},
};
use kube::api::ApiResource;
use serde_json::Value;

use super::object::{Key, key, text, uid};

/// The kinds the stand-ins look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// batch.volcano.sh Job.
    VolcanoJob,
    /// scheduling.volcano.sh PodGroup.
    PodGroup,
    /// scheduling.volcano.sh Queue.
    Queue,
    /// v1 Pod.
    Pod,
    /// v1 Node.
    Node,
    /// apps/v1 Deployment.
    Deployment,
    /// apps/v1 ReplicaSet.
    ReplicaSet,
    /// apps/v1 StatefulSet.
    StatefulSet,
    /// batch/v1 Job.
    BatchJob,
    /// scheduling.k8s.io PriorityClass.
    PriorityClass,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::VolcanoJob,
        Self::PodGroup,
        Self::Queue,
        Self::Pod,
        Self::Node,
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::BatchJob,
        Self::PriorityClass,
    ];

    /// Its API resource.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        match self {
            Self::VolcanoJob => resource("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
            Self::PodGroup => resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
            Self::Queue => resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
            Self::Pod => resource("", "v1", "Pod", "pods"),
            Self::Node => resource("", "v1", "Node", "nodes"),
            Self::Deployment => resource("apps", "v1", "Deployment", "deployments"),
            Self::ReplicaSet => resource("apps", "v1", "ReplicaSet", "replicasets"),
            Self::StatefulSet => resource("apps", "v1", "StatefulSet", "statefulsets"),
            Self::BatchJob => resource("batch", "v1", "Job", "jobs"),
            Self::PriorityClass => resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
        }
    }
}

/// An object by kind, namespace and name.
pub type ObjectKey = (Kind, Key);

/// The watched objects and the writes in flight.
#[derive(Debug, Default)]
pub struct World {
    objects: BTreeMap<Kind, BTreeMap<Key, Value>>,
    /// Pods by the UID of their controller.
    pods_of: BTreeMap<String, BTreeSet<Key>>,
    in_flight: BTreeSet<ObjectKey>,
    listed: BTreeSet<Kind>,
}

impl World {
    /// Takes in what a watch said.
    pub fn observe(&mut self, kind: Kind, event: Event<Value>) {
        match event {
            Event::Reset(all) => {
                self.listed.insert(kind);
                let keep: BTreeSet<Key> = all.iter().map(key).collect();
                let gone: Vec<Key> = self.of(kind).map(key).filter(|key| !keep.contains(key)).collect();
                for key in gone {
                    self.forget(kind, &key);
                }
                for object in all {
                    self.remember(kind, object);
                }
            }
            Event::Applied(object) => self.remember(kind, object),
            Event::Deleted(object) => {
                // A successor of the same name may already be known from a write's answer.
                let key = key(&object);
                if self.get(kind, &key).is_some_and(|known| uid(known) == uid(&object)) {
                    self.forget(kind, &key);
                }
            }
        }
    }

    /// Takes in an object, unless a newer state of it is known.
    pub fn remember(&mut self, kind: Kind, object: Value) {
        let key = key(&object);
        if let Some(known) = self.get(kind, &key)
            && uid(known) == uid(&object)
            && version(known) > version(&object)
        {
            return;
        }
        self.forget(kind, &key);
        if kind == Kind::Pod {
            self.pods_of.entry(super::object::controller_uid(&object).to_owned()).or_default().insert(key.clone());
        }
        self.objects.entry(kind).or_default().insert(key, object);
    }

    /// Drops an object.
    pub fn forget(&mut self, kind: Kind, key: &Key) {
        let Some(gone) = self.objects.get_mut(&kind).and_then(|objects| objects.remove(key)) else { return };
        if kind == Kind::Pod
            && let Some(pods) = self.pods_of.get_mut(super::object::controller_uid(&gone))
        {
            pods.remove(key);
            if pods.is_empty() {
                self.pods_of.remove(super::object::controller_uid(&gone));
            }
        }
    }

    /// Whether every kind in `kinds` has been listed once.
    #[must_use]
    pub fn has_listed(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.listed.contains(kind))
    }

    /// All objects of a kind, by namespace and name.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.get(&kind).into_iter().flat_map(BTreeMap::values)
    }

    /// One object.
    #[must_use]
    pub fn get(&self, kind: Kind, key: &Key) -> Option<&Value> {
        self.objects.get(&kind)?.get(key)
    }

    /// The pods controlled by the object with this UID, by name.
    pub fn pods_of(&self, owner_uid: &str) -> impl Iterator<Item = &Value> {
        self.pods_of.get(owner_uid).into_iter().flatten().filter_map(|key| self.get(Kind::Pod, key))
    }

    /// Whether a write to this object is on its way.
    #[must_use]
    pub fn is_in_flight(&self, key: &ObjectKey) -> bool {
        self.in_flight.contains(key)
    }

    /// Marks a write as on its way; false if one already is.
    pub fn take_off(&mut self, key: ObjectKey) -> bool {
        self.in_flight.insert(key)
    }

    /// Takes in a write's answer.
    pub fn land(&mut self, key: &ObjectKey, answer: Option<Value>) {
        self.in_flight.remove(key);
        // Answers of subresources such as `binding` are a Status, not the object.
        if let Some(object) = answer
            && text(&object, "/kind") == key.0.resource().kind
        {
            self.remember(key.0, object);
        }
    }
}

fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or(0)
}

/// A write that a stand-in wants, with the object it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Want {
    /// The object.
    pub about: ObjectKey,
    /// The write.
    pub write: Write,
}

/// Creates `object`.
#[must_use]
pub fn create(kind: Kind, object: Value) -> Want {
    want(kind, &object.clone(), None, Body::Create(object))
}

/// Merges `patch` into `object` (or one of its subresources).
#[must_use]
pub fn merge(kind: Kind, object: &Value, subresource: Option<&'static str>, patch: Value) -> Want {
    want(kind, object, subresource, Body::MergePatch(patch))
}

/// Deletes `object`, if it is still the same one.
#[must_use]
pub fn delete(kind: Kind, object: &Value) -> Want {
    want(kind, object, None, Body::Delete { uid: Some(uid(object).to_owned()) })
}

fn want(kind: Kind, object: &Value, subresource: Option<&'static str>, body: Body) -> Want {
    let (namespace, name) = key(object);
    let write =
        Write { resource: kind.resource(), namespace: namespace.clone(), name: name.clone(), subresource, body };
    Want { about: (kind, (namespace, name)), write }
}
