//! The real webhook, controller and global scheduler on one thread and on virtual time, without a socket, while requests
//! and watches go wrong and processes die as a seed says; the invariants of docs/design.md 7 are checked at every commit.
//!
//! One seed is one history, to the last byte. `CALDERA_SIMULATION_SEED=n` runs one again; `CALDERA_SIMULATION_SEEDS=n` runs the
//! seeds up to n, instead of as many as fit in a few seconds. `CALDERA_SIMULATION_TRACE=1` prints each commit and each fault.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod history;
mod invariants;
mod ledger;
mod prng;
mod processes;
mod setting;
mod stand_in;
mod story;
mod world;

use std::{
    collections::BTreeMap,
    panic::catch_unwind,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Without a number of seeds: no new one is begun after that.
const BUDGET: Duration = Duration::from_secs(18);
/// But so many are run, however slow the machine.
const LEAST: u64 = 6;

/// Runs one history on virtual time; what it was, commit by commit if `keep`.
fn run(seed: u64, keep: bool) -> world::Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(world::run(seed, keep))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// What all histories of a test came to.
#[derive(Default)]
struct Sum {
    seeds: u64,
    virtual_seconds: u64,
    faults: BTreeMap<&'static str, u64>,
    broken: Vec<u64>,
    over_granted: u64,
}

impl Sum {
    fn add(&mut self, seed: u64, outcome: Option<world::Outcome>) {
        self.seeds += 1;
        let Some(outcome) = outcome else { return self.broken.push(seed) };
        self.virtual_seconds += outcome.virtual_seconds;
        self.over_granted += outcome.over_granted;
        for (fault, times) in outcome.faults {
            *self.faults.entry(fault).or_default() += times;
        }
    }
}

#[test]
fn every_invariant_holds_in_every_history() {
    let one = number("CALDERA_SIMULATION_SEED");
    let first = one.unwrap_or(1);
    let last = one.or(number("CALDERA_SIMULATION_SEEDS"));
    let (began, next, sum) = (Instant::now(), AtomicU64::new(first), Mutex::new(Sum::default()));
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if last.map_or(seed > LEAST && began.elapsed() > BUDGET, |last| seed > last) {
            return;
        }
        let outcome = catch_unwind(|| run(seed, false)).ok();
        match &outcome {
            Some(outcome) => println!("seed {seed}: {outcome}"),
            None => println!("seed {seed}: BROKEN; again: {}", again(seed)),
        }
        sum.lock().unwrap().add(seed, outcome);
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let Sum { seeds, virtual_seconds, faults, broken, over_granted } = sum.into_inner().unwrap();
    let hours = virtual_seconds / 3600;
    println!(
        "{seeds} seeds, {hours} virtual hours in {:.1} s; {over_granted} commits with more granted than a limit; faults {faults:?}",
        began.elapsed().as_secs_f64()
    );
    assert!(broken.is_empty(), "an invariant is broken:\n{}", broken.iter().map(|s| again(*s)).collect::<String>());
}

fn again(seed: u64) -> String {
    format!(
        "CALDERA_SIMULATION_SEED={seed} cargo test -p caldera-e2e --test simulation every_invariant -- --nocapture\n"
    )
}

#[test]
fn the_same_seed_gives_the_same_history_to_the_last_byte() {
    let seed = number("CALDERA_SIMULATION_SEED").unwrap_or(1);
    let (first, second) = (run(seed, true), run(seed, true));
    let (one, two) = (first.history.lines.as_ref().unwrap(), second.history.lines.as_ref().unwrap());
    if let Some(at) = (0..one.len().max(two.len())).find(|at| one.get(*at) != two.get(*at)) {
        panic!("seed {seed}: commit {at} is\n{:?}\nand then\n{:?}\nof {first}\nand {second}", one.get(at), two.get(at));
    }
    println!("twice {first}");
    assert_ne!(first.history.number(), run(seed + 1, false).history.number(), "another seed gives another history");
}
