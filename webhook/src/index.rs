//! What the webhook remembers, fed by watches: bindings (gate, clusters, plan), workloads (queue, priority class),
//! PriorityClasses, opted-in namespaces, queues. No async; each review reads it under a short lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::plan::Plan;
use caldera_crds::{
    names::caldera,
    workload::{WorkloadKind, priority_class_of},
};
use serde_json::Value;

use crate::scope::queue_of;

/// Namespace and name.
pub type Key = (String, String);

/// A workload of a kind that can be in scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadKey {
    /// Which kind.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What matters of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    /// The queue it names.
    pub queue: Option<Arc<str>>,
    /// The PriorityClass it names.
    pub priority_class: Option<Arc<str>>,
}

impl Workload {
    /// Out of the object.
    #[must_use]
    pub fn of(kind: WorkloadKind, object: &Value) -> Self {
        let class = Some(priority_class_of(object)).filter(|name| !name.is_empty());
        Self { queue: queue_of(kind, object).map(Arc::from), priority_class: class.map(Arc::from) }
    }
}

/// What matters of a ResourceBinding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binding {
    /// `apiVersion` and `kind` of its workload: two kinds of one name share a binding's name.
    pub resource: (Arc<str>, Arc<str>),
    /// Whether we gated it, or it carries our scheduler's name.
    pub ours: bool,
    /// Replicas by cluster, as placed.
    pub clusters: BTreeMap<String, u32>,
    /// The plan; an error is its text that does not parse.
    pub plan: Option<Result<Arc<Plan>, String>>,
    /// Of the plan's text; 0 without one.
    pub plan_fingerprint: u64,
}

impl Binding {
    /// Out of the object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("");
        let annotation = |name: &str| object.pointer("/metadata/annotations")?.get(name)?.as_str();
        let plan = annotation(caldera::PLAN);
        let clusters = object.pointer("/spec/clusters").and_then(Value::as_array).into_iter().flatten();
        Self {
            resource: (text("/spec/resource/apiVersion").into(), text("/spec/resource/kind").into()),
            ours: annotation(caldera::GATE).is_some() || text("/spec/schedulerName") == caldera::SCHEDULER_NAME,
            clusters: clusters
                .filter_map(|cluster| {
                    let replicas = cluster.get("replicas").and_then(Value::as_u64).unwrap_or(0);
                    Some((cluster.get("name")?.as_str()?.to_owned(), u32::try_from(replicas).unwrap_or(u32::MAX)))
                })
                .collect(),
            plan: plan.map(|text| serde_json::from_str(text).map(Arc::new).map_err(|error| error.to_string())),
            plan_fingerprint: fingerprint(plan),
        }
    }
}

/// A number that differs where plans differ (FNV-1a); 0 without a plan.
#[must_use]
pub fn fingerprint(plan: Option<&str>) -> u64 {
    let hash = |text: &str| {
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    plan.map_or(0, hash)
}

/// What matters of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    /// The queue above; empty means root.
    pub parent: String,
    /// `status.state`; empty where nobody has written one yet.
    pub state: String,
}

impl Queue {
    /// Out of the object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("").to_owned();
        Self { parent: text("/spec/parent"), state: text("/status/state") }
    }
}

/// What to read live, because memory does not have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// A workload, and whether its namespace is opted in.
    Workload(WorkloadKey),
    /// A binding.
    Binding(Key),
}

/// What a live read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Live {
    /// The workload if it is there, and whether its namespace is opted in.
    Workload(Option<Workload>, bool),
    /// The binding, if it is there.
    Binding(Option<Box<Binding>>),
    /// The read failed: why.
    Failed(String),
}

/// Everything remembered.
#[derive(Debug, Default)]
pub struct Index {
    /// Workloads of the kinds in scope.
    pub workloads: BTreeMap<WorkloadKey, Workload>,
    /// Bindings of those kinds.
    pub bindings: BTreeMap<Key, Binding>,
    /// Values of PriorityClasses.
    pub priority_classes: BTreeMap<String, i32>,
    /// The PriorityClass of workloads that name none.
    pub default_priority: Option<(String, i32)>,
    /// Namespaces whose workloads are in scope.
    pub opted_in: BTreeSet<String>,
    /// Queues.
    pub queues: BTreeMap<String, Queue>,
    /// The same queues whole, for the rules that compare them.
    pub queue_objects: BTreeMap<String, Value>,
    /// Kinds that were listed at least once.
    pub listed: BTreeSet<&'static str>,
    /// Fingerprints of plans that went through admission and are not in `bindings` yet.
    announced: BTreeMap<Key, u64>,
}

impl Index {
    /// Remembers a binding, as its watch tells.
    pub fn put_binding(&mut self, key: Key, binding: Binding) {
        if self.announced.get(&key) == Some(&binding.plan_fingerprint) {
            self.announced.remove(&key);
        }
        self.bindings.insert(key, binding);
    }

    /// Forgets a binding.
    pub fn remove_binding(&mut self, key: &Key) {
        self.announced.remove(key);
        self.bindings.remove(key);
    }

    /// A binding with this plan went through admission: until the watch shows it, memory is not to be trusted.
    pub fn announce(&mut self, key: Key, plan: u64) {
        if self.bindings.get(&key).map_or(0, |binding| binding.plan_fingerprint) == plan {
            self.announced.remove(&key);
        } else {
            self.announced.insert(key, plan);
        }
    }

    /// Whether [`Self::announce`] would change anything.
    #[must_use]
    pub fn is_news(&self, key: &Key, plan: u64) -> bool {
        let known = self.bindings.get(key).map_or(0, |binding| binding.plan_fingerprint);
        self.announced.get(key).map_or(known != plan, |announced| *announced != plan)
    }

    /// Number of queues whose parent is `name`.
    #[must_use]
    pub fn children(&self, name: &str) -> usize {
        self.queues.values().filter(|queue| queue.parent == name).count()
    }
}

/// Memory and, if one was made, a live read.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// Memory.
    pub index: &'a Index,
    /// The live read.
    pub live: Option<&'a Live>,
}

/// What is known about something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known<T> {
    /// It is there.
    Yes(T),
    /// It is not there.
    No,
    /// Nobody has looked.
    Unread,
    /// Looking failed.
    Failed(String),
}

impl<'a> Snapshot<'a> {
    /// Memory alone.
    #[must_use]
    pub const fn of(index: &'a Index) -> Self {
        Self { index, live: None }
    }

    /// A workload, from the live read or from memory.
    #[must_use]
    pub fn workload(&self, key: &WorkloadKey) -> Known<&'a Workload> {
        if let Some(workload) = self.index.workloads.get(key) {
            return Known::Yes(workload);
        }
        match self.live {
            Some(Live::Workload(Some(workload), _)) => Known::Yes(workload),
            Some(Live::Workload(None, _)) => Known::No,
            Some(Live::Failed(error)) => Known::Failed(error.clone()),
            _ => Known::Unread,
        }
    }

    /// Whether a namespace is opted in.
    #[must_use]
    pub fn is_opted_in(&self, namespace: &str) -> bool {
        self.index.opted_in.contains(namespace) || matches!(self.live, Some(Live::Workload(_, true)))
    }

    /// A binding: the live read wins; memory counts unless a newer plan was announced.
    #[must_use]
    pub fn binding(&self, key: &Key) -> Known<&'a Binding> {
        match self.live {
            Some(Live::Binding(Some(binding))) => return Known::Yes(binding),
            Some(Live::Binding(None)) => return Known::No,
            Some(Live::Failed(error)) => return Known::Failed(error.clone()),
            _ => {}
        }
        match self.index.bindings.get(key) {
            Some(binding) if !self.index.announced.contains_key(key) => Known::Yes(binding),
            _ => Known::Unread,
        }
    }

    /// A PriorityClass's value.
    #[must_use]
    pub fn priority(&self, class: Option<&str>) -> Option<i32> {
        match class {
            // A class that does not exist counts as none does: zero, never "drop the job".
            Some(class) if self.index.listed.contains("PriorityClass") => {
                Some(self.index.priority_classes.get(class).copied().unwrap_or(0))
            }
            Some(class) => self.index.priority_classes.get(class).copied(),
            None => self.index.default_priority.as_ref().map(|(_, value)| *value),
        }
    }
}

/// The name of the binding of a workload (`pkg/util/names`): kind, not group, tells them apart.
#[must_use]
pub fn binding_name(workload: &str, kind: &str) -> String {
    format!("{workload}-{kind}").to_lowercase().replace(':', ".")
}
