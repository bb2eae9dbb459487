//! The webhook: gates ResourceBindings, makes each cluster's copy from the plan, validates, and is Karmada's resource
//! interpreter for Volcano Jobs.
//!
//! Each route is a plain function of a request and of memory ([`gate::gate`], [`work::rewrite`], [`job`], [`queue`],
//! [`interpreter::interpret`]); [`run`] feeds memory from watches and speaks HTTPS.
#![forbid(unsafe_code)]

mod configurations;
pub mod gate;
pub mod index;
pub mod interpreter;
pub mod job;
mod metrics;
pub mod patch;
pub mod queue;
pub mod review;
pub mod rewrite;
mod run;
pub mod scope;
mod ssh;
pub mod work;

pub use configurations::{Endpoint, configurations};
pub use run::{Config, Error, Memory, follow, router, run};
