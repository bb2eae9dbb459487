//! What must hold of any input that a tenant, a member or the network may write: a module for each target of fuzzing,
//! with what it is given and what must hold. They are here, without libFuzzer, so that every input that was kept is
//! played with each build of the workspace.
//!
//! - [`expand`] makes large objects of short inputs, so that what is not linear shows within a second.
//! - [`cost`] holds each execution to time and memory in proportion to its input. libFuzzer's own limits are of the
//!   process, and far above what one request may take.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a check fails by panicking")]

pub mod admission;
pub mod binding;
pub mod cost;
pub mod estimator;
pub mod expand;
pub mod files;
pub mod inventory;
pub mod quantity;
pub mod selector;

/// Panics where an input does what must not be.
pub type Check = fn(&[u8]);

/// Each target's check, by the name of its folder in `fuzz/corpus`.
pub const CHECKS: [(&str, Check); 7] = [
    ("admission", admission::check_input),
    ("binding", binding::check_input),
    ("estimator", estimator::check_input),
    ("files", files::check_input),
    ("inventory", inventory::check_input),
    ("quantity", quantity::check_input),
    ("selector", selector::check_input),
];
