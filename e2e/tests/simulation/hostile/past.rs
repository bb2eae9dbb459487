//! What the tenant has and wrote, as it is in a backup of the host.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Forgery, Hostile};

/// What there is of the tenant's at one moment.
pub struct Past {
    by_tenant: BTreeSet<u64>,
    jobs: BTreeMap<String, Value>,
    bindings: BTreeMap<String, Value>,
    works: BTreeSet<(String, String)>,
    forgeries: BTreeMap<String, Forgery>,
    edited: BTreeSet<String>,
}

impl Hostile {
    pub fn list_now(&self) -> Past {
        Past {
            by_tenant: self.by_tenant.clone(),
            jobs: self.jobs.clone(),
            bindings: self.bindings.clone(),
            works: self.works.clone(),
            forgeries: self.forgeries.clone(),
            edited: self.edited.clone(),
        }
    }

    /// All that there was is there again, and what came since is gone.
    pub fn go_back(&mut self, past: Past) {
        let Past { by_tenant, jobs, bindings, works, forgeries, edited } = past;
        (self.by_tenant, self.jobs, self.bindings) = (by_tenant, jobs, bindings);
        (self.works, self.forgeries, self.edited) = (works, forgeries, edited);
    }
}
