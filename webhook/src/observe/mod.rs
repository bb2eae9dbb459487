//! What the webhook sees: the requests that arrive, and a cache of the host's objects that watches fill.

pub mod cache;
pub mod cost;
pub mod host_watch;
pub mod kept_policies;
pub mod long_job;
pub mod request;
pub mod scope;
pub mod sharded;
