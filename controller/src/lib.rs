//! The controller: decides when a job may start.
//!
//! Three steps, each a folder: [`observe`] takes objects in, [`decide`] says what is to be done, [`mod@write`] says how
//! that is written. Each imports only those before it, but for `write`, which `decide` builds its decisions from.
//! [`run()`] is the loop around them and alone asynchronous. [`explain`] and [`snapshot`] answer questions
//! about the same state.
#![forbid(unsafe_code)]

pub mod catalogue;
mod config;
mod config_map;
pub mod decide;
pub mod explain;
pub mod history;
mod measure;
pub mod metrics;
pub mod observe;
mod run;
pub mod settings;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod usage;
pub mod write;

pub use config::Config;
pub use run::{Error, run};
