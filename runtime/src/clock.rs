//! The time as a value, so that tests and simulations choose it. Also waiting until a time that may be absent, and the
//! text forms of times in Kubernetes objects.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use tokio::time::Instant;

/// Tells the wall-clock time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now, in UTC.
    fn now(&self) -> Timestamp;
}

/// A clock that many tasks share.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Wall-clock time that moves with tokio's clock from a fixed start: virtual under paused time.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: Timestamp,
    origin: Instant,
}

impl TokioClock {
    /// A clock that shows `start` now.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, origin: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let elapsed = jiff::SignedDuration::try_from(self.origin.elapsed()).unwrap_or(jiff::SignedDuration::MAX);
        self.start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// Waits until a time of tokio's clock; for ever without one.
pub async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A time as Kubernetes writes `metav1.Time`: RFC 3339, UTC, whole seconds.
#[must_use]
pub fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as Kubernetes writes `metav1.MicroTime`: RFC 3339, UTC, six digits of fraction.
#[must_use]
pub fn format_micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
