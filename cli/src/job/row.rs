//! One line of `caldera job list`.

use caldera_core::gang::WorkloadRef;
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    expected_start::{ExpectedStart, Forecast},
    view::{JobView, NOT_LOOKED_AT, State, YOUNG_SECONDS},
};

/// A job or service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobRow {
    /// Its namespace.
    pub(super) namespace: String,
    /// As commands take it: the name of a Volcano Job, `kind/name` for others.
    pub(super) job: String,
    /// Its queue.
    pub(super) queue: String,
    /// In one word.
    pub(super) state: &'static str,
    /// Its value, where it is known.
    pub(super) priority: i64,
    /// Seconds since it was made.
    pub(super) age_seconds: i64,
    /// Pods that run.
    pub(super) running: i64,
    /// Pods that succeeded.
    pub(super) succeeded: i64,
    /// Pods that failed.
    pub(super) failed: i64,
    /// Pods that must start together.
    pub(super) minimum: Option<i64>,
    /// Its pods in words.
    #[serde(skip)]
    pub(super) pods: String,
    /// Where it is.
    pub(super) clusters: Vec<String>,
    /// For machines.
    pub(super) reason: String,
    /// For people.
    pub(super) message: String,
    /// When it is expected to start, where that is asked for and it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expected_start: Option<ExpectedStart>,
    /// As the controller names it.
    #[serde(skip)]
    pub(super) workload: WorkloadRef,
    /// Whether it waits for its release.
    #[serde(skip)]
    pub(super) waits: bool,
}

impl JobRow {
    pub(super) fn of(job: JobView<'_>, forecast: Option<&Forecast>, now: Timestamp) -> Self {
        let workload = job.key.workload();
        let age = job.age_seconds(now);
        let unseen = (job.state == State::NotPropagated && age < YOUNG_SECONDS).then_some(NOT_LOOKED_AT);
        let said = [job.message()].into_iter().chain(job.end_words().iter().map(String::as_str)).chain(unseen);
        let message = said.filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ");
        Self {
            namespace: job.key.namespace.clone(),
            job: job.key.command_name(),
            queue: job.queue().to_owned(),
            state: job.state.word(),
            priority: job.priority(),
            age_seconds: age,
            running: job.running(),
            succeeded: job.succeeded(),
            failed: job.failed(),
            minimum: job.minimum(),
            pods: job.describe_pods(),
            clusters: job.clusters().iter().map(|(cluster, _)| cluster.clone()).collect(),
            reason: job.reason().to_owned(),
            message,
            expected_start: forecast.and_then(|forecast| forecast.find_start(&workload)).cloned(),
            workload,
            waits: job.state.is_gate_closed(),
        }
    }
}
