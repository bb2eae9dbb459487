//! `federation.caldera.dev/v1alpha1` CapacityReservation: an amount of the fleet that is kept for a time.
//!
//! Fleet admins write them, with `caldera reservation create` or as any object. What they mean is said in
//! [`caldera_core::capacity_reservation`]. The schema refuses what is no time, no amount, or ends before it starts; an
//! object that is none all the same, as one of an older schema, keeps nothing.

use caldera_core::{
    capacity_reservation::CapacityReservation as Kept,
    device::unify_resource_name,
    maintenance::{DEFAULT_NOTICE, MaintenanceWindow},
    quantity::Quantity,
    resources::{ResourceName, Resources},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::wire::{ResourceList, api_types, object};

object! {
    /// An amount of the fleet that is kept for a time.
    CapacityReservation, "federation.caldera.dev", "v1alpha1", "capacityreservations", ClusterResourceScope
    { spec: CapacityReservationSpec } {}
}

api_types! {
    /// How much, from when to when, and for whom.
    pub struct CapacityReservationSpec {
        /// What is kept of the whole fleet, by resource, such as cpu or nvidia.com/gpu.
        #[schemars(extend("minProperties" = 1, "maxProperties" = 32))]
        pub amounts: ResourceList,
        /// From then on.
        pub start: Option<Time>,
        /// Until then.
        pub end: Option<Time>,
        /// Whose jobs may use it, and those of queues below: nobody's where it names none.
        #[schemars(extend("maxItems" = 64, "items" = {"type": "string", "minLength": 1, "maxLength": 253}))]
        pub queues: Vec<String>,
        /// Seconds before the start from which on it binds jobs that do not say how long they run; a day if absent.
        #[schemars(extend("minimum" = 0, "maximum" = 31536000, "format" = null))]
        pub notice_seconds: Option<i64>,
        /// For people.
        #[schemars(extend("maxLength" = 200))]
        pub reason: Option<String>,
    }
}

/// Rules beyond the schema's own words.
pub(crate) fn build_reservation_rules() -> Value {
    json!([
        {"message": "end must be after start", "rule": "self.end > self.start"},
        {
            "message": "amounts of one card model cannot be kept",
            "rule": "self.amounts.all(name, !name.contains(':'))",
        },
        {
            "message": "what is kept for root is kept from nobody",
            "rule": "!has(self.queues) || !('root' in self.queues)",
        },
    ])
}

impl CapacityReservation {
    /// What it keeps.
    ///
    /// # Errors
    /// Why it keeps nothing.
    pub fn read(&self) -> Result<Kept, String> {
        let spec = &self.spec;
        let (start, end) = (spec.start.as_ref().map(|at| at.0), spec.end.as_ref().map(|at| at.0));
        let (Some(start), Some(end)) = (start, end) else { return Err("it has no start or no end".to_owned()) };
        if end <= start {
            return Err("it does not end after it starts".to_owned());
        }
        let mut amounts = Resources::new();
        for (name, written) in &spec.amounts {
            let amount: Quantity = written.0.parse().map_err(|error| format!("spec.amounts.{name}: {error}"))?;
            if amount.is_negative() {
                return Err(format!("spec.amounts.{name}: {} is below zero", written.0));
            }
            amounts.set(ResourceName::from(unify_resource_name(name).as_ref()), amount);
        }
        let window = MaintenanceWindow {
            start: start.into(),
            end: end.into(),
            notice: spec.notice_seconds.unwrap_or(DEFAULT_NOTICE).max(0),
            reason: spec.reason.clone().unwrap_or_default(),
            node_groups: Vec::new(),
            queues: spec.queues.iter().map(|queue| queue.as_str().into()).collect(),
        };
        Ok(Kept { name: self.metadata.name.clone().unwrap_or_default(), amounts, window })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &Value) -> Result<Kept, String> {
        let object = json!({"metadata": {"name": "upgrade"}, "spec": spec});
        serde_json::from_value::<CapacityReservation>(object).unwrap().read()
    }

    #[test]
    fn what_is_kept_is_read_with_its_time_and_its_queues() {
        let kept = read(&json!({
            "amounts": {"cpu": "100", "nvidia.com/gpu": 8}, "start": "2026-12-01T08:00:00Z", "end": "2026-12-01T12:00:00Z",
            "queues": ["ops"], "reason": "new model",
        }))
        .unwrap();
        assert_eq!((kept.name.as_str(), kept.amounts.to_string().as_str()), ("upgrade", "cpu 100, nvidia.com/gpu 8"));
        assert_eq!(
            kept.window.to_string(),
            "from 2026-12-01T08:00:00Z to 2026-12-01T12:00:00Z (new model) for all but jobs of queue ops"
        );
        assert_eq!(kept.window.notice, DEFAULT_NOTICE);
    }

    #[test]
    fn what_is_no_reservation_keeps_nothing() {
        let (start, end) = ("2026-12-01T08:00:00Z", "2026-12-01T12:00:00Z");
        for (spec, why) in [
            (json!({"amounts": {"cpu": "1"}, "start": start}), "no end"),
            (json!({"amounts": {"cpu": "1"}, "start": end, "end": start}), "does not end after it starts"),
            (json!({"amounts": {"cpu": "much"}, "start": start, "end": end}), "spec.amounts.cpu: "),
            (json!({"amounts": {"cpu": "-1"}, "start": start, "end": end}), "-1 is below zero"),
        ] {
            let error = read(&spec).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
