//! What the scheduler writes: placements and statuses of bindings, Events, and the status of topologies. And what of it
//! waits: statuses for their moment (`first_statuses`) and for room (`confirmations`), failed writes for another
//! try (`retries`), Events for their budget (`event_budget`). What was told already: `fault_reports`.

pub mod binding_writes;
pub(crate) mod confirmations;
pub(crate) mod event_budget;
pub(crate) mod fault_reports;
pub(crate) mod first_statuses;
pub(crate) mod retries;
pub mod topology_status;
