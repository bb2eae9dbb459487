//! One planned fault in a history that has no other: each way to see too little or to stop too early, at each write of
//! our processes. So no write is left out because no seed happened to draw it.
//!
//! The patterns are those of Sieve (Sun et al., "Automatic Reliability Testing for Cluster Management Controllers",
//! OSDI 2022): intermediate state, unobserved state, stale state.

use tokio::time::{Duration, Instant};

use crate::faults::{EventFault, Fault};

/// What happens to the process that sends the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Intermediate state: it dies, and the write is never done.
    DiesBefore,
    /// It dies, and the write is done.
    DiesAfter,
    /// It dies, and the write is done when its next life has begun.
    DiesMeanwhile,
    /// Unobserved state: of what happens next its watches lose everything, and have it list again later.
    Unobserved,
    /// Stale state: its watches lag behind what it reads and writes.
    Stale,
}

impl Pattern {
    pub const ALL: [Self; 5] = [Self::DiesBefore, Self::DiesAfter, Self::DiesMeanwhile, Self::Unobserved, Self::Stale];

    pub fn name(self) -> &'static str {
        match self {
            Self::DiesBefore => "dies before a write",
            Self::DiesAfter => "dies after a write",
            Self::DiesMeanwhile => "dies while a write is under way",
            Self::Unobserved => "sees nothing after a write",
            Self::Stale => "sees late after a write",
        }
    }
}

/// The next life has begun by then: it does within five seconds.
const LANDS_AFTER: Duration = Duration::from_secs(7);

/// Events are lost for so long.
const UNOBSERVED_FOR: Duration = Duration::from_secs(5);

/// Longer than a request may take.
const STALE_FOR: Duration = Duration::from_secs(20);

/// The first event of each watch within this time after the write is disturbed.
const DISTURBED_WITHIN: Duration = Duration::from_secs(1);

/// The only fault of a history.
#[derive(Debug, Clone, Copy)]
pub struct PlannedFault {
    /// Of which write, counted from the history's first.
    pub write: u64,
    pub pattern: Pattern,
    /// Who sent that write, and when.
    struck: Option<(&'static str, Instant)>,
}

impl PlannedFault {
    pub fn new(write: u64, pattern: Pattern) -> Self {
        Self { write, pattern, struck: None }
    }

    /// What becomes of a write, the so-manieth of the history.
    pub fn strike(&mut self, who: &'static str, write: u64) -> Option<Fault> {
        if write != self.write || self.struck.is_some() {
            return None;
        }
        self.struck = Some((who, Instant::now()));
        match self.pattern {
            Pattern::DiesBefore => Some(Fault::Crash { lands: None }),
            Pattern::DiesAfter => Some(Fault::Crash { lands: Some(Duration::ZERO) }),
            Pattern::DiesMeanwhile => Some(Fault::Crash { lands: Some(LANDS_AFTER) }),
            Pattern::Unobserved | Pattern::Stale => None,
        }
    }

    pub fn has_struck(&self) -> bool {
        self.struck.is_some()
    }

    /// What becomes of an event that somebody watches.
    pub fn disturb(&self, who: &'static str) -> EventFault {
        match (self.struck, self.pattern) {
            (Some((writer, at)), _) if writer != who || at.elapsed() > DISTURBED_WITHIN => EventFault::None,
            (Some(_), Pattern::Unobserved) => EventFault::Lost(UNOBSERVED_FOR),
            (Some(_), Pattern::Stale) => EventFault::Lagging(STALE_FOR),
            _ => EventFault::None,
        }
    }
}
