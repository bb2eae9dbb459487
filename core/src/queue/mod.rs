//! Queues: which job may start, in which order, within which limits, and why not.
//!
//! Rule: Volcano's hierarchical capacity plugin (`pkg/scheduler/plugins/capacity`) for the whole fleet instead of one
//! cluster. The parts:
//!
//! - [`spec`]: a queue as its object says it; [`state`]: whether it is open, closing or closed.
//! - `quota`: what each queue may have ([`faults`]: what is wrong with it) and what jobs are charged ([`ledger`]).
//! - `pending`: the order of queues and of the jobs that wait in them.
//! - [`capacity`]: the question whether a job fits into the clusters now.
//! - `aging`: how priorities rise with the time in line; `tenant_order`: whether tenants take turns; `waiting`: how
//!   long a job waits for a reservation.
//! - `reservation`: what is kept free for a job that has waited long (EASY backfill).
//! - [`preemption`]: which running jobs are evicted for a job that waits (reclaim and preempt).
//! - [`shard`]: how several engines share one fleet.
//! - [`engine`]: all of these together, fed by events and asked for the next job to release.

mod aging;
pub mod capacity;
pub mod engine;
mod pending;
pub mod preemption;
mod quota;
mod reservation;
pub mod shard;
pub mod spec;
pub mod state;
mod tenant_order;
#[cfg(test)]
mod tests;
mod waiting;

pub use aging::PriorityAging;
pub use capacity::{CapacityGrowth, ClusterCapacity, Fit, MOST_CLUSTERS_FOR_COPIES, ReservedClusters};
pub use engine::{
    Engine, Entitlement, FairHistory, Job, PreemptionCandidate, PreemptionRound, PreemptionWorld, QueueUsage, Release,
    ReservationStatus, UnknownStart,
};
pub use pending::job_order::{JobId, OrderPolicy};
pub use quota::{
    admission::{Ask, CardChoice, FitClass, TaskAsk},
    faults::{self, QueueFault, QueueField},
    history::HISTORY_HALF_LIFE,
    ledger,
    running::Counted,
};
pub use reservation::RESERVATION_AFTER;
pub use spec::{Dequeue, FleetResources, QueueSpec, QueueState, RunningLimits, find_affinity};
pub use tenant_order::TenantOrder;
pub use waiting::ReservationWait;
