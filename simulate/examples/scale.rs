//! What one engine takes: gangs of 1 to 64 GPUs at 90 % load on more and more queues and clusters (`docs/scale.md`).
//!
//! `cargo run --profile bench -p caldera-simulate --example scale`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a study fails by panicking")]

use std::{sync::Arc, time::Instant};

use caldera_core::{quantity::Quantity, queue::QueueSpec, resources::Resources};
use caldera_simulate::{
    policy::PolicyName,
    random::Random,
    report::Report,
    run::{Options, simulate},
    time::Millis,
    world::{Job, Shapes, World, cluster, gang, task},
};

/// Nodes of eight GPUs.
#[derive(Clone, Copy)]
struct Row {
    queues: u64,
    clusters: u32,
    nodes: u32,
    jobs: u64,
}

const ROWS: [Row; 6] = [
    Row { queues: 10, clusters: 8, nodes: 50, jobs: 20_000 },
    Row { queues: 1_000, clusters: 8, nodes: 50, jobs: 20_000 },
    Row { queues: 10, clusters: 80, nodes: 50, jobs: 20_000 },
    Row { queues: 1_000, clusters: 80, nodes: 50, jobs: 20_000 },
    Row { queues: 10, clusters: 400, nodes: 50, jobs: 20_000 },
    Row { queues: 10, clusters: 8, nodes: 2_500, jobs: 20_000 },
];

fn main() {
    println!(
        "| queues | clusters | nodes | jobs | most at once | wait p50 / p99 | ms a job |\n|---|---|---|---|---|---|---|"
    );
    for row in ROWS {
        let world = row.world();
        let began = Instant::now();
        let outcome = simulate(&world, PolicyName::Caldera.start(&world).as_mut(), &Options::default());
        let each = began.elapsed().as_secs_f64() * 1e3 / row.jobs as f64;
        let report = Report::new("caldera", &world, &outcome, 4);
        let Row { queues, clusters, nodes, jobs } = row;
        let waits = report.wait_seconds;
        let most = outcome.samples.iter().map(|sample| sample.running).max().unwrap_or(0);
        println!(
            "| {queues} | {clusters} | {} | {jobs} | {most} | {} / {} | {each:.2} |",
            clusters * nodes,
            waits.p50,
            waits.p99
        );
    }
}

impl Row {
    fn world(self) -> World {
        let node: Resources =
            [("cpu", 96), ("nvidia.com/gpu", 8)].map(|(n, a)| (n, Quantity::from_units(a))).into_iter().collect();
        let clusters =
            (1..=self.clusters).map(|i| cluster(&format!("member{i:04}"), &[(self.nodes, node.clone())])).collect();
        let (mut random, mut shapes) = (Random::new(1), Shapes::default());
        let one: Resources =
            [("cpu", 8), ("nvidia.com/gpu", 1)].map(|(n, a)| (n, Quantity::from_units(a))).into_iter().collect();
        let mut shape = |i| shapes.gang(gang(vec![task("worker", 1_u32 << i, 1_u32 << i, one.clone())]));
        let sizes: Vec<_> = (0..7).map(&mut shape).collect();
        let gpus = u64::from(self.clusters) * u64::from(self.nodes) * 8;
        // 2^0 to 2^6 pods, each half as often as the one before: 7 * 64 / 127 GPUs in the mean. In milliseconds as
        // billionths, for there are less than one between two arrivals.
        let run = 600_000_u64;
        let gap = run * 1_000_000 * 7 * 64 * 100 / (127 * gpus * 90);
        let mut at = 0_u64;
        let job = |i: u64| {
            at += random.exponential(Millis(gap)).0;
            let size = (random.below(127) + 1).ilog2() as usize;
            Job {
                name: format!("job-{i:06}").into(),
                queue: format!("queue-{:04}", random.below(self.queues)).into(),
                priority: 0,
                arrival: Millis(at / 1_000_000),
                run: random.exponential(Millis(run)),
                estimate: None,
                shape: Arc::clone(&sizes[6 - size]),
                running: None,
            }
        };
        let jobs: Vec<Job> = (0..self.jobs).map(job).collect();
        let queues = (0..self.queues).map(|i| QueueSpec::unlimited(format!("queue-{i:04}"))).collect();
        World::new(clusters, queues, jobs, Millis::ZERO).unwrap()
    }
}
