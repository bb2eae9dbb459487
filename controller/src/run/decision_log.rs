//! The log of what was decided: a line for each decision that a person would ask about, which is each job that is let
//! go, loses clusters, gets another record, is ended or is deleted, each copy that Karmada is asked about, and each
//! queue that is opened or closed. What decides logs none of it: a decision carries its reason.
//!
//! Every line has the same fields, as far as they are known: `binding` or `job`, `queue`, `clusters` where it has some,
//! `reason` with `why`, and `by`, who wanted that: a user, the controller, the job's own policies, or the job in
//! `preemptor`. The write of a decision is in a span with `binding` and `queue`.

use caldera_core::{
    gang::{QueueName, WorkloadRef},
    queue::preemption::EvictionRecord,
    reason::EvictionCause,
    text::name_some,
};
use caldera_crds::workload::WorkloadKind;
use caldera_runtime::otlp::WORKLOAD;
use tracing::{
    Span,
    field::{Empty, display},
};

use crate::{
    decide::{COPY_REFUSED, Controller, FORGED_RECORD, PODS_READY_TIMEOUT, find_who_wanted},
    observe::{Key, MEMBER_LOST},
    write::{Decision, EndCause},
};

/// Reasons for which nobody asked: something is wrong with a cluster, a job or a record.
const FAULTS: [&str; 4] = [COPY_REFUSED, FORGED_RECORD, MEMBER_LOST, PODS_READY_TIMEOUT];

/// The span of a decision's write.
pub(crate) fn open_decision_span(controller: &Controller, decision: &Decision) -> Span {
    let (binding, queue) = (decision.binding(), decision.queue());
    let queue = queue.or_else(|| find_queue(controller, binding?));
    let span = tracing::debug_span!(
        "decision",
        binding = binding.map(display),
        queue = queue.map(display),
        workload_uid = Empty,
        clusters = Empty,
        does = Empty
    );
    if !span.is_disabled() {
        if let Some(binding) = binding.and_then(|binding| controller.objects.bindings.get(binding)) {
            span.record(WORKLOAD, &*binding.workload_uid);
        }
        if let Some(clusters) = binding.and_then(|binding| describe_clusters(controller, binding)) {
            span.record("clusters", clusters);
        }
        span.record("does", decision.word());
    }
    span
}

fn find_queue<'a>(controller: &'a Controller, binding: &Key) -> Option<&'a QueueName> {
    controller.objects.queue_of(controller.objects.bindings.get(binding)?)
}

/// Where it is before the decision.
fn describe_clusters(controller: &Controller, binding: &Key) -> Option<String> {
    let binding = controller.objects.bindings.get(binding)?;
    (!binding.clusters.is_empty()).then(|| name_some(binding.clusters.iter().map(|(cluster, _)| cluster)))
}

fn find_queue_of_job<'a>(controller: &'a Controller, kind: WorkloadKind, job: &Key) -> Option<&'a QueueName> {
    let reference = WorkloadRef {
        group: kind.api_resource().group,
        kind: kind.kind().to_owned(),
        namespace: job.namespace.to_string(),
        name: job.name.to_string(),
    };
    controller.objects.workloads.get(&reference).map(|workload| &workload.queue)
}

/// The job that one gave way to, by its binding; by its UID where that is gone.
fn find_preemptor(controller: &Controller, eviction: &EvictionRecord) -> Option<String> {
    EvictionCause::parse_token(&eviction.reason)?;
    let uid = eviction.preemptor.as_str();
    let known = controller.jobs.keys.get(uid);
    Some(known.map_or_else(|| uid.to_owned(), ToString::to_string))
}

fn log_eviction(controller: &Controller, key: &Key, eviction: &EvictionRecord) {
    let (queue, clusters) = (find_queue(controller, key).map(display), describe_clusters(controller, key));
    let (clusters, by) = (clusters.as_deref(), find_who_wanted(eviction));
    let EvictionRecord { reason, message: why, .. } = eviction;
    if FAULTS.contains(&reason.as_str()) {
        tracing::warn!(binding = %key, queue, clusters, reason, why, by, "a job is evicted");
    } else {
        let preemptor = find_preemptor(controller, eviction);
        tracing::info!(
            binding = %key, queue, clusters, reason, why, by, preemptor = preemptor.as_deref(), "a job is evicted"
        );
    }
}

/// Logs what is decided, before it is written.
pub(crate) fn log_decision(controller: &Controller, decision: &Decision) {
    let queue_of = |key: &Key| find_queue(controller, key).map(display);
    match decision {
        Decision::Release { key, admission, epoch, .. } => {
            let (queue, charged, lease) = (&admission.queue, &admission.charged, epoch.as_deref());
            tracing::info!(binding = %key, %queue, %charged, by = "controller", lease, "a job is released");
        }
        Decision::Resize { key, admission, .. } => {
            let clusters = describe_clusters(controller, key);
            let (queue, charged, clusters) = (&admission.queue, &admission.charged, clusters.as_deref());
            tracing::info!(binding = %key, %queue, clusters, %charged, by = "controller", "a job is charged anew");
        }
        Decision::Evict { key, eviction, .. } => log_eviction(controller, key, eviction),
        Decision::Shrink { key, eviction, .. } => {
            let clusters = describe_clusters(controller, key);
            let preemptor = find_preemptor(controller, eviction);
            tracing::info!(
                binding = %key, queue = queue_of(key), clusters = clusters.as_deref(), reason = eviction.reason,
                why = eviction.message, by = find_who_wanted(eviction), preemptor = preemptor.as_deref(),
                "a job loses surplus pods"
            );
        }
        Decision::EndJob { key, phase, cause, .. } => {
            let queue = find_queue_of_job(controller, WorkloadKind::VolcanoJob, key).map(display);
            let by = match cause {
                EndCause::User => "user",
                EndCause::MaxRetry | EndCause::MinSuccess => "job",
                EndCause::RunTime => "controller",
            };
            tracing::info!(job = %key, queue, phase, why = cause.describe().1, by, "a job is ended");
        }
        Decision::FailBatchJob { key, failure, .. } => {
            let queue = find_queue_of_job(controller, WorkloadKind::BatchJob, key).map(display);
            let (reason, why) = (&failure.reason, &failure.message);
            tracing::info!(job = %key, queue, reason, why, by = "job", "a job failed in its clusters");
        }
        Decision::DeleteJob { key, .. } => {
            let queue = find_queue_of_job(controller, WorkloadKind::VolcanoJob, key).map(display);
            tracing::info!(job = %key, queue, by = "user", "its TTL is over; it is deleted");
        }
        Decision::AnnotateJob { key, name, value, .. } => {
            let queue = find_queue_of_job(controller, WorkloadKind::VolcanoJob, key).map(display);
            let by = if *value == Some("Failed") { "job" } else { "user" };
            tracing::info!(job = %key, queue, annotation = name, value, by, "a job is annotated");
        }
        Decision::QueueState { name, state, .. } => {
            tracing::info!(queue = %name, state = state.as_str(), "a queue is opened or closed");
        }
        Decision::TouchBinding { key, .. } => {
            let clusters = describe_clusters(controller, key);
            tracing::warn!(
                binding = %key, queue = queue_of(key), clusters = clusters.as_deref(), by = "controller",
                "copies are where they should not be; Karmada is asked to look again"
            );
        }
        Decision::RequestReport { key, .. } => {
            let clusters = describe_clusters(controller, key);
            tracing::warn!(
                binding = %key, queue = queue_of(key), clusters = clusters.as_deref(), by = "controller",
                "Karmada has told nothing of a copy; it is asked to aggregate its status"
            );
        }
        Decision::DropHeldCopies { key, restart: Some(restart), .. } => log_eviction(controller, key, restart),
        Decision::DropHeldCopies { key, .. } => {
            tracing::info!(binding = %key, "copies in clusters that were lost have not ended; they are deleted");
        }
        Decision::TouchWork { cluster, binding, .. } => {
            tracing::warn!(
                %binding, queue = queue_of(binding), clusters = %cluster, by = "controller",
                "a copy is not in its member; Karmada is asked to apply it again"
            );
        }
        _ => {}
    }
}
