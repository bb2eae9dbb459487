//! What the targets share.
//!
//! - [`json`] mutates JSON as JSON, and [`expand`] makes large objects of short inputs, so that what is not linear
//!   shows within a second.
//! - [`cost`] holds each execution to time and memory in proportion to its input. libFuzzer's own limits are of the
//!   process, and far above what one request may take.

pub mod cost;
pub mod expand;
pub mod json;
