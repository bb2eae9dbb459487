//! CapacityReservations, as they count.

use std::collections::BTreeMap;

use caldera_core::capacity_reservation::CapacityReservation as Kept;
use caldera_crds::capacity_reservation::CapacityReservation;
use caldera_runtime::watch::Event;

/// By name, what each keeps; nothing where it is none.
#[derive(Debug, Default)]
pub(crate) struct CapacityReservations(BTreeMap<String, Option<Kept>>);

impl CapacityReservations {
    /// What is kept.
    pub(crate) fn list_kept(&self) -> Vec<Kept> {
        self.0.values().flatten().cloned().collect()
    }

    pub(crate) fn apply_event(&mut self, event: Event<CapacityReservation>) {
        match event {
            Event::Applied(object) => self.set(&object),
            Event::Deleted(object) => drop(self.0.remove(object.metadata.name.as_deref().unwrap_or_default())),
            Event::Reset(all) => {
                self.0.clear();
                all.iter().for_each(|object| self.set(object));
            }
        }
    }

    fn set(&mut self, object: &CapacityReservation) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let kept = object.read();
        if let Err(why) = &kept {
            tracing::warn!(name, why, "a CapacityReservation that keeps nothing");
        }
        self.0.insert(name, kept.ok());
    }
}
