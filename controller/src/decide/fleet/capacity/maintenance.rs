//! Maintenance windows of clusters, as time passes.
//!
//! Rule: `caldera_core::maintenance`. When a window ends there is more capacity than before, as when nodes come. While
//! there is any, jobs that are alike but for how long they run get different answers.

use caldera_core::time::EpochSeconds;
use jiff::Timestamp;

use super::FleetCapacity;

impl FleetCapacity {
    /// It is so late now: where a window is over there may be more capacity.
    pub(crate) fn observe_ended_maintenance(&mut self, now: Timestamp) {
        let now = EpochSeconds::from(now);
        let before = std::mem::replace(&mut self.maintenance_seen, now);
        self.grew |= self.fleet.next_maintenance_end(before).is_some_and(|end| end <= now);
    }

    /// When the next window ends.
    pub(crate) fn next_maintenance_end(&self, now: Timestamp) -> Option<Timestamp> {
        let end = self.fleet.next_maintenance_end(EpochSeconds::from(now))?;
        end.to_timestamp()
    }
}
