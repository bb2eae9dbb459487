//! What the controller keeps of each object: read once as it arrives, small, and never fails.
//!
//! An object that is wrong in one field is kept with that said, so that its user reads it where they look; a watch is
//! never broken by it.

use std::{
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use caldera_core::{
    admission::Admission,
    gang::{ClusterName, Gang, QueueName, WorkloadRef},
    place::{self, Group},
    plan::Plan,
    quantity::Quantity,
    queue::{Dequeue, JobId, QueueSpec, preemption::EvictionRecord, state::ReportedState},
    resources::{Limits, ResourceName, Resources},
};
use caldera_crds::{
    binding::{BindingView, Gate},
    karmada::{cluster::Cluster, work::ResourceBinding},
    names::{
        caldera::{HOLD, QUEUE_STATUS},
        volcano::CLOSED_BY_PARENT,
    },
    placement,
    volcano::scheduling::{self, PodGroup, Queue},
    wire::ResourceList,
    workload::{
        self, WorkloadKind,
        progress::{Progress, read_progress},
    },
};
use caldera_runtime::event::Regarding;
use k8s_openapi::{api::scheduling::v1::PriorityClass, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::Value;

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// From both.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    fn of(metadata: &ObjectMeta) -> Self {
        Self::new(metadata.namespace.as_deref().unwrap_or(""), metadata.name.as_deref().unwrap_or(""))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A ResourceBinding.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// Which.
    pub key: Key,
    /// Its UID.
    pub id: JobId,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// Seconds since 1970.
    pub created: i64,
    /// Its workload.
    pub workload: Arc<WorkloadRef>,
    /// Of the workload it was made from.
    pub workload_uid: Arc<str>,
    /// Its gate; `None` where the suspension is not ours.
    pub gate: Option<Gate>,
    /// `spec.suspension.scheduling`.
    pub suspended: bool,
    /// There is a `spec.suspension` at all.
    pub suspension: bool,
    /// The record, if there is one that can be read.
    pub admission: Option<Arc<Admission>>,
    /// Under which lease that was granted.
    pub epoch: Option<Arc<str>>,
    /// `spec.clusters`.
    pub clusters: Vec<(ClusterName, u32)>,
    /// The plan annotation.
    pub plan: Option<Arc<Plan>>,
    /// There is one, whether or not it can be read.
    pub planned: bool,
    /// What was last taken from it.
    pub eviction: Option<Arc<EvictionRecord>>,
    /// When its clusters were last chosen, in seconds since 1970.
    pub scheduled: Option<i64>,
    /// As placement sees it; `None` for dependencies' bindings, which have no placement.
    pub placement: Option<Arc<place::Binding>>,
    /// What one replica asks for, as Karmada's interpreter told.
    pub replica_request: Arc<Resources>,
    /// Clusters where a Volcano Job is past Pending.
    pub begun: Vec<ClusterName>,
    /// Being deleted.
    pub deleting: bool,
    /// Why the scheduler did not place it.
    pub refused: Option<Arc<str>>,
    /// Its workload affinity groups.
    pub groups: Vec<Group>,
    /// `spec.schedulerName` is ours.
    pub ours: bool,
}

impl Binding {
    /// Reads one.
    #[must_use]
    pub fn read(object: &ResourceBinding) -> Self {
        let view = BindingView::from(object);
        let (metadata, spec) = (view.metadata, view.spec);
        let refused = view
            .scheduled_condition()
            .filter(|condition| condition.status == "False")
            .map(|condition| Arc::from(format!("{}: {}", condition.reason, condition.message)));
        Self {
            key: Key::of(metadata),
            id: metadata.uid.as_deref().unwrap_or("").into(),
            resource_version: metadata.resource_version.as_deref().unwrap_or("").into(),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            workload: Arc::new(view.workload()),
            workload_uid: spec.resource.uid.as_deref().unwrap_or("").into(),
            gate: view.gate(),
            suspension: spec.suspension.is_some(),
            suspended: view.is_suspended(),
            admission: view.admission().map(Arc::new),
            epoch: view.epoch().map(Arc::from),
            clusters: view.clusters().collect(),
            plan: view.plan().map(Arc::new),
            planned: view.has_plan(),
            eviction: view.eviction().map(Arc::new),
            scheduled: view.last_scheduled().map(|time| time.as_second()),
            placement: spec.placement.is_some().then(|| Arc::new(placement::read_binding(spec, view.status))),
            replica_request: spec
                .replica_requirements
                .as_ref()
                .map(|requirements| Arc::new(placement::read_resources(&requirements.resource_request)))
                .unwrap_or_default(),
            begun: begun(view),
            deleting: view.is_deleting(),
            refused,
            groups: placement::read_affinity_groups(spec),
            ours: view.names_our_scheduler(),
        }
    }
}

fn begun(binding: BindingView<'_>) -> Vec<ClusterName> {
    let phase = |status: &Value| status["state"]["phase"].as_str().unwrap_or("").to_owned();
    let copies = binding.copies().iter();
    copies
        .filter(|item| item.status.as_ref().is_some_and(|status| !matches!(phase(status).as_str(), "" | "Pending")))
        .map(|item| item.cluster_name.as_str().into())
        .collect()
}

/// A workload of a kind in scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Which.
    pub reference: Arc<WorkloadRef>,
    /// `group/version`.
    pub api_version: Arc<str>,
    /// Its kind.
    pub kind: WorkloadKind,
    /// UID.
    pub uid: Arc<str>,
    /// What it asks for, or what is wrong with that.
    pub gang: Result<Arc<Gang>, Arc<str>>,
    /// Queue.
    pub queue: QueueName,
    /// Whether it says so itself.
    pub names_queue: bool,
    /// PriorityClass, empty for none.
    pub class: Arc<str>,
    /// Seconds that it may wait before it should have started.
    pub sla_waiting_time: Option<i64>,
    /// Seconds that it runs at most, if it says so.
    pub run_for: Option<i64>,
    /// The user holds it.
    pub held: bool,
    /// Whether it says that it may be made to give way.
    pub preemptable: Option<bool>,
    /// How far it is.
    pub progress: Progress,
    /// `spec.networkTopology` as written.
    pub topology: Option<Arc<Value>>,
    /// Being deleted.
    pub deleting: bool,
}

impl Workload {
    /// Reads one; `None` if it is of no kind in scope.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let kind = WorkloadKind::of(object)?;
        let reference = workload::reference_of(object)?;
        let gang = workload::read_gang(object).map(Arc::new).map_err(|error| Arc::from(error.to_string()));
        let metadata = &object["metadata"];
        Some(Self {
            api_version: object["apiVersion"].as_str().unwrap_or("").into(),
            kind,
            uid: metadata["uid"].as_str().unwrap_or("").into(),
            queue: workload::queue_of(object),
            names_queue: workload::names_queue(object),
            class: workload::priority_class_of(object).into(),
            sla_waiting_time: workload::sla_waiting_time(object),
            run_for: workload::running_estimate(object),
            held: metadata["annotations"][HOLD] == "true",
            preemptable: workload::read_preemptable(object),
            progress: read_progress(kind, object, gang.as_deref().ok()),
            gang,
            topology: (kind == WorkloadKind::VolcanoJob)
                .then(|| &object["spec"]["networkTopology"])
                .filter(|topology| topology.is_object())
                .map(|topology| Arc::new(topology.clone())),
            deleting: metadata["deletionTimestamp"].is_string(),
            reference: Arc::new(reference),
        })
    }
}

/// A queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueFacts {
    /// For the engine.
    pub spec: QueueSpec,
    /// UID.
    pub uid: Arc<str>,
    /// As last seen.
    pub resource_version: Arc<str>,
    /// `status.state` as written.
    pub state: Option<String>,
    /// Closed because its parent was.
    pub closed_by_parent: bool,
    /// What we said about it, as written.
    pub note: Option<Arc<str>>,
    /// What of its status we write.
    pub status: QueueNumbers,
    /// Fields that are no quantities; they count as zero.
    pub wrong: Vec<String>,
}

/// The numbers of a queue's status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueNumbers {
    /// Charged.
    pub allocated: Resources,
    /// PodGroups that wait.
    pub pending: i32,
    /// Released ones that do not run yet.
    pub inqueue: i32,
    /// Running ones.
    pub running: i32,
    /// Ended ones.
    pub completed: i32,
}

impl QueueFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &Queue) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        let annotations = object.metadata.annotations.as_ref();
        let annotation = |name: &str| annotations.and_then(|all| all.get(name)).map(String::as_str);
        let (mut wrong, mut unreadable) = (Vec::new(), Vec::new());
        let mut amounts = |field: &str, list: &ResourceList| -> Vec<(String, Quantity)> {
            list.iter()
                .map(|(name, text)| match text.0.parse() {
                    Ok(amount) => (name.clone(), amount),
                    Err(error) => {
                        wrong.push(format!("spec.{field}.{name}: {error}"));
                        if field == "capability" {
                            unreadable.push(ResourceName::from(name.as_str()));
                        }
                        (name.clone(), Quantity::ZERO)
                    }
                })
                .collect()
        };
        let limits = |amounts: Vec<(String, Quantity)>| -> Limits {
            amounts.into_iter().map(|(name, amount)| (name.into(), amount)).collect()
        };
        let guarantee = spec.guarantee.clone().unwrap_or_default().resource;
        let capability = limits(amounts("capability", &spec.capability));
        let guarantee = amounts("guarantee.resource", &guarantee);
        let deserved = limits(amounts("deserved", &spec.deserved));
        let queue = QueueSpec {
            name: object.metadata.name.as_deref().unwrap_or("").into(),
            parent: spec.parent.as_deref().filter(|parent| !parent.is_empty()).map(QueueName::from),
            priority: spec.priority.unwrap_or(0),
            weight: u32::try_from(spec.weight.unwrap_or(1)).unwrap_or(1),
            capability,
            unreadable,
            guarantee: guarantee.into_iter().map(|(name, amount)| (ResourceName::from(name), amount)).collect(),
            deserved,
            reclaimable: spec.reclaimable.unwrap_or(true),
            dequeue: match spec.dequeue_strategy {
                Some(scheduling::DequeueStrategy::Fifo) => Dequeue::Fifo,
                _ => Dequeue::Traverse,
            },
            state: ReportedState::read(status.state.as_ref().map_or("", |state| state.as_str())).state(),
        };
        Self {
            spec: queue,
            uid: object.metadata.uid.as_deref().unwrap_or("").into(),
            closed_by_parent: annotation(CLOSED_BY_PARENT) == Some("true"),
            note: annotation(QUEUE_STATUS).map(Arc::from),
            resource_version: object.metadata.resource_version.as_deref().unwrap_or("").into(),
            state: status.state.as_ref().map(|state| state.as_str().to_owned()).filter(|state| !state.is_empty()),
            status: QueueNumbers {
                allocated: placement::read_resources(&status.allocated),
                pending: status.pending.unwrap_or(0),
                inqueue: status.inqueue.unwrap_or(0),
                running: status.running.unwrap_or(0),
                completed: status.completed.unwrap_or(0),
            },
            wrong,
        }
    }

    /// For events about it.
    #[must_use]
    pub fn regarding(&self) -> Regarding {
        Regarding {
            api_version: "scheduling.volcano.sh/v1beta1".to_owned(),
            kind: "Queue".to_owned(),
            namespace: String::new(),
            name: self.spec.name.to_string(),
            uid: self.uid.to_string(),
        }
    }
}

/// A PodGroup of ours, as far as we compare it with what it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupFacts {
    /// Which.
    pub key: Key,
    /// UID.
    pub uid: Arc<str>,
    /// UID of its workload.
    pub owner: Arc<str>,
    /// Of its spec (see [`fingerprint`]).
    pub spec: u64,
    /// Its status.
    pub status: GroupStatus,
}

/// What a PodGroup's status says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// `Pending`, `Inqueue`, `Running` or `Completed`.
    pub phase: String,
    /// `Unschedulable` or `Scheduled`.
    pub condition: String,
    /// Token.
    pub reason: String,
    /// Sentence.
    pub message: String,
    /// Since when.
    pub since: String,
    /// Pods.
    pub running: i32,
    /// Pods.
    pub succeeded: i32,
    /// Pods.
    pub failed: i32,
}

impl GroupFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &PodGroup) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let condition = status.conditions.first().cloned().unwrap_or_default();
        Self {
            key: Key::of(&object.metadata),
            uid: object.metadata.uid.as_deref().unwrap_or("").into(),
            owner: object
                .metadata
                .owner_references
                .iter()
                .flatten()
                .map(|owner| owner.uid.as_str().into())
                .next()
                .unwrap_or_default(),
            spec: fingerprint(&object.spec),
            status: GroupStatus {
                phase: status.phase.map(|phase| phase.as_str().to_owned()).unwrap_or_default(),
                condition: condition.type_.unwrap_or_default(),
                reason: condition.reason.unwrap_or_default(),
                message: condition.message.unwrap_or_default(),
                since: condition
                    .last_transition_time
                    .map(|time| caldera_runtime::clock::format_time(time.0))
                    .unwrap_or_default(),
                running: status.running.unwrap_or(0),
                succeeded: status.succeeded.unwrap_or(0),
                failed: status.failed.unwrap_or(0),
            },
        }
    }
}

/// A PriorityClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFacts {
    /// Name.
    pub name: String,
    /// Value.
    pub value: i32,
    /// For pods that name none.
    pub default: bool,
    /// `preemptionPolicy: Never`.
    pub never_preempts: bool,
}

impl ClassFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &PriorityClass) -> Self {
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            value: object.value,
            default: object.global_default == Some(true),
            never_preempts: object.preemption_policy.as_deref() == Some("Never"),
        }
    }
}

/// A member cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterFacts {
    /// As placement sees it.
    pub cluster: place::Cluster,
    /// What Karmada's summary says is free, for want of better.
    pub summary: caldera_core::inventory::Capacity,
}

impl ClusterFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &Cluster) -> Self {
        Self { cluster: placement::read_cluster(object), summary: placement::read_summary(object.status.as_ref()) }
    }
}

/// A number that is the same for what prints the same, today and after a restart of the same version.
#[must_use]
pub fn fingerprint(value: &impl fmt::Debug) -> u64 {
    struct Hashing(DefaultHasher);
    impl fmt::Write for Hashing {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            text.hash(&mut self.0);
            Ok(())
        }
    }
    let mut hashing = Hashing(DefaultHasher::new());
    let _ = write!(hashing, "{value:?}");
    hashing.0.finish()
}
