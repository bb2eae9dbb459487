//! Values that many objects have in common, kept once: jobs of one template ask for the same, by the same policy.
//!
//! Rule: a value is compared with the last [`KEPT_VALUES`] different ones. What is not among them any more is kept
//! twice at worst.

use std::{collections::VecDeque, sync::Arc};

/// More than the templates and policies that are in use at once, mostly; few enough to compare with all.
const KEPT_VALUES: usize = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct RecentValues<T: ?Sized>(VecDeque<Arc<T>>);

impl<T: ?Sized> Default for RecentValues<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: PartialEq + ?Sized> RecentValues<T> {
    /// Replaces a value by an equal one that is in use already.
    pub(crate) fn share(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.0.iter().position(|known| known == value).and_then(|at| self.0.remove(at)) {
            *value = known;
        }
        self.0.truncate(KEPT_VALUES - 1);
        self.0.push_front(Arc::clone(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_the_same_is_kept_once_and_the_longest_unused_is_forgotten() {
        let mut recent = RecentValues::<str>::default();
        let mut share = |text: &str| {
            let mut shared = Arc::from(text);
            recent.share(&mut shared);
            shared
        };
        let first = share("a");
        for at in 0..KEPT_VALUES - 1 {
            share(&at.to_string());
        }
        assert!(Arc::ptr_eq(&first, &share("a")));
        for at in 0..KEPT_VALUES {
            share(&at.to_string());
        }
        assert!(!Arc::ptr_eq(&first, &share("a")));
        assert_eq!(recent.0.len(), KEPT_VALUES);
    }
}
