//! What the controller keeps of a workload: what its gang asks for, its queue, and how far it is.
//!
//! A workload that is wrong in one field is kept with that said, so that its user reads it on the PodGroup.

use std::sync::Arc;

use caldera_core::{
    gang::{Gang, QueueName, WorkloadRef},
    image_locality::PodImages,
    reason::Reason,
    time::{EpochSeconds, SubmitTime},
};
use caldera_crds::{
    action::Action,
    names::caldera::SUSPENDED,
    workload::{
        self, GroupOfPod, WorkloadKind, annotations,
        progress::{Progress, has_enough_successes, read_progress},
        submission::{read_submit_time, read_submitter},
    },
};
use jiff::Timestamp;
use serde_json::Value;

use super::{binding::Binding, cron_job::CronOwner, fingerprint::fingerprint, hyper_job::ChildFacts};

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
    /// As last seen.
    pub resource_version: Arc<str>,
    /// What it asks for, or what is wrong with that.
    pub gang: Result<Arc<Gang>, Arc<str>>,
    /// Queue.
    pub queue: QueueName,
    /// Whether it says so itself.
    pub names_queue: bool,
    /// PriorityClass, empty for none.
    pub class: Arc<str>,
    /// When it was submitted, to the microsecond, where that is known: microseconds since 1970.
    pub submitted: Option<i64>,
    /// Who submitted it, where that is known.
    pub submitter: Option<Arc<str>>,
    /// Seconds that it may wait before it should have started.
    pub sla_waiting_time: Option<i64>,
    /// Seconds that it runs at most, if it says so.
    pub run_for: Option<i64>,
    /// Seconds after which a run of it is to be ended, if it says so.
    pub max_run_time: Option<i64>,
    /// Seconds after its end when it is deleted, if it says so: of Volcano Jobs, which no other controller deletes.
    pub ttl: Option<i64>,
    /// The user holds it.
    pub held: bool,
    /// The user suspended it: by this field or annotation.
    pub suspended: Option<&'static str>,
    /// The phase as which it is to end now, by its user's word.
    pub end_as: Option<&'static str>,
    /// How often its policies may restart it before it fails. Volcano's default is 3.
    pub max_retry: u32,
    /// Its policies restart it when a pod fails, whichever that is.
    pub restarts_when_a_pod_fails: bool,
    /// Enough of its pods succeeded, over all clusters, and it says so; some have not ended.
    pub enough_succeeded: bool,
    /// Seconds after which it has saved its work, if it says so.
    pub checkpoint_interval: Option<i64>,
    /// Whether it says that it may be evicted.
    pub preemptable: Option<bool>,
    /// All of its pods are best effort.
    pub best_effort: bool,
    /// How far it is.
    pub progress: Progress,
    /// Pods on nodes in its clusters, where all can be seen: of batch Jobs, whose status counts pods that are pending
    /// beside those that run.
    pub on_nodes: Option<u32>,
    /// `spec.networkTopology` as written.
    pub topology: Option<Arc<Value>>,
    /// What was last done to it, and by whom.
    pub acted: Option<Box<Action>>,
    /// Being deleted.
    pub deleting: bool,
    /// What its status says of its state.
    pub said: SaidState,
    /// What the HyperJob that made it knows of it.
    pub child: Option<Arc<ChildFacts>>,
    /// The group of Pods that it starts together with.
    pub group: Option<Arc<GroupOfPod>>,
    /// The CronJob that made it.
    pub cron_job: Option<Arc<CronOwner>>,
    /// The images of its pods, where placement goes by them.
    pub images: Option<Arc<PodImages>>,
}

/// What `status.state` of a Volcano Job says, as far as it matters while the job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaidState {
    /// It has no phase.
    Nothing,
    /// It is Pending, for this reason and with this message (see [`fingerprint`]).
    Pending(u64),
    /// It is Aborted, since its user suspended it, and says so.
    Suspended(u64),
    /// It is further, or of another kind.
    Other,
}

impl SaidState {
    fn read(kind: WorkloadKind, object: &Value) -> Self {
        let state = &object["status"]["state"];
        let text = |field: &str| state[field].as_str().unwrap_or_default().to_owned();
        match state["phase"].as_str().unwrap_or_default() {
            _ if kind != WorkloadKind::VolcanoJob => Self::Other,
            "" => Self::Nothing,
            "Pending" => Self::Pending(fingerprint(&(&text("reason"), &text("message")))),
            "Aborted" if state["reason"] == Reason::SUSPENDED_BY_USER => {
                Self::Suspended(fingerprint(&(&text("reason"), &text("message"))))
            }
            _ => Self::Other,
        }
    }
}

impl Workload {
    /// By when it should have started, in seconds since 1970, if it says how long it may wait.
    #[must_use]
    pub fn deadline_of(&self, binding: &Binding) -> Option<EpochSeconds> {
        self.submit_time_of(binding).as_time().checked_add(self.sla_waiting_time?)
    }

    /// When it came: in the second in which its binding was made, and among those of that second as it was submitted.
    /// All that goes by the age of a job goes by this.
    #[must_use]
    pub fn submit_time_of(&self, binding: &Binding) -> SubmitTime {
        self.submitted.map_or(binding.created.into(), |stamp| SubmitTime::new(binding.created, stamp))
    }

    /// Whether its user wants it off its clusters and out of line.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.suspended.is_some() || self.end_as.is_some()
    }

    /// Keeps what an update of the same object does not say anew: its pods on nodes, and that it began no later than
    /// was said before.
    pub(crate) fn keep_known(&mut self, known: &Self) {
        if self.uid == known.uid {
            self.on_nodes = known.on_nodes;
            let before = known.progress.started;
            self.progress.started = self.progress.started.map(|at| before.map_or(at, |before| before.min(at)));
        }
    }

    /// Pods that run.
    #[must_use]
    pub fn count_running_pods(&self) -> u32 {
        self.progress.running.min(self.on_nodes.unwrap_or(u32::MAX))
    }

    /// Reads one; `None` if it is of no kind in scope.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let kind = WorkloadKind::of_object(object)?;
        let reference = workload::reference_of(object)?;
        let gang = workload::read_gang(object).map(Arc::new).map_err(|error| Arc::from(error.to_string()));
        let metadata = &object["metadata"];
        Some(Self {
            api_version: object["apiVersion"].as_str().unwrap_or("").into(),
            kind,
            uid: metadata["uid"].as_str().unwrap_or("").into(),
            resource_version: metadata["resourceVersion"].as_str().unwrap_or("").into(),
            queue: workload::queue_of(object),
            names_queue: workload::names_queue(object),
            class: workload::priority_class_of(object).into(),
            submitted: read_submit_time(object).map(Timestamp::as_microsecond),
            submitter: read_submitter(object).map(Arc::from),
            sla_waiting_time: workload::sla_waiting_time(object),
            run_for: workload::running_estimate(object),
            max_run_time: annotations::max_run_time(object),
            ttl: (kind == WorkloadKind::VolcanoJob)
                .then(|| object["spec"]["ttlSecondsAfterFinished"].as_i64())
                .flatten()
                .filter(|ttl| *ttl >= 0),
            held: annotations::is_held(object),
            suspended: find_suspension(kind, object),
            end_as: (kind == WorkloadKind::VolcanoJob).then(|| annotations::read_end_phase(object)).flatten(),
            max_retry: workload::read_max_retry(object),
            restarts_when_a_pod_fails: kind == WorkloadKind::VolcanoJob && workload::restarts_when_a_pod_fails(object),
            enough_succeeded: kind == WorkloadKind::VolcanoJob && has_enough_successes(object),
            checkpoint_interval: annotations::checkpoint_interval(object),
            preemptable: workload::read_preemptable(object),
            best_effort: workload::qos_level::is_best_effort(object),
            on_nodes: None,
            progress: read_progress(kind, object, gang.as_deref().ok()),
            gang,
            topology: (kind == WorkloadKind::VolcanoJob)
                .then(|| &object["spec"]["networkTopology"])
                .filter(|topology| topology.is_object())
                .map(|topology| Arc::new(topology.clone())),
            acted: Action::of_object(object).map(Box::new),
            deleting: metadata["deletionTimestamp"].is_string(),
            said: SaidState::read(kind, object),
            group: workload::read_group_of_pod(object).map(Arc::new),
            cron_job: CronOwner::read(object).map(Arc::new),
            images: workload::read_pod_images(object).map(Arc::new),
            child: (kind == WorkloadKind::VolcanoJob).then(|| ChildFacts::read(object)).flatten().map(Arc::new),
            reference: Arc::new(reference),
        })
    }
}

/// Many kinds have a field for it, which Volcano's Jobs lack.
fn find_suspension(kind: WorkloadKind, object: &Value) -> Option<&'static str> {
    annotations::is_suspended(object).then_some(SUSPENDED).or_else(|| kind.find_suspending_field(object))
}
