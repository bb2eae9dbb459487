//! When bindings whose writes failed are decided again.
//!
//! Rule: after a wait that doubles with each failure in a row, from half a second to a minute. Where the server refused
//! the write, or was too busy, no event makes the binding due before that.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::observe::binding::BindingKey;

/// First wait after a write that failed; doubles up to [`MAX_BACKOFF`].
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// When to try a write again.
#[derive(Debug)]
struct Retry {
    /// `None` once it is tried.
    at: Option<Instant>,
    failures: u32,
    /// No event may make it due before that: the server refused it, or was too busy.
    blocks: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Retries(BTreeMap<BindingKey, Retry>);

impl Retries {
    /// One more write failed.
    pub(crate) fn add_failure(&mut self, key: &BindingKey, blocks: bool, now: Instant) {
        let failures = self.0.get(key).map_or(0, |retry| retry.failures);
        let wait = INITIAL_BACKOFF.saturating_mul(1 << failures.min(10)).min(MAX_BACKOFF);
        self.0.insert(key.clone(), Retry { at: Some(now + wait), failures: failures + 1, blocks });
    }

    /// A write got through, or the binding is gone.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.0.remove(key);
    }

    /// Bindings whose last write failed, how often in a row, and when it is tried again.
    pub(crate) fn list_failures(&self) -> impl Iterator<Item = (&BindingKey, u32, Option<Instant>)> {
        self.0.iter().map(|(key, retry)| (key, retry.failures, retry.at))
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.0.values().filter_map(|retry| retry.at).min()
    }

    /// Bindings whose wait is over, each once.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<BindingKey> {
        let due = self.0.iter_mut().filter(|(_, retry)| retry.at.is_some_and(|at| at <= now));
        due.map(|(key, retry)| {
            retry.at = None;
            key.clone()
        })
        .collect()
    }

    /// Whether nothing may be decided about a binding yet.
    pub(crate) fn must_wait(&self, key: &BindingKey) -> bool {
        self.0.get(key).is_some_and(|retry| retry.blocks && retry.at.is_some())
    }
}
