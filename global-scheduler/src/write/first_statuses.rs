//! First statuses that wait for their moment, and how long that is.
//!
//! Rule: [`STATUS_WAIT`] from the placement on while a write is answered within [`QUICK_ANSWER`], in proportion longer
//! where it takes longer, five times at most: as PodGroups of jobs that start wait. What is written then says when the
//! binding was placed, not when that was written: a reschedule that was asked for meanwhile is later than it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use crate::observe::binding::{Binding, BindingKey};

/// From the placement to the status.
const STATUS_WAIT: Duration = Duration::from_secs(3);
/// A server that answers within this time is not busy.
const QUICK_ANSWER: Duration = Duration::from_millis(50);
/// The wait is stretched so many times at most.
const MOST_STRETCH: u32 = 5;

/// One that waits.
#[derive(Debug)]
struct Wait {
    uid: String,
    placed: Timestamp,
    until: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub struct FirstStatuses {
    waits: BTreeMap<BindingKey, Wait>,
    timers: BTreeSet<(Instant, BindingKey)>,
    /// How long a write takes: the mean of the last few.
    latency: Duration,
}

impl FirstStatuses {
    /// A write was answered after so long.
    pub fn observe_write(&mut self, took: Duration) {
        self.latency = (self.latency * 7 + took) / 8;
    }

    /// It was placed now.
    pub fn observe_placement(&mut self, binding: &Binding, placed: Timestamp, now: Instant) {
        let known = self.waits.remove(&binding.key).filter(|known| known.uid == binding.uid);
        // One that is placed again and again has its status too.
        let until = known.map_or_else(|| now + self.stretch_wait(), |known| known.until);
        self.timers.insert((until, binding.key.clone()));
        self.waits.insert(binding.key.clone(), Wait { uid: binding.uid.clone(), placed, until });
    }

    fn stretch_wait(&self) -> Duration {
        let times = u32::try_from(self.latency.as_millis() / QUICK_ANSWER.as_millis()).unwrap_or(MOST_STRETCH);
        STATUS_WAIT * times.clamp(1, MOST_STRETCH)
    }

    /// When a binding was placed, if that is known.
    pub fn get_placement_time(&self, binding: &Binding) -> Option<Timestamp> {
        self.waits.get(&binding.key).filter(|known| known.uid == binding.uid).map(|known| known.placed)
    }

    /// Whether its moment has come. One that is not known was placed by an earlier scheduler: it waits from now on.
    pub fn is_wait_over(&mut self, binding: &Binding, clock: Timestamp, now: Instant) -> bool {
        if self.get_placement_time(binding).is_none() {
            self.observe_placement(binding, clock, now);
        }
        self.waits.get(&binding.key).is_some_and(|known| known.until <= now)
    }

    /// It is written, or not needed any more.
    pub fn forget(&mut self, key: &BindingKey) {
        if let Some(known) = self.waits.remove(key) {
            self.timers.remove(&(known.until, key.clone()));
        }
    }

    /// When the first moment comes.
    pub fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Takes those out whose moment has come. They stay known until they are written.
    pub fn take_due(&mut self, now: Instant) -> Vec<BindingKey> {
        let mut due = Vec::new();
        while self.next_due().is_some_and(|at| at <= now) {
            due.extend(self.timers.pop_first().map(|(_, key)| key));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_status_waits_longer_where_writes_are_slow() {
        let stretched = |millis: u64| {
            let mut statuses = FirstStatuses::default();
            (0..100).for_each(|_| statuses.observe_write(Duration::from_millis(millis)));
            statuses.stretch_wait().as_secs()
        };
        assert_eq!([0, 20, 90, 110, 5_000].map(stretched), [3, 3, 3, 6, 15]);
    }
}
