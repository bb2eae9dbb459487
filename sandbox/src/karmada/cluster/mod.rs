//! Members: access to them, their health, their resources, their coming and going.

pub mod join;
pub mod plan;
pub mod run;
pub mod taint_policy;
