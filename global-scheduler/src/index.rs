//! What the scheduler knows: bindings, what their workloads ask for, and the fleet. Events in, questions out; no I/O.
//!
//! Everything is derived from API objects. What a binding was promised (its plan, or its clusters) is held in the fleet
//! until its pods are seen there ([`crate::promise`]), so a restart forgets nothing.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    fleet::{Fleet, Update},
    gang::{Gang, TaskName, WorkloadRef},
    place::{Apis, Groups, Peers, Target, score::Ranking},
};
use caldera_crds::{
    karmada::cluster::Cluster,
    links::{FederationTopology, Links},
    placement, workload,
};
use caldera_runtime::watch::Event;
use jiff::Timestamp;
use serde_json::Value;

pub use crate::binding::{Binding, End, Key};
use crate::{promise::Deadlines, ranking::Rankings};

/// What a workload says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What it asks for, or why that can not be read.
    pub gang: Result<Arc<Gang>, String>,
    /// It names a queue: without admission it goes nowhere.
    pub queued: bool,
    /// Tasks whose completion completes it.
    pub completes: BTreeSet<TaskName>,
}

/// So many different lists of kinds are shared.
const MOST_APIS: usize = 16;

/// What other objects say about a binding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Around {
    /// Where the others of its groups are.
    pub peers: Peers,
    /// How clusters rank for it.
    pub ranking: Ranking,
    /// Clusters that get nothing of it are listed too.
    pub empty_workloads: bool,
}

/// Everything known.
#[derive(Debug, Default)]
pub struct Index {
    /// Bindings by key.
    pub bindings: BTreeMap<Key, Binding>,
    /// The members.
    pub fleet: Fleet,
    /// How policies rank clusters.
    pub rankings: Rankings,
    /// Which clusters are declared to be close.
    pub links: Links,
    /// Clusters that get nothing of a divided workload are listed too.
    pub empty_workloads: bool,
    /// Lists of kinds that members serve.
    apis: Vec<Apis>,
    workloads: BTreeMap<WorkloadRef, Asked>,
    by_workload: BTreeMap<WorkloadRef, BTreeSet<Key>>,
    groups: Groups<Key>,
    /// Where bindings go whose placement is being written.
    pub(crate) assumed: BTreeMap<Key, Vec<Target>>,
    pub(crate) deadlines: Deadlines,
    /// Bindings to look at, most urgent first.
    due: BTreeSet<(Reverse<i32>, String, Key)>,
    /// Bindings that may do better when there is more room.
    waiting: BTreeSet<Key>,
    /// Links or clusters may be others than what was said about links goes by.
    relinked: bool,
}

impl Index {
    /// Takes in what happened to bindings. `global`: of cluster-scoped templates, which are listed by themselves.
    pub fn bindings(&mut self, global: bool, event: Event<Binding>) {
        match event {
            Event::Reset(all) => {
                let named: BTreeSet<&Key> = all.iter().map(|binding| &binding.key).collect();
                let missing = |key: &&Key| key.is_global() == global && !named.contains(key);
                let gone: Vec<Key> = self.bindings.keys().filter(missing).cloned().collect();
                for key in gone {
                    self.remove(&key);
                }
                for binding in all {
                    self.bind(binding);
                }
            }
            Event::Applied(binding) => self.bind(binding),
            Event::Deleted(binding) => self.remove(&binding.key),
        }
    }

    /// Takes in one binding's newest state, also from the answer to a write of ours. An older state that arrives later
    /// is ignored.
    pub fn bind(&mut self, binding: Binding) {
        if let Some(known) = self.bindings.get(&binding.key) {
            let older = matches!((binding.version(), known.version()), (Some(new), Some(old)) if new < old);
            if known.uid == binding.uid && (older || *known == binding) {
                return;
            }
            self.due.remove(&due(known));
            if known.workload != binding.workload || known.groups != binding.groups {
                self.remove(&binding.key.clone());
            }
        }
        let key = binding.key.clone();
        self.groups.insert(&key.namespace, &binding.groups, &key);
        self.by_workload.entry(binding.workload.clone()).or_default().insert(key.clone());
        let holds =
            |binding: &Binding| (binding.place.previous.clone(), binding.ended.clone(), binding.healthy.clone());
        let moved = self.bindings.get(&key).is_some_and(|old| holds(old) != holds(&binding));
        self.bindings.insert(key.clone(), binding);
        self.promise(&key);
        self.mark(&key);
        if moved {
            self.more_room();
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(binding) = self.bindings.remove(key) else { return };
        if let Some(keys) = self.by_workload.get_mut(&binding.workload) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_workload.remove(&binding.workload);
            }
        }
        self.groups.remove(&key.namespace, &binding.groups, key);
        self.assumed.remove(key);
        self.due.remove(&due(&binding));
        self.waiting.remove(key);
        self.withdraw(key);
        self.more_room();
    }

    /// Takes in what happened to workloads: each with what it asks for.
    pub fn workloads(&mut self, kind: (&str, &str), event: Event<(WorkloadRef, Asked)>) {
        match event {
            Event::Reset(all) => {
                let named: BTreeSet<WorkloadRef> = all.iter().map(|(workload, _)| workload.clone()).collect();
                let stays =
                    |known: &WorkloadRef| (known.group.as_str(), known.kind.as_str()) != kind || named.contains(known);
                let gone: Vec<WorkloadRef> = self.workloads.keys().filter(|known| !stays(known)).cloned().collect();
                gone.iter().for_each(|workload| self.forget(workload));
                for (workload, asked) in all {
                    self.ask(&workload, asked);
                }
            }
            Event::Applied((workload, asked)) => self.ask(&workload, asked),
            Event::Deleted((workload, _)) => self.forget(&workload),
        }
    }

    fn forget(&mut self, workload: &WorkloadRef) {
        self.workloads.remove(workload);
        self.fleet.selects(&selector(workload), None);
    }

    fn ask(&mut self, workload: &WorkloadRef, asked: Asked) {
        if self.workloads.get(workload) == Some(&asked) {
            return;
        }
        self.fleet.selects(&selector(workload), asked.gang.as_deref().ok());
        self.workloads.insert(workload.clone(), asked);
        for key in self.by_workload.get(workload).cloned().unwrap_or_default() {
            self.promise(&key);
            self.mark(&key);
        }
    }

    /// Takes in what happened to clusters.
    pub fn clusters(&mut self, event: &Event<Cluster>) {
        let changed = match event {
            Event::Reset(all) => {
                let known: Vec<String> = self.fleet.clusters().map(|(cluster, _)| cluster.name.clone()).collect();
                for name in known {
                    if !all.iter().any(|cluster| cluster.metadata.name.as_deref() == Some(&name)) {
                        self.fleet.remove_cluster(&name);
                    }
                }
                for cluster in all {
                    self.set_cluster(cluster);
                }
                true
            }
            Event::Applied(cluster) => self.set_cluster(cluster),
            Event::Deleted(cluster) => {
                self.fleet.remove_cluster(cluster.metadata.name.as_deref().unwrap_or_default());
                true
            }
        };
        if changed {
            self.relinked = true;
            // Labels, taints or readiness may matter to anybody, placed or not.
            let keys: Vec<Key> = self.bindings.keys().cloned().collect();
            for key in keys {
                self.mark(&key);
            }
        }
    }

    fn set_cluster(&mut self, object: &Cluster) -> bool {
        let mut cluster = placement::read_cluster(object);
        // Most members serve the same kinds: one list for all of them.
        match self.apis.iter().find(|known| **known == cluster.serves) {
            Some(known) => cluster.serves = known.clone(),
            None => {
                self.apis.push(cluster.serves.clone());
                // The oldest may be of versions that are gone.
                self.apis.drain(..self.apis.len().saturating_sub(MOST_APIS));
            }
        }
        self.fleet.set_cluster(cluster, placement::read_summary(object.status.as_ref()))
    }

    /// Takes in what happened to declared links.
    pub fn links(&mut self, event: Event<FederationTopology>) {
        self.relinked = true;
        match event {
            Event::Reset(all) => self.links.replace(all),
            Event::Applied(object) => self.links.set(object),
            Event::Deleted(object) => self.links.remove(object.metadata.name.as_deref().unwrap_or_default()),
        }
        // Who waits may fit where clusters are near each other now; what is placed stays.
        if self.fleet.set_links(self.links.merge_topology()) {
            self.more_room();
        }
    }

    /// What was said about links may not have been written.
    pub fn doubt_links(&mut self) {
        self.relinked = true;
    }

    /// True once after links or clusters may be others than before.
    pub fn take_relinked(&mut self) -> bool {
        std::mem::take(&mut self.relinked)
    }

    /// Takes in what a member's watcher tells.
    pub fn member(&mut self, cluster: &str, update: Update) {
        if self.fleet.update(cluster, update) {
            self.more_room();
        }
    }

    /// Those who wait are worth another look.
    pub fn more_room(&mut self) {
        for key in std::mem::take(&mut self.waiting) {
            self.mark(&key);
        }
    }

    /// Looks at a binding again.
    pub fn mark(&mut self, key: &Key) {
        if let Some(binding) = self.bindings.get(key) {
            if binding.is_due() {
                self.due.insert(due(binding));
            } else {
                self.due.remove(&due(binding));
            }
        }
    }

    /// Looks at a binding again as soon as there may be more room.
    pub fn wait_for_room(&mut self, key: &Key) {
        self.waiting.insert(key.clone());
    }

    /// The bindings to look at, most urgent first; they are not due any more.
    pub fn take_due(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.due).into_iter().map(|(_, _, key)| key).collect()
    }

    /// Whether anything is to be looked at.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// How many bindings wait for room.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What a binding's workload asks for; `None` while it was not seen.
    #[must_use]
    pub fn asked(&self, binding: &Binding) -> Option<&Asked> {
        self.workloads.get(&binding.workload)
    }

    /// What other objects say about a binding now.
    #[must_use]
    pub fn around(&self, binding: &Binding, now: Timestamp) -> Around {
        let own = binding.weights.as_ref().and_then(|stated| stated.as_ref().ok());
        let ranking = self.rankings.of(own, binding.policy.as_ref(), now);
        Around { peers: self.peers(binding), ranking, empty_workloads: self.empty_workloads }
    }

    /// Where the others of the binding's groups are, or will be once it is written.
    fn peers(&self, binding: &Binding) -> Peers {
        self.groups.peers(&binding.key.namespace, &binding.groups, &binding.key, |other| {
            let placed = self.bindings.get(other).map(|other| other.place.previous.as_slice());
            let targets = self.assumed.get(other).map(Vec::as_slice).or(placed).unwrap_or_default();
            targets.iter().map(|target| target.cluster.clone()).collect()
        })
    }
}

/// As who a workload selects nodes.
fn selector(workload: &WorkloadRef) -> String {
    let WorkloadRef { group, kind, namespace, name } = workload;
    format!("{group}/{kind}/{namespace}/{name}")
}

fn due(binding: &Binding) -> (Reverse<i32>, String, Key) {
    (Reverse(binding.priority), binding.created.clone(), binding.key.clone())
}

/// Reads a workload; `None` if it is of no kind in scope.
#[must_use]
pub fn read_workload(object: &Value) -> Option<(WorkloadRef, Asked)> {
    let reference = workload::reference_of(object)?;
    let gang = workload::read_gang(object).map(Arc::new).map_err(|error| error.to_string());
    let completes = workload::completed_by(object);
    Some((reference, Asked { gang, queued: workload::names_queue(object), completes }))
}
