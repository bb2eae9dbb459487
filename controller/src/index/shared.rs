//! Values that many objects have in common, kept once: thousands of jobs of one user ask for the same.

use std::{
    collections::HashMap,
    fmt::Debug,
    sync::{Arc, Weak},
};

use crate::facts::fingerprint;

/// Values by a hash of what they say.
#[derive(Debug)]
pub(crate) struct Shared<T: ?Sized>(HashMap<u64, Weak<T>>);

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Debug + PartialEq + ?Sized> Shared<T> {
    /// The value that says the same, if there is one still in use; otherwise this one.
    pub(crate) fn share(&mut self, value: Arc<T>) -> Arc<T> {
        let print = fingerprint(&value);
        if let Some(same) = self.0.get(&print).and_then(Weak::upgrade).filter(|same| **same == *value) {
            return same;
        }
        if self.0.len() == self.0.capacity() {
            self.0.retain(|_, old| old.strong_count() > 0);
        }
        self.0.insert(print, Arc::downgrade(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_the_same_is_kept_once_and_forgotten_with_its_last_user() {
        let mut shared = Shared::default();
        let one = shared.share(Arc::new("a".to_owned()));
        let other = shared.share(Arc::new("a".to_owned()));
        assert!(Arc::ptr_eq(&one, &other));
        for i in 0..1000 {
            drop(shared.share(Arc::new(i.to_string())));
        }
        assert!(shared.0.len() < 100, "{}", shared.0.len());
        assert!(Arc::ptr_eq(&one, &shared.share(Arc::new("a".to_owned()))));
    }
}
