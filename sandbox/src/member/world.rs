//! What the member's stand-ins know: the objects of the watched kinds, and what is on its way.
//!
//! A state machine without I/O. An object that a write of ours returned counts as seen at once, so that a decision is
//! never repeated for want of a watch event; older news about it is ignored by resource version.

mod in_flight;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{device::add_devices, resources::Resources};
use caldera_crds::device::{DeviceClass, MemberDevices, ResourceSlice};
use caldera_runtime::watch::Event;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    assumed_bindings::AssumedBindings,
    facts::{Claim, GroupFacts, JOB_VERSION, NodeFacts, PodFacts, TASK_SPEC, read_job_of_pod},
    job_cache::JobCache,
    object::{Key, annotation, controller_uid, key, label, namespace, number, text, uid},
};
pub use super::{
    kinds::Kind,
    want::{Landing, Want, delete_named, want_create, want_delete, want_merge},
};

/// Label of a partitioned task's pods.
pub const PARTITION: &str = "volcano.sh/partition-id";

/// An object by kind, namespace and name.
pub type ObjectKey = (Kind, Key);

/// A pod of a Volcano Job that went away without the job controller's doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evicted {
    /// Its job's UID.
    pub owner: String,
    /// Its task.
    pub task: String,
    /// Its partition, empty for none.
    pub partition: String,
    /// The job's version that it was made for.
    pub version: i64,
    /// When it was noticed.
    pub at: Timestamp,
}

/// A Command's action that has not shown in its target's status yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// For instance `AbortJob`.
    pub name: String,
    /// The job's version and retry count when the command came.
    pub since: (i64, i64),
}

/// The watched objects and the writes in flight.
#[derive(Debug)]
pub struct World {
    objects: BTreeMap<Kind, BTreeMap<Key, Value>>,
    pods: BTreeMap<Key, PodFacts>,
    /// Pods whose binding is not seen yet.
    assumed: AssumedBindings,
    nodes: BTreeMap<String, NodeFacts>,
    devices: MemberDevices,
    devices_by_node: BTreeMap<String, Resources>,
    groups: BTreeMap<Key, GroupFacts>,
    /// By controller and task, where all pods of both are alike.
    claims: BTreeMap<(String, String), Arc<Claim>>,
    /// Pods by the UID of their controller.
    pods_of: BTreeMap<String, BTreeSet<Key>>,
    /// Writes on their way, with the data that they write.
    in_flight: BTreeMap<ObjectKey, Option<Value>>,
    listed: BTreeSet<Kind>,
    /// Of the kinds that are not watched: whether it is there, where a write told.
    there: BTreeMap<ObjectKey, bool>,
    /// Data of ConfigMaps as written last.
    written: BTreeMap<ObjectKey, Value>,
    /// Jobs that Volcano's job controller knows.
    job_cache: JobCache,
    /// UIDs of pods that a write of ours deletes.
    killed: BTreeSet<String>,
    evicted: BTreeMap<Key, Evicted>,
    /// By kind and name of the target: a Job or a Queue.
    actions: BTreeMap<ObjectKey, Action>,
    queue_news: bool,
    /// Counts what is observed.
    clock: u64,
    /// By the UID of a job: when it, its pods or its PodGroup changed last.
    changed: BTreeMap<String, u64>,
    /// When something changed that all jobs depend on.
    all_changed: u64,
    now: Timestamp,
}

impl Default for World {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            pods: BTreeMap::new(),
            assumed: AssumedBindings::default(),
            nodes: BTreeMap::new(),
            devices: MemberDevices::default(),
            devices_by_node: BTreeMap::new(),
            groups: BTreeMap::new(),
            claims: BTreeMap::new(),
            pods_of: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            listed: BTreeSet::new(),
            there: BTreeMap::new(),
            written: BTreeMap::new(),
            job_cache: JobCache::default(),
            killed: BTreeSet::new(),
            evicted: BTreeMap::new(),
            actions: BTreeMap::new(),
            queue_news: true,
            clock: 0,
            changed: BTreeMap::new(),
            all_changed: 0,
            now: Timestamp::UNIX_EPOCH,
        }
    }
}

impl World {
    /// Tells the time of what is observed from here on.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = now;
        self.job_cache.retry_cleanups(now);
    }

    /// Whether Volcano's job controller knows a job that is there.
    #[must_use]
    pub fn is_job_cached(&self, job: &Value) -> bool {
        self.job_cache.has_job(&key(job), uid(job))
    }

    /// Notes whom a change concerns.
    fn touch(&mut self, kind: Kind, object: &Value) {
        self.clock += 1;
        let job = match kind {
            Kind::VolcanoJob => uid(object),
            Kind::Pod | Kind::PodGroup => controller_uid(object),
            // Of queues and nodes it matters to others only that they are there.
            Kind::Queue | Kind::Node if self.get(kind, &key(object)).is_none() => {
                self.all_changed = self.clock;
                return;
            }
            Kind::PriorityClass | Kind::PersistentVolumeClaim | Kind::ResourceClaim | Kind::ResourceClaimTemplate => {
                self.all_changed = self.clock;
                return;
            }
            _ => return,
        };
        if let Some(at) = self.changed.get_mut(job) {
            *at = self.clock;
        } else if !job.is_empty() {
            self.changed.insert(job.to_owned(), self.clock);
        }
    }

    /// When anything that a job's controller looks at changed last.
    #[must_use]
    pub fn job_changed(&self, job: &Value) -> u64 {
        self.changed.get(uid(job)).copied().unwrap_or_default().max(self.all_changed)
    }

    /// When anything that a pod's kubelet looks at changed last.
    #[must_use]
    pub fn pod_changed(&self, key: &Key) -> u64 {
        self.pods.get(key).map_or(0, |pod| pod.changed).max(self.all_changed)
    }

    /// Whether any queue changed since this was asked last.
    pub fn take_queue_news(&mut self) -> bool {
        std::mem::take(&mut self.queue_news)
    }

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
        if let Some(known) = self.get(kind, &key) {
            if uid(known) != uid(&object) {
                self.forget(kind, &key);
            } else if version_of(known) > version_of(&object) {
                return;
            }
        }
        if self.get(kind, &key).is_none() {
            self.cache_job_or_pod(kind, &key, &object);
        }
        self.queue_news |= kind == Kind::Queue;
        self.touch(kind, &object);
        match kind {
            Kind::Pod => self.remember_pod(&key, &object),
            Kind::PodGroup => drop(self.groups.insert(key.clone(), GroupFacts::read(&object))),
            Kind::Node => self.remember_node(&key.1, &object),
            Kind::ResourceSlice => self.change_devices(|devices| {
                ResourceSlice::read(&object).into_iter().for_each(|slice| devices.set_slice(slice));
            }),
            Kind::DeviceClass => self.change_devices(|devices| {
                DeviceClass::read(&object).into_iter().for_each(|class| devices.set_class(class));
            }),
            Kind::VolcanoJob | Kind::Queue => self.settle_action(kind, &key, &object),
            _ => {}
        }
        self.objects.entry(kind).or_default().insert(key, object);
    }

    fn cache_job_or_pod(&mut self, kind: Kind, key: &Key, object: &Value) {
        match kind {
            Kind::VolcanoJob => self.job_cache.add_job(key, uid(object)),
            Kind::Pod => {
                if let Some(job) = read_job_of_pod(object) {
                    self.job_cache.add_pod(&job, key);
                }
            }
            _ => {}
        }
    }

    fn remember_node(&mut self, name: &str, node: &Value) {
        let mut facts = NodeFacts::read(node);
        if let Some(devices) = self.devices_by_node.get(name) {
            facts.allocatable = add_devices(&facts.allocatable, devices);
        }
        self.nodes.insert(name.to_owned(), facts);
    }

    /// What drivers publish, or classes select, is something else: nodes have other devices.
    fn change_devices(&mut self, change: impl FnOnce(&mut MemberDevices)) {
        change(&mut self.devices);
        self.devices_by_node = self.devices.count_by_node();
        let nodes: Vec<Value> = self.of(Kind::Node).cloned().collect();
        nodes.iter().for_each(|node| self.remember_node(text(node, "/metadata/name"), node));
        self.all_changed = self.clock;
    }

    /// Which devices the nodes have.
    #[must_use]
    pub const fn devices(&self) -> &MemberDevices {
        &self.devices
    }

    fn remember_pod(&mut self, key: &Key, pod: &Value) {
        let owner = controller_uid(pod).to_owned();
        let task = annotation(pod, TASK_SPEC);
        let alike = !task.is_empty() || !label(pod, "pod-template-hash").is_empty();
        let family = alike.then(|| (owner.clone(), task.to_owned()));
        let known = self.pods.get(key).map(|known| known.claim.clone());
        let known = known.or_else(|| self.claims.get(family.as_ref()?).cloned());
        let mut facts = PodFacts::read(pod, known, self.clock);
        self.assumed.fill_node(key, &mut facts);
        if let Some(family) = family {
            self.claims.entry(family).or_insert_with(|| facts.claim.clone());
        }
        self.pods.insert(key.clone(), facts);
        self.pods_of.entry(owner).or_default().insert(key.clone());
        self.evicted.remove(key);
    }

    /// Drops an object that is gone.
    pub fn forget(&mut self, kind: Kind, key: &Key) {
        let Some(gone) = self.objects.get_mut(&kind).and_then(|objects| objects.remove(key)) else { return };
        // The watch may tell of our deletion before its answer does.
        if kind == Kind::Command && self.in_flight.contains_key(&(kind, key.clone())) {
            self.accept(&gone);
        }
        self.queue_news |= kind == Kind::Queue;
        self.touch(kind, &gone);
        if matches!(kind, Kind::Queue | Kind::Node) {
            self.all_changed = self.clock;
        }
        match kind {
            Kind::Pod => self.forget_pod(key, &gone),
            Kind::Node => drop(self.nodes.remove(&key.1)),
            Kind::ResourceSlice => self.change_devices(|devices| devices.remove_slice(&key.1)),
            Kind::DeviceClass => self.change_devices(|devices| devices.remove_class(&key.1)),
            Kind::VolcanoJob => {
                self.job_cache.delete_job(key, self.now);
                self.actions.remove(&(kind, key.clone()));
                self.changed.remove(uid(&gone));
                self.evicted.retain(|_, evicted| evicted.owner != uid(&gone));
                let made = |name: &str| {
                    let rest = name.strip_prefix(key.1.as_str());
                    rest.is_some_and(|rest| matches!(rest, "" | "-svc" | "-ssh" | "-head-svc"))
                };
                self.there.retain(|(_, (namespace, name)), _| *namespace != key.0 || !made(name));
                self.written.retain(|(_, (namespace, name)), _| *namespace != key.0 || !made(name));
            }
            Kind::PodGroup => {
                self.groups.remove(key);
                self.there.retain(|(kind, (namespace, name)), _| {
                    *kind != Kind::Event || *namespace != key.0 || !name.starts_with(key.1.as_str())
                });
            }
            Kind::Queue => drop(self.actions.remove(&(kind, key.clone()))),
            _ => {}
        }
    }

    fn forget_pod(&mut self, key: &Key, gone: &Value) {
        self.pods.remove(key);
        self.assumed.forget(key);
        if let Some(job) = read_job_of_pod(gone) {
            self.job_cache.delete_pod(&job, key, self.now);
        }
        let owner = controller_uid(gone);
        if let Some(pods) = self.pods_of.get_mut(owner) {
            pods.remove(key);
            if pods.is_empty() {
                self.pods_of.remove(owner);
                self.claims.retain(|(of, _), _| of != owner);
            }
        }
        if self.killed.remove(uid(gone)) || annotation(gone, JOB_VERSION).is_empty() {
            return;
        }
        let evicted = Evicted {
            owner: owner.to_owned(),
            task: annotation(gone, TASK_SPEC).to_owned(),
            partition: label(gone, PARTITION).to_owned(),
            version: annotation(gone, JOB_VERSION).parse().unwrap_or_default(),
            at: self.now,
        };
        self.evicted.insert(key.clone(), evicted);
    }

    /// A command is done with once its target's status shows it.
    fn settle_action(&mut self, kind: Kind, key: &Key, object: &Value) {
        let at = (kind, key.clone());
        let Some(action) = self.actions.get(&at) else { return };
        let state = text(object, "/status/state");
        let done = match (kind, action.name.as_str()) {
            (Kind::Queue, "OpenQueue") => state == "Open",
            (Kind::Queue, "CloseQueue") => matches!(state, "Closed" | "Closing"),
            _ => action.since != (number(object, "/status/version"), number(object, "/status/retryCount")),
        };
        if done {
            self.actions.remove(&at);
        }
    }

    /// A Command that is deleted is carried out, once; one that means nothing now is dropped, as Volcano does.
    fn accept(&mut self, command: &Value) {
        let (name, target) = (text(command, "/action").to_owned(), text(command, "/target/name").to_owned());
        let (kind, at) = match text(command, "/target/kind") {
            "Queue" => (Kind::Queue, (String::new(), target)),
            _ => (Kind::VolcanoJob, (namespace(command).to_owned(), target)),
        };
        let Some(object) = self.get(kind, &at) else { return };
        let means_something = match kind {
            Kind::Queue => matches!(name.as_str(), "OpenQueue" | "CloseQueue") && at.1 != "root",
            _ => super::job::accepts_action(text(object, "/status/state/phase"), &name),
        };
        if means_something {
            let since = (number(object, "/status/version"), number(object, "/status/retryCount"));
            self.all_changed = self.clock;
            self.actions.insert((kind, at), Action { name, since });
        }
    }

    /// What a Command wants of this object.
    #[must_use]
    pub fn action(&self, kind: Kind, object: &Value) -> Option<&Action> {
        self.actions.get(&(kind, key(object)))
    }

    /// The pods of the job with this UID that somebody else deleted and that have no successor yet.
    pub fn evicted(&self, owner: &str) -> impl Iterator<Item = (&Key, &Evicted)> {
        self.evicted.iter().filter(move |(_, evicted)| evicted.owner == owner)
    }

    /// Whether a write of ours deletes this pod.
    #[must_use]
    pub fn is_killed(&self, pod: &Value) -> bool {
        self.killed.contains(uid(pod))
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

    /// One object without a namespace.
    #[must_use]
    pub fn named(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.get(kind, &(String::new(), name.to_owned()))
    }

    /// All pods as the schedulers see them.
    pub fn pods(&self) -> impl Iterator<Item = (&Key, &PodFacts)> {
        self.pods.iter()
    }

    /// One pod as the schedulers see it.
    #[must_use]
    pub fn pod(&self, key: &Key) -> Option<&PodFacts> {
        self.pods.get(key)
    }

    /// All PodGroups as the schedulers see them, with the objects.
    pub fn groups(&self) -> impl Iterator<Item = (&Key, &GroupFacts, &Value)> {
        self.groups.iter().filter_map(|(key, group)| Some((key, group, self.get(Kind::PodGroup, key)?)))
    }

    /// All nodes as the schedulers see them, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&String, &NodeFacts)> {
        self.nodes.iter()
    }

    /// The pods controlled by the object with this UID, by name.
    pub fn pods_of(&self, owner_uid: &str) -> impl Iterator<Item = &Value> {
        self.pods_of.get(owner_uid).into_iter().flatten().filter_map(|key| self.get(Kind::Pod, key))
    }
}

fn version_of(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or(0)
}
