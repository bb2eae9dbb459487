//! The log of what was decided: a line for each job that loses clusters, is ended or is deleted, and for each copy that
//! Karmada is asked about. What decides logs none of it: a decision carries its reason.

use crate::{
    decide::{COPY_REFUSED, FORGED_RECORD, PODS_READY_TIMEOUT},
    observe::MEMBER_LOST,
    write::Decision,
};

/// Reasons for which nobody asked: something is wrong with a cluster, a job or a record.
const FAULTS: [&str; 4] = [COPY_REFUSED, FORGED_RECORD, MEMBER_LOST, PODS_READY_TIMEOUT];

pub(super) fn log_decision(decision: &Decision) {
    match decision {
        Decision::Evict { key, eviction, .. } if FAULTS.contains(&eviction.reason.as_str()) => {
            tracing::warn!(binding = %key, reason = eviction.reason, why = eviction.message, "a job is evicted");
        }
        Decision::Evict { key, eviction, .. } => {
            tracing::info!(binding = %key, reason = eviction.reason, why = eviction.message, "a job is evicted");
        }
        Decision::Shrink { key, eviction, .. } => {
            tracing::info!(binding = %key, reason = eviction.reason, why = eviction.message, "a job loses surplus pods");
        }
        Decision::EndJob { key, phase, .. } => tracing::info!(job = %key, phase, "a job is ended"),
        Decision::FailBatchJob { key, failure, .. } => {
            tracing::info!(job = %key, reason = failure.reason, why = failure.message, "a job failed in its clusters");
        }
        Decision::DeleteJob { key, .. } => tracing::info!(job = %key, "its TTL is over; it is deleted"),
        Decision::TouchBinding { key, .. } => {
            tracing::warn!(binding = %key, "copies are where they should not be; Karmada is asked to look again");
        }
        Decision::DropHeldCopies { key, .. } => {
            tracing::info!(binding = %key, "copies in clusters that were lost have not ended; they are deleted");
        }
        Decision::TouchWork { cluster, binding, .. } => {
            tracing::warn!(%binding, %cluster, "a copy is not in its member; Karmada is asked to apply it again");
        }
        _ => {}
    }
}
