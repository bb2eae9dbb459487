//! What is kept of a workload, its binding and its PodGroup, and whose they are.
//!
//! Rule: an object speaks for jobs of its own namespace alone, whatever it says.

use caldera_core::{
    admission::Admission,
    gang::WorkloadRef,
    plan::Plan,
    queue::preemption::EvictionRecord,
    reason::{Position, Reason},
};
use caldera_crds::{
    names::caldera::{ADMISSION, EVICTION, GATE, GATE_CLOSED, HOLD, PLAN, SUSPENDED},
    workload::{WorkloadKind, progress::read_progress, queue_of},
};
use jiff::Timestamp;
use serde_json::Value;

use super::{end_words::list_end_words, state::State};
use crate::objects::{annotation_of, is_managed_by_caldera, name_of, read_list_at, read_text_at};

/// Which job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: WorkloadKind,
}

impl JobKey {
    /// Of what a reference with `apiVersion`, `kind`, `namespace` and `name` leads to.
    fn read(reference: &Value, namespace: &str) -> Option<Self> {
        let kind = WorkloadKind::parse(read_text_at(reference, "/apiVersion"), read_text_at(reference, "/kind"))?;
        let name = read_text_at(reference, "/name");
        (!name.is_empty()).then(|| Self { namespace: namespace.to_owned(), name: name.to_owned(), kind })
    }

    /// Of what a binding was made from. A tenant may write a binding, and have it say that it is of another namespace:
    /// that is nobody's.
    #[must_use]
    pub fn of_binding(binding: &Value) -> Option<Self> {
        let (resource, own) = (&binding["spec"]["resource"], read_text_at(binding, "/metadata/namespace"));
        (read_text_at(resource, "/namespace") == own).then(|| Self::read(resource, own)).flatten()
    }

    /// The reverse of [`Self::workload`].
    #[must_use]
    pub fn of_workload(workload: &WorkloadRef) -> Option<Self> {
        let is_it = |kind: &WorkloadKind| (kind.group(), kind.kind()) == (&*workload.group, &*workload.kind);
        let kind = WorkloadKind::list_all().find(is_it)?;
        Some(Self { namespace: workload.namespace.clone(), name: workload.name.clone(), kind })
    }

    /// As the controller names it.
    #[must_use]
    pub fn workload(&self) -> WorkloadRef {
        let (group, kind) = (self.kind.group().to_owned(), self.kind.kind().to_owned());
        WorkloadRef { group, kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// As commands take it: the name of a Volcano Job, `kind/name` for others.
    #[must_use]
    pub fn command_name(&self) -> String {
        match self.kind {
            WorkloadKind::VolcanoJob => self.name.clone(),
            kind => format!("{}/{}", kind.aliases()[0], self.name),
        }
    }
}

/// What is kept of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadFacts {
    pub(super) queue: String,
    pub(super) created: Option<Timestamp>,
    pub(super) ended: Option<State>,
    pub(super) suspended: bool,
    pub(super) held: bool,
    /// Pods that a service asks for.
    pub(super) replicas: Option<i64>,
    /// It was ended since it ran for as long as it may.
    pub(super) has_run_out: bool,
    /// What it says of its end, if it did not end well.
    pub(super) end_words: Vec<String>,
}

impl WorkloadFacts {
    /// Whether it is a job that says that it is over.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Reads one of a kind that can be queued.
    #[must_use]
    pub fn read(workload: &Value) -> Option<(JobKey, Self)> {
        let kind = WorkloadKind::of_object(workload)?;
        let (namespace, name) =
            (read_text_at(workload, "/metadata/namespace").to_owned(), name_of(workload).to_owned());
        let is_set = |name: &str| annotation_of(workload, name) == Some("true");
        let said = read_text_at(workload, "/status/state/reason");
        let phase = match kind {
            // One that its user suspended says that it is Aborted, and goes on once it is resumed.
            WorkloadKind::VolcanoJob if said == Reason::SUSPENDED_BY_USER => String::new(),
            WorkloadKind::VolcanoJob => read_text_at(workload, "/status/state/phase").to_owned(),
            _ => read_progress(kind, workload, None).ended.unwrap_or_default(),
        };
        let ended = State::ENDED.into_iter().find(|ended| ended.word() == phase);
        let went_wrong = ended.is_some_and(|ended| ended != State::Completed);
        let facts = Self {
            queue: queue_of(workload).to_string(),
            created: read_time(workload, "/metadata/creationTimestamp"),
            ended,
            suspended: is_set(SUSPENDED) || kind.find_suspending_field(workload).is_some(),
            held: is_set(HOLD),
            replicas: matches!(kind, WorkloadKind::Deployment | WorkloadKind::StatefulSet)
                .then(|| workload.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)),
            has_run_out: ended.is_some() && said == Reason::RUN_TIME_EXCEEDED,
            end_words: if went_wrong { list_end_words(kind, workload) } else { Vec::new() },
        };
        Some((JobKey { namespace, name, kind }, facts))
    }
}

/// What is kept of a ResourceBinding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BindingFacts {
    pub(super) gate: Option<bool>,
    pub(super) admitted: bool,
    /// When, where a limit of its run counts from there.
    pub(super) admitted_at: Option<Timestamp>,
    pub(super) queued: bool,
    pub(super) priority: i64,
    pub(super) created: Option<Timestamp>,
    pub(super) placed_at: Option<Timestamp>,
    pub(super) clusters: Vec<(String, u64)>,
    pub(super) eviction: Option<Box<EvictionRecord>>,
}

impl BindingFacts {
    /// Reads one whose workload is of a kind that can be queued.
    #[must_use]
    pub fn read(binding: &Value) -> Option<(JobKey, Self)> {
        let key = JobKey::of_binding(binding)?;
        let facts = Self {
            gate: annotation_of(binding, GATE).map(|gate| gate == GATE_CLOSED),
            admitted: annotation_of(binding, ADMISSION).is_some(),
            admitted_at: annotation_of(binding, ADMISSION).and_then(read_admission_time),
            queued: is_managed_by_caldera(binding),
            priority: binding.pointer("/spec/schedulePriority/priority").and_then(Value::as_i64).unwrap_or(0),
            created: read_time(binding, "/metadata/creationTimestamp"),
            placed_at: read_time(binding, "/status/lastScheduledTime"),
            clusters: list_shares(binding),
            eviction: annotation_of(binding, EVICTION).and_then(|text| EvictionRecord::parse(text).ok()).map(Box::new),
        };
        Some((key, facts))
    }
}

/// When the run of a record began: its release.
fn read_admission_time(record: &str) -> Option<Timestamp> {
    let run = Admission::parse(record).ok()?.run?;
    Timestamp::from_second(run.from.as_seconds()).ok()
}

/// Clusters of a binding, each with its pods: those of the plan where there is one.
fn list_shares(binding: &Value) -> Vec<(String, u64)> {
    let plan: Option<Plan> = annotation_of(binding, PLAN).and_then(|text| serde_json::from_str(text).ok());
    let planned = |cluster: &str| {
        let share = plan.as_ref()?.clusters.iter().find(|(name, _)| name.as_str() == cluster)?.1;
        Some(share.tasks.values().map(|task| u64::from(task.replicas)).sum())
    };
    let share = |target: &Value| {
        let name = read_text_at(target, "/name");
        let replicas = || target["replicas"].as_u64().unwrap_or(0);
        (name.to_owned(), planned(name).unwrap_or_else(replicas))
    };
    read_list_at(binding, "/spec/clusters").iter().map(share).collect()
}

/// What is kept of a PodGroup of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupFacts {
    pub(super) phase: String,
    pub(super) running: i64,
    pub(super) succeeded: i64,
    pub(super) failed: i64,
    pub(super) minimum: Option<i64>,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) since: Option<Timestamp>,
    pub(super) position: Option<Position>,
}

impl GroupFacts {
    /// Reads one whose owner is of a kind that can be queued.
    #[must_use]
    pub fn read(group: &Value) -> Option<(JobKey, Self)> {
        let owner = read_list_at(group, "/metadata/ownerReferences").first()?;
        let key = JobKey::read(owner, read_text_at(group, "/metadata/namespace"))?;
        let last = read_list_at(group, "/status/conditions").last().unwrap_or(&Value::Null);
        let message = read_text_at(last, "/message").to_owned();
        let count = |field: &str| group["status"][field].as_i64().unwrap_or(0);
        let facts = Self {
            phase: read_text_at(group, "/status/phase").to_owned(),
            running: count("running"),
            succeeded: count("succeeded"),
            failed: count("failed"),
            minimum: group.pointer("/spec/minMember").and_then(Value::as_i64),
            reason: read_text_at(last, "/reason").to_owned(),
            since: read_time(last, "/lastTransitionTime"),
            position: Position::parse_position(&message),
            message,
        };
        Some((key, facts))
    }
}

fn read_time(object: &Value, pointer: &str) -> Option<Timestamp> {
    read_text_at(object, pointer).parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Found by a reader: a tenant's binding showed as a job of another namespace.
    #[test]
    fn a_binding_that_names_another_namespace_is_nobodys() {
        let binding = |own: &str, named: &str| {
            json!({"metadata": {"namespace": own, "annotations": {"caldera.dev/gate": "closed"}}, "spec": {"resource": {
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": named, "name": "j"}}})
        };
        assert_eq!(BindingFacts::read(&binding("evil", "victim")), None);
        assert_eq!(BindingFacts::read(&binding("evil", "")), None);
        let (key, _) = BindingFacts::read(&binding("ns", "ns")).unwrap();
        assert_eq!((key.namespace.as_str(), key.name.as_str()), ("ns", "j"));
    }
}
