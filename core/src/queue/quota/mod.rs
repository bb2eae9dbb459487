//! Quota: what each queue may have, and what its jobs use of it.
//!
//! Rule: Volcano's hierarchical capacity plugin (`pkg/scheduler/plugins/capacity/capacity.go`). [`tree`] says which
//! queue is above which, [`slot`] holds what is known of one, [`entitlement`] works out guarantee, deserved amount and
//! real capability from the root down (with [`water_fill`] for parts by weight), [`admission`] tells whether a job
//! stays within them, [`ledger`] what a job is charged, [`running`] how many jobs that makes, [`history`] what queues
//! used lately, and [`faults`] what is wrong with a queue's own numbers. [`amount`] is what they calculate with,
//! [`amounts`] vectors of it.

pub(crate) mod admission;
pub(crate) mod amount;
pub(crate) mod amounts;
pub(crate) mod entitlement;
pub(crate) mod expected_ends;
pub mod faults;
pub mod history;
pub mod ledger;
pub(crate) mod queue_table;
pub(crate) mod running;
pub(crate) mod slot;
pub(crate) mod tenant_share;
pub(crate) mod tree;
pub(crate) mod water_fill;
