//! Expected starts at submission beside the real ones, on the public traces.
//!
//! `cargo run --profile bench -p caldera-simulate --example back_test -- DIR [EVERY]`: every EVERY-th job is asked for
//! (40 without it).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a study fails by panicking")]

use std::{collections::BTreeSet, fs, path::Path, time::Instant};

use caldera_core::{
    gang::QueueName,
    quantity::Quantity,
    queue::QueueSpec,
    resources::{ResourceName, Resources},
};
use caldera_simulate::{
    back_test::{BackTest, back_test},
    read::{self, Estimates, TraceFormat, TraceOptions},
    time::Millis,
    world::{Shapes, World},
};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, rest @ ..] = args.as_slice() else { panic!("usage: back_test DIR [EVERY]") };
    let every = rest.first().map_or(40, |text| text.parse().unwrap());
    let read = |name: &str| fs::read_to_string(Path::new(dir).join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (nodes, openb) = (read("spot_nodes.csv"), read("openb_pods.csv"));
    println!("| users say | asked, of whom waited | wait p50 / p90 | error p50 / p90 | error of the mean p50 / p90 |");
    println!("|---|---|---|---|---|");
    let cases = [
        ("exactly how long", Estimates::Exact, 1),
        ("one to five times the truth", Estimates::Rough, 1),
        ("nothing; 1 h assumed", Estimates::AsGiven, 1),
        ("nothing; 10 min assumed", Estimates::AsGiven, 6),
    ];
    for (name, estimates, part) in cases {
        let began = Instant::now();
        let world = openb_world(&nodes, &openb, estimates);
        let found = back_test(&world, every, Millis::from_secs(3600 / part));
        print_row(name, &found);
        eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    }
}

/// As the study `openb`: arrivals a thousand times as fast, on every tenth node.
fn openb_world(nodes: &str, openb: &str, estimates: Estimates) -> World {
    let options = TraceOptions {
        format: TraceFormat::Openb,
        speed_milli: 1_000_000,
        estimates,
        seed: 1,
        ..TraceOptions::default()
    };
    let clusters = read::read_fleet(nodes, 8, 10).unwrap();
    let trace =
        read::read_trace(openb, &options, &read::list_offered_resources(&clusters), &mut Shapes::default()).unwrap();
    let names: BTreeSet<&QueueName> = trace.jobs.iter().map(|job| &job.queue).collect();
    let queues = names.into_iter().cloned().map(QueueSpec::unlimited).collect();
    let mut world = World::new(clusters, queues, trace.jobs, Millis::ZERO).unwrap();
    let total = world.total();
    let shares = [("ls", 60), ("be", 30), ("burstable", 6), ("guaranteed", 4)];
    world.queues = shares.iter().map(|(name, percent)| queue(name, *percent, &total)).collect();
    world
}

fn queue(name: &str, percent: i64, total: &Resources) -> QueueSpec {
    let mut queue = QueueSpec::unlimited(name);
    for resource in [ResourceName::CPU, "nvidia.com/gpu"] {
        let all = i64::try_from(total.get(resource).units_ceil()).unwrap();
        queue.deserved.set(resource, Quantity::from_units(all * percent / 100));
        queue.capability.set(resource, Quantity::from_units(all * percent * 3 / 200));
    }
    queue
}

fn print_row(name: &str, found: &BackTest) {
    let jobs = &found.checked;
    let pair = |values: Vec<u64>| format!("{} / {}", percentile(&values, 50), percentile(&values, 90));
    let waits = pair(jobs.iter().map(|job| job.wait.0).collect());
    let errors = jobs.iter().map(|job| job.expected.map_or(u64::MAX, |expected| expected.0.abs_diff(job.wait.0)));
    let guesses = jobs.iter().map(|job| job.guess.0.abs_diff(job.wait.0));
    let (asked, waited) = (found.at_once + jobs.len(), jobs.len());
    println!("| {name} | {asked}, {waited} | {waits} | {} | {} |", pair(errors.collect()), pair(guesses.collect()));
}

/// By nearest rank.
fn percentile(values: &[u64], percent: usize) -> Millis {
    let mut values = values.to_vec();
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).map_or(Millis::ZERO, |value| Millis(*value))
}
