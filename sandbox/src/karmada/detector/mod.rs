//! The detector: templates meet policies and become bindings.

pub mod plan;
pub mod preemption;
pub mod run;
