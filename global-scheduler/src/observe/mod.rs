//! What the scheduler sees: the kinds that it follows, and a cache that their events and the time fill.

pub mod assumed;
pub mod binding;
pub mod cache;
pub mod data_arrival;
pub(crate) mod host_watch;
pub mod queue_arrival;
pub mod ranking;
