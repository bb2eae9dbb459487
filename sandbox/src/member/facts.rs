//! What the schedulers need to know of pods and nodes, read once for each state of an object.
//!
//! A pod's request and node claim never change after its creation, so they are read once for its whole life; and once
//! for all pods of a controller whose template can not change (a task of a Volcano Job, a ReplicaSet).

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{
    gang::{NodeClaim, Taint},
    quantity::Quantity,
    resources::Resources,
};
use caldera_crds::workload::{POD_GROUPS, read_gang_of_copy};
use serde_json::Value;

use super::object::{Key, annotation, controller_uid, deleting, label, list, namespace, number, text, uid};

/// Annotation: a pod's PodGroup.
pub const GROUP: &str = "scheduling.k8s.io/group-name";
/// Label and annotation: a pod's task.
pub const TASK_SPEC: &str = "volcano.sh/task-spec";
/// Annotation of a Volcano Job's pods: the job's name.
const JOB_NAME: &str = "volcano.sh/job-name";
/// Annotation of a Volcano Job's pods: the job's version that they were made for.
pub const JOB_VERSION: &str = "volcano.sh/job-version";

/// A pod's phase; a pod without one is Pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not started.
    Pending,
    /// Started.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Its node is not heard of.
    Unknown,
}

impl Phase {
    /// The phase of a pod.
    #[must_use]
    pub fn of(pod: &Value) -> Self {
        match text(pod, "/status/phase") {
            "" | "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }

    /// As Kubernetes writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// What a pod takes and where it may run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// What it takes, `pods: 1` included.
    pub request: Resources,
    /// Where.
    pub node: NodeClaim,
    /// What is wrong with it, where it can not be read: such a pod fits nowhere.
    pub broken: Option<String>,
}

/// A pod, as the schedulers see it.
#[derive(Debug, Clone)]
pub struct PodFacts {
    /// Its UID.
    pub uid: String,
    /// What it takes.
    pub claim: Arc<Claim>,
    /// Its node, empty before it has one.
    pub node: String,
    /// Its phase.
    pub phase: Phase,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether a scheduling gate holds it.
    pub gated: bool,
    /// Whose it is to schedule.
    pub scheduler: String,
    /// Its PodGroup, empty for none.
    pub group: String,
    /// Its task, empty for none.
    pub task: String,
    /// When it changed last, in the world's count.
    pub changed: u64,
}

impl PodFacts {
    /// Reads a pod; `claim` is what is known of its claim.
    #[must_use]
    pub fn read(pod: &Value, claim: Option<Arc<Claim>>, changed: u64) -> Self {
        let claim = claim.unwrap_or_else(|| Arc::new(Claim::read(pod)));
        Self {
            uid: uid(pod).to_owned(),
            claim,
            node: text(pod, "/spec/nodeName").to_owned(),
            phase: Phase::of(pod),
            deleting: deleting(pod),
            gated: !list(pod, "/spec/schedulingGates").is_empty(),
            scheduler: text(pod, "/spec/schedulerName").to_owned(),
            group: annotation(pod, GROUP).to_owned(),
            task: label(pod, TASK_SPEC).to_owned(),
            changed,
        }
    }

    /// Whether it takes room on a node.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.node.is_empty() && !self.phase.is_finished()
    }

    /// Whether a scheduler should find it a node.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.node.is_empty() && !self.deleting && !self.phase.is_finished() && !self.gated
    }
}

impl Claim {
    fn read(pod: &Value) -> Self {
        // Here Volcano says which group a pod is of; of a pod that is sent here nobody may.
        let mut pod = pod.clone();
        if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
            POD_GROUPS.iter().for_each(|name| drop(annotations.remove(*name)));
        }
        match read_gang_of_copy(&pod) {
            Ok(gang) => gang
                .tasks
                .into_iter()
                .next()
                .map(|task| Self { request: task.request, node: task.node, broken: None })
                .unwrap_or_default(),
            Err(error) => Self { broken: Some(error.to_string()), ..Self::default() },
        }
    }
}

/// The job that Volcano's job controller takes a pod for one of, by its name.
#[must_use]
pub fn read_job_of_pod(pod: &Value) -> Option<Key> {
    let job = annotation(pod, JOB_NAME);
    let is_controlled = !controller_uid(pod).is_empty() && !annotation(pod, JOB_VERSION).is_empty();
    (is_controlled && !job.is_empty()).then(|| (namespace(pod).to_owned(), job.to_owned()))
}

/// What many pods take together: equal claims are counted before they are added.
#[must_use]
pub fn sum_requests<'a>(pods: impl Iterator<Item = &'a PodFacts>) -> Resources {
    let mut counts: BTreeMap<usize, (&Claim, u64)> = BTreeMap::new();
    for pod in pods {
        counts.entry(Arc::as_ptr(&pod.claim).addr()).or_insert((&pod.claim, 0)).1 += 1;
    }
    let mut sum = Resources::new();
    for (claim, count) in counts.into_values() {
        sum.add(&claim.request.times(count));
    }
    sum
}

/// A PodGroup, as the schedulers see it.
#[derive(Debug, Clone)]
pub struct GroupFacts {
    /// Its queue.
    pub queue: String,
    /// Its phase, empty before the scheduler saw it.
    pub phase: String,
    /// Its PriorityClass, empty for none.
    pub class: String,
    /// `minResources`; none asks for nothing to be enqueued.
    pub minimum: Option<Resources>,
    /// `minMember`.
    pub min_member: i64,
    /// `minTaskMember`, where it counts: not below the sum of the tasks' minimums.
    pub min_tasks: BTreeMap<String, i64>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl GroupFacts {
    /// Reads a PodGroup.
    #[must_use]
    pub fn read(group: &Value) -> Self {
        let tasks = group.pointer("/spec/minTaskMember").and_then(Value::as_object).into_iter().flatten();
        let mut min_tasks: BTreeMap<String, i64> =
            tasks.map(|(task, least)| (task.clone(), least.as_i64().unwrap_or_default())).collect();
        let min_member = number(group, "/spec/minMember");
        if min_member < min_tasks.values().sum() {
            min_tasks.clear();
        }
        let queue = match text(group, "/spec/queue") {
            "" => "default",
            queue => queue,
        };
        Self {
            queue: queue.to_owned(),
            phase: text(group, "/status/phase").to_owned(),
            class: text(group, "/spec/priorityClassName").to_owned(),
            minimum: min_resources(group),
            min_member,
            min_tasks,
            deleting: deleting(group),
        }
    }
}

/// `minResources` as the scheduler reads it: without `requests.*`, `limits.*` and `count/*`.
fn min_resources(group: &Value) -> Option<Resources> {
    let read = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
    let entries = group.pointer("/spec/minResources")?.as_object()?;
    let dropped = |name: &str| ["requests.", "limits.", "count/"].iter().any(|start| name.starts_with(start));
    Some(
        entries
            .iter()
            .filter(|(name, _)| !dropped(name))
            .filter_map(|(name, amount)| Some((name.as_str(), read(amount)?)))
            .collect(),
    )
}

/// A node, as the schedulers see it.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    /// What it offers.
    pub allocatable: Resources,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is Ready and not cordoned.
    pub usable: bool,
}

impl NodeFacts {
    /// Reads a node.
    #[must_use]
    pub fn read(node: &Value) -> Self {
        let all = |pointer: &str| node.pointer(pointer).cloned().unwrap_or_default();
        let ready = list(node, "/status/conditions")
            .iter()
            .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True");
        let cordoned = node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true);
        Self {
            allocatable: serde_json::from_value(all("/status/allocatable")).unwrap_or_default(),
            labels: serde_json::from_value(all("/metadata/labels")).unwrap_or_default(),
            taints: list(node, "/spec/taints").iter().map(read_taint).collect(),
            usable: ready && !cordoned && !deleting(node),
        }
    }
}

fn read_taint(taint: &Value) -> Taint {
    Taint {
        key: text(taint, "/key").to_owned(),
        value: text(taint, "/value").to_owned(),
        effect: text(taint, "/effect").to_owned(),
    }
}
