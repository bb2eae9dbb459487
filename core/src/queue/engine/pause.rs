//! A pause: nothing is released while it lasts, and everybody who waits says so.
//!
//! Rule: what is charged stays charged and nobody's position changes. No job is a candidate for preemption, so nobody
//! is evicted. Reservations are dropped when the pause begins and worked out anew when it ends: they follow from who
//! waits and for how long. Inadmissible jobs that may fit by then are considered again when it ends.

use std::sync::Arc;

use crate::queue::engine::Engine;

impl Engine {
    /// Releases nothing from now on, for the reason given; or releases again. Says whether that is news.
    pub fn set_paused(&mut self, why: Option<Arc<str>>) -> bool {
        if self.paused == why {
            return false;
        }
        self.paused = why;
        self.queues.mark_tree_outdated();
        true
    }

    /// Why nothing is released now, if so.
    #[must_use]
    pub fn pause_reason(&self) -> Option<&str> {
        self.paused.as_deref()
    }
}
