//! The webhook: gates ResourceBindings, makes the copy of each cluster from the plan, fills in defaults of jobs and
//! queues, validates jobs, HyperJobs and queues, refuses what untrusted users write on bindings and Works, and is
//! Karmada's resource interpreter for Volcano Jobs.
//!
//! [`observe`] reads requests and keeps a cache that watches fill, [`decide`] answers a request from that cache,
//! [`write`](mod@write) encodes the answer, and [`rules`] says which route is which of them. `run` serves HTTPS and
//! feeds the cache; only it waits. Where the cache may be behind, `run` reads from the API and has it decided once
//! more.
#![forbid(unsafe_code)]

pub mod decide;
pub mod metrics;
pub mod observe;
pub mod rules;
mod run;
pub mod write;

pub use observe::cache::Placer;
pub use run::{Config, Error, LARGEST_OBJECT, LONGEST_GRACE_PERIOD, Limits, SharedCache, fill_cache, router, run};
pub use write::{
    configurations::{Endpoint, build_configurations, build_configurations_for},
    customization::{MEMBER_CUSTOMIZATION, build_member_customization},
};
