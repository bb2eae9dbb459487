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
}

impl Store {
    pub fn new(history: usize) -> Self {
        Self { collections: BTreeMap::new(), revision: 1, compacted: 0, history: history.max(1) }
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const KIND: &str = "things";

    #[test]
    fn a_large_number_is_written_as_go_writes_it() {
        for (value, wanted) in [
            (9.223372036854776e18, "9223372036854776000"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-7, "1e-7"),
            (-0.25, "-0.25"),
            (1e-6, "0.000001"),
        ] {
            assert_eq!(encode_json(&json!(value)), wanted);
        }
    }

    fn put(store: &mut Store, name: &str, n: u64) -> Result<Arc<Object>, Raced> {
        let key = Key::new("ns", name);
        let expect = store.get(KIND, &key).map_or(Expect::Absent, |o| Expect::Revision(o.revision));
        let value = json!({"metadata": {"namespace": "ns", "name": name}, "n": n});
        store.commit(KIND, &key, expect, Change::Put(value, 0))
    }

    fn remove(store: &mut Store, name: &str) -> Result<Arc<Object>, Raced> {
        let key = Key::new("ns", name);
        let expect = store.get(KIND, &key).map_or(Expect::Absent, |o| Expect::Revision(o.revision));
        store.commit(KIND, &key, expect, Change::Remove)
    }

    /// One step of a history: a write of a number, or a removal.
    fn steps() -> impl Strategy<Value = Vec<(u8, Option<u64>)>> {
        prop::collection::vec((0_u8..4, prop::option::weighted(0.7, 0_u64..100)), 1..60)
    }

    fn run(store: &mut Store, step: (u8, Option<u64>)) {
        let name = format!("o{}", step.0);
        match step.1 {
            Some(n) => {
                put(store, &name, n).unwrap();
            }
            None => {
                let existed = store.get(KIND, &Key::new("ns", &name)).is_some();
                assert_eq!(remove(store, &name).is_ok(), existed);
            }
        }
    }

    type State = BTreeMap<Key, (u64, Value)>;

    fn state(objects: &[Arc<Object>]) -> State {
        objects
            .iter()
            .map(|o| {
                let text = |m: &str| o.value["metadata"][m].as_str().unwrap_or_default().to_owned();
                (Key::new(text("namespace"), text("name")), (o.revision, o.value.clone()))
            })
            .collect()
    }

    /// What a client that applies the events to what it has ends up with.
    fn replay(mut from: State, events: &[Arc<Event>]) -> State {
        for event in events {
            match event.kind {
                EventKind::Deleted => from.remove(&event.key),
                EventKind::Added | EventKind::Modified => {
                    from.insert(event.key.clone(), (event.revision, event.object.value.clone()))
                }
            };
        }
        from
    }

    #[test]
    fn a_write_with_a_stale_revision_is_refused_and_changes_nothing() {
        let mut store = Store::new(10);
        let first = put(&mut store, "a", 1).unwrap();
        put(&mut store, "a", 2).unwrap();
        let before = store.revision();
        let key = Key::new("ns", "a");
        let stale = store.commit(KIND, &key, Expect::Revision(first.revision), Change::Remove);
        assert!(matches!(stale, Err(Raced(Some(_)))));
        assert_eq!(store.revision(), before);
    }

    #[test]
    fn a_deletion_carries_the_last_state_at_its_own_revision() {
        let mut store = Store::new(10);
        put(&mut store, "a", 7).unwrap();
        let gone = remove(&mut store, "a").unwrap();
        assert_eq!((gone.revision, &gone.value["n"]), (store.revision(), &json!(7)));
        assert_eq!(gone.value["metadata"]["resourceVersion"], json!(store.revision().to_string()));
    }

    #[test]
    fn what_fell_out_of_the_history_is_said_to_be_too_old() {
        let mut store = Store::new(3);
        let first = put(&mut store, "a", 0).unwrap().revision;
        for n in 1..10 {
            put(&mut store, "a", n).unwrap();
        }
        assert!(matches!(store.events_after(KIND, first, 10), Err(OutOfRange::Compacted { .. })));
        assert!(matches!(store.list_at(KIND, None, first), Err(OutOfRange::Compacted { .. })));
        assert_eq!(store.events_after(KIND, store.revision() - 2, 10).unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn revisions_only_grow_and_every_change_has_its_own(history in steps()) {
            let mut store = Store::new(1000);
            let start = store.revision();
            for step in history {
                let before = store.revision();
                run(&mut store, step);
                prop_assert!(store.revision() - before <= 1);
            }
            let events = store.events_after(KIND, start, usize::MAX).unwrap();
            prop_assert!(events.windows(2).all(|w| w[0].revision < w[1].revision));
            prop_assert_eq!(events.len() as u64, store.revision() - start);
        }

        #[test]
        fn a_list_and_the_events_after_it_give_the_present(history in steps(), cut in 0_usize..60) {
            let mut store = Store::new(1000);
            let cut = cut.min(history.len());
            for step in &history[..cut] {
                run(&mut store, *step);
            }
            let (listed, revision) = (state(&store.list(KIND, None)), store.revision());
            for step in &history[cut..] {
                run(&mut store, *step);
            }
            let events = store.events_after(KIND, revision, usize::MAX).unwrap();
            prop_assert_eq!(replay(listed, &events), state(&store.list(KIND, None)));
        }

        #[test]
        fn an_exact_list_is_the_state_of_that_revision(history in steps()) {
            let mut store = Store::new(1000);
            let mut states = BTreeMap::from([(store.revision(), State::new())]);
            for step in history {
                run(&mut store, step);
                states.insert(store.revision(), state(&store.list(KIND, None)));
            }
            for (revision, expected) in states {
                prop_assert_eq!(state(&store.list_at(KIND, Some("ns"), revision).unwrap()), expected);
            }
        }
    }
}
