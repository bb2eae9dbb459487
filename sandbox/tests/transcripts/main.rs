//! The Karmada stand-ins against recordings of a real Karmada 1.19.
//!
//! A recording's inputs and actions are repeated on embedded API servers (a host, members `m1` and `m2`), each action
//! as soon as the objects that were there before it are there again and everything is quiet. Before every action, and
//! at the end, all objects are compared with the recorded ones; and for every object and writer the set of fields that
//! were written. Times, uids, versions and repetitions do not count.
//!
//! The recordings are in `fixtures/transcripts`, or in the folder that `CALDERA_TRANSCRIPTS_DIR` names.
//! `CALDERA_TRANSCRIPT=<id prefix>` runs only some of them and prints every difference.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod burst;
mod compare;
mod interpreter;
mod log;
mod recorder;
mod recording;
mod replay;
mod stage;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use recording::Recording;

/// Scenarios that must pass; raised as more do.
const FLOOR: usize = 105;
#[test]
fn the_stand_ins_do_what_karmada_did() {
    let folder = caldera_fixtures::find_folder("CALDERA_TRANSCRIPTS_DIR", "transcripts");
    let only = std::env::var("CALDERA_TRANSCRIPT").ok();
    if only.is_some() && std::env::var_os("RUST_LOG").is_some() {
        caldera_runtime::telemetry::start_logging("info", caldera_runtime::telemetry::Format::Text);
    }
    let recordings: Vec<Recording> = caldera_fixtures::list_files(&folder, "json")
        .iter()
        .map(|file| Recording::read(file))
        .filter(|recording| only.as_ref().is_none_or(|only| recording.id.starts_with(only.as_str())))
        .collect();
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(recording) = recordings.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = differences(recording);
            outcomes.lock().unwrap().insert(recording.id.clone(), found);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut groups: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let (mut passed, mut total) = (0, 0);
    for (id, differences) in outcomes.into_inner().unwrap() {
        let group: String = id.chars().take_while(char::is_ascii_digit).collect();
        let counts = groups.entry(group).or_default();
        counts.1 += 1;
        total += 1;
        let Some(first) = differences.first() else {
            counts.0 += 1;
            passed += 1;
            continue;
        };
        println!("  {id}: {} differences, first: {}", differences.len(), shortened(first));
        for difference in differences.iter().filter(|_| only.is_some()) {
            println!("    {difference}");
        }
    }
    for (group, (passed, total)) in &groups {
        println!("transcripts {group}: {passed} of {total}");
    }
    println!("transcripts total: {passed} of {total}");
    // Other recordings may be fewer.
    let fewer = std::env::var_os("CALDERA_TRANSCRIPTS_DIR").is_some() && total < FLOOR;
    assert!(only.is_some() || fewer || passed >= FLOOR, "only {passed} of {total} transcripts pass, {FLOOR} must");
}

fn shortened(text: &str) -> String {
    text.chars().take(220).collect()
}

/// Replays a recording on virtual time. The uids of templates are not in a recording, but which of two equal clusters
/// got the odd replica is: whoever divides otherwise gets a uid with the other parity, and the replay begins anew.
fn differences(recording: &Recording) -> Vec<String> {
    let first = on_virtual_time(recording, &BTreeSet::new());
    let odd = replay::divided_otherwise(recording, &first);
    if odd.is_empty() { first } else { on_virtual_time(recording, &odd) }
}

fn on_virtual_time(recording: &Recording, odd: &BTreeSet<String>) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let replayed = AssertUnwindSafe(|| runtime.block_on(replay::replay(recording, odd)));
    catch_unwind(replayed).unwrap_or_else(|_| vec!["it panicked".to_owned()])
}
