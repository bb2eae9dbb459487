//! What tenants of a queue have of it where they take turns, as people and programs are told.

use std::fmt;

use caldera_core::{gang::QueueName, queue::Engine, tenant::Tenant};
use serde::Serialize;

/// A tenant of a queue where tenants take turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantTurn {
    /// `namespace ml` or `user ada`.
    pub tenant: String,
    /// Its dominant share of the queue, rounded down.
    pub percent: u64,
    /// What it used lately is in it (order `fair-history`).
    pub with_history: bool,
    /// What it used lately counts, and is not known to who asks: turns may be others.
    pub lacks_history: bool,
}

impl TenantTurn {
    pub(super) fn new((tenant, percent): (&Tenant, u64), engine: &Engine) -> Self {
        let with_history = engine.counts_tenant_history();
        let lacks_history = engine.history_half_life().is_some() && !with_history;
        Self { tenant: tenant.to_string(), percent, with_history, lacks_history }
    }
}

/// `user ada 40 %`.
impl fmt::Display for TenantTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} %", self.tenant, self.percent)
    }
}

/// What the tenants of a queue have of it where they take turns, the largest first.
pub(super) fn list_tenant_shares(engine: &Engine, queue: &QueueName) -> Vec<TenantTurn> {
    engine.list_tenant_shares(queue).into_iter().map(|turn| TenantTurn::new(turn, engine)).collect()
}
