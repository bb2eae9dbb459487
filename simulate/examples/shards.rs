//! What shards cost: three of them with leased slices of one fleet beside one engine that has it all, and with a shard
//! or the allocator lost for a quarter of an hour. Means of ten made-up worlds each.
//!
//! `cargo run --profile bench -p caldera-simulate --example shards`

use caldera_simulate::shards::{
    Component, Outage, ShardedOutcome, ShardedWorld, make_up_shards, simulate_one_engine, simulate_shards,
};

const WORLDS: u64 = 10;

/// A name, and how a world is simulated.
type Way = (&'static str, fn(ShardedWorld) -> ShardedOutcome);

const WAYS: [Way; 4] = [
    ("one engine", |world| simulate_one_engine(&world)),
    ("three shards", |world| simulate_shards(&world)),
    ("a shard is lost for 15 min", |world| simulate_lost(world, Component::Shard(0))),
    ("the allocator is lost for 15 min", |world| simulate_lost(world, Component::Allocator)),
];

fn simulate_lost(world: ShardedWorld, who: Component) -> ShardedOutcome {
    simulate_shards(&ShardedWorld { outages: vec![Outage { who, from: 900, until: 1_800 }], ..world })
}

fn main() {
    println!(
        "| largest gang | who decides | all ended after s | waited p50, p99 s | idle while waited for | evicted | broken |"
    );
    println!("|---|---|---|---|---|---|---|");
    for largest in [5, 20, 40] {
        for (name, simulate) in WAYS {
            let outcomes: Vec<ShardedOutcome> =
                (0..WORLDS).map(|seed| simulate(make_up_shards(seed, largest))).collect();
            print_row(largest, name, &outcomes);
        }
    }
}

fn print_row(largest: u32, name: &str, outcomes: &[ShardedOutcome]) {
    let sum = |of: fn(&ShardedOutcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let mut waits: Vec<i64> = outcomes.iter().flat_map(|outcome| outcome.waits.iter().flatten().copied()).collect();
    waits.sort_unstable();
    let percentile = |percent: usize| waits.get(waits.len() * percent / 100).copied().unwrap_or(0);
    let (used, idle) = (sum(|outcome| outcome.used), sum(|outcome| outcome.idle_while_waited_for));
    println!(
        "| {largest} pods, {} cpus | {name} | {} | {}, {} | {:.1} % | {:.1} | {} |",
        largest * 8,
        sum(|outcome| u64::try_from(outcome.makespan).unwrap_or(0)) / WORLDS,
        percentile(50),
        percentile(99),
        idle as f64 * 100.0 / (used + idle) as f64,
        sum(|outcome| outcome.evicted as u64) as f64 / WORLDS as f64,
        sum(|outcome| outcome.broken.len() as u64),
    );
}
