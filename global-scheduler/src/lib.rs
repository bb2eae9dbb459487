//! The global scheduler: places released bindings that carry our name, gangs whole or not at all.
//!
//! [`index`] knows, [`plan`] decides, [`effect`] says what is written, [`run`] connects them to the Karmada API. The
//! placement itself is `caldera_core::place`, which the controller asks too.
#![forbid(unsafe_code)]

pub mod effect;
mod estimates;
pub mod index;
mod metrics;
pub mod plan;
pub mod ranking;
mod run;
#[cfg(test)]
mod tests;

pub use run::{Config, Error, run};
