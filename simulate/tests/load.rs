//! Load-aware rescheduling on virtual time: what is at rest stays, what is hot cools down, and nothing swings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::HashMap, sync::Arc};

use caldera_core::{
    load_aware::{LoadPolicy, Thresholds},
    quantity::Quantity,
    queue::QueueSpec,
    resources::Resources,
};
use caldera_simulate::{
    load::{LoadOutcome, LoadedWorld, make_up_load, simulate_load},
    run::Options,
    time::Millis,
    world::{Hold, Job, JobTerms, Shapes, World, cluster, gang, task},
};

const HOUR: u64 = 3_600;

fn cpus(cores: i64) -> Resources {
    std::iter::once(("cpu", Quantity::from_units(cores))).collect()
}

fn on() -> LoadPolicy {
    LoadPolicy {
        enabled: true,
        thresholds: Thresholds { cpu: Some(30), memory: None },
        target_thresholds: Thresholds { cpu: Some(80), memory: None },
        ..LoadPolicy::default()
    }
}

/// Two clusters of ten nodes of eight cores. Of each so many jobs of a node run already, which use so many percent of
/// what they ask for, and for 30 hours.
fn two_clusters(jobs: [u32; 2], percent: [u32; 2], preemptable: bool, noise: u32) -> LoadedWorld {
    let (mut shapes, mut all, mut uses, mut terms) = (Shapes::default(), Vec::new(), HashMap::new(), HashMap::new());
    for (at, count) in jobs.into_iter().enumerate() {
        for i in 0..count {
            let name: Arc<str> = format!("c{at}-{i:02}").into();
            uses.insert(name.clone(), percent[at]);
            terms.insert(name.clone(), JobTerms { preemptable: Some(preemptable), ..JobTerms::default() });
            let node = format!("c{at}-0-{i:05}").into();
            let held = task("t", 1, 1, cpus(8)).request;
            all.push(Job {
                name,
                queue: "q".into(),
                priority: 0,
                arrival: Millis::ZERO,
                run: Millis::from_secs(30 * HOUR),
                estimate: None,
                shape: shapes.gang(gang(vec![task("t", 1, 1, cpus(8))])),
                running: Some(vec![Hold { cluster: at, node, amount: held }]),
            });
        }
    }
    let clusters = (0..2).map(|at| cluster(&format!("c{at}"), &[(10, cpus(8))])).collect();
    let world = World::new(clusters, vec![QueueSpec::unlimited("q")], all, Millis::ZERO).unwrap();
    LoadedWorld { world: World { terms, ..world }, uses, noise, seed: 7 }
}

fn simulate_day(loaded: &LoadedWorld, policy: &LoadPolicy) -> LoadOutcome {
    let day = Options { horizon: Some(Millis::from_secs(24 * HOUR)), ..Options::default() };
    simulate_load(loaded, policy, &day)
}

#[test]
fn a_fleet_at_rest_moves_nothing_in_24_hours() {
    // Warm and cool clusters, with noise; hot ones with nobody to receive; hot ones whose jobs may not leave.
    let worlds = [
        two_clusters([10, 2], [70, 60], true, 10),
        two_clusters([8, 8], [90, 90], true, 5),
        two_clusters([10, 10], [100, 100], true, 0),
        two_clusters([10, 1], [100, 10], false, 5),
    ];
    for (at, loaded) in worlds.iter().enumerate() {
        let outcome = simulate_day(loaded, &on());
        assert_eq!(outcome.moves, Vec::new(), "world {at}");
        assert_eq!(outcome.outcome.lost, 0, "world {at}");
    }
}

#[test]
fn a_hot_cluster_is_cool_within_two_intervals_and_nothing_moves_after_that() {
    let policy = on();
    let interval = Millis::from_secs(u64::try_from(policy.interval).unwrap());
    // It uses 95 % of its nodes: two jobs of ten have to leave.
    let loaded = two_clusters([10, 1], [95, 30], true, 2);
    let outcome = simulate_day(&loaded, &policy);
    assert!(outcome.longest_hot <= interval.plus(interval), "{:?}", outcome.longest_hot);
    let times: Vec<Millis> = outcome.moves.iter().map(|one| one.at).collect();
    assert_eq!(times, [interval, interval], "{:?}", outcome.moves);
    let without = simulate_day(&loaded, &LoadPolicy { enabled: false, ..policy });
    assert_eq!((without.moves.len(), without.longest_hot), (0, Millis::from_secs(24 * HOUR)));
}

#[test]
fn who_wants_what_is_not_there_takes_as_much_longer() {
    let mut loaded = two_clusters([10, 0], [200, 0], true, 0);
    loaded.world.jobs.iter_mut().for_each(|job| job.run = Millis::from_secs(HOUR));
    let off = LoadPolicy { enabled: false, ..on() };
    let outcome = simulate_load(&loaded, &off, &Options::default());
    for job in &outcome.outcome.jobs {
        // Half of what it wants: twice as long, but for what happens before the first reading.
        let took = job.ended.unwrap().seconds();
        assert!((2 * HOUR - 60..=2 * HOUR + 60).contains(&took), "{took}");
    }
    // Ten nodes of eight cores more, for two hours.
    let core_hours = outcome.wanted_in_vain / 1_000 / 3_600_000;
    assert!((158..=161).contains(&core_hours), "{core_hours}");
}

#[test]
fn a_made_up_day_is_cooler_with_moves_and_the_same_day_gives_the_same_history() {
    for seed in 0..2 {
        let loaded = make_up_load(seed).unwrap();
        let run = |policy: &LoadPolicy| simulate_load(&loaded, policy, &Options::default());
        let (moved, still) = (run(&on()), run(&LoadPolicy { enabled: false, ..on() }));
        for outcome in [&moved, &still] {
            assert!(outcome.outcome.jobs.iter().all(|job| job.ended.is_some()), "seed {seed}: some never ended");
        }
        assert!(!moved.moves.is_empty() && moved.wanted_in_vain < still.wanted_in_vain, "seed {seed}");
        let again = run(&on());
        assert_eq!((&moved.moves, &moved.outcome.jobs), (&again.moves, &again.outcome.jobs), "seed {seed}");
        // Nobody is moved twice within the cooldown.
        for (at, one) in moved.moves.iter().enumerate() {
            let before = moved.moves[..at].iter().rfind(|before| before.job == one.job);
            let cooldown = Millis::from_secs(u64::try_from(on().cooldown).unwrap());
            assert!(before.is_none_or(|before| one.at >= before.at.plus(cooldown)), "seed {seed}: {one:?}");
        }
    }
}
