//! The cache that reviews are decided from: bindings with gate, clusters and plan, workloads with queue and priority
//! class, PriorityClasses, namespaces, queues, and who is a trusted writer.
//!
//! Rule: watches fill it, and each review is decided from a copy, so that no review waits for another one. Where it may
//! be behind, a rule asks for a read from the API ([`Lookup`]) and decides once more with the answer ([`LiveRead`]). A
//! binding whose plan was reviewed and that the watch has not shown since does not count: it is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    admission::Admission, gang::Gang, plan::Plan, queue::preemption::EvictionRecord, text::shorten_text,
};
use caldera_crds::{
    binding::COPY_HOLDER,
    dns::LONGEST_SUBDOMAIN,
    names::caldera,
    object::{name_of, read_text_at},
    policy_selection::PolicySelection,
    tenancy::NamespaceFacts,
    trusted::TrustedWriters,
    workload::{WorkloadKind, priority_class_of, progress::read_progress, submission::read_submitter},
};
use jiff::Timestamp;
use serde_json::Value;

use super::{kept_policies::KeptPolicies, scope::queue_of, sharded::Sharded};

/// Who chooses clusters for what is admitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Placer {
    /// Our scheduler.
    #[default]
    Caldera,
    /// Whatever scheduler its policy names: karmada-scheduler, unless it says otherwise.
    Stock {
        /// Namespace and name of the Lease under which admissions are granted. Where it is not there, they are granted
        /// without one.
        lease: (String, String),
    },
}

/// Namespace and name.
pub type BindingKey = (String, String);

/// A workload of a kind that can be in scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    /// Which kind.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl WorkloadKey {
    /// Whether an object, of whichever version of the kind, is this workload.
    #[must_use]
    pub fn is_of(&self, object: &Value) -> bool {
        WorkloadKind::of_object(object) == Some(self.kind)
            && (read_text_at(object, "/metadata/namespace"), name_of(object)) == (&*self.namespace, &*self.name)
    }
}

/// What matters of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CachedWorkload {
    /// The queue it names.
    pub queue: Option<Arc<str>>,
    /// The PriorityClass it names.
    pub priority_class: Option<Arc<str>>,
    /// Who submitted it, if that is known.
    pub submitter: Option<Arc<str>>,
    /// It has ended, and holds nothing.
    pub ended: bool,
    /// It is a service of 0 replicas.
    pub empty: bool,
}

impl CachedWorkload {
    /// Out of the object.
    #[must_use]
    pub fn from_object(kind: WorkloadKind, object: &Value) -> Self {
        let class = Some(priority_class_of(object)).filter(|name| !name.is_empty());
        let ended = read_progress(kind, object, None).ended.is_some();
        Self {
            queue: queue_of(kind, object).as_deref().map(keep_name),
            priority_class: class.map(keep_name),
            submitter: read_submitter(object).map(Arc::from),
            ended,
            empty: matches!(kind, WorkloadKind::Deployment | WorkloadKind::StatefulSet)
                && object.pointer("/spec/replicas").and_then(Value::as_u64) == Some(0),
        }
    }
}

/// A name out of a workload, as it is kept. What is longer than any name is cut, with a mark that is in none.
fn keep_name(name: &str) -> Arc<str> {
    if name.len() > LONGEST_SUBDOMAIN { shorten_text(name).into() } else { name.into() }
}

/// What matters of a ResourceBinding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CachedBinding {
    /// `apiVersion` and `kind` of its workload: two kinds of one name share a binding's name.
    pub resource: (Arc<str>, Arc<str>),
    /// It waits for an admission, or has one.
    pub gated: bool,
    /// Namespace and name of its workload, with the kind, if that can be queued.
    pub workload: Option<WorkloadKey>,
    /// What was admitted.
    pub admission: Option<Arc<Admission>>,
    /// Replicas by cluster, as placed.
    pub clusters: BTreeMap<String, u32>,
    /// Lost clusters where the controller has its copies left.
    pub held_in: BTreeSet<String>,
    /// The plan; an error is its text that does not parse.
    pub plan: Option<Result<Arc<Plan>, String>>,
    /// How often its policies restarted it as a whole.
    pub restarts: u32,
    /// Of the plan's text; 0 without one.
    pub plan_fingerprint: u64,
}

impl CachedBinding {
    /// Out of the object, field by field and not by its type: a gated binding with an odd field elsewhere stays gated,
    /// so that no Work of it passes unchanged.
    #[must_use]
    pub fn from_object(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("");
        let annotation = |name: &str| object.pointer("/metadata/annotations")?.get(name)?.as_str();
        let plan = annotation(caldera::PLAN);
        let clusters = object.pointer("/spec/clusters").and_then(Value::as_array).into_iter().flatten();
        let target = |cluster: &Value| {
            let replicas = cluster.get("replicas").and_then(Value::as_u64).unwrap_or(0);
            Some((cluster.get("name")?.as_str()?.to_owned(), u32::try_from(replicas).unwrap_or(u32::MAX)))
        };
        let evictions = object.pointer("/spec/gracefulEvictionTasks").and_then(Value::as_array).into_iter().flatten();
        let is_held = |task: &&Value| task["producer"] == COPY_HOLDER && task["suppressDeletion"] == true;
        Self {
            resource: (text("/spec/resource/apiVersion").into(), text("/spec/resource/kind").into()),
            // What has a record is held against it, whoever took its gate off.
            gated: [caldera::GATE, caldera::ADMISSION].into_iter().any(|name| annotation(name).is_some()),
            workload: WorkloadKind::parse(text("/spec/resource/apiVersion"), text("/spec/resource/kind")).map(|kind| {
                let (namespace, name) = (text("/spec/resource/namespace").to_owned(), text("/spec/resource/name"));
                WorkloadKey { kind, namespace, name: name.to_owned() }
            }),
            admission: annotation(caldera::ADMISSION).and_then(|text| Admission::parse(text).ok()).map(Arc::new),
            clusters: clusters.filter_map(target).collect(),
            held_in: evictions
                .filter(is_held)
                .filter_map(|task| Some(task["fromCluster"].as_str()?.to_owned()))
                .collect(),
            plan: plan.map(|text| serde_json::from_str(text).map(Arc::new).map_err(|error| error.to_string())),
            restarts: annotation(caldera::EVICTION)
                .and_then(|text| EvictionRecord::parse(text).ok())
                .map_or(0, |record| record.restarts),
            plan_fingerprint: fingerprint_plan(plan),
        }
    }
}

/// A number that differs where plans differ (FNV-1a); 0 without a plan.
#[must_use]
pub fn fingerprint_plan(plan: Option<&str>) -> u64 {
    let hash = |text: &str| {
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    plan.map_or(0, hash)
}

/// What matters of a PriorityClass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PriorityClass {
    /// Its value.
    pub value: i32,
    /// Whether it counts for workloads that name none.
    pub is_default: bool,
}

impl PriorityClass {
    /// Out of the object.
    #[must_use]
    pub fn from_object(object: &Value) -> Self {
        let value = object["value"].as_i64().and_then(|value| i32::try_from(value).ok()).unwrap_or(0);
        Self { value, is_default: object["globalDefault"] == true }
    }
}

/// What to read live, because the cache does not have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// A workload, and whether its namespace is opted in.
    Workload(WorkloadKey),
    /// A binding.
    Binding(BindingKey),
    /// All queues.
    Queues,
    /// A namespace, and all queues.
    Access(String),
    /// ResourceClaimTemplates of a namespace.
    ClaimTemplates(String, BTreeSet<String>),
    /// What a workload asks for, and the Lease of this namespace and name.
    Grant(WorkloadKey, (String, String)),
}

/// What a placement by karmada-scheduler is held against, beside the binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantFacts {
    /// What the workload asks for; `None` if it is not there.
    pub gang: Option<Result<Gang, String>>,
    /// The epoch of the Lease, where it is there.
    pub epoch: Option<String>,
}

/// What a live read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveRead {
    /// The workload if it is there, and whether its namespace is opted in.
    Workload(Option<CachedWorkload>, bool),
    /// The binding, if it is there.
    Binding(Option<Box<CachedBinding>>),
    /// All queues.
    Queues(Vec<Value>),
    /// The namespace if it is there, and all queues.
    Access(Option<NamespaceFacts>, Vec<Value>),
    /// What a claim by each of the templates asks for that are there; null where that is too long.
    ClaimTemplates(BTreeMap<String, Value>),
    /// The workload and the Lease.
    Grant(Box<GrantFacts>),
    /// The read failed: why.
    Failed(String),
}

/// Everything that reviews are decided from. A copy costs next to nothing.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    /// Workloads of the kinds in scope.
    pub workloads: Sharded<WorkloadKey, CachedWorkload>,
    /// Bindings of those kinds.
    pub bindings: Sharded<BindingKey, CachedBinding>,
    /// PriorityClasses.
    pub priority_classes: Sharded<String, PriorityClass>,
    /// Namespaces.
    pub namespaces: Sharded<String, NamespaceFacts>,
    /// Queues, whole, because rules compare them.
    pub queues: Sharded<String, Value>,
    /// What PropagationPolicies select of kinds that can be queued, by namespace.
    pub policies: Sharded<String, KeptPolicies>,
    /// The same of ClusterPropagationPolicies.
    pub cluster_policies: Arc<KeptPolicies>,
    /// Whose word counts on what is admitted and placed.
    pub trusted: Arc<TrustedWriters>,
    /// Who chooses clusters.
    pub placer: Placer,
    /// Seconds that pods may take to end; `None` for any.
    pub longest_grace_period: Option<u64>,
    /// Kinds that were listed at least once, as [`HostEvent::kind`](super::host_watch::HostEvent::kind) names them.
    pub listed: BTreeSet<&'static str>,
    /// Fingerprints of plans that went through admission and are not in `bindings` yet.
    announced: Sharded<BindingKey, u64>,
}

impl Cache {
    /// Stores a binding as its watch shows it.
    pub fn put_binding(&mut self, key: BindingKey, binding: CachedBinding) {
        if self.announced.get(&key) == Some(&binding.plan_fingerprint) {
            self.announced.remove(&key);
        }
        self.bindings.insert(key, binding);
    }

    /// Stores what a PropagationPolicy selects. One that selects nothing, or is gone, is not kept.
    pub fn put_policy(&mut self, (namespace, name): BindingKey, selection: &PolicySelection) {
        let is_changed =
            self.policies.get(&namespace).map_or(!selection.is_empty(), |kept| kept.changes_with(&name, selection));
        if !is_changed {
            return;
        }
        self.policies.change_value(namespace.clone(), |kept| kept.put_policy(&name, selection));
        if self.policies.get(&namespace).is_some_and(KeptPolicies::is_empty) {
            self.policies.remove(&namespace);
        }
    }

    /// Removes a binding.
    pub fn remove_binding(&mut self, key: &BindingKey) {
        self.announced.remove(key);
        self.bindings.remove(key);
    }

    /// A binding with this plan went through admission: until the watch shows it, the cache is not to be trusted.
    pub fn note_reviewed_plan(&mut self, key: BindingKey, plan: u64) {
        if self.bindings.get(&key).map_or(0, |binding| binding.plan_fingerprint) == plan {
            self.announced.remove(&key);
        } else {
            self.announced.insert(key, plan);
        }
    }

    /// Whether [`Self::note_reviewed_plan`] would change anything.
    #[must_use]
    pub fn changes_reviewed_plan(&self, key: &BindingKey, plan: u64) -> bool {
        let known = self.bindings.get(key).map_or(0, |binding| binding.plan_fingerprint);
        self.announced.get(key).map_or(known != plan, |announced| *announced != plan)
    }

    /// Whether every kind was listed without which decisions may need live reads.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let expected = [WorkloadKind::VolcanoJob.title(), "ResourceBinding", "PriorityClass", "Namespace", "Queue"];
        expected.into_iter().all(|kind| self.listed.contains(kind))
    }

    /// Number of queues whose parent is `name`.
    #[must_use]
    pub fn count_children(&self, name: &str) -> usize {
        self.queues.values().filter(|queue| queue["spec"]["parent"] == name).count()
    }
}

/// The cache, the time, and a live read if one was made.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// The cache.
    pub cache: &'a Cache,
    /// The live read.
    pub live: Option<&'a LiveRead>,
    /// When the review came.
    pub now: Timestamp,
}

/// Whether something is there.
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
    /// The cache alone.
    #[cfg(test)]
    pub const fn of_cache(cache: &'a Cache) -> Self {
        Self::of_read(cache, None)
    }

    /// The cache and what was read.
    #[cfg(test)]
    pub const fn of_read(cache: &'a Cache, live: Option<&'a LiveRead>) -> Self {
        Self { cache, live, now: Timestamp::UNIX_EPOCH }
    }

    /// A workload, from the live read or from the cache.
    #[must_use]
    pub fn find_workload(&self, key: &WorkloadKey) -> Known<&'a CachedWorkload> {
        if let Some(workload) = self.cache.workloads.get(key) {
            return Known::Yes(workload);
        }
        match self.live {
            Some(LiveRead::Workload(Some(workload), _)) => Known::Yes(workload),
            Some(LiveRead::Workload(None, _)) => Known::No,
            Some(LiveRead::Failed(error)) => Known::Failed(error.clone()),
            _ => Known::Unread,
        }
    }

    /// Whether a namespace is opted in.
    #[must_use]
    pub fn is_opted_in(&self, namespace: &str) -> bool {
        self.cache.namespaces.get(namespace).is_some_and(|facts| facts.opted_in)
            || matches!(self.live, Some(LiveRead::Workload(_, true)))
    }

    /// The first of these namespaces that is opted in.
    #[must_use]
    pub fn find_opted_in<'n>(&self, namespaces: [&'n str; 2]) -> Option<&'n str> {
        namespaces.into_iter().find(|namespace| self.is_opted_in(namespace))
    }

    /// A binding: the live read wins; the cache counts unless a newer plan was announced.
    #[must_use]
    pub fn find_binding(&self, key: &BindingKey) -> Known<&'a CachedBinding> {
        match self.live {
            Some(LiveRead::Binding(Some(binding))) => return Known::Yes(binding),
            Some(LiveRead::Binding(None)) => return Known::No,
            Some(LiveRead::Failed(error)) => return Known::Failed(error.clone()),
            _ => {}
        }
        match self.cache.bindings.get(key) {
            Some(binding) if !self.cache.announced.contains_key(key) => Known::Yes(binding),
            _ => Known::Unread,
        }
    }

    /// A PriorityClass's value.
    #[must_use]
    pub fn priority_of(&self, class: Option<&str>) -> Option<i32> {
        let classes = &self.cache.priority_classes;
        match class {
            // A class that does not exist counts as none does: zero, never "drop the job".
            Some(name) if self.cache.listed.contains("PriorityClass") => {
                Some(classes.get(name).map_or(0, |class| class.value))
            }
            Some(name) => classes.get(name).map(|class| class.value),
            // Of several defaults Kubernetes takes the lowest (`plugin/pkg/admission/priority`).
            None => classes.values().filter(|class| class.is_default).map(|class| class.value).min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each of some hundred jobs had a megabyte of them, until there was no memory left.
    #[test]
    fn of_a_queue_or_class_that_no_name_is_as_long_as_a_part_is_kept() {
        let job = |bytes: usize| {
            let spec = json!({"queue": "q".repeat(bytes), "priorityClassName": "c".repeat(bytes)});
            let object = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": spec});
            CachedWorkload::from_object(WorkloadKind::VolcanoJob, &object)
        };
        let length = |name: Option<Arc<str>>| name.unwrap().len();
        let (longest, too_long) = (job(253), job(500_000));
        assert_eq!((length(longest.queue), length(longest.priority_class)), (253, 253));
        assert!(length(too_long.queue) < 200 && length(too_long.priority_class) < 200);
    }
}
