//! Shards with leased slices of one fleet: what is promised holds whoever is lost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use caldera_simulate::{
    random::Random,
    shards::{Component, Outage, ShardedOutcome, ShardedWorld, make_up_shards, simulate_one_engine, simulate_shards},
};

const SEEDS: std::ops::Range<u64> = 0..3;

fn check(world: &ShardedWorld, outcome: &ShardedOutcome, seed: u64) {
    assert_eq!(outcome.broken, Vec::<String>::new(), "seed {seed}");
    assert_eq!(outcome.ended, world.jobs.len(), "seed {seed}: some never ended");
}

#[test]
fn all_jobs_of_all_shards_end_and_the_same_world_gives_the_same_history() {
    for seed in SEEDS {
        let world = make_up_shards(seed, 20);
        let (sharded, one) = (simulate_shards(&world), simulate_one_engine(&world));
        check(&world, &sharded, seed);
        check(&world, &one, seed);
        assert!(sharded.refused_changes > 0, "seed {seed}: nobody was ever between read and write");
        assert_eq!(sharded.used, one.used + sharded.lost, "seed {seed}: what was evicted ran again");
        assert_eq!(sharded, simulate_shards(&world), "seed {seed}");
    }
}

#[test]
fn a_lost_shard_keeps_what_its_pods_hold_and_nobody_else_admits_there() {
    for seed in SEEDS {
        let mut world = make_up_shards(seed, 20);
        world.outages = vec![Outage { who: Component::Shard(0), from: 600, until: 1_500 }];
        let outcome = simulate_shards(&world);
        check(&world, &outcome, seed);
    }
}

#[test]
fn a_lost_allocator_stops_no_starts() {
    for seed in SEEDS {
        let mut world = make_up_shards(seed, 20);
        world.outages = vec![Outage { who: Component::Allocator, from: 900, until: 1_700 }];
        let outcome = simulate_shards(&world);
        check(&world, &outcome, seed);
        // The first shard is the busy one then, and holds most.
        assert!(outcome.starts_without_allocator[0] > 10, "seed {seed}: {:?}", outcome.starts_without_allocator);
    }
}

#[test]
fn all_of_them_may_be_lost_at_any_time() {
    for seed in SEEDS {
        let (mut world, mut random) = (make_up_shards(seed, 20), Random::new(seed + 1_000));
        for _ in 0..12 {
            let [from, last] = [7_200, 900].map(|below| i64::try_from(random.below(below)).unwrap());
            let who = match usize::try_from(random.below(4)).unwrap() {
                3 => Component::Allocator,
                shard => Component::Shard(shard),
            };
            world.outages.push(Outage { who, from, until: from + 1 + last });
        }
        let outcome = simulate_shards(&world);
        check(&world, &outcome, seed);
    }
}
