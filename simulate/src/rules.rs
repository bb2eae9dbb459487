//! What an admin chooses of how the engine decides: the policy `caldera` follows it.
//!
//! Rule: what is not said is as the controller has it by default (`controller/src/config.rs`).

use caldera_core::{
    capacity_reservation::CapacityReservation,
    queue::{FairHistory, HISTORY_HALF_LIFE, OrderPolicy, RESERVATION_AFTER, preemption::PreemptionPolicy},
};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Who goes first.
    pub order: OrderPolicy,
    /// Seconds after which what a queue used counts half, where that counts.
    pub history_half_life: i64,
    /// What queues and their tenants used lately, where that counts.
    pub histories: Vec<FairHistory>,
    /// What tenants used lately is not known.
    pub ignores_tenant_history: bool,
    /// Seconds that a job is blocked before it gets a reservation; `None` makes none.
    pub reservation_after: Option<i64>,
    /// Amounts that are kept for a time.
    pub reservations: Vec<CapacityReservation>,
    /// Who is evicted for whom.
    pub preemption: PreemptionPolicy,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            order: OrderPolicy::default(),
            history_half_life: HISTORY_HALF_LIFE,
            histories: Vec::new(),
            ignores_tenant_history: false,
            reservation_after: Some(RESERVATION_AFTER),
            reservations: Vec::new(),
            preemption: PreemptionPolicy::default(),
        }
    }
}
