//! What the targets share: [`json`] mutates JSON as JSON. What they hold is in crate `fuzz-checks`.

pub mod json;
