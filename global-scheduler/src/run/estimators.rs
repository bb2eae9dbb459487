//! Estimates of members whose nodes can not be read: their accurate estimators are asked, by gRPC as karmada-scheduler
//! does.
//!
//! [`pool`] holds the clients and caches the answers, [`client`] makes one call, and [`gather_estimates`] collects what
//! is known for one binding.

pub mod client;
mod gather;
pub mod pool;

pub use gather::gather_estimates;
