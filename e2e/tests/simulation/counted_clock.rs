//! The processes' clock, and how often it is read at one time. On virtual time a process that never rests keeps time
//! from going on, and the history from ending: it would fill the memory, and say nothing.

use std::sync::{Arc, Mutex, PoisonError};

use caldera_runtime::clock::{Clock, TokioClock};
use jiff::{SignedDuration, Timestamp};

/// Reads at one time at most. No history of seeds 1 to 24 comes to 1,000.
const MOST_READS: u32 = 100_000;

#[derive(Debug)]
pub struct CountedClock {
    clock: TokioClock,
    read: Mutex<(Timestamp, u32)>,
}

impl CountedClock {
    pub fn starting_at(start: Timestamp) -> Self {
        Self { clock: TokioClock::starting_at(start), read: Mutex::new((start, 0)) }
    }

    /// A task that panicked ends alone: whoever checks the history asks here.
    pub fn must_have_gone_on(&self) {
        let (at, reads) = *self.read.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(reads <= MOST_READS, "a process did not rest at {at}: it read the clock {reads} times");
    }
}

impl Clock for CountedClock {
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // What was too much once is kept for whoever checks.
        if read.1 <= MOST_READS {
            *read = if read.0 == now { (now, read.1 + 1) } else { (now, 0) };
        }
        let is_restless = read.1 > MOST_READS;
        drop(read);
        assert!(!is_restless, "a process does not rest at {now}");
        now
    }
}

/// The clock of one machine, which is wrong by so much.
#[derive(Debug)]
pub struct SkewedClock {
    pub clock: Arc<CountedClock>,
    pub by: SignedDuration,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        self.clock.now().checked_add(self.by).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_never_rests_is_found() {
    let clock = CountedClock::starting_at(Timestamp::UNIX_EPOCH);
    for _ in 0..10 {
        clock.now();
    }
    clock.must_have_gone_on();
    let restless = || {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            loop {
                clock.now();
            }
        }))
    };
    assert!(restless().is_err());
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clock.must_have_gone_on())).is_err());
}
