//! What the scheduler is started with.

use std::sync::Arc;

use caldera_runtime::{
    client::WriteCounts,
    clock::{SharedClock, SystemClock},
    debug_state::ComponentStates,
    serve::{Ready, SharedRegistry},
};

use super::estimators::pool::Settings;

/// What the scheduler is started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The time.
    pub clock: SharedClock,
    /// Set once the first view is complete.
    pub ready: Ready,
    /// Where metrics are registered.
    pub registry: SharedRegistry,
    /// Where it is asked for its state.
    pub states: ComponentStates,
    /// Counts the writes of clients of members (there should be none).
    pub counts: WriteCounts,
    /// Where the estimators of members are whose nodes can not be read.
    pub estimators: Settings,
    /// Clusters that get nothing of a divided workload are listed too.
    pub empty_workloads: bool,
    /// Namespace and name of the lease under which the controller grants. Where there is none, grants without an epoch
    /// are placed. `None`: grants are not fenced.
    pub grants: Option<(String, String)>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            ready: Ready::default(),
            registry: SharedRegistry::default(),
            states: ComponentStates::default(),
            counts: WriteCounts::default(),
            estimators: Settings::default(),
            empty_workloads: false,
            grants: None,
        }
    }
}
