//! Equal values of many objects, kept once: thousands of jobs of one user ask for the same, by the same policy.
//!
//! Rule: a value is kept as long as somebody uses it. Of two values with one number only the later is known: the other
//! is kept twice at worst.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Weak},
};

/// Values by a number that equal ones have in common.
#[derive(Debug)]
pub struct Interned<T: ?Sized>(HashMap<u64, Weak<T>>);

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

impl<T: PartialEq + ?Sized> Interned<T> {
    /// The equal value, if there is one still in use; otherwise this one.
    pub fn intern(&mut self, value: Arc<T>) -> Arc<T>
    where
        T: Hash,
    {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        self.intern_by_fingerprint(hasher.finish(), value)
    }

    /// The same among values with this number alone: where equal ones are to be told apart by more, such as how their
    /// amounts are written.
    pub fn intern_by_fingerprint(&mut self, number: u64, value: Arc<T>) -> Arc<T> {
        if let Some(same) = self.0.get(&number).and_then(Weak::upgrade).filter(|same| **same == *value) {
            return same;
        }
        if self.0.len() == self.0.capacity() {
            self.0.retain(|_, old| old.strong_count() > 0);
        }
        self.0.insert(number, Arc::downgrade(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_kept_once_and_forgotten_with_their_last_user() {
        let mut shared = Interned::default();
        let one = shared.intern(Arc::new("a".to_owned()));
        for i in 0..1000 {
            drop(shared.intern(Arc::new(i.to_string())));
        }
        assert!(shared.0.len() < 100, "{}", shared.0.len());
        assert!(Arc::ptr_eq(&one, &shared.intern(Arc::new("a".to_owned()))));
    }

    #[test]
    fn all_that_are_in_use_are_known_however_many_they_are() {
        let mut shared = Interned::<str>::default();
        let mut intern_all = || (0..500).map(|at| shared.intern(at.to_string().into())).collect::<Vec<_>>();
        let (first, again) = (intern_all(), intern_all());
        assert!(first.iter().zip(&again).all(|(one, other)| Arc::ptr_eq(one, other)));
    }

    #[test]
    fn values_of_other_numbers_are_told_apart() {
        let mut shared = Interned::<str>::default();
        let one = shared.intern_by_fingerprint(1, "a".into());
        assert!(Arc::ptr_eq(&one, &shared.intern_by_fingerprint(1, "a".into())));
        assert!(!Arc::ptr_eq(&one, &shared.intern_by_fingerprint(2, "a".into())));
        assert_eq!(&*shared.intern_by_fingerprint(1, "b".into()), "b");
    }
}
