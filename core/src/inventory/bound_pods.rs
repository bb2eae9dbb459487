//! What pods hold, each as small as it can be: a fleet has many times more pods than nodes.
//!
//! Pods of one task (or replica set) have names that begin alike. That part is kept once with the namespace; what
//! follows the last dash is kept by each, if it is short.

use std::sync::Arc;

use super::{Amounts, Interner, Owner};

/// What a pod holds, remembered so that exactly this is given back. A finished pod holds nothing, but it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BoundPod {
    pub(super) node: Arc<str>,
    pub(super) request: Option<Arc<Amounts>>,
    pub(super) owner: Option<Arc<Owner>>,
}

/// A pod's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodKey {
    stem: Arc<PodNamePrefix>,
    /// What follows the last dash, filled up with zeros; nothing where the stem is all of the name.
    last: [u8; LAST],
}

/// Longest end of a name that is kept by itself.
const LAST: usize = 8;

/// A namespace, and how names in it begin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodNamePrefix {
    namespace: Arc<str>,
    /// With its dash, where something follows.
    name: Box<str>,
}

impl PodKey {
    pub(super) fn new(stems: &mut Interner<PodNamePrefix>, namespace: Arc<str>, name: &str) -> Self {
        let split = name.rfind('-').map(|dash| name.split_at(dash + 1));
        let short = |(_, end): &(&str, &str)| (1..=LAST).contains(&end.len()) && !end.contains('\0');
        let (name, end) = split.filter(short).unwrap_or((name, ""));
        let mut last = [0; LAST];
        last[..end.len()].copy_from_slice(end.as_bytes());
        Self { stem: stems.intern_value(PodNamePrefix { namespace, name: name.into() }), last }
    }

    /// Not after any pod of the namespace.
    pub(super) fn first_of(namespace: Arc<str>) -> Self {
        Self { stem: Arc::new(PodNamePrefix { namespace, name: Box::default() }), last: [0; LAST] }
    }

    pub(super) fn namespace(&self) -> &Arc<str> {
        &self.stem.namespace
    }

    /// The number at the end of the name.
    pub(super) fn trailing_number(&self) -> Option<u32> {
        let end = self.last.split(|byte| *byte == 0).next().and_then(|end| std::str::from_utf8(end).ok());
        match end.filter(|end| !end.is_empty()) {
            Some(end) => end.parse().ok(),
            None => self.stem.name.rsplit('-').next()?.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_told_apart_by_namespace_and_name_however_these_end() {
        let mut stems = Interner::default();
        let names = ["a", "a-", "a-1", "a-01", "a-1-1", "a-12345678", "a-123456789", "a--1", "", "-", "a-é", "a-b\0"];
        let mut keys: Vec<PodKey> = Vec::new();
        for namespace in ["n", "m"] {
            keys.extend(names.iter().map(|name| PodKey::new(&mut stems, namespace.into(), name)));
        }
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == key), Some(at));
            assert!(PodKey::first_of(Arc::clone(key.namespace())) <= *key);
        }
        let numbers: Vec<Option<u32>> = keys[..7].iter().map(PodKey::trailing_number).collect();
        assert_eq!(numbers, [None, None, Some(1), Some(1), Some(1), Some(12_345_678), Some(123_456_789)]);
    }
}
