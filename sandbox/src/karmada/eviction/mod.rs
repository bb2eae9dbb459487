//! Eviction: bindings leave clusters that are tainted, or where their workload does not get healthy, and their Works
//! stay there until it runs elsewhere.

pub mod plan;
pub mod run;
pub mod state;

use std::time::Duration;

/// What karmada-controller-manager is told about evictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evictions {
    /// Gate `Failover` with `--enable-no-execute-taint-eviction`.
    pub by_taints: bool,
    /// `--no-execute-taint-eviction-purge-mode=Directly`.
    pub directly: bool,
    /// `--graceful-eviction-timeout`.
    pub timeout: Duration,
}

impl Default for Evictions {
    fn default() -> Self {
        Self { by_taints: false, directly: false, timeout: Duration::from_secs(600) }
    }
}
