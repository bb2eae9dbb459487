//! How many devices fit that share what counters tell: partitions of one card.
//!
//! Rule: Kubernetes' KEP-4815. A device takes an amount of some counters of its pool, and is there only while that is
//! left. Which devices are given is the member's business; here the smallest are taken first, so that of devices that
//! are alike as many are counted as can be given, and of others no more than that.

use std::collections::BTreeMap;

use caldera_core::resources::Resources;

use super::Device;

/// What is left of a pool's counters, by set.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters(BTreeMap<String, Resources>);

impl Counters {
    /// All that a pool has.
    pub(super) fn add_sets(&mut self, sets: &BTreeMap<String, Resources>) {
        for (name, counters) in sets {
            self.0.entry(name.clone()).or_default().add(counters);
        }
    }

    /// Whether a device is there while this is left.
    fn leave_enough_for(&self, device: &Device) -> bool {
        let nothing = Resources::new();
        device.consumes.iter().all(|(set, amount)| amount.fits_in(self.0.get(set).unwrap_or(&nothing)))
    }

    /// A device is given to somebody.
    pub(super) fn take(&mut self, device: &Device) {
        for (set, amount) in &device.consumes {
            if let Some(left) = self.0.get_mut(set) {
                left.saturating_sub(amount);
            }
        }
    }

    /// How many of these can be given together.
    pub(super) fn count_fitting<'a>(&self, devices: impl Iterator<Item = &'a Device>) -> u32 {
        let mut left = self.clone();
        let mut devices: Vec<&Device> = devices.collect();
        devices.sort_by_cached_key(|device| (self.compute_share(device), device.name.clone()));
        let mut count = 0;
        for device in devices {
            if left.leave_enough_for(device) {
                left.take(device);
                count += 1;
            }
        }
        count
    }

    /// The largest part of a counter that a device takes, in millionths.
    fn compute_share(&self, device: &Device) -> i128 {
        let share = |(set, amounts): &(String, Resources)| {
            let of = self.0.get(set);
            let share = |(name, amount): (&caldera_core::resources::ResourceName, caldera_core::quantity::Quantity)| {
                let all = of.map_or(0, |of| of.get(name.as_str()).as_nano());
                amount.as_nano().saturating_mul(1_000_000).checked_div(all).unwrap_or(i128::MAX)
            };
            amounts.iter().map(share).max().unwrap_or(0)
        };
        device.consumes.iter().map(share).max().unwrap_or(0)
    }
}
