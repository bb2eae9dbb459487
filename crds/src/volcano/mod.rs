//! Volcano's APIs, one module per API group.

pub mod batch;
pub mod bus;
pub mod cron;
pub mod datadependency;
pub mod nodeinfo;
pub mod scheduling;
pub mod topology;
pub mod training;
