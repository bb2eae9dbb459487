//! What the scheduler writes: placements and statuses of bindings, Events, and the status of topologies.

pub mod binding_writes;
pub(crate) mod confirmations;
pub(crate) mod event_budget;
pub(crate) mod first_statuses;
pub(crate) mod retries;
pub mod topology_status;
