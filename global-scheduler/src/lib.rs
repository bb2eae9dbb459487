//! The global scheduler: places bindings that carry our name and may go, gangs whole or not at all.
//!
//! [`binding`] reads, [`index`] knows, [`promise`] holds, [`plan`] decides, [`effect`] says what is written, [`run`] connects them to the Karmada API. The
//! placement itself is `caldera_core::place`, which the controller asks too.
#![forbid(unsafe_code)]

pub mod binding;
pub mod effect;
mod ending;
mod estimates;
mod fence;
pub mod index;
pub mod links;
mod metrics;
pub mod plan;
pub mod promise;
pub mod ranking;
mod rigid;
mod run;
mod telling;
#[cfg(test)]
mod tests;
mod watches;

pub use run::{Config, Error, run};
