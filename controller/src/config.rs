//! How the controller is set up.

use std::sync::Arc;

use caldera_core::{
    load_aware::LoadPolicy,
    queue::{HISTORY_HALF_LIFE, OrderPolicy, RESERVATION_AFTER, preemption::PreemptionPolicy},
};
use caldera_runtime::{
    client::WriteCounts,
    clock::{SharedClock, SystemClock},
    debug_state::ComponentStates,
    serve::{Ready, SharedRegistry},
};
use jiff::SignedDuration;

use crate::{
    catalogue::Catalogue,
    decide::{DEFAULT_TIMEOUT, MEMBER_LOST_AFTER},
};

/// Between two writes of what was used.
const SAVE_USAGE: SignedDuration = SignedDuration::from_mins(5);

/// How the controller is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Set once the view is complete.
    pub ready: Ready,
    /// Where metrics are registered.
    pub registry: SharedRegistry,
    /// Where it is asked for its state.
    pub states: ComponentStates,
    /// What time it is.
    pub clock: SharedClock,
    /// Counts writes of the clients that read members (there should be none).
    pub counts: WriteCounts,
    /// Which job goes first.
    pub order: OrderPolicy,
    /// Seconds after which what a queue used counts half, where that counts.
    pub history_half_life: i64,
    /// Seconds that a job is blocked before it gets a reservation; `None` makes none.
    pub reservation_after: Option<i64>,
    /// Which jobs may evict which, and how many at most.
    pub preemption: PreemptionPolicy,
    /// Which jobs leave clusters that are really hot.
    pub load: LoadPolicy,
    /// Under which lease it is active; `None` for a single replica that needs none.
    pub epoch: Option<String>,
    /// How long a part of a gang has, from its placement on, until its minimum is on nodes; then the gang is requeued.
    pub pods_ready_timeout: SignedDuration,
    /// How long a cluster is not ready before it is lost, and gangs that are there are withdrawn; `None` for never.
    pub member_lost_after: Option<SignedDuration>,
    /// karmada-scheduler places what is admitted: it places all of it or nothing.
    pub stock_scheduler: bool,
    /// Who is asked where data is that is claimed and has no source; `None` for nobody.
    pub catalogue: Option<Catalogue>,
    /// Between two writes of what was used.
    pub save_usage_every: SignedDuration,
    /// Where these settings are published for readers; the namespace must exist.
    pub namespace: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ready: Ready::default(),
            registry: SharedRegistry::default(),
            states: ComponentStates::default(),
            clock: Arc::new(SystemClock),
            counts: WriteCounts::default(),
            order: OrderPolicy::default(),
            history_half_life: HISTORY_HALF_LIFE,
            reservation_after: Some(RESERVATION_AFTER),
            preemption: PreemptionPolicy::default(),
            load: LoadPolicy::default(),
            epoch: None,
            pods_ready_timeout: DEFAULT_TIMEOUT,
            member_lost_after: Some(MEMBER_LOST_AFTER),
            stock_scheduler: false,
            catalogue: None,
            save_usage_every: SAVE_USAGE,
            namespace: "default".to_owned(),
        }
    }
}
