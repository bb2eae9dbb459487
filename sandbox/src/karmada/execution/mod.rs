//! The execution controller: Works become objects in members.

pub mod plan;
pub mod run;
