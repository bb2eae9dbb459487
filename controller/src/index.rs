//! All that the controller knows: objects in, where every binding stands out. No I/O, no clock of its own.
//!
//! Events update one binding's standing each and feed the queue engine; nothing is rebuilt. Between a release and its
//! appearance in the watch the binding is *assumed* admitted, keyed by its UID and the version that was decided on: an
//! event of an older version changes nothing, so that a release is neither repeated nor forgotten in between.

mod answers;
mod growth;
mod input;
mod shared;
mod stand;
mod tally;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    gang::{Gang, QueueName, WorkloadRef},
    place::Groups,
    queue::{Engine, JobId, ledger::Stage},
    reason::{Position, Reason},
    resources::Resources,
};
use caldera_crds::{
    links::{FederationTopology, Links},
    workload::WorkloadKind,
};
use caldera_runtime::watch::Event;
use jiff::Timestamp;
use shared::Shared;

pub use input::{Input, Source, Tag};

use crate::{
    doubt::Doubts,
    effect::Effect,
    facts::{Binding, ClassFacts, ClusterFacts, GroupFacts, Key, QueueFacts, QueueNumbers, Workload},
    give_back::Claims,
    lifecycle::Lifecycle,
    podgroup,
    queue_note::Notes,
    room::Room,
    unplaced::Unplaced,
    unstarted::Unstarted,
    unused::Unused,
};

/// A binding and what we do about it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) binding: Binding,
    pub(crate) state: State,
    pub(crate) assumed: Option<Box<Assumed>>,
    /// The release was refused: not before then, for this reason.
    pub(crate) refused: Option<(Arc<str>, Timestamp)>,
    pub(crate) group: GroupWriting,
    pub(crate) growth: Option<Box<growth::Growth>>,
}

/// Where a binding stands.
#[derive(Debug, PartialEq)]
pub(crate) enum State {
    OutOfScope,
    Blocked(Box<Reason>),
    InLine,
    Holding { stage: Stage, reason: Box<Reason> },
}

/// A release that the watch has not shown yet.
#[derive(Debug)]
pub(crate) struct Assumed {
    pub(crate) resource_version: Arc<str>,
    pub(crate) admission: Admission,
    /// It is a changed record of a binding that holds already.
    pub(crate) regrants: bool,
    pub(crate) epoch: Option<Arc<str>>,
    /// When to send it again: `None` while its write is under way.
    pub(crate) retry: Option<Timestamp>,
    pub(crate) attempts: u32,
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
    pub(crate) changed_at: Option<Timestamp>,
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
    pub(crate) claims: Claims,
    pub(crate) room: Room,
    pub(crate) entries: BTreeMap<Key, Box<Entry>>,
    pub(crate) ids: BTreeMap<JobId, Key>,
    by_workload: BTreeMap<Arc<WorkloadRef>, Key>,
    pub(crate) workloads: BTreeMap<Arc<WorkloadRef>, Box<Workload>>,
    pub(crate) groups: BTreeMap<Key, Box<GroupFacts>>,
    /// Bindings by the UID of their workload, for PodGroups that change under us.
    by_owner: BTreeMap<Arc<str>, Key>,
    pub(crate) queues: BTreeMap<QueueName, QueueFacts>,
    classes: BTreeMap<String, ClassFacts>,
    opted_in: BTreeSet<String>,
    links: Links,
    /// Who is in a workload affinity group with whom.
    pub(crate) affinities: Groups<Key>,
    /// Somebody in a group is elsewhere than before.
    pub(crate) regrouped: bool,
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
    tally: tally::Tally,
    gangs: Shared<Gang>,
    requests: Shared<Resources>,
    namespaces: Shared<str>,
    pub(crate) unplaced: Unplaced,
    pub(crate) unstarted: Unstarted,
    pub(crate) unused: Unused,
    pub(crate) doubts: Doubts,
    /// Under which lease this replica grants; `None` without one.
    pub(crate) epoch: Option<Arc<str>>,
    /// Smaller records to be written.
    pub(crate) cuts: BTreeMap<Key, Admission>,
    /// PodGroups whose writes were not answered yet.
    pub(crate) writing: usize,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) notes: Notes,
    /// Charges or lines changed since the last sweep.
    pub(crate) moved: bool,
    pub(crate) sweep: VecDeque<(JobId, Position)>,
    pub(crate) sweep_due: Option<Timestamp>,
    /// When what others use in the members was last counted, and when to do so again.
    pub(crate) counted: Option<Timestamp>,
    pub(crate) count_due: Option<Timestamp>,
    /// Queues' numbers are to be looked at then.
    pub(crate) numbers_due: Option<Timestamp>,
    pub(crate) last_sweep: Option<Timestamp>,
    sweep_taken: Option<Timestamp>,
    pub(crate) refreshes: Refreshes,
    /// PodGroups of whose text only numbers are out of date, for which there was no budget yet.
    pub(crate) outdated: BTreeSet<Key>,
    pub(crate) refresh_due: Option<Timestamp>,
    /// The last turn sent releases and left the rest to this one.
    pub(crate) hurried: bool,
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
            Input::Links(event) => self.links(event),
            Input::Commands(event) => self.lifecycle.commands(event),
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
        self.missing.clone().unwrap_or_else(Source::needed)
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
        self.queues.keys().map(|name| (name.to_string(), self.engine.usage_of(name).waiting)).collect()
    }

    fn listed(&mut self, source: Source) {
        self.missing.get_or_insert_with(Source::needed).remove(&source);
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

    pub(crate) fn queue(&mut self, queue: QueueFacts) {
        let name = queue.spec.name.clone();
        let known = self.queues.get(&name).filter(|known| known.uid == queue.uid);
        if known.is_some_and(|known| is_older(&queue.resource_version, &known.resource_version)) {
            return;
        }
        let about = |queue: &QueueFacts| (queue.state.clone(), queue.closed_by_parent, queue.spec.parent.clone());
        self.lifecycle.queue_seen(&name, known.is_some_and(|known| about(known) == about(&queue)));
        if known.is_none_or(|known| (&known.spec, &known.wrong) != (&queue.spec, &queue.wrong)) {
            self.notes.tree_changed(self.now);
        }
        self.engine.set_queue(queue.spec.clone());
        self.moved = true;
        self.queues.insert(name, queue);
    }

    fn queue_gone(&mut self, name: &QueueName) {
        self.engine.remove_queue(name);
        self.queues.remove(name);
        self.queue_writes.remove(name);
        self.lifecycle.queue_gone(name);
        self.notes.queue_gone(name, self.now);
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

    fn binding(&mut self, mut binding: Binding) {
        binding.replica_request = self.requests.share(binding.replica_request);
        binding.workload = self.name(binding.workload);
        binding.key.namespace = self.namespaces.share(binding.key.namespace);
        let key = binding.key.clone();
        if let Some(entry) = self.entries.get_mut(&key) {
            if entry.binding.id != binding.id {
                // Deleted and made anew; the deletion was not seen.
                self.binding_gone(&key);
            } else if is_older(&binding.resource_version, &entry.binding.resource_version) {
                return;
            } else {
                let old = std::mem::replace(&mut entry.binding, binding);
                self.regrouped_as(&key, &old);
                self.restand(&key);
                return;
            }
        }
        self.ids.insert(binding.id.clone(), key.clone());
        self.by_workload.insert(binding.workload.clone(), key.clone());
        self.by_owner.insert(Arc::clone(&binding.workload_uid), key.clone());
        let (state, group) = (State::OutOfScope, GroupWriting::default());
        self.regroup(None, Some(&binding));
        let entry = Entry { binding, state, assumed: None, refused: None, group, growth: None };
        self.entries.insert(key.clone(), Box::new(entry));
        self.restand(&key);
    }

    fn binding_gone(&mut self, key: &Key) {
        self.stop_growing(key);
        self.cuts.remove(key);
        let Some(entry) = self.entries.remove(key) else { return };
        self.regroup(Some(&entry.binding), None);
        let id = entry.binding.id.as_str();
        self.freed |= entry.assumed.is_some() || matches!(entry.state, State::Holding { .. });
        self.moved = true;
        self.engine.remove_job(id);
        self.room.forget(&entry.binding.id);
        self.room.selects(id, None);
        self.unplaced.observe(key, None, self.now);
        self.unstarted.forget(key);
        self.unused.forget(key);
        self.doubts.forget(key);
        self.recount(key);
        self.ids.remove(id);
        self.dirty.remove(key);
        self.outdated.remove(key);
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
                let there: BTreeSet<&WorkloadRef> = all.iter().map(|workload| workload.reference.as_ref()).collect();
                let of_kind = self.workloads.iter().filter(|(_, workload)| workload.kind == kind);
                let gone: Vec<Arc<WorkloadRef>> =
                    of_kind.map(|(reference, _)| reference).filter(|r| !there.contains(r.as_ref())).cloned().collect();
                gone.iter().for_each(|reference| self.workload_gone(reference));
                all.into_iter().for_each(|workload| self.workload(workload));
                self.listed(Source::Workloads(kind));
            }
        }
    }

    fn workload(&mut self, mut workload: Workload) {
        workload.gang = workload.gang.map(|gang| self.gangs.share(gang));
        if self.workloads.get(&workload.reference).is_some_and(|known| **known == workload) {
            return;
        }
        workload.reference = self.name(workload.reference);
        let reference = Arc::clone(&workload.reference);
        self.workloads.insert(Arc::clone(&reference), Box::new(workload));
        if let Some(key) = self.by_workload.get(&reference).cloned() {
            self.restand(&key);
        }
    }

    /// The same name as it is known already, so that ten thousand are kept once.
    fn name(&self, workload: Arc<WorkloadRef>) -> Arc<WorkloadRef> {
        let by_binding = self.by_workload.get_key_value(&workload).map(|(known, _)| known);
        let known = by_binding.or_else(|| self.workloads.get_key_value(&workload).map(|(known, _)| known));
        known.map_or(workload, Arc::clone)
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

    fn group(&mut self, mut group: GroupFacts) {
        let owner = Arc::clone(&group.owner);
        if self.groups.get(&group.key).is_none_or(|known| **known != group) {
            group.key.namespace = self.namespaces.share(group.key.namespace);
            if let Some((known, _)) = self.by_owner.get_key_value(&owner) {
                group.owner = Arc::clone(known);
            }
            self.groups.insert(group.key.clone(), Box::new(group));
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

    fn links(&mut self, event: Event<FederationTopology>) {
        match event {
            Event::Applied(object) => self.links.set(object),
            Event::Deleted(object) => self.links.remove(object.metadata.name.as_deref().unwrap_or_default()),
            Event::Reset(all) => self.links.replace(all),
        }
        self.room.set_links(self.links.merge_topology());
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

/// Versions are opaque, but every API server counts them; what is no number is taken for newer.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}
