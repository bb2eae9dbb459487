//! All that the controller knows: objects in, where every binding stands out. No I/O, no clock of its own.
//!
//! Events update one binding's standing each and feed the queue engine; nothing is rebuilt. Between a release and its
//! appearance in the watch the binding is *assumed* admitted, keyed by its UID and the version that was decided on: an
//! event of an older version changes nothing, so that a release is neither repeated nor forgotten in between.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    fleet::Update,
    gang::{QueueName, WorkloadRef},
    queue::{Engine, JobId, ledger::Stage},
    reason::{Position, Reason},
};
use caldera_crds::{
    karmada::work::ResourceBinding,
    volcano::scheduling::{PodGroup, Queue},
    workload::WorkloadKind,
};
use caldera_runtime::{
    watch::Event,
    write::{Done, Failure},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    effect::Effect,
    facts::{Binding, ClassFacts, ClusterFacts, GroupFacts, Key, QueueFacts, QueueNumbers, Workload},
    podgroup,
    room::Room,
    standing::{self, Around, Standing},
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
    /// A PodGroup of this binding.
    Group(Key),
    /// A PodGroup that is not needed any more.
    OldGroup,
    /// [`Effect::QueueStatus`].
    Queue(QueueName),
    /// [`Effect::DefaultQueue`].
    DefaultQueue,
    /// [`Effect::Tell`].
    Tell,
}

/// Kinds that must have been listed before anything is decided: half a view gives away what the other half holds.
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
}

impl Source {
    /// All of them.
    #[must_use]
    pub fn all() -> BTreeSet<Self> {
        let kinds = WorkloadKind::ALL.into_iter().map(Self::Workloads);
        [Self::Queues, Self::Bindings, Self::Groups, Self::Classes, Self::Clusters, Self::Namespaces]
            .into_iter()
            .chain(kinds)
            .collect()
    }
}

/// A binding and what we do about it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) binding: Binding,
    pub(crate) state: State,
    pub(crate) assumed: Option<Assumed>,
    /// The release was refused: not before then, for this reason.
    pub(crate) refused: Option<(Arc<str>, Timestamp)>,
    pub(crate) group: GroupWriting,
}

/// Where a binding stands.
#[derive(Debug, PartialEq)]
pub(crate) enum State {
    OutOfScope,
    Blocked(Reason),
    InLine,
    Holding { stage: Stage, reason: Reason },
}

/// A release that the watch has not shown yet.
#[derive(Debug)]
pub(crate) struct Assumed {
    pub(crate) resource_version: Arc<str>,
    pub(crate) admission: Admission,
    /// When to do something about it: `None` while its write is under way.
    pub(crate) retry: Option<Retry>,
    pub(crate) attempts: u32,
}

/// What to do about a release whose write failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Whether it was stored is not known: send the same again, which can only succeed once.
    Resend(Timestamp),
    /// The binding has changed, and the watch will say how; if it does not, look at it as it is.
    GiveUp(Timestamp),
}

/// What we know of our writes to a binding's PodGroup.
#[derive(Debug, Default)]
pub(crate) struct GroupWriting {
    pub(crate) in_flight: bool,
    pub(crate) last_write: Option<Timestamp>,
    pub(crate) changed_at: Option<Timestamp>,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) spec_written: u64,
}

/// What we know of our writes to a queue's status.
#[derive(Debug, Default)]
pub(crate) struct QueueWriting {
    pub(crate) in_flight: bool,
    pub(crate) last_write: Option<Timestamp>,
    pub(crate) refused: Option<QueueNumbers>,
}

/// How many texts of which only numbers changed were written in the second that began then.
#[derive(Debug, Default)]
pub(crate) struct Refreshes {
    pub(crate) since: Timestamp,
    pub(crate) written: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Index {
    pub(crate) engine: Engine,
    pub(crate) room: Room,
    pub(crate) entries: BTreeMap<Key, Entry>,
    pub(crate) ids: BTreeMap<JobId, Key>,
    by_workload: BTreeMap<WorkloadRef, Key>,
    pub(crate) workloads: BTreeMap<WorkloadRef, Workload>,
    pub(crate) groups: BTreeMap<Key, GroupFacts>,
    /// Bindings by the UID of their workload, for PodGroups that change under us.
    by_owner: BTreeMap<Arc<str>, Key>,
    pub(crate) queues: BTreeMap<QueueName, QueueFacts>,
    classes: BTreeMap<String, ClassFacts>,
    opted_in: BTreeSet<String>,
    pub(crate) missing: Option<BTreeSet<Source>>,
    /// Bindings whose PodGroup is to be looked at now.
    pub(crate) dirty: BTreeSet<Key>,
    /// Bindings to be looked at later.
    pub(crate) timers: BTreeSet<(Timestamp, Key)>,
    /// PodGroups whose binding is gone.
    pub(crate) orphans: Vec<(Key, Arc<str>)>,
    /// What is to be told to users.
    pub(crate) tells: Vec<Effect>,
    pub(crate) queue_writes: BTreeMap<QueueName, QueueWriting>,
    /// Queues that have no state yet.
    pub(crate) new_queues: BTreeSet<QueueName>,
    /// Charges or lines changed since the last sweep.
    pub(crate) moved: bool,
    pub(crate) sweep: VecDeque<(JobId, Position)>,
    pub(crate) sweep_due: Option<Timestamp>,
    pub(crate) last_sweep: Option<Timestamp>,
    sweep_taken: Option<Timestamp>,
    pub(crate) refreshes: Refreshes,
    pub(crate) default_queue_asked: bool,
    freed: bool,
    pub(crate) now: Timestamp,
}

/// Facts in.
impl Index {
    /// Takes in what happened, at this time.
    pub fn apply(&mut self, input: Input, now: Timestamp) {
        self.now = now;
        match input {
            Input::Queues(event) => self.queues(event),
            Input::Bindings(event) => self.bindings(event),
            Input::Workloads(kind, event) => self.workloads(kind, event),
            Input::Groups(event) => self.groups(event),
            Input::Classes(event) => self.classes(event),
            Input::Clusters(event) => self.clusters(event),
            Input::Namespaces(event) => self.namespaces(event),
            Input::Member(cluster, update) => self.room.update(&cluster, update),
            Input::Written(done) => self.written(done),
        }
    }

    /// True once every kind has been listed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Kinds that have not been listed yet.
    #[must_use]
    pub fn waits_for(&self) -> BTreeSet<Source> {
        self.missing.clone().unwrap_or_else(Source::all)
    }

    /// True once after quota was given back.
    pub fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Jobs in line by queue, once after each sweep.
    pub fn take_pending(&mut self) -> Vec<(String, usize)> {
        if self.sweep_taken == self.last_sweep {
            return Vec::new();
        }
        self.sweep_taken = self.last_sweep;
        self.queues.keys().map(|name| (name.to_string(), self.engine.usage(name).waiting)).collect()
    }

    fn listed(&mut self, source: Source) {
        self.missing.get_or_insert_with(Source::all).remove(&source);
    }

    fn queues(&mut self, event: Event<QueueFacts>) {
        match event {
            Event::Applied(queue) => self.queue(queue),
            Event::Deleted(queue) => self.queue_gone(&queue.spec.name),
            Event::Reset(all) => {
                let there: BTreeSet<QueueName> = all.iter().map(|queue| queue.spec.name.clone()).collect();
                let gone: Vec<QueueName> = self.queues.keys().filter(|name| !there.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.queue_gone(name));
                all.into_iter().for_each(|queue| self.queue(queue));
                self.listed(Source::Queues);
            }
        }
    }

    fn queue(&mut self, queue: QueueFacts) {
        let name = queue.spec.name.clone();
        self.engine.set_queue(queue.spec.clone());
        if !matches!(queue.state.as_deref(), Some("Open" | "Closed" | "Closing")) {
            self.new_queues.insert(name.clone());
        }
        self.moved = true;
        self.queues.insert(name, queue);
    }

    fn queue_gone(&mut self, name: &QueueName) {
        self.engine.remove_queue(name);
        self.queues.remove(name);
        self.queue_writes.remove(name);
        self.new_queues.remove(name);
        self.moved = true;
    }

    fn bindings(&mut self, event: Event<Binding>) {
        match event {
            Event::Applied(binding) => self.binding(binding),
            Event::Deleted(binding) => {
                if self.entries.get(&binding.key).is_some_and(|entry| entry.binding.id == binding.id) {
                    self.binding_gone(&binding.key);
                }
            }
            Event::Reset(all) => {
                let there: BTreeSet<&Key> = all.iter().map(|binding| &binding.key).collect();
                let gone: Vec<Key> = self.entries.keys().filter(|key| !there.contains(key)).cloned().collect();
                gone.iter().for_each(|key| self.binding_gone(key));
                all.into_iter().for_each(|binding| self.binding(binding));
                self.listed(Source::Bindings);
            }
        }
    }

    fn binding(&mut self, binding: Binding) {
        let key = binding.key.clone();
        if let Some(entry) = self.entries.get_mut(&key) {
            if entry.binding.id != binding.id {
                // Deleted and made anew; the deletion was not seen.
                self.binding_gone(&key);
            } else if is_older(&binding.resource_version, &entry.binding.resource_version) {
                return;
            } else {
                entry.binding = binding;
                self.restand(&key);
                return;
            }
        }
        self.ids.insert(binding.id.clone(), key.clone());
        self.by_workload.insert(binding.workload.clone(), key.clone());
        self.by_owner.insert(Arc::clone(&binding.workload_uid), key.clone());
        let (state, group) = (State::OutOfScope, GroupWriting::default());
        self.entries.insert(key.clone(), Entry { binding, state, assumed: None, refused: None, group });
        self.restand(&key);
    }

    fn binding_gone(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else { return };
        let id = entry.binding.id.as_str();
        self.freed |= entry.assumed.is_some() || matches!(entry.state, State::Holding { .. });
        self.moved = true;
        self.engine.forget(id);
        self.room.withdraw(id);
        self.ids.remove(id);
        self.dirty.remove(key);
        if self.by_workload.get(&entry.binding.workload) == Some(key) {
            self.by_workload.remove(&entry.binding.workload);
        }
        self.by_owner.remove(&entry.binding.workload_uid);
        // Without its workload the garbage collector takes the PodGroup; otherwise it is ours to delete.
        if let Some(workload) = self.workloads.get(&entry.binding.workload).filter(|workload| !workload.deleting) {
            let group = podgroup::key(workload);
            if let Some(uid) = self.groups.get(&group).map(|facts| Arc::clone(&facts.uid)) {
                self.orphans.push((group, uid));
            }
        }
    }

    fn workloads(&mut self, kind: WorkloadKind, event: Event<Workload>) {
        match event {
            Event::Applied(workload) => self.workload(workload),
            Event::Deleted(workload) => {
                let same = self.workloads.get(&workload.reference).is_some_and(|known| known.uid == workload.uid);
                if same {
                    self.workload_gone(&workload.reference);
                }
            }
            Event::Reset(all) => {
                let there: BTreeSet<&WorkloadRef> = all.iter().map(|workload| &workload.reference).collect();
                let of_kind = self.workloads.iter().filter(|(_, workload)| workload.kind == kind);
                let gone: Vec<WorkloadRef> =
                    of_kind.map(|(reference, _)| reference).filter(|r| !there.contains(r)).cloned().collect();
                gone.iter().for_each(|reference| self.workload_gone(reference));
                all.into_iter().for_each(|workload| self.workload(workload));
                self.listed(Source::Workloads(kind));
            }
        }
    }

    fn workload(&mut self, workload: Workload) {
        let reference = workload.reference.clone();
        if self.workloads.get(&reference) == Some(&workload) {
            return;
        }
        self.workloads.insert(reference.clone(), workload);
        if let Some(key) = self.by_workload.get(&reference).cloned() {
            self.restand(&key);
        }
    }

    fn workload_gone(&mut self, reference: &WorkloadRef) {
        self.workloads.remove(reference);
        if let Some(key) = self.by_workload.get(reference).cloned() {
            self.restand(&key);
        }
    }

    fn groups(&mut self, event: Event<GroupFacts>) {
        match event {
            Event::Applied(group) => self.group(group),
            Event::Deleted(group) => {
                self.groups.remove(&group.key);
                self.look_at_owner(&group.owner);
            }
            Event::Reset(all) => {
                let old = std::mem::take(&mut self.groups);
                all.into_iter().for_each(|group| self.group(group));
                let gone: Vec<Arc<str>> = old
                    .values()
                    .filter(|old| !self.groups.contains_key(&old.key))
                    .map(|old| Arc::clone(&old.owner))
                    .collect();
                gone.iter().for_each(|owner| self.look_at_owner(owner));
                self.listed(Source::Groups);
            }
        }
    }

    fn group(&mut self, group: GroupFacts) {
        let owner = Arc::clone(&group.owner);
        if self.groups.get(&group.key) != Some(&group) {
            self.groups.insert(group.key.clone(), group);
            self.look_at_owner(&owner);
        }
    }

    fn look_at_owner(&mut self, owner: &str) {
        if let Some(key) = self.by_owner.get(owner) {
            self.dirty.insert(key.clone());
        }
    }

    fn classes(&mut self, event: Event<ClassFacts>) {
        let listed = matches!(event, Event::Reset(_));
        let before = self.classes.clone();
        match event {
            Event::Applied(class) => drop(self.classes.insert(class.name.clone(), class)),
            Event::Deleted(class) => drop(self.classes.remove(&class.name)),
            Event::Reset(all) => self.classes = all.into_iter().map(|class| (class.name.clone(), class)).collect(),
        }
        if listed {
            self.listed(Source::Classes);
        }
        if before != self.classes {
            self.restand_all(|_| true);
        }
    }

    fn clusters(&mut self, event: Event<ClusterFacts>) {
        match event {
            Event::Applied(cluster) => self.room.set_cluster(cluster),
            Event::Deleted(cluster) => self.room.remove_cluster(&cluster.cluster.name),
            Event::Reset(all) => {
                let there: BTreeSet<&str> = all.iter().map(|facts| facts.cluster.name.as_str()).collect();
                let gone: Vec<String> =
                    self.room.names().into_iter().filter(|name| !there.contains(name.as_str())).collect();
                gone.iter().for_each(|name| self.room.remove_cluster(name));
                all.into_iter().for_each(|cluster| self.room.set_cluster(cluster));
                self.listed(Source::Clusters);
            }
        }
    }

    fn namespaces(&mut self, event: Event<(String, bool)>) {
        let before = self.opted_in.clone();
        match event {
            Event::Applied((name, true)) => drop(self.opted_in.insert(name)),
            Event::Applied((name, false)) | Event::Deleted((name, _)) => drop(self.opted_in.remove(&name)),
            Event::Reset(all) => {
                self.opted_in = all.into_iter().filter(|(_, opted)| *opted).map(|(name, _)| name).collect();
                self.listed(Source::Namespaces);
            }
        }
        let changed: BTreeSet<String> = before.symmetric_difference(&self.opted_in).cloned().collect();
        if !changed.is_empty() {
            self.restand_all(|binding| changed.contains(&*binding.key.namespace));
        }
    }
}

/// Answers to our writes.
impl Index {
    fn written(&mut self, done: Done<Tag>) {
        match done.tag {
            Tag::Release(key, version) => self.released(&key, &version, done.result),
            Tag::Group(key) => self.group_written(&key, done.result),
            Tag::Queue(name) => self.queue_written(&name, done.result),
            Tag::DefaultQueue => match done.result {
                Ok(_) | Err(Failure::Exists(_)) => {}
                Err(error) => {
                    tracing::warn!(%error, "failed to create the default queue");
                    self.default_queue_asked = !matches!(error, Failure::Transient(_));
                }
            },
            Tag::OldGroup | Tag::Tell => {
                if let Err(error) = done.result {
                    tracing::debug!(%error, "a write that is not repeated failed");
                }
            }
        }
    }

    fn released(&mut self, key: &Key, version: &Arc<str>, result: Result<Value, Failure>) {
        let now = self.now;
        let Some(entry) = self.entries.get_mut(key) else { return };
        // An answer to a release that was overtaken says nothing about the one under way.
        let current = entry.assumed.as_mut().filter(|assumed| assumed.resource_version == *version);
        let Some(assumed) = current else { return };
        match result {
            Ok(object) => match serde_json::from_value::<ResourceBinding>(object) {
                Ok(object) => self.binding(Binding::read(&object)),
                Err(error) => tracing::warn!(binding = %key, %error, "a released binding does not parse"),
            },
            Err(Failure::Gone(_)) => self.binding_gone(key),
            Err(error @ Failure::Transient(_)) => {
                assumed.attempts += 1;
                let wait = SignedDuration::from_millis(100 << assumed.attempts.min(7));
                let at = now.saturating_add(wait).unwrap_or(now);
                tracing::debug!(binding = %key, %error, "whether the release was stored is not known; sending it again");
                assumed.retry = Some(Retry::Resend(at));
                self.timers.insert((at, key.clone()));
            }
            Err(Failure::Conflict(_)) if assumed.resource_version == entry.binding.resource_version => {
                let at = now.saturating_add(SignedDuration::from_secs(5)).unwrap_or(now);
                assumed.retry = Some(Retry::GiveUp(at));
                self.timers.insert((at, key.clone()));
            }
            Err(Failure::Conflict(_)) => {
                entry.assumed = None;
                self.restand(key);
            }
            Err(error) => {
                tracing::warn!(binding = %key, %error, "the release was refused");
                let at = now.saturating_add(SignedDuration::from_secs(10)).unwrap_or(now);
                entry.assumed = None;
                entry.refused = Some((error.to_string().into(), at));
                self.timers.insert((at, key.clone()));
                self.restand(key);
            }
        }
    }

    fn group_written(&mut self, key: &Key, result: Result<Value, Failure>) {
        let now = self.now;
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.group.in_flight = false;
        self.dirty.insert(key.clone());
        let wait = match result {
            Ok(object) => {
                match serde_json::from_value::<PodGroup>(object) {
                    Ok(object) => self.group(GroupFacts::read(&object)),
                    Err(error) => tracing::warn!(binding = %key, %error, "a PodGroup that we wrote does not parse"),
                }
                return;
            }
            Err(Failure::Gone(_)) => {
                if let Some(workload) = self.workloads.get(&entry.binding.workload) {
                    self.groups.remove(&podgroup::key(workload));
                }
                1
            }
            // It will be seen.
            Err(Failure::Exists(_)) => 5,
            Err(Failure::Transient(_) | Failure::Conflict(_)) => 1,
            Err(error) => {
                tracing::warn!(binding = %key, %error, "failed to write a PodGroup");
                60
            }
        };
        entry.group.not_before = now.saturating_add(SignedDuration::from_secs(wait)).ok();
    }

    fn queue_written(&mut self, name: &QueueName, result: Result<Value, Failure>) {
        let writing = self.queue_writes.entry(name.clone()).or_default();
        writing.in_flight = false;
        match result {
            Ok(object) => {
                writing.refused = None;
                if let Ok(object) = serde_json::from_value::<Queue>(object) {
                    self.queue(QueueFacts::read(&object));
                }
            }
            Err(Failure::Refused { message, .. }) => {
                tracing::warn!(queue = %name, error = message, "failed to write the status of a queue");
            }
            // Gone queues are forgotten by their event; all else is tried again with the next sweep.
            Err(_) => {
                writing.refused = None;
                self.moved = true;
            }
        }
    }
}

/// Where bindings stand.
impl Index {
    /// The value of a PriorityClass; the default one's for no name; `None` if there is none of that name.
    pub(crate) fn class_value(&self, name: &str) -> Option<i32> {
        if name.is_empty() {
            let default = self.classes.values().filter(|class| class.default).map(|class| class.value).max();
            return Some(default.unwrap_or(0));
        }
        self.classes.get(name).map(|class| class.value)
    }

    /// The workload of a binding: the one it was made from, not another of the same name.
    pub(crate) fn workload_of(&self, binding: &Binding) -> Option<&Workload> {
        let workload = self.workloads.get(&binding.workload)?;
        (binding.workload_uid.is_empty() || binding.workload_uid == workload.uid).then_some(workload)
    }

    pub(crate) fn restand_all(&mut self, which: impl Fn(&Binding) -> bool) {
        let keys: Vec<Key> = self
            .entries
            .values()
            .filter(|entry| which(&entry.binding))
            .map(|entry| entry.binding.key.clone())
            .collect();
        keys.iter().for_each(|key| self.restand(key));
    }

    /// Works out anew where a binding stands, and tells the engine.
    pub(crate) fn restand(&mut self, key: &Key) {
        let now = self.now;
        let Some(entry) = self.entries.get_mut(key) else { return };
        let seen = entry.binding.admission.is_some()
            || entry.assumed.as_ref().is_some_and(|a| a.resource_version != entry.binding.resource_version);
        if entry.assumed.is_some() && !seen {
            return;
        }
        // By the answer or by the watch, whichever is first.
        let admitted = entry.assumed.take().and(entry.binding.admission.clone());
        if let Some(admission) = admitted {
            self.tell_admitted(key, &admission);
        }
        let Some(entry) = self.entries.get(key) else { return };
        let waits_out = entry.refused.as_ref().is_some_and(|(_, until)| *until > now);
        self.dirty.insert(key.clone());
        let Some(entry) = self.entries.get(key) else { return };
        let (binding, workload) = (&entry.binding, self.workload_of(&entry.binding));
        let around = Around {
            priority: workload.and_then(|workload| self.class_value(&workload.class)).unwrap_or(0),
            copies: binding.placement.as_deref().map_or(1, |placement| self.room.copies(placement)),
            opted_in: self.opted_in.contains(&*binding.key.namespace),
        };
        let class_value = |name: &str| self.class_value(name).unwrap_or(0);
        let mut standing = standing::standing(binding, workload, around, class_value);
        if let (true, Some((detail, _)), Standing::InLine(_)) = (waits_out, &entry.refused, &standing) {
            standing = Standing::Blocked(Reason::NotReleased { detail: detail.to_string() });
        }
        self.take_stand(key, standing);
    }

    fn take_stand(&mut self, key: &Key, standing: Standing) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let id = entry.binding.id.clone();
        let held = self.engine.charge_of(id.as_str());
        self.moved = true;
        entry.state = match standing {
            Standing::OutOfScope => {
                self.engine.forget(id.as_str());
                State::OutOfScope
            }
            Standing::Blocked(reason) => {
                self.engine.forget(id.as_str());
                State::Blocked(reason)
            }
            Standing::InLine(job) => {
                self.engine.wait(job);
                State::InLine
            }
            Standing::Holding { queue, charge, reason } => {
                self.engine.hold(&id, &queue, &charge.amount);
                State::Holding { stage: charge.stage, reason }
            }
        };
        let holds = match &entry.state {
            State::Holding { stage, .. } => Some(*stage),
            _ => None,
        };
        let now_held = self.engine.charge_of(id.as_str()).unwrap_or_default();
        self.freed |= held.is_some_and(|held| !held.fits_in(&now_held));
        self.keep_place(key, holds);
    }

    /// Keeps the place of what was released and is not seen in members yet.
    fn keep_place(&mut self, key: &Key, stage: Option<Stage>) {
        let Some(entry) = self.entries.get(key) else { return };
        let gang = self.workload_of(&entry.binding).and_then(|workload| workload.gang.as_ref().ok()).cloned();
        let binding = &entry.binding;
        match (stage, gang) {
            (Some(Stage::Placed | Stage::Foreign), Some(gang)) => self.room.promise_placed(binding, &gang),
            // The place that was found at the release.
            (Some(Stage::Admitted), _) => {}
            _ => self.room.withdraw(binding.id.as_str()),
        }
    }

    fn tell_admitted(&mut self, key: &Key, admission: &Admission) {
        let Some(entry) = self.entries.get(key) else { return };
        let Some(workload) = self.workload_of(&entry.binding) else { return };
        let waited = self.now.as_second().saturating_sub(entry.binding.created).max(0);
        let message = format!("queue {} is charged {}; waited {waited} s", admission.queue, admission.charged);
        let tell = crate::plan::tell(workload, caldera_runtime::event::EventType::Normal, "Admitted", message);
        self.tells.push(tell);
    }
}

/// Versions are opaque, but every API server counts them; what is no number is taken for newer.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}
