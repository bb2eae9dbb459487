//! Pending jobs: those that wait in a queue, and which of them goes first.
//!
//! Rule: Volcano's `JobOrderFn` within a queue ([`job_order`], [`line`]) and its `QueueOrderFn` among queues
//! ([`queue_order`]). Like Kueue, a job that was considered and does not fit is inadmissible until what it lacks comes
//! free.

mod first_jobs;
pub(crate) mod inadmissible;
pub(crate) mod job_order;
pub(crate) mod line;
pub(crate) mod order_rules;
pub(crate) mod pending_queues;
pub(crate) mod queue_order;
mod same_shape;
pub(crate) mod shape_table;
pub(crate) mod short_of_quota;
