//! A pause: nothing is released while it lasts, and everybody who waits says so.
//!
//! Rule: what is charged stays charged and nobody's line changes. Nobody is evicted for one who could not start, and no
//! reservation is made or moved. What was put off is looked at when it ends.

use std::sync::Arc;

use crate::queue::engine::Engine;

impl Engine {
    /// Releases nothing from now on, for the reason given; or releases again. Says whether that is news.
    pub fn set_paused(&mut self, why: Option<Arc<str>>) -> bool {
        if self.paused == why {
            return false;
        }
        self.paused = why;
        (self.is_quota_outdated, self.is_tree_outdated) = (true, true);
        true
    }

    /// Why nothing is released now, if so.
    #[must_use]
    pub fn paused(&self) -> Option<&str> {
        self.paused.as_deref()
    }
}
