//! Karmada's APIs, one module per API group.

pub mod apps;
pub mod cluster;
pub mod config;
mod overrides;
mod placement;
pub mod policy;
mod resource_selector;
mod taint_policy;
pub mod work;
