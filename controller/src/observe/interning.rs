//! Equal values of many objects, kept once: thousands of jobs of one user ask for the same.

use std::{
    collections::HashMap,
    fmt::{self, Debug, Write as _},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Weak},
};

/// A number that is the same for what prints the same, today and after a restart of the same version.
#[must_use]
pub fn fingerprint(value: &impl fmt::Debug) -> u64 {
    struct Hashing(DefaultHasher);
    impl fmt::Write for Hashing {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            text.hash(&mut self.0);
            Ok(())
        }
    }
    let mut hashing = Hashing(DefaultHasher::new());
    let _ = write!(hashing, "{value:?}");
    hashing.0.finish()
}

/// Values by a hash of what they say.
#[derive(Debug)]
pub(crate) struct Interned<T: ?Sized>(HashMap<u64, Weak<T>>);

impl<T: ?Sized> Default for Interned<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: ?Sized> Clone for Interned<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Debug + PartialEq + ?Sized> Interned<T> {
    /// The value that says the same, if there is one still in use; otherwise this one.
    pub(crate) fn intern(&mut self, value: Arc<T>) -> Arc<T> {
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
        let mut shared = Interned::default();
        let one = shared.intern(Arc::new("a".to_owned()));
        let other = shared.intern(Arc::new("a".to_owned()));
        assert!(Arc::ptr_eq(&one, &other));
        for i in 0..1000 {
            drop(shared.intern(Arc::new(i.to_string())));
        }
        assert!(shared.0.len() < 100, "{}", shared.0.len());
        assert!(Arc::ptr_eq(&one, &shared.intern(Arc::new("a".to_owned()))));
    }
}
