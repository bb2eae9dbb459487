//! How long a job would wait if everything before it were only worked off: the yardstick for starvation.
//!
//! EASY promises the head of a line a start once the holders of what it lacks have ended (peers call it the shadow
//! time). For a job with others before it this is carried on: the work that is there when it arrives, divided by the
//! capacity (as if it could be cut and packed without loss), and then the longest run among it. Work is the dominant
//! share of a capacity times run time; once for the whole fleet, once for the job's queue and its ceiling; the longer
//! counts. No packing of gangs meets it always (list scheduling may take twice as long), so starvation is a multiple.

use std::collections::BTreeMap;

use crate::time::Millis;

/// Billionths of a capacity.
pub(super) type Share = i128;
pub(super) const WHOLE: Share = 1_000_000_000;

/// What is there to be worked off, of the fleet or of one queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Backlog {
    running: Share,
    /// Share times end, summed: what is left at any instant follows without touching each job.
    running_until: i128,
    ends: BTreeMap<Millis, u32>,
    /// Share times run.
    waiting: i128,
    runs: BTreeMap<Millis, u32>,
}

impl Backlog {
    pub(super) fn add_waiting(&mut self, share: Share, run: Millis) {
        self.waiting += share * i128::from(run.0);
        *self.runs.entry(run).or_default() += 1;
    }

    pub(super) fn remove_waiting(&mut self, share: Share, run: Millis) {
        self.waiting -= share * i128::from(run.0);
        remove_one(&mut self.runs, run);
    }

    pub(super) fn add_running(&mut self, share: Share, ends: Millis) {
        self.running += share;
        self.running_until += share * i128::from(ends.0);
        *self.ends.entry(ends).or_default() += 1;
    }

    pub(super) fn remove_running(&mut self, share: Share, ends: Millis) {
        self.running -= share;
        self.running_until -= share * i128::from(ends.0);
        remove_one(&mut self.ends, ends);
    }

    /// How long a job that arrives now would wait.
    pub(super) fn estimate_wait(&self, now: Millis) -> Millis {
        let work = self.running_until - self.running * i128::from(now.0) + self.waiting;
        let drain = Millis(u64::try_from(work.max(0) / WHOLE).unwrap_or(u64::MAX));
        let running = self.ends.last_key_value().map_or(Millis::ZERO, |(end, _)| end.since(now));
        let waiting = self.runs.last_key_value().map_or(Millis::ZERO, |(run, _)| *run);
        drain.plus(running.max(waiting))
    }
}

fn remove_one(counts: &mut BTreeMap<Millis, u32>, key: Millis) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_work_before_it_and_then_the_longest_run() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.estimate_wait(Millis(5)), Millis(0));
        // Half of all for ten seconds more, and a waiting job of all of it for four.
        backlog.add_running(WHOLE / 2, Millis(12_000));
        backlog.add_waiting(WHOLE, Millis(4_000));
        assert_eq!(backlog.estimate_wait(Millis(2_000)), Millis(5_000 + 4_000 + 10_000));
        // Later there is less.
        assert_eq!(backlog.estimate_wait(Millis(10_000)), Millis(1_000 + 4_000 + 4_000));
        backlog.remove_waiting(WHOLE, Millis(4_000));
        backlog.remove_running(WHOLE / 2, Millis(12_000));
        assert_eq!(backlog.estimate_wait(Millis(12_000)), Millis(0));
    }
}
