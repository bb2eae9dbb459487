//! The global scheduler: places bindings that name it and may go, gangs whole or not at all.
//!
//! [`observe`] keeps a cache of the host and of the members, [`decide`] decides about one binding, [`write`](mod@write)
//! builds what is written. `run` connects them to the Karmada API and to estimators; only it waits. The placement
//! itself is [`caldera_core::place`], which the controller asks too.
#![forbid(unsafe_code)]

pub mod decide;
pub mod metrics;
pub mod observe;
mod run;
#[cfg(test)]
mod tests;
pub mod write;

pub use run::{Config, Error, estimators, run};
