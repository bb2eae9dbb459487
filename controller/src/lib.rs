//! The controller: decides when a job may start.
//!
//! Three steps, each a folder: [`observe`] takes objects in, [`decide`] says what is to be done, [`mod@write`] says how
//! that is written. Each imports only those before it, but for `write`, which `decide` builds its decisions from.
//! [`run()`] is the loop around them and the only asynchronous module. It also has the state measured (`measure`,
//! [`metrics`]), and every five minutes has the accounts kept: what was used ([`usage`]), how jobs ended ([`history`]),
//! and what counts of that for who goes first ([`fair_history`]). [`settings`] are published for readers. [`explain`]
//! and [`snapshot`] answer questions about the state, and `state` those of `/debug/state`.
#![forbid(unsafe_code)]

pub mod catalogue;
mod config;
mod config_map;
pub mod decide;
pub mod explain;
pub mod fair_history;
pub mod history;
mod measure;
pub mod metrics;
pub mod observe;
pub mod published_runs;
mod run;
pub mod settings;
pub mod shadow;
pub mod snapshot;
mod state;
#[cfg(test)]
mod tests;
pub mod usage;
pub mod write;

pub use config::Config;
pub use run::{Error, run, run_in_shadow};
