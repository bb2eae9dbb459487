//! From when on a cluster is hot, or cold, by resource.
//!
//! Rule: as `thresholds` and `targetThresholds` of the descheduler: whole percent of what the nodes have; a resource
//! that is not named counts for nothing.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    inventory::MemberLoad,
    quantity::Quantity,
    resources::{ResourceName, Resources},
};

/// Percent by resource, written `cpu=30,memory=30`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Thresholds {
    /// Of cores.
    pub cpu: Option<u8>,
    /// Of bytes.
    pub memory: Option<u8>,
}

/// Why a text is no thresholds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: it takes cpu=PERCENT, memory=PERCENT or both with a comma, each from 0 to 100")]
pub struct ParseThresholdsError(String);

impl Thresholds {
    /// Each resource that can be named, and its percent where it is.
    pub(super) const fn list_all(self) -> [(&'static str, Option<u8>); 2] {
        [(ResourceName::CPU, self.cpu), (ResourceName::MEMORY, self.memory)]
    }

    fn list_named(self) -> impl Iterator<Item = (&'static str, u8)> {
        self.list_all().into_iter().filter_map(|(name, percent)| Some((name, percent?)))
    }

    /// The resource of which most beyond its threshold is used, and by how many ten-thousandths of what there is; none
    /// if nothing is above.
    pub(super) fn find_exceeded(self, used: &Resources, capacity: &Resources) -> Option<(&'static str, i128)> {
        let over = |(name, percent): (&'static str, u8)| {
            let share = share_of(used.get(name), capacity.get(name))?;
            Some((name, share - i128::from(percent) * 100)).filter(|(_, over)| *over > 0)
        };
        self.list_named().filter_map(over).max_by_key(|(name, over)| (*over, std::cmp::Reverse(*name)))
    }

    /// Whether the nodes have some of each resource that is named, so that a share of it is known.
    pub(super) fn are_known(self, load: &MemberLoad) -> bool {
        self.list_named().all(|(name, _)| !load.capacity.get(name).is_zero())
    }
}

/// Used of capacity in ten-thousandths, the next lower whole one; none of nothing.
pub(super) fn share_of(used: Quantity, capacity: Quantity) -> Option<i128> {
    let used = used.min(capacity).as_nano().max(0);
    (capacity.as_nano() > 0).then(|| used * 10_000 / capacity.as_nano())
}

impl FromStr for Thresholds {
    type Err = ParseThresholdsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseThresholdsError(text.to_owned());
        let mut all = Self::default();
        for part in text.split(',') {
            let (name, percent) = part.trim().split_once('=').ok_or_else(malformed)?;
            let slot = match name {
                ResourceName::CPU => &mut all.cpu,
                ResourceName::MEMORY => &mut all.memory,
                _ => return Err(malformed()),
            };
            let percent = percent.parse().ok().filter(|percent| *percent <= 100).ok_or_else(malformed)?;
            if slot.replace(percent).is_some() {
                return Err(malformed());
            }
        }
        Ok(all)
    }
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.list_named().map(|(name, percent)| format!("{name}={percent}")).collect();
        f.write_str(&parts.join(","))
    }
}

impl TryFrom<String> for Thresholds {
    type Error = ParseThresholdsError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Thresholds> for String {
    fn from(thresholds: Thresholds) -> Self {
        thresholds.to_string()
    }
}
