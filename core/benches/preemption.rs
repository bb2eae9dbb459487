//! What one preemptor costs: a thousand queues below ten parents, ten thousand running jobs, `fits` for nothing.
//!
//! `cargo bench -p caldera-core --bench preemption`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    gang::QueueName,
    quantity::Quantity,
    queue::{
        JobId,
        preemption::{
            EvictionBudget, EvictionHistory, EvictionRate, FailedAttempts, PreemptionBounds, PreemptionInput,
            PreemptionPolicy, Preemptor, QueueAccount, RunningJob, Victim, plan_evictions,
        },
    },
    resources::Resources,
    time::EpochSeconds,
};
use divan::Bencher;

const QUEUES: usize = 1000;
const JOBS: usize = 10_000;

fn main() {
    divan::main();
}

fn request(gpus: i64) -> Resources {
    let gib = 1 << 30;
    [("cpu", 8 * gpus), ("memory", 64 * gib * gpus), ("nvidia.com/gpu", gpus), ("pods", gpus)]
        .into_iter()
        .map(|(name, units)| (name, Quantity::from_units(units)))
        .collect()
}

struct World {
    queues: BTreeMap<QueueName, QueueAccount>,
    running: Vec<RunningJob>,
    fleet: Resources,
    policy: PreemptionPolicy,
}

/// Every queue but one borrows half of what it uses, and the one deserves as much as all of them.
fn world() -> World {
    let mut queues = BTreeMap::new();
    let mut running = Vec::new();
    for i in 0..10 {
        let account = QueueAccount { reclaimable: true, ..QueueAccount::default() };
        queues.insert(QueueName::from(format!("parent{i}")), account);
    }
    for i in 0..QUEUES {
        let parent = format!("parent{}", i % 10);
        let deserved = if i == 0 { 40_000 } else { 10 };
        let account = QueueAccount {
            parent: Some(parent.as_str().into()),
            deserved: request(deserved).iter().map(|(name, amount)| (name.clone(), amount)).collect(),
            reclaimable: true,
            ..QueueAccount::default()
        };
        queues.insert(format!("queue{i}").into(), account);
    }
    for i in 0..JOBS {
        let queue = QueueName::from(format!("queue{}", 1 + i % (QUEUES - 1)));
        let charge = request(2);
        for name in [queue.clone(), queues[&queue].parent.clone().unwrap()] {
            queues.get_mut(&name).unwrap().used.add(&charge);
        }
        running.push(RunningJob {
            id: JobId::from(format!("{i:08}-0000-4000-8000-000000000000")),
            queue,
            namespace: "team".into(),
            name: format!("job{i}").into(),
            priority: (i % 3) as i32,
            preemptable: None,
            best_effort: false,
            ours: true,
            created: ((i * 37 % 5000) as i64).into(),
            started: Some(EpochSeconds::new((i * 37 % 5000) as i64)),
            checkpoint_interval: None,
            charge,
            elastic: None,
            evictions: EvictionHistory::default(),
            progressed: false,
        });
    }
    let bounds = PreemptionBounds {
        rate: EvictionRate { evictions: 100_000, seconds: 1 },
        victims: 100_000,
        ..PreemptionBounds::default()
    };
    let policy = PreemptionPolicy { bounds, ..PreemptionPolicy::default() };
    World { queues, running, fleet: request(20_000), policy }
}

/// Takes so many jobs' worth.
#[divan::bench(args = [1, 32, 1000])]
fn preemptor(bencher: Bencher<'_, '_>, victims: i64) {
    let World { queues, running, fleet, policy } = world();
    let budget = EvictionBudget::start_full(policy.bounds.rate, EpochSeconds::new(5000));
    let preemptor = Preemptor {
        id: "preemptor".into(),
        queue: "queue0".into(),
        priority: 0,
        best_effort: false,
        never_preempts: false,
        asks: request(2 * victims),
        lacks: BTreeSet::new(),
        attempts: FailedAttempts::default(),
    };
    let input = PreemptionInput {
        queues: &queues,
        running: &running,
        fleet: &fleet,
        policy: &policy,
        budget: &budget,
        now: EpochSeconds::new(5000),
    };
    let fits = |gone: &[&Victim]| gone.len() as i64 >= victims;
    bencher.bench(|| plan_evictions(&input, &preemptor, fits).unwrap().victims.len());
}

/// Nobody may be taken: what it costs to say so.
#[divan::bench]
fn nobody(bencher: Bencher<'_, '_>) {
    let World { queues, running, fleet, policy } = world();
    let budget = EvictionBudget::start_full(policy.bounds.rate, EpochSeconds::new(5000));
    let preemptor = Preemptor {
        id: "preemptor".into(),
        queue: "queue1".into(),
        priority: 0,
        best_effort: false,
        never_preempts: false,
        asks: request(2),
        lacks: BTreeSet::new(),
        attempts: FailedAttempts::default(),
    };
    let input = PreemptionInput {
        queues: &queues,
        running: &running,
        fleet: &fleet,
        policy: &policy,
        budget: &budget,
        now: EpochSeconds::new(5000),
    };
    bencher.bench(|| plan_evictions(&input, &preemptor, |_| false).unwrap_err());
}
