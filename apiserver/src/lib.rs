#![forbid(unsafe_code)]

pub mod fields;
pub mod patch;
pub mod schema;
