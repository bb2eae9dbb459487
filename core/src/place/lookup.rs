//! Names looked up once for each of many clusters: a scan of a few, a hash table of many.

use std::collections::HashMap;

/// Up to so many names a scan is quicker.
const MOST_SCANNED_NAMES: usize = 8;

/// Values by name; of equal names the first counts.
#[derive(Debug, Clone)]
pub(super) enum Lookup<'a, V> {
    Few(Vec<(&'a str, V)>),
    Many(HashMap<&'a str, V>),
}

impl<'a, V: Copy> Lookup<'a, V> {
    pub(super) fn new(entries: impl ExactSizeIterator<Item = (&'a str, V)>) -> Self {
        if entries.len() <= MOST_SCANNED_NAMES {
            return Self::Few(entries.collect());
        }
        let mut many = HashMap::with_capacity(entries.len());
        for (name, value) in entries {
            many.entry(name).or_insert(value);
        }
        Self::Many(many)
    }

    pub(super) fn get(&self, name: &str) -> Option<V> {
        match self {
            Self::Few(entries) => entries.iter().find(|(known, _)| *known == name).map(|(_, value)| *value),
            Self::Many(entries) => entries.get(name).copied(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Few(entries) => entries.is_empty(),
            Self::Many(entries) => entries.is_empty(),
        }
    }
}

impl<'a> Lookup<'a, ()> {
    pub(super) fn names(names: &'a [String]) -> Self {
        Self::new(names.iter().map(|name| (name.as_str(), ())))
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}
