//! The real webhook, controller and global scheduler on one thread and on virtual time, without a socket, while requests
//! and watches go wrong and processes die as a seed says; the invariants of docs/design.md 7 are checked at every commit.
//!
//! `CALDERA_SIM_SEED=n` runs one seed again (the same story and the same odds; not yet the same history to the last bit), `CALDERA_SIM_SEEDS=n` runs more than the usual number of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod history;
mod invariants;
mod prng;
mod stand_in;
mod world;

use std::time::Instant;

/// Runs one history on virtual time; what it was, as a number.
fn run(seed: u64) -> world::Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(world::run(seed))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn every_invariant_holds_in_every_history() {
    let seeds: Vec<u64> = match number("CALDERA_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("CALDERA_SIM_SEEDS").unwrap_or(20)).collect(),
    };
    let mut broken = Vec::new();
    for seed in seeds {
        let began = Instant::now();
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(outcome) => println!("seed {seed}: {outcome}, {:.1} s real", began.elapsed().as_secs_f64()),
            Err(_) => {
                println!("seed {seed}: BROKEN; run it again with CALDERA_SIM_SEED={seed}");
                broken.push(seed);
            }
        }
    }
    assert!(broken.is_empty(), "invariants are broken with CALDERA_SIM_SEED={broken:?}");
}

/// Not so yet: one seed was seen to give two histories. Object UIDs are random in the API server, and they are one suspect.
#[test]
#[ignore = "known to fail: a seed does not yet fix the whole history"]
fn the_same_seed_gives_the_same_history() {
    let seed = number("CALDERA_SIM_SEED").unwrap_or(1);
    let (first, second) = (run(seed), run(seed));
    assert_eq!(first.history, second.history, "seed {seed}: {first} and {second}");
    assert_ne!(first.history, run(seed + 1).history, "another seed gives another history");
}
