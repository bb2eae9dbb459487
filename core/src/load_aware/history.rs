//! In how many readings in a row each cluster was hot, or cold.
//!
//! Rule: a reading counts once, and not sooner than [`LEAST_GAP`] after the one before: a member that reports more
//! often says no more. After a gap that is longer than a reading is trusted both count anew, and so they do where a job
//! left or came. A reading is as old as its own time says, or as it is by our clock since it came, whichever is more:
//! no wrong clock makes it last.

use std::collections::BTreeMap;

use super::LoadPolicy;
use crate::{inventory::MemberLoad, time::EpochSeconds};

/// Seconds after which nobody goes by a reading. Members are read, and collectors publish it, each half minute.
const OLDEST_READING: i64 = 180;
/// Seconds between two readings that count.
const LEAST_GAP: i64 = 15;

/// The last reading of each cluster, and what those before it said.
#[derive(Debug, Clone, Default)]
pub struct LoadHistory {
    clusters: BTreeMap<String, ClusterReadings>,
}

#[derive(Debug, Clone)]
struct ClusterReadings {
    last: MemberLoad,
    /// When it came, by our clock.
    came_at: EpochSeconds,
    /// When the last one came that counted.
    counted_at: EpochSeconds,
    hot: u32,
    cold: u32,
}

impl ClusterReadings {
    fn is_fresh(&self, now: EpochSeconds) -> bool {
        now.seconds_since(self.last.read_at.min(self.came_at)) <= OLDEST_READING
    }

    fn count(&mut self, policy: &LoadPolicy) {
        let MemberLoad { used, capacity, .. } = &self.last;
        let is_known = policy.thresholds.are_known(&self.last);
        let exceeds = |thresholds: super::Thresholds| thresholds.find_exceeded(used, capacity).is_some();
        let count = |before: u32, holds: bool| if holds { before.saturating_add(1) } else { 0 };
        self.hot = count(self.hot, is_known && exceeds(policy.target_thresholds));
        self.cold = count(self.cold, is_known && !exceeds(policy.thresholds));
    }
}

impl LoadHistory {
    /// Takes in what was read of a cluster last; `None` where its load is not known.
    pub fn observe_load(&mut self, cluster: &str, load: Option<&MemberLoad>, policy: &LoadPolicy, now: EpochSeconds) {
        let Some(load) = load else {
            self.clusters.remove(cluster);
            return;
        };
        let before = self.clusters.get(cluster).filter(|before| before.is_fresh(now));
        if before.is_some_and(|before| load.read_at <= before.last.read_at) {
            return;
        }
        let mut readings = ClusterReadings {
            last: load.clone(),
            came_at: now,
            counted_at: before.map_or(now, |before| before.counted_at),
            hot: before.map_or(0, |before| before.hot),
            cold: before.map_or(0, |before| before.cold),
        };
        if before.is_none() || now.seconds_since(readings.counted_at) >= LEAST_GAP {
            readings.counted_at = now;
            readings.count(policy);
        }
        self.clusters.insert(cluster.to_owned(), readings);
    }

    /// What was before says nothing of a cluster any more: a job left it, or goes there.
    pub fn reset_hot_counts(&mut self, cluster: &str) {
        if let Some(readings) = self.clusters.get_mut(cluster) {
            (readings.hot, readings.cold) = (0, 0);
        }
    }

    /// Nothing of any cluster: it is judged otherwise from now on.
    pub fn forget_all(&mut self) {
        self.clusters.clear();
    }

    /// The loads that can be trusted now.
    pub(super) fn list_loads(&self, now: EpochSeconds) -> impl Iterator<Item = (&String, &MemberLoad)> {
        let fresh = self.clusters.iter().filter(move |(_, readings)| readings.is_fresh(now));
        fresh.map(|(name, readings)| (name, &readings.last))
    }

    /// Whether any cluster was hot for long enough.
    #[must_use]
    pub fn has_hot_cluster(&self, policy: &LoadPolicy) -> bool {
        self.clusters.keys().any(|cluster| self.is_hot(cluster, policy))
    }

    /// Whether a cluster was hot for long enough.
    #[must_use]
    pub fn is_hot(&self, cluster: &str, policy: &LoadPolicy) -> bool {
        self.clusters.get(cluster).is_some_and(|readings| readings.hot >= policy.samples.max(1))
    }

    /// Whether a cluster was cold for long enough.
    pub(super) fn is_cold(&self, cluster: &str, policy: &LoadPolicy) -> bool {
        self.clusters.get(cluster).is_some_and(|readings| readings.cold >= policy.samples.max(1))
    }
}
