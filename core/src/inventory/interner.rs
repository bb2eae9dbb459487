//! Equal values kept once: a fleet's nodes and pods differ in few things.
//!
//! Beside [`crate::interning`]: a value is looked for before it is allocated, and one that nobody uses is there for the
//! next until there are many.

use std::{borrow::Borrow, collections::BTreeSet, sync::Arc};

/// Values that are in use, each once.
#[derive(Debug, Clone)]
pub(super) struct Interner<T: Ord> {
    values: BTreeSet<Arc<T>>,
    /// Look for values that nobody uses any more when there are so many.
    sweep_at: usize,
}

/// Fewer values than this are not swept.
const LEAST_SWEPT_VALUES: usize = 64;

impl<T: Ord> Default for Interner<T> {
    fn default() -> Self {
        Self { values: BTreeSet::new(), sweep_at: LEAST_SWEPT_VALUES }
    }
}

impl<T: Ord> Interner<T> {
    /// The one that equals `value`.
    pub(super) fn intern_value(&mut self, value: T) -> Arc<T> {
        let known: Option<&Arc<T>> = self.values.get::<T>(value.borrow());
        if let Some(known) = known {
            return Arc::clone(known);
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = LEAST_SWEPT_VALUES.max(self.values.len() * 2);
        }
        let value = Arc::new(value);
        self.values.insert(Arc::clone(&value));
        value
    }

    /// How many there are, those included that nobody uses any more and were not looked for yet.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}
