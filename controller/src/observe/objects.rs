//! The objects as seen: what the watches told, and what of it changed.
//!
//! Each event updates one object; nothing is rebuilt. An event of an older version than what is known changes nothing.
//! What changed comes back as a list of [`Change`], in the order in which it is to be followed.

mod data_objects;
mod pod_groups;
mod queues;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    sync::Arc,
};

use caldera_core::{
    data_source::DataChange,
    gang::{Gang, QueueName, WorkloadRef},
    image_locality::PodImages,
    interning::Interned,
    place::Groups,
    resources::Resources,
};
use caldera_crds::{
    capacity_reservation::CapacityReservation, names::volcano::ROOT_QUEUE, tenancy::NamespaceFacts,
    workload::WorkloadKind,
};
use caldera_runtime::watch::Event;

use super::{
    binding::{Binding, Key},
    capacity_reservations::CapacityReservations,
    cluster::ClassFacts,
    data_claim::DataObjects,
    fingerprint::fingerprint,
    losses::Losses,
    object_kind::ObjectKind,
    pod_group::PodGroups,
    queue::QueueFacts,
    resource_version::is_older,
    workload::Workload,
};

/// What an event changed.
#[derive(Debug)]
pub(crate) enum Change {
    /// A queue is new, or changed.
    Queue {
        /// Which.
        name: QueueName,
        /// What it says of amounts, of its parent and of jobs.
        spec: bool,
        /// Its state, its mark or its parent.
        state: bool,
        /// Whose jobs it, or one below it, takes.
        access: bool,
    },
    /// A queue is gone; true if it had a word on whose jobs wait in it, or below it.
    QueueGone(QueueName, bool),
    /// A binding or its workload is new, changed, or (the workload) gone.
    Binding(Key),
    /// A Volcano Job is new, changed or gone.
    VolcanoJob(Arc<WorkloadRef>),
    /// A batch Job is new, changed or gone.
    BatchJob(Arc<WorkloadRef>),
    /// A binding is gone.
    BindingGone(Box<Binding>),
    /// The PodGroup of a binding changed or is gone.
    PodGroup(Key),
    /// Other amounts are kept for a time.
    CapacityReservations,
    /// Claims and sources may not say what they should.
    Data(DataChange),
    /// All bindings may be affected.
    AllBindings,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) queues: BTreeMap<QueueName, QueueFacts>,
    /// Queues whose affinity names groups of nodes.
    pub(super) naming_groups: BTreeSet<QueueName>,
    /// Queues that say which clusters their jobs use.
    pub(super) selecting_clusters: BTreeSet<QueueName>,
    pub(crate) bindings: BTreeMap<Key, Box<Binding>>,
    pub(crate) workloads: BTreeMap<Arc<WorkloadRef>, Box<Workload>>,
    pub(crate) pod_groups: PodGroups,
    by_workload: BTreeMap<Arc<WorkloadRef>, Key>,
    /// Bindings by the UID of their workload, for PodGroups that change.
    by_owner: BTreeMap<Arc<str>, Key>,
    pub(crate) capacity_reservations: CapacityReservations,
    classes: BTreeMap<String, ClassFacts>,
    pub(super) known_namespaces: BTreeMap<String, NamespaceFacts>,
    /// Which bindings are in a workload affinity group.
    pub(crate) affinity_groups: Groups<Key>,
    affinity_changed: bool,
    /// What data workloads claim, and where it is.
    pub(crate) data: DataObjects,
    /// Which clusters are lost, and what may still run there.
    pub(crate) losses: Losses,
    /// No gang is admitted in part: who places them knows of no minimum.
    pub(crate) admits_whole_gangs: bool,
    missing: Option<BTreeSet<ObjectKind>>,
    /// Declared kinds whose first lists are waited for.
    unlisted_kinds: BTreeSet<WorkloadKind>,
    /// Kinds of workload that were listed.
    listed: BTreeSet<WorkloadKind>,
    gangs: Interned<Gang>,
    images: Interned<PodImages>,
    requests: Interned<Resources>,
    namespaces: Interned<str>,
}

/// Answers.
impl Objects {
    /// True once every kind has been listed.
    pub(crate) fn is_complete(&self) -> bool {
        self.unlisted_kinds.is_empty() && self.has_all_required()
    }

    /// True once every kind has been listed that must be, whatever is declared.
    fn has_all_required(&self) -> bool {
        self.missing.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// True if nothing but first lists of declared kinds is waited for.
    pub(crate) fn lacks_declared_kinds_alone(&self) -> bool {
        !self.unlisted_kinds.is_empty() && self.has_all_required()
    }

    /// Whether a binding is of a kind that was not listed yet: that its workload is not known says nothing then.
    pub(crate) fn is_of_unlisted_kind(&self, binding: &Binding) -> bool {
        let kind = WorkloadKind::from_group_and_kind(&binding.workload.group, &binding.workload.kind);
        kind.is_some_and(|kind| matches!(kind, WorkloadKind::Declared(_)) && !self.listed.contains(&kind))
    }

    /// True once a kind has been listed.
    pub(crate) fn is_listed(&self, kind: ObjectKind) -> bool {
        self.missing.as_ref().is_some_and(|missing| !missing.contains(&kind))
    }

    /// Kinds that have not been listed yet.
    pub(crate) fn list_unlisted_kinds(&self) -> BTreeSet<ObjectKind> {
        let mut all = self.missing.clone().unwrap_or_else(ObjectKind::list_required);
        all.extend(self.unlisted_kinds.iter().copied().map(ObjectKind::Workloads));
        all
    }

    /// The workload of a binding: the one it was made from, not another of the same name, nor one of another namespace.
    pub(crate) fn workload_of(&self, binding: &Binding) -> Option<&Workload> {
        let workload = self.workloads.get(&binding.workload).filter(|_| is_of_its_namespace(binding))?;
        (binding.workload_uid.is_empty() || binding.workload_uid == workload.uid).then_some(workload)
    }

    /// The binding that was made from a workload.
    pub(crate) fn binding_of(&self, workload: &WorkloadRef) -> Option<&Binding> {
        self.bindings.get(self.key_of_workload(workload)?).map(|binding| &**binding)
    }

    /// Which binding that is.
    pub(crate) fn key_of_workload(&self, workload: &WorkloadRef) -> Option<&Key> {
        self.by_workload.get(workload)
    }

    /// The value of a PriorityClass; the default one's for no name; `None` if there is none of that name.
    pub(crate) fn find_priority_class_value(&self, name: &str) -> Option<i32> {
        if name.is_empty() {
            let default = self.classes.values().filter(|class| class.default).map(|class| class.value).max();
            return Some(default.unwrap_or(0));
        }
        self.classes.get(name).map(|class| class.value)
    }

    /// What a job of this PriorityClass counts as. A class that does not exist counts as none.
    pub(crate) fn priority_of_class(&self, name: &str) -> i32 {
        self.find_priority_class_value(name).or_else(|| self.find_priority_class_value("")).unwrap_or(0)
    }

    /// Whether jobs of a PriorityClass never preempt; the default one's for no name, and for one that does not exist.
    pub(crate) fn never_preempts(&self, name: &str) -> bool {
        let default = || self.classes.values().filter(|class| class.default).max_by_key(|class| class.value);
        self.classes.get(name).or_else(default).is_some_and(|class| class.never_preempts)
    }

    /// The queue that is charged for a binding, or would be.
    pub(crate) fn queue_of<'a>(&'a self, binding: &'a Binding) -> Option<&'a QueueName> {
        let named = self.workload_of(binding).map(|workload| &workload.queue);
        named.or_else(|| binding.admission.as_ref().map(|admission| &admission.queue))
    }

    /// A queue and those above it, the root last.
    pub(crate) fn queue_path(&self, queue: &QueueName) -> Vec<QueueName> {
        let mut path = Vec::new();
        let mut next = Some(queue);
        while let Some(name) = next.filter(|name| name.as_str() != ROOT_QUEUE && !path.contains(*name)) {
            path.push(name.clone());
            next = self.queues.get(name).and_then(|queue| queue.spec.parent.as_ref());
        }
        path.push(ROOT_QUEUE.into());
        path
    }

    /// Whether a namespace asks for queueing.
    pub(crate) fn is_opted_in(&self, namespace: &str) -> bool {
        self.known_namespaces.get(namespace).is_some_and(|facts| facts.opted_in)
    }

    /// True once after the members of a workload affinity group, or where they are, changed.
    pub(crate) fn take_affinity_changed(&mut self) -> bool {
        mem::take(&mut self.affinity_changed)
    }
}

/// Events in.
impl Objects {
    /// All objects of a kind were told.
    pub(crate) fn mark_listed(&mut self, kind: ObjectKind) {
        self.missing.get_or_insert_with(ObjectKind::list_required).remove(&kind);
        if let ObjectKind::Workloads(kind) = kind {
            self.unlisted_kinds.remove(&kind);
            self.listed.insert(kind);
        }
    }

    /// Waits for the first lists of these kinds too.
    pub(crate) fn require_kinds(&mut self, kinds: impl IntoIterator<Item = WorkloadKind>) {
        self.unlisted_kinds.extend(kinds);
    }

    /// Waits for them no more: which they were.
    pub(crate) fn give_up_unlisted(&mut self) -> BTreeSet<WorkloadKind> {
        mem::take(&mut self.unlisted_kinds)
    }

    /// Takes a kind to be unlisted, as if its first list were still under way.
    #[cfg(test)]
    pub(crate) fn forget_listed(&mut self, kind: ObjectKind) {
        self.missing = Some([kind].into());
    }

    pub(crate) fn apply_capacity_reservations(&mut self, event: Event<CapacityReservation>) -> Vec<Change> {
        if matches!(event, Event::Reset(_)) {
            self.mark_listed(ObjectKind::CapacityReservations);
        }
        self.capacity_reservations.apply_event(event);
        vec![Change::CapacityReservations]
    }

    pub(crate) fn apply_bindings(&mut self, event: Event<Binding>) -> Vec<Change> {
        match event {
            Event::Applied(binding) => self.set_binding(binding),
            Event::Deleted(binding) if self.bindings.get(&binding.key).is_some_and(|known| known.id == binding.id) => {
                self.remove_binding(&binding.key).into_iter().collect()
            }
            Event::Deleted(_) => Vec::new(),
            Event::Reset(all) => {
                let there: BTreeSet<&Key> = all.iter().map(|binding| &binding.key).collect();
                let gone: Vec<Key> = self.bindings.keys().filter(|key| !there.contains(key)).cloned().collect();
                let mut changes: Vec<Change> = gone.iter().filter_map(|key| self.remove_binding(key)).collect();
                changes.extend(all.into_iter().flat_map(|binding| self.set_binding(binding)).collect::<Vec<_>>());
                self.mark_listed(ObjectKind::Bindings);
                changes
            }
        }
    }

    fn set_binding(&mut self, mut binding: Binding) -> Vec<Change> {
        binding.replica_request = intern_as_written(&mut self.requests, binding.replica_request);
        binding.workload = self.intern_name(binding.workload);
        binding.key.namespace = self.namespaces.intern(binding.key.namespace);
        let key = binding.key.clone();
        let mut changes = Vec::new();
        match self.bindings.get(&key) {
            // Deleted and made anew; the deletion was not seen.
            Some(known) if known.id != binding.id => changes.extend(self.remove_binding(&key)),
            Some(known) if is_older(&binding.resource_version, &known.resource_version) => return changes,
            Some(_) => self.forget_workload_of(&key),
            None => {}
        }
        if is_of_its_namespace(&binding) {
            self.by_workload.insert(Arc::clone(&binding.workload), key.clone());
            self.by_owner.insert(Arc::clone(&binding.workload_uid), key.clone());
        }
        self.losses.update_withdrawal(&key, Some(&binding));
        let old = self.bindings.insert(key.clone(), Box::new(binding));
        self.update_affinity_groups(old.as_deref(), &key);
        if old.is_none() {
            let claims = self.bindings.get(&key).map(|new| self.data.list_claims_of(&new.workload));
            changes.extend(claims.filter(|change| !change.claims.is_empty()).map(Change::Data));
        }
        changes.push(Change::Binding(key));
        changes
    }

    pub(crate) fn remove_binding(&mut self, key: &Key) -> Option<Change> {
        self.forget_workload_of(key);
        let binding = self.bindings.remove(key)?;
        self.losses.update_withdrawal(key, None);
        self.update_affinity_groups(Some(&binding), key);
        Some(Change::BindingGone(binding))
    }

    /// A binding is of its workload no more.
    fn forget_workload_of(&mut self, key: &Key) {
        let Some(binding) = self.bindings.get(key) else { return };
        if self.by_workload.get(&binding.workload) == Some(key) {
            self.by_workload.remove(&binding.workload);
        }
        if self.by_owner.get(&binding.workload_uid) == Some(key) {
            self.by_owner.remove(&binding.workload_uid);
        }
    }

    /// A binding's affinity groups, or where it is, may have changed: others of its groups may fit now.
    fn update_affinity_groups(&mut self, old: Option<&Binding>, key: &Key) {
        let new = self.bindings.get(key).map(|binding| &**binding);
        let same = |old: &Binding, new: &Binding| (&old.groups, &old.clusters) == (&new.groups, &new.clusters);
        let grouped = [old, new].into_iter().flatten().any(|binding| !binding.groups.is_empty());
        if !grouped || old.zip(new).is_some_and(|(old, new)| same(old, new)) {
            return;
        }
        if let Some(old) = old {
            self.affinity_groups.remove(&old.key.namespace, &old.groups, key);
        }
        if let Some(new) = new {
            self.affinity_groups.insert(&new.key.namespace, &new.groups, key);
        }
        self.affinity_changed = true;
    }

    pub(crate) fn apply_workloads(&mut self, kind: WorkloadKind, event: Event<Workload>) -> Vec<Change> {
        match event {
            Event::Applied(workload) => self.set_workload(workload),
            Event::Deleted(workload) => {
                let same = self.workloads.get(&workload.reference).is_some_and(|known| known.uid == workload.uid);
                if same { self.remove_workload(&workload.reference) } else { Vec::new() }
            }
            Event::Reset(all) => {
                let there: BTreeSet<&WorkloadRef> = all.iter().map(|workload| workload.reference.as_ref()).collect();
                let of_kind = self.workloads.iter().filter(|(_, workload)| workload.kind == kind);
                let gone: Vec<Arc<WorkloadRef>> =
                    of_kind.map(|(reference, _)| reference).filter(|r| !there.contains(r.as_ref())).cloned().collect();
                let mut changes: Vec<Change> = gone.iter().flat_map(|gone| self.remove_workload(gone)).collect();
                changes.extend(all.into_iter().flat_map(|workload| self.set_workload(workload)).collect::<Vec<_>>());
                // What its bindings lack was not held against them until now.
                let is_late = matches!(kind, WorkloadKind::Declared(_)) && !self.listed.contains(&kind);
                self.mark_listed(ObjectKind::Workloads(kind));
                changes.extend(is_late.then_some(Change::AllBindings));
                changes
            }
        }
    }

    fn set_workload(&mut self, mut workload: Workload) -> Vec<Change> {
        let whole = |gang: Arc<Gang>| match self.admits_whole_gangs {
            true => Arc::new(Arc::unwrap_or_clone(gang).requiring_all_pods()),
            false => gang,
        };
        workload.gang = workload.gang.map(whole);
        workload.gang = workload.gang.map(|gang| intern_as_written(&mut self.gangs, gang));
        workload.images = workload.images.map(|images| self.images.intern(images));
        if let Some(known) = self.workloads.get_mut(&workload.reference) {
            if known.uid == workload.uid && is_older(&workload.resource_version, &known.resource_version) {
                return Vec::new();
            }
            // Its version alone changes nothing, but is what a write of ours tests.
            known.resource_version = Arc::clone(&workload.resource_version);
            workload.keep_known(known);
            if **known == workload {
                return Vec::new();
            }
        }
        workload.reference = self.intern_name(workload.reference);
        let (reference, kind) = (Arc::clone(&workload.reference), workload.kind);
        self.workloads.insert(Arc::clone(&reference), Box::new(workload));
        self.list_workload_changes(reference, kind)
    }

    /// Pods of a workload are on nodes, where that is known.
    pub(crate) fn set_on_nodes(&mut self, reference: &WorkloadRef, pods: Option<u32>) {
        if let Some(workload) = self.workloads.get_mut(reference) {
            workload.on_nodes = pods;
        }
    }

    fn remove_workload(&mut self, reference: &WorkloadRef) -> Vec<Change> {
        let gone = self.workloads.remove(reference);
        gone.map_or_else(Vec::new, |gone| self.list_workload_changes(Arc::clone(&gone.reference), gone.kind))
    }

    fn list_workload_changes(&self, reference: Arc<WorkloadRef>, kind: WorkloadKind) -> Vec<Change> {
        let binding = self.by_workload.get(&reference).cloned().map(Change::Binding);
        let job = match kind {
            WorkloadKind::VolcanoJob => Some(Change::VolcanoJob(reference)),
            WorkloadKind::BatchJob => Some(Change::BatchJob(reference)),
            _ => None,
        };
        binding.into_iter().chain(job).collect()
    }

    /// The same name as it is known already, so that ten thousand are kept once.
    fn intern_name(&self, workload: Arc<WorkloadRef>) -> Arc<WorkloadRef> {
        let by_binding = self.by_workload.get_key_value(&workload).map(|(known, _)| known);
        let known = by_binding.or_else(|| self.workloads.get_key_value(&workload).map(|(known, _)| known));
        known.map_or(workload, Arc::clone)
    }

    pub(crate) fn apply_classes(&mut self, event: Event<ClassFacts>) -> Vec<Change> {
        let before = self.classes.clone();
        match event {
            Event::Applied(class) => drop(self.classes.insert(class.name.clone(), class)),
            Event::Deleted(class) => drop(self.classes.remove(&class.name)),
            Event::Reset(all) => {
                self.classes = all.into_iter().map(|class| (class.name.clone(), class)).collect();
                self.mark_listed(ObjectKind::Classes);
            }
        }
        if before == self.classes { Vec::new() } else { vec![Change::AllBindings] }
    }

    pub(crate) fn apply_namespaces(&mut self, event: Event<(String, NamespaceFacts)>) -> Vec<Change> {
        let mut changed = BTreeSet::new();
        match event {
            Event::Applied((name, facts)) => {
                if self.known_namespaces.get(&name) != Some(&facts) {
                    self.known_namespaces.insert(name.clone(), facts);
                    changed.insert(name);
                }
            }
            Event::Deleted((name, _)) => changed.extend(self.known_namespaces.remove(&name).map(|_| name)),
            Event::Reset(all) => {
                let old = mem::replace(&mut self.known_namespaces, all.into_iter().collect());
                let names = old.keys().chain(self.known_namespaces.keys());
                let differs = |name: &&String| old.get(*name) != self.known_namespaces.get(*name);
                changed.extend(names.filter(differs).cloned());
                self.mark_listed(ObjectKind::Namespaces);
            }
        }
        if changed.is_empty() {
            return Vec::new();
        }
        let affected = self.bindings.keys().filter(|key| changed.contains(&*key.namespace));
        affected.cloned().map(Change::Binding).collect()
    }
}

/// A binding counts only for a workload of its own namespace.
fn is_of_its_namespace(binding: &Binding) -> bool {
    binding.workload.namespace == *binding.key.namespace
}

/// Amounts that are equal and written in another way are kept apart: what is told of them is what their user wrote.
fn intern_as_written<T: fmt::Debug + PartialEq>(kept: &mut Interned<T>, value: Arc<T>) -> Arc<T> {
    kept.intern_by_fingerprint(fingerprint(&value), value)
}
