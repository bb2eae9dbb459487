//! A map that is copied in no time: reviews are decided from a copy, while watches write the next one.
//!
//! Rule: keys are spread over shards, and a copy shares them all. Who writes into one copies that shard alone, if
//! somebody else still reads it.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Enough that a shard of 50,000 objects has fewer than a thousand.
const SHARDS: usize = 64;

type Shard<K, V> = Arc<BTreeMap<K, Arc<V>>>;

/// The map.
#[derive(Debug)]
pub struct Sharded<K, V> {
    shards: Vec<Shard<K, V>>,
}

impl<K, V> Clone for Sharded<K, V> {
    fn clone(&self) -> Self {
        Self { shards: self.shards.clone() }
    }
}

impl<K, V> Default for Sharded<K, V> {
    fn default() -> Self {
        Self { shards: vec![Arc::default(); SHARDS] }
    }
}

fn shard_of<Q: Hash + ?Sized>(key: &Q) -> usize {
    // Its keys are constant: the same key is in the same shard always.
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    usize::try_from(hasher.finish() % SHARDS as u64).unwrap_or(0)
}

impl<K: Ord + Hash + Clone, V> Sharded<K, V> {
    /// The value of `key`.
    pub fn get<Q: Ord + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.shards.get(shard_of(key))?.get(key).map(AsRef::as_ref)
    }

    /// Whether it is there.
    pub fn contains_key<Q: Ord + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Stores a value.
    pub fn insert(&mut self, key: K, value: V) {
        let shard = &mut self.shards[shard_of(&key)];
        Arc::make_mut(shard).insert(key, Arc::new(value));
    }

    /// Changes a value, an empty one where there is none. It is copied only if somebody else still reads it.
    pub fn change_value(&mut self, key: K, change: impl FnOnce(&mut V))
    where
        V: Clone + Default,
    {
        let shard = &mut self.shards[shard_of(&key)];
        change(Arc::make_mut(Arc::make_mut(shard).entry(key).or_default()));
    }

    /// Removes a value; copies nothing where it is not there.
    pub fn remove<Q: Ord + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if self.contains_key(key) {
            Arc::make_mut(&mut self.shards[shard_of(key)]).remove(key);
        }
    }

    /// Keeps what `keep` says of.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        for shard in &mut self.shards {
            if !shard.keys().all(&keep) {
                Arc::make_mut(shard).retain(|key, _| keep(key));
            }
        }
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.shards.iter().flat_map(|shard| shard.keys())
    }

    /// All keys with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.shards.iter().flat_map(|shard| shard.iter()).map(|(key, value)| (key, value.as_ref()))
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.shards.iter().flat_map(|shard| shard.values()).map(AsRef::as_ref)
    }
}

impl<K: Ord + Hash + Clone, V> Extend<(K, V)> for Sharded<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, value)| self.insert(key, value));
    }
}

impl<K: Ord + Hash + Clone, V> FromIterator<(K, V)> for Sharded<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        map.extend(entries);
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_as_it_was_and_shares_what_did_not_change() {
        let mut map: Sharded<String, u32> = (0..1000).map(|n| (n.to_string(), n)).collect();
        let copy = map.clone();
        map.insert("7".to_owned(), 70);
        map.remove("8");
        map.remove("nobody");
        assert_eq!((copy.get("7"), copy.get("8")), (Some(&7), Some(&8)));
        assert_eq!((map.get("7"), map.get("8")), (Some(&70), None));
        let shared = map.shards.iter().zip(&copy.shards).filter(|(one, other)| Arc::ptr_eq(one, other)).count();
        assert!(shared >= SHARDS - 2, "{shared}");
        map.change_value("9".to_owned(), |value| *value += 1);
        assert_eq!((map.get("9"), copy.get("9")), (Some(&10), Some(&9)));
        map.retain(|key| key.len() == 1);
        assert_eq!((map.keys().count(), map.values().count(), copy.keys().count()), (9, 9, 1000));
    }
}
