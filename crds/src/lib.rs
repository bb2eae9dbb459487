//! Typed APIs: our own, and the parts of Karmada's and Volcano's that we read or write.
#![forbid(unsafe_code)]

pub mod binding;
pub mod inventory;
pub mod job_admission;
pub mod karmada;
pub mod links;
pub mod manifests;
pub mod names;
pub mod placement;
pub mod published;
pub mod queue_admission;
mod schema;
pub mod score;
pub mod volcano;
pub mod wire;
pub mod workload;
