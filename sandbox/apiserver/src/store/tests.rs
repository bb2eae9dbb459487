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

#[test]
fn a_store_that_went_back_has_what_it_had_and_goes_on_from_that_revision() {
    let mut store = Store::new(10);
    put(&mut store, "a", 1).unwrap();
    let kept = store.keep();
    let lost = put(&mut store, "b", 2).unwrap();
    put(&mut store, "a", 3).unwrap();
    store.go_back(&kept);
    assert_eq!((store.revision(), store.life()), (kept.revision, 1));
    assert_eq!(store.get(KIND, &Key::new("ns", "a")).unwrap().value["n"], json!(1));
    assert!(store.get(KIND, &Key::new("ns", "b")).is_none());
    assert_eq!(store.events_after(KIND, kept.revision, 10).unwrap().len(), 0, "what was written since is gone");
    assert!(matches!(store.events_after(KIND, kept.revision - 1, 10), Err(OutOfRange::Compacted { .. })));
    assert_eq!(put(&mut store, "c", 4).unwrap().revision, lost.revision, "revisions come a second time");
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
