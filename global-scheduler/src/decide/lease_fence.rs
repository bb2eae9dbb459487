//! Lease fencing: which grants may be placed.
//!
//! Rule: a grant carries the epoch of the lease under which the controller made it (`caldera.dev/epoch`). Before more
//! of a grant is placed the lease is read, and that read begins after the grant was seen. If the lease still has the
//! epoch of the grant, any later holder lists the grant, and charges it, before it grants anything itself. If it has
//! not, the grant is stale: the holder of the lease decides about it, and grants it again or takes it back. One read
//! serves all grants that wait for it. A grant without an epoch counts only where there is no lease at all: a
//! controller that has one writes its epoch, and nobody else grants.

use std::collections::BTreeMap;

use caldera_runtime::lease::LeaseRecord;

use crate::observe::binding::{Binding, BindingKey};

/// A grant as it was seen.
#[derive(Debug, PartialEq, Eq)]
struct SeenGrant {
    resource_version: String,
    epoch: Option<String>,
}

/// The grants that wait for a read of the lease, and those that may be placed.
#[derive(Debug, Default)]
pub struct LeaseFence {
    /// Without fencing every grant may be placed.
    is_enabled: bool,
    /// Those that the read under way is for.
    reading: Option<BTreeMap<BindingKey, SeenGrant>>,
    /// Those that the next read is for.
    waiting: BTreeMap<BindingKey, SeenGrant>,
    /// Versions of bindings that may be placed.
    valid: BTreeMap<BindingKey, String>,
}

impl LeaseFence {
    /// Fences nothing unless it is enabled.
    #[must_use]
    pub fn new(is_enabled: bool) -> Self {
        Self { is_enabled, ..Self::default() }
    }

    /// How many grants wait for a read of the lease.
    #[must_use]
    pub fn count_waiting(&self) -> usize {
        self.waiting.len() + self.reading.as_ref().map_or(0, BTreeMap::len)
    }

    /// Whether so many replicas of a binding may be placed now. If not yet, it waits for a read of the lease.
    pub fn may_place(&mut self, binding: &Binding, replicas: i64) -> bool {
        // What is not queued needs no grant.
        if !self.is_enabled || binding.admission.is_none() {
            return true;
        }
        let placed: i64 = binding.place.previous.iter().map(|target| target.replicas).sum();
        if placed >= replicas && placed > 0 {
            return true;
        }
        if self.valid.get(&binding.key) == Some(&binding.resource_version) {
            return true;
        }
        self.valid.remove(&binding.key);
        let grant = SeenGrant { resource_version: binding.resource_version.clone(), epoch: binding.epoch.clone() };
        if self.reading.as_ref().and_then(|reading| reading.get(&binding.key)) != Some(&grant) {
            self.waiting.insert(binding.key.clone(), grant);
        }
        false
    }

    /// Whether a read of the lease is to begin now; then all that wait are waiting for this one.
    pub fn begin_read(&mut self) -> bool {
        let begins = self.reading.is_none() && !self.waiting.is_empty();
        if begins {
            self.reading = Some(std::mem::take(&mut self.waiting));
        }
        begins
    }

    /// The lease was read: the bindings whose grants are valid, and are due again.
    pub fn apply_read(&mut self, lease: Option<&LeaseRecord>) -> Vec<BindingKey> {
        let current = lease.map(LeaseRecord::epoch);
        let mut due = Vec::new();
        for (key, grant) in self.reading.take().into_iter().flatten() {
            if current == grant.epoch {
                self.valid.insert(key.clone(), grant.resource_version);
                due.push(key);
            } else {
                let granted = grant.epoch;
                tracing::info!(binding = %key, ?granted, ?current, "stale grant; the lease's holder decides");
                if current.is_none() {
                    tracing::warn!("grants name a lease that is not there; is the controller's in another namespace?");
                }
            }
        }
        due
    }

    /// A binding is gone.
    pub fn forget_binding(&mut self, key: &BindingKey) {
        self.valid.remove(key);
        self.waiting.remove(key);
        if let Some(reading) = &mut self.reading {
            reading.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use caldera_runtime::lease::LeaseDuration;

    use super::*;

    fn granted(epoch: Option<&str>) -> Binding {
        let record = json!({"queue": "q", "priority": 0, "copies": 1, "tasks": {"t": 1}, "charged": {"cpu": "1"}});
        let annotations = json!({
            "caldera.dev/gate": "open", "caldera.dev/admission": record.to_string(), "caldera.dev/epoch": epoch,
        });
        read(annotations)
    }

    fn read(mut annotations: Value) -> Binding {
        annotations.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let object = json!({
            "metadata": {"namespace": "ns", "name": "x-job", "resourceVersion": "7", "annotations": annotations},
            "spec": {"resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "x"}},
        });
        Binding::parse_binding(&object).unwrap()
    }

    /// Whether it may be placed once the lease was read.
    fn may_place_under(lease: Option<&LeaseRecord>, binding: &Binding) -> bool {
        let mut fence = LeaseFence::new(true);
        assert!(!fence.may_place(binding, 1), "before the lease was read");
        assert!(fence.begin_read());
        fence.apply_read(lease);
        fence.may_place(binding, 1)
    }

    #[test]
    fn a_grant_is_placed_only_under_the_lease_that_it_names() {
        let lease =
            LeaseRecord { transitions: 3, holder: "me".into(), version: "1".into(), lasts: LeaseDuration::LONGEST };
        assert!(may_place_under(Some(&lease), &granted(Some("3.me"))));
        for forged in [Some("2.me"), Some("4.me"), Some("3.you"), None] {
            assert!(!may_place_under(Some(&lease), &granted(forged)), "{forged:?}");
        }
    }

    #[test]
    fn a_grant_without_an_epoch_is_placed_only_where_there_is_no_lease() {
        assert!(may_place_under(None, &granted(None)));
        assert!(!may_place_under(None, &granted(Some("3.me"))));
    }

    #[test]
    fn a_binding_that_goes_while_the_lease_is_read_leaves_nothing_behind() {
        let (mut fence, binding) = (LeaseFence::new(true), granted(None));
        assert!(!fence.may_place(&binding, 1) && fence.begin_read());
        fence.forget_binding(&binding.key);
        assert_eq!((fence.count_waiting(), fence.apply_read(None)), (0, Vec::new()));
        assert!(fence.valid.is_empty());
    }

    #[test]
    fn what_is_not_queued_needs_no_lease() {
        assert!(LeaseFence::new(true).may_place(&read(json!({})), 1));
        assert!(LeaseFence::new(false).may_place(&granted(None), 1));
    }
}
