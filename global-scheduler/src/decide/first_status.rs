//! When the first status of a placed binding is written, which says that it is scheduled.
//!
//! Rule: a moment after the placement, and not at all once the workload has ended. Who reads that status in Karmada
//! 1.19 needs it no sooner. Graceful eviction (`pkg/controllers/gracefuleviction`) compares
//! `schedulerObservedGeneration` of a binding that is evicted, and the syncer of replicas
//! (`pkg/controllers/deploymentreplicassyncer`) that of a Deployment's. Aggregation
//! (`pkg/controllers/status/common.go`) follows each status of a Work without it. Only when the template changes, or
//! when Karmada starts, does it pass by a binding without `lastScheduledTime`. So it is written until the workload says
//! itself that it has ended. It is written at once where a cluster is being left, where the status speaks of an earlier
//! decision, and of what does not end by itself.

use caldera_crds::workload::WorkloadKind;

use crate::observe::{binding::Binding, cache::WorkloadRequest};

/// When the status is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusTiming {
    /// At once.
    Now,
    /// If it is still so in a moment.
    Later,
    /// Nobody asks any more.
    Never,
}

/// When a status is written that says that the binding is scheduled.
#[must_use]
pub fn decide_status_timing(binding: &Binding, request: Option<&WorkloadRequest>) -> StatusTiming {
    let (status, place) = (&binding.status, &binding.place);
    let kind = WorkloadKind::parse(&binding.api_version, &binding.workload.kind);
    let ends = kind.is_some_and(WorkloadKind::runs_to_its_end);
    let is_first = status.scheduled_condition().is_none() && status.last_scheduled.is_none();
    let is_awaited = !place.evicting.is_empty() || !place.placement.affinities.is_empty();
    if !ends || !is_first || is_awaited || !binding.is_released() || place.previous.is_empty() {
        return StatusTiming::Now;
    }
    let has_ended_there = place.previous.iter().all(|target| binding.ended.contains_key(&target.cluster));
    let has_ended = has_ended_there && request.is_some_and(|request| request.has_ended);
    if has_ended { StatusTiming::Never } else { StatusTiming::Later }
}
