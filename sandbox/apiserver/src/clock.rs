//! The time that objects carry (`creationTimestamp`, `deletionTimestamp`, managed fields): a value given to the server,
//! so that a simulation can decide what time it is. Waiting is tokio's and follows a paused runtime by itself.

use jiff::Timestamp;

/// A source of the current time.
pub trait Clock: Send + Sync + 'static {
    /// The time that an object written now carries. Tokens expire by it too.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that follows tokio's time from a fixed start: on a paused runtime it moves only when the runtime does.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: Timestamp,
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that shows `start` at this moment of tokio's time.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, origin: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let passed = jiff::SignedDuration::try_from(self.origin.elapsed()).unwrap_or(jiff::SignedDuration::MAX);
        self.start.checked_add(passed).unwrap_or(Timestamp::MAX)
    }
}

/// RFC 3339 in UTC with whole seconds: `metav1.Time`.
pub fn write_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
