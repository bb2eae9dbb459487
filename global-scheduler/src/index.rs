//! What the scheduler knows: bindings, what their workloads ask for, and the fleet. Events in, questions out; no I/O.
//!
//! Everything is derived from API objects. What a binding was promised (its plan, or its clusters) is held in the fleet
//! until its pods are seen there, so a restart forgets nothing.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    fleet::{Fleet, Promise, Update},
    gang::{Gang, WorkloadRef},
    place::{
        self, Apis, Peers, Target,
        score::{Ranking, Weights},
    },
    plan::Plan,
    queue::give_back::Eviction,
};
use caldera_crds::{
    karmada::{
        cluster::Cluster,
        work::{ResourceBindingSpec, ResourceBindingStatus},
    },
    names::{
        caldera::{ADMISSION, EVICTION, GATE, GATE_OPEN, PLAN, SCHEDULER_NAME},
        karmada::{APPLIED_PLACEMENT, BINDING_MANAGED_BY, CLUSTER_POLICY_ID, POLICY_ID},
    },
    placement,
    workload::{self, WorkloadKind},
};
use caldera_runtime::watch::Event;
use jiff::Timestamp;
use serde_json::Value;

use crate::ranking::{self, PolicyKey, Rankings};

/// Namespace (empty for a ClusterResourceBinding) and name of a binding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Key {
    /// Whether it is a ClusterResourceBinding's.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.namespace.is_empty()
    }
}

/// A ResourceBinding or ClusterResourceBinding as far as the scheduler looks at it.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// Which.
    pub key: Key,
    /// `metadata.uid`.
    pub uid: String,
    /// As last seen.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`, which sorts as text.
    pub created: String,
    /// Being deleted.
    pub deleting: bool,
    /// It has annotations at all.
    pub annotated: bool,
    /// Karmada made it from a policy, or somebody says that it is to be scheduled.
    pub claimed: bool,
    /// `spec.schedulerName` is ours.
    pub ours: bool,
    /// Its gate; `None` for one that is not queued.
    pub gate: Option<Gate>,
    /// `spec.suspension.scheduling`: while the gate is open, somebody else's hold.
    pub held: bool,
    /// `spec.schedulePriority.priority`.
    pub priority: i32,
    /// What the controller granted.
    pub admission: Option<Admission>,
    /// Clusters where it was placed before and did not start.
    pub avoid: Vec<String>,
    /// The template.
    pub workload: WorkloadRef,
    /// As written, for events about the template.
    pub api_version: String,
    /// `spec.placement` as written; `None` for a dependency's binding.
    pub placement: Option<Value>,
    /// As placement sees it, but for what others say ([`Index::around`]).
    pub place: place::Binding,
    /// `spec.workloadAffinityGroups`.
    pub groups: Vec<Group>,
    /// What it asks for by its own words, where it is not queued.
    pub replica: Option<Arc<Gang>>,
    /// How clusters rank, where it says so itself.
    pub weights: Option<Weights>,
    /// The policy that made it.
    pub policy: Option<PolicyKey>,
    /// The plan annotation, if it can be read.
    pub plan: Option<Plan>,
    /// The applied-placement annotation.
    pub applied: Option<String>,
    /// What status says.
    pub status: Status,
    /// Clusters where the workload has ended.
    pub ended: BTreeSet<String>,
}

/// The state of a queued binding's gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It waits to be admitted.
    Closed,
    /// We lifted it.
    Open,
}

/// A workload affinity group; it ends at its namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Its members go where the others are.
    Together(String),
    /// Its members go where no other is.
    Apart(String),
}

/// The part of a binding's status that the scheduler writes, and the conditions that others do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// All conditions as written.
    pub conditions: Vec<Value>,
    /// `schedulerObservedGeneration`.
    pub observed_generation: Option<i64>,
    /// `lastScheduledTime` is there.
    pub scheduled_before: bool,
}

impl Status {
    /// The `Scheduled` condition's status, reason and message.
    #[must_use]
    pub fn scheduled(&self) -> Option<(&str, &str, &str)> {
        let condition = self.conditions.iter().find(|condition| condition["type"] == "Scheduled")?;
        Some((
            condition["status"].as_str().unwrap_or_default(),
            condition["reason"].as_str().unwrap_or_default(),
            condition["message"].as_str().unwrap_or_default(),
        ))
    }
}

impl Binding {
    /// Reads a binding; `None` if it is none.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let annotation = |key: &str| object["metadata"]["annotations"][key].as_str();
        let spec: ResourceBindingSpec = serde_json::from_value(object.get("spec")?.clone()).ok()?;
        let status: ResourceBindingStatus =
            object.get("status").and_then(|status| serde_json::from_value(status.clone()).ok()).unwrap_or_default();
        let resource = &spec.resource;
        let workload = WorkloadRef {
            group: resource.api_version.split_once('/').map_or("", |(group, _)| group).to_owned(),
            kind: resource.kind.clone(),
            namespace: resource.namespace.clone().unwrap_or_default(),
            name: resource.name.clone(),
        };
        let ours = spec.scheduler_name.as_deref() == Some(SCHEDULER_NAME);
        let gate = annotation(GATE).map(|gate| if gate == GATE_OPEN { Gate::Open } else { Gate::Closed });
        let named = spec.workload_affinity_groups.clone().unwrap_or_default();
        let group = |name: Option<String>, kind: fn(String) -> Group| name.filter(|name| !name.is_empty()).map(kind);
        let groups = [group(named.affinity_group, Group::Together), group(named.anti_affinity_group, Group::Apart)];
        let has_label = |label: &&str| object["metadata"]["labels"].get(*label).is_some();
        let ended = status.aggregated_status.iter().filter(|item| item.status.as_ref().is_some_and(has_ended));
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        Some(Self {
            key: Key { namespace: text("/metadata/namespace"), name: text("/metadata/name") },
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            generation: object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0),
            created: text("/metadata/creationTimestamp"),
            deleting: object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()),
            ours,
            annotated: object["metadata"]["annotations"].is_object(),
            claimed: [POLICY_ID, CLUSTER_POLICY_ID, BINDING_MANAGED_BY].iter().any(has_label),
            gate,
            held: spec.suspension.as_ref().and_then(|suspension| suspension.scheduling) == Some(true),
            priority: spec.schedule_priority.as_ref().and_then(|priority| priority.priority).unwrap_or(0),
            admission: annotation(ADMISSION).and_then(|text| Admission::parse(text).ok()),
            avoid: annotation(EVICTION)
                .and_then(|text| Eviction::parse(text).ok())
                .map_or_else(Vec::new, |eviction| eviction.avoid),
            workload,
            api_version: resource.api_version.clone(),
            placement: object.pointer("/spec/placement").filter(|placement| !placement.is_null()).cloned(),
            place: placement::binding(&spec, Some(&status)),
            groups: groups.into_iter().flatten().collect(),
            replica: (ours && gate.is_none()).then(|| Arc::new(placement::replica(&spec))),
            weights: ranking::weights_of(object),
            policy: ranking::policy_of(object),
            plan: annotation(PLAN).and_then(|text| serde_json::from_str(text).ok()),
            applied: annotation(APPLIED_PLACEMENT).map(ToOwned::to_owned),
            status: Status {
                conditions,
                observed_generation: status.scheduler_observed_generation,
                scheduled_before: status.last_scheduled_time.is_some(),
            },
            ended: ended.map(|item| item.cluster_name.clone()).collect(),
        })
    }

    /// Whether it is ours to place now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_released() || self.is_unqueued()
    }

    /// Whether it was queued and is admitted.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.gate == Some(Gate::Open) && self.admission.is_some() && self.is_ours_now()
    }

    /// Whether a policy names us as the scheduler of something that is not queued: it is placed as karmada-scheduler would.
    /// A Volcano Job is always queued.
    #[must_use]
    pub fn is_unqueued(&self) -> bool {
        let volcano = WorkloadKind::parse(&self.api_version, &self.workload.kind) == Some(WorkloadKind::VolcanoJob);
        self.gate.is_none() && self.admission.is_none() && self.claimed && !volcano && self.is_ours_now()
    }

    fn is_ours_now(&self) -> bool {
        self.ours && !self.held && !self.deleting && self.placement.is_some()
    }

    /// A version that can be compared, where the server's can.
    fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}

/// True if a member's status says that the workload will run no more pods.
fn has_ended(status: &Value) -> bool {
    let phase = status.pointer("/state/phase").or_else(|| status.get("phase")).and_then(Value::as_str);
    let finished = |condition: &Value| {
        matches!(condition["type"].as_str(), Some("Complete" | "Failed")) && condition["status"] == "True"
    };
    matches!(phase, Some("Completed" | "Failed" | "Terminated" | "Aborted" | "Succeeded"))
        || status.get("conditions").and_then(Value::as_array).is_some_and(|all| all.iter().any(finished))
}

/// What a workload says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What it asks for, or why that can not be read.
    pub gang: Result<Arc<Gang>, String>,
    /// It names a queue: without admission it goes nowhere.
    pub queued: bool,
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
    /// Lists of kinds that members serve.
    apis: Vec<Apis>,
    workloads: BTreeMap<WorkloadRef, Asked>,
    by_workload: BTreeMap<WorkloadRef, BTreeSet<Key>>,
    /// By namespace and group.
    by_group: BTreeMap<(String, Group), BTreeSet<Key>>,
    /// Where bindings go whose placement is being written.
    assumed: BTreeMap<Key, Vec<Target>>,
    /// Bindings to look at, most urgent first.
    due: BTreeSet<(Reverse<i32>, String, Key)>,
    /// Bindings that may do better when there is more room.
    waiting: BTreeSet<Key>,
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
        for group in &binding.groups {
            self.by_group.entry((key.namespace.clone(), group.clone())).or_default().insert(key.clone());
        }
        self.by_workload.entry(binding.workload.clone()).or_default().insert(key.clone());
        let holds = |binding: &Binding| (binding.place.previous.clone(), binding.ended.clone());
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
        for group in binding.groups.iter().cloned() {
            if let Entry::Occupied(mut keys) = self.by_group.entry((key.namespace.clone(), group)) {
                keys.get_mut().remove(key);
                if keys.get().is_empty() {
                    keys.remove();
                }
            }
        }
        self.assumed.remove(key);
        self.due.remove(&due(&binding));
        self.waiting.remove(key);
        self.fleet.withdraw(&key.to_string());
        self.more_room();
    }

    /// Takes in what happened to workloads: each with what it asks for.
    pub fn workloads(&mut self, kind: (&str, &str), event: Event<(WorkloadRef, Asked)>) {
        match event {
            Event::Reset(all) => {
                let named: BTreeSet<WorkloadRef> = all.iter().map(|(workload, _)| workload.clone()).collect();
                self.workloads
                    .retain(|known, _| (known.group.as_str(), known.kind.as_str()) != kind || named.contains(known));
                for (workload, asked) in all {
                    self.ask(&workload, asked);
                }
            }
            Event::Applied((workload, asked)) => self.ask(&workload, asked),
            Event::Deleted((workload, _)) => drop(self.workloads.remove(&workload)),
        }
    }

    fn ask(&mut self, workload: &WorkloadRef, asked: Asked) {
        if self.workloads.get(workload) == Some(&asked) {
            return;
        }
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
            // Labels, taints or readiness may matter to anybody, placed or not.
            let keys: Vec<Key> = self.bindings.keys().cloned().collect();
            for key in keys {
                self.mark(&key);
            }
        }
    }

    fn set_cluster(&mut self, object: &Cluster) -> bool {
        let mut cluster = placement::cluster(object);
        // Most members serve the same kinds: one list for all of them.
        match self.apis.iter().find(|known| **known == cluster.serves) {
            Some(known) => cluster.serves = known.clone(),
            None => {
                self.apis.push(cluster.serves.clone());
                // The oldest may be of versions that are gone.
                self.apis.drain(..self.apis.len().saturating_sub(MOST_APIS));
            }
        }
        self.fleet.set_cluster(cluster, placement::summary(object.status.as_ref()))
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
        let ranking = self.rankings.of(binding.weights.as_ref(), binding.policy.as_ref(), now);
        Around { peers: self.peers(binding), ranking }
    }

    /// Where the others of the binding's groups are, or will be once it is written.
    fn peers(&self, binding: &Binding) -> Peers {
        let mut peers = Peers::default();
        for group in &binding.groups {
            let members = self.by_group.get(&(binding.key.namespace.clone(), group.clone()));
            for other in members.into_iter().flatten().filter(|other| **other != binding.key) {
                let placed = self.bindings.get(other).map(|other| other.place.previous.as_slice());
                let targets = self.assumed.get(other).map(Vec::as_slice).or(placed).unwrap_or_default();
                match group {
                    Group::Together(_) => peers.join(targets),
                    Group::Apart(_) => peers.part(targets),
                }
            }
        }
        peers
    }

    /// Holds what a decision promises, until the binding itself says it.
    pub fn assume(&mut self, key: &Key, targets: &[Target], plan: Option<&Plan>) {
        let Some(binding) = self.bindings.get(key) else { return };
        if !binding.groups.is_empty() {
            self.assumed.insert(key.clone(), targets.to_vec());
        }
        let Some(Ok(gang)) = self.workloads.get(&binding.workload).map(|asked| &asked.gang) else { return };
        let promise = promise(binding, gang, targets, plan, &BTreeSet::new());
        self.fleet.promise(&key.to_string(), promise);
    }

    /// Holds what the binding itself says (after a decision could not be written, too).
    pub fn promise(&mut self, key: &Key) {
        self.assumed.remove(key);
        let Some(binding) = self.bindings.get(key) else { return };
        let gang = self.workloads.get(&binding.workload).map(|asked| &asked.gang);
        match gang {
            Some(Ok(gang)) if binding.ours && !binding.place.previous.is_empty() => {
                let targets = &binding.place.previous;
                let promise = promise(binding, gang, targets, binding.plan.as_ref(), &binding.ended);
                self.fleet.promise(&key.to_string(), promise);
            }
            _ => self.fleet.withdraw(&key.to_string()),
        }
    }
}

fn due(binding: &Binding) -> (Reverse<i32>, String, Key) {
    (Reverse(binding.priority), binding.created.clone(), binding.key.clone())
}

/// The pods of each task that a plan (or, for kinds without one, the targets) gives each cluster.
fn promise(
    binding: &Binding,
    gang: &Arc<Gang>,
    targets: &[Target],
    plan: Option<&Plan>,
    ended: &BTreeSet<String>,
) -> Promise {
    let share = |target: &Target| -> Vec<u32> {
        match plan.and_then(|plan| plan.clusters.get(target.cluster.as_str())) {
            Some(share) => {
                gang.tasks.iter().map(|task| share.tasks.get(&task.name).map_or(0, |share| share.replicas)).collect()
            }
            None if gang.tasks.len() == 1 => vec![u32::try_from(target.replicas).unwrap_or(0)],
            None => gang.tasks.iter().map(|task| task.replicas).collect(),
        }
    };
    let alive = targets.iter().filter(|target| !ended.contains(&target.cluster));
    Promise {
        workload: binding.workload.clone(),
        gang: Arc::clone(gang),
        pods: alive.map(|target| (target.cluster.clone(), share(target))).collect(),
        domains: plan.map(Plan::domains).unwrap_or_default(),
    }
}

/// Reads a workload; `None` if it is of no kind in scope.
#[must_use]
pub fn read_workload(object: &Value) -> Option<(WorkloadRef, Asked)> {
    let reference = workload::reference(object)?;
    let gang = workload::gang(object).map(Arc::new).map_err(|error| error.to_string());
    Some((reference, Asked { gang, queued: workload::names_queue(object) }))
}
