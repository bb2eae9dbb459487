//! What the scheduler sees: the kinds that it follows, and a cache that their events and the time fill.

pub mod binding;
pub mod cache;
pub(crate) mod host_watch;
pub mod ranking;
