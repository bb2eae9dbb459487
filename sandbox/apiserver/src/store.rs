//! The data: objects by kind, namespace and name, one revision for all of them, and per kind the recent events.
//!
//! Pure and synchronous: no clock, no async, no locks. Every mutation goes through [`Store::commit`], which compares
//! the version the writer saw, takes the next revision, remembers the event and wakes the watchers. Watchers hold a
//! cursor (a revision) and read the events after it, so a slow one costs nothing and learns that it fell behind (etcd's
//! and the watch cache's semantics, in one place).

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Where an object is within its kind. The namespace is empty for cluster-scoped kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// One state of one object. Immutable; shared by the store, its history and every reader.
#[derive(Debug)]
pub struct Object {
    pub revision: u64,
    /// With kind, apiVersion and `metadata.resourceVersion`.
    pub value: Value,
    /// Which form (kind, version and schema) `value` is in: readers of the same form take it as it is.
    pub form: u64,
    encoded: OnceLock<Bytes>,
    encoded_bare: OnceLock<Bytes>,
}

impl Object {
    pub fn new(revision: u64, mut value: Value, form: u64) -> Self {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), revision.to_string().into());
        }
        Self { revision, value, form, encoded: OnceLock::new(), encoded_bare: OnceLock::new() }
    }

    /// The JSON text, made once and shared.
    pub fn encoded(&self) -> Bytes {
        self.encoded.get_or_init(|| encode_json(&self.value)).clone()
    }

    /// The JSON text without kind and apiVersion, as in the lists of built-in kinds.
    pub fn encoded_bare(&self) -> Bytes {
        self.encoded_bare
            .get_or_init(|| {
                let mut value = self.value.clone();
                if let Some(object) = value.as_object_mut() {
                    object.remove("kind");
                    object.remove("apiVersion");
                }
                encode_json(&value)
            })
            .clone()
    }
}

/// A JSON value has only string keys, so writing it cannot fail.
pub fn encode_json(value: &Value) -> Bytes {
    let mut bytes = Vec::with_capacity(256);
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, GoNumbers));
    written.map_or_else(|_| Bytes::new(), |()| bytes.into())
}

/// Writes a number with a fraction as Go does: with an exponent only where it is very large or very small
/// (`encoding/json`, `floatEncoder`).
struct GoNumbers;

impl Formatter for GoNumbers {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> std::io::Result<()> {
        let size = value.abs();
        if size != 0.0 && !(1e-6..1e21).contains(&size) {
            let text = format!("{value:e}");
            let signed = if size < 1.0 { text } else { text.replace('e', "e+") };
            return writer.write_all(signed.as_bytes());
        }
        write!(writer, "{value}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One change. A deletion carries the last state, stamped with the deletion's revision.
#[derive(Debug)]
pub struct Event {
    pub revision: u64,
    pub kind: EventKind,
    pub key: Key,
    pub object: Arc<Object>,
    /// The state before, absent for an addition.
    pub previous: Option<Arc<Object>>,
}

/// What the writer saw, and what commit insists on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Absent,
    Revision(u64),
}

#[derive(Debug)]
pub enum Change {
    /// The new state and its form.
    Put(Value, u64),
    Remove,
}

/// The object is not what the writer saw: it is this now.
#[derive(Debug)]
pub struct Raced(pub Option<Arc<Object>>);

/// The version asked for is no longer (or not yet) known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutOfRange {
    /// Too old; `oldest` is the oldest that works.
    Compacted {
        oldest: u64,
    },
    Future {
        current: u64,
    },
}

/// All objects as they were at one revision.
#[derive(Debug, Clone)]
pub struct Kept {
    objects: BTreeMap<String, BTreeMap<Key, Arc<Object>>>,
    pub revision: u64,
}

/// When a kind last changed, and who waits for the next change. The first to wait is the first to wake: tokio's watch
/// channel wakes in a random order, and one history could not be had twice.
#[derive(Debug, Default)]
pub struct Changes {
    revision: AtomicU64,
    waiting: Notify,
}

impl Changes {
    /// Zero: never.
    pub fn last(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Done with the next change after this call, whether or not it was awaited by then.
    pub fn next(&self) -> Notified<'_> {
        self.waiting.notified()
    }

    fn tell(&self, revision: u64) {
        self.revision.store(revision, Ordering::Release);
        self.waiting.notify_waiters();
    }
}

#[derive(Debug)]
struct Collection {
    objects: BTreeMap<Key, Arc<Object>>,
    history: VecDeque<Arc<Event>>,
    /// Events up to here are forgotten.
    floor: u64,
    changes: Arc<Changes>,
}

impl Collection {
    /// A kind that nothing was ever written of has forgotten nothing.
    fn new() -> Self {
        Self { objects: BTreeMap::new(), history: VecDeque::new(), floor: 0, changes: Arc::default() }
    }

    /// Index of the first event after `revision`.
    fn after(&self, revision: u64) -> usize {
        self.history.partition_point(|e| e.revision <= revision)
    }
}

#[derive(Debug)]
pub struct Store {
    collections: BTreeMap<String, Collection>,
    revision: u64,
    /// Exact lists up to here are refused.
    compacted: u64,
    history: usize,
    /// How often it went back. What was read before has nothing to do with what is there now.
    life: u64,
}

impl Store {
    pub fn new(history: usize) -> Self {
        Self { collections: BTreeMap::new(), revision: 1, compacted: 0, history: history.max(1), life: 0 }
    }

    /// How often it went back.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// What there is now.
    pub fn keep(&self) -> Kept {
        let objects = self.collections.iter().map(|(kind, collection)| (kind.clone(), collection.objects.clone()));
        Kept { objects: objects.collect(), revision: self.revision }
    }

    /// All is as it was then, revisions too; what was before that is forgotten. Who waits for changes is woken.
    pub fn go_back(&mut self, kept: &Kept) {
        self.life += 1;
        (self.revision, self.compacted) = (kept.revision, kept.revision);
        for (kind, collection) in &mut self.collections {
            collection.objects = kept.objects.get(kind).cloned().unwrap_or_default();
            collection.history.clear();
            collection.floor = kept.revision;
            collection.changes.tell(kept.revision);
        }
    }

    /// The revision of the last write to anything.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn get(&self, kind: &str, key: &Key) -> Option<Arc<Object>> {
        self.collections.get(kind)?.objects.get(key).cloned()
    }

    /// All objects of a kind, or those of one namespace, in key order.
    pub fn list(&self, kind: &str, namespace: Option<&str>) -> Vec<Arc<Object>> {
        let Some(collection) = self.collections.get(kind) else { return Vec::new() };
        match namespace {
            None => collection.objects.values().cloned().collect(),
            Some(namespace) => collection
                .objects
                .range(Key::new(namespace, "")..)
                .take_while(|(key, _)| key.namespace == namespace)
                .map(|(_, object)| object.clone())
                .collect(),
        }
    }

    /// The objects as they were at `revision`: the present with the later events undone.
    pub fn list_at(&self, kind: &str, namespace: Option<&str>, revision: u64) -> Result<Vec<Arc<Object>>, OutOfRange> {
        if revision > self.revision {
            return Err(OutOfRange::Future { current: self.revision });
        }
        if revision < self.compacted {
            return Err(OutOfRange::Compacted { oldest: self.compacted });
        }
        let Some(collection) = self.collections.get(kind) else { return Ok(Vec::new()) };
        if revision < collection.floor {
            return Err(OutOfRange::Compacted { oldest: collection.floor });
        }
        let later = collection.after(revision);
        if later == collection.history.len() {
            return Ok(self.list(kind, namespace));
        }
        let mut objects = collection.objects.clone();
        for event in collection.history.range(later..).rev() {
            match &event.previous {
                Some(previous) => objects.insert(event.key.clone(), previous.clone()),
                None => objects.remove(&event.key),
            };
        }
        Ok(objects
            .into_iter()
            .filter(|(key, _)| namespace.is_none_or(|n| n == key.namespace))
            .map(|(_, object)| object)
            .collect())
    }

    /// The one mutation. The object's new state (the last one for a removal) comes back stamped with the new revision.
    pub fn commit(&mut self, kind: &str, key: &Key, expect: Expect, change: Change) -> Result<Arc<Object>, Raced> {
        if !self.collections.contains_key(kind) {
            self.collections.insert(kind.to_owned(), Collection::new());
        }
        let Some(collection) = self.collections.get_mut(kind) else { return Err(Raced(None)) };
        let previous = collection.objects.get(key).cloned();
        let seen = match expect {
            Expect::Absent => None,
            Expect::Revision(revision) => Some(revision),
        };
        if previous.as_ref().map(|o| o.revision) != seen {
            return Err(Raced(previous));
        }
        let (event_kind, value, form) = match (change, &previous) {
            (Change::Put(value, form), None) => (EventKind::Added, value, form),
            (Change::Put(value, form), Some(_)) => (EventKind::Modified, value, form),
            (Change::Remove, Some(previous)) => (EventKind::Deleted, previous.value.clone(), previous.form),
            (Change::Remove, None) => return Err(Raced(None)),
        };
        self.revision += 1;
        let object = Arc::new(Object::new(self.revision, value, form));
        if event_kind == EventKind::Deleted {
            collection.objects.remove(key);
        } else {
            collection.objects.insert(key.clone(), object.clone());
        }
        collection.history.push_back(Arc::new(Event {
            revision: self.revision,
            kind: event_kind,
            key: key.clone(),
            object: object.clone(),
            previous,
        }));
        if collection.history.len() > self.history
            && let Some(forgotten) = collection.history.pop_front()
        {
            collection.floor = forgotten.revision;
        }
        collection.changes.tell(self.revision);
        Ok(object)
    }

    /// Up to `limit` events of a kind after a revision.
    pub fn events_after(&self, kind: &str, revision: u64, limit: usize) -> Result<Vec<Arc<Event>>, OutOfRange> {
        let Some(collection) = self.collections.get(kind) else { return Ok(Vec::new()) };
        if revision < collection.floor {
            return Err(OutOfRange::Compacted { oldest: collection.floor });
        }
        Ok(collection.history.range(collection.after(revision)..).take(limit).cloned().collect())
    }

    /// Tells when something of this kind changed.
    pub fn changes(&mut self, kind: &str) -> Arc<Changes> {
        self.collections.entry(kind.to_owned()).or_insert_with(Collection::new).changes.clone()
    }

    /// Wakes the watchers of a kind without a change, to look whether it still exists.
    pub fn wake(&self, kind: &str) {
        if let Some(collection) = self.collections.get(kind) {
            collection.changes.tell(self.revision);
        }
    }

    /// Makes every version before now unusable for exact and continued lists (not for watches).
    pub fn compact(&mut self) {
        self.compacted = self.revision;
    }
}

#[cfg(test)]
mod tests;
