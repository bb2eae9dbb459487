//! The binding controllers: a binding's clusters become Works.

pub mod overrides;
pub mod plan;
pub mod run;
