//! The queue engine with many waiting: what one freed quota costs, and what a release costs when all is drained.
//!
//! `cargo bench -p caldera-core --bench queue`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use caldera_core::{
    quantity::Quantity,
    queue::{Ask, Engine, Fit, FitClass, Fleet, Job, JobId, QueueSpec, TaskAsk},
    resources::Resources,
};
use divan::{Bencher, counter::ItemsCount};

fn main() {
    divan::main();
}

fn request(cpu: i64) -> Resources {
    let gib = 1 << 30;
    [("cpu", cpu), ("memory", 4 * gib * cpu), ("nvidia.com/gpu", 1), ("pods", 1)]
        .into_iter()
        .map(|(name, units)| (name, Quantity::from_units(units)))
        .collect()
}

/// `waiting` jobs in `queues` queues below ten parents, of a hundred kinds; `quota` cpus for each queue.
fn engine(queues: usize, waiting: usize, quota: i64, distinct: usize) -> (Engine, Vec<Arc<Ask>>) {
    let mut engine = Engine::default();
    let ready: Resources = request(1).iter().map(|(name, _)| (name.clone(), Quantity::from_units(1 << 50))).collect();
    engine.set_fleet(Fleet { ready, whole: None, ready_clusters: 3 });
    for parent in 0..10 {
        engine.set_queue(QueueSpec::unlimited(format!("parent{parent}")));
    }
    for i in 0..queues {
        let mut spec = QueueSpec::unlimited(format!("queue{i}"));
        spec.parent = Some(format!("parent{}", i % 10).into());
        spec.capability.set("cpu", Quantity::from_units(quota));
        spec.deserved.set("cpu", Quantity::from_units(quota));
        spec.priority = (i % 3) as i32;
        engine.set_queue(spec);
    }
    let asks: Vec<Arc<Ask>> = (0..distinct)
        .map(|i| {
            let request = request(1 + (i % 8) as i64);
            let pods = 1 + (i / 8) as u32;
            let task = TaskAsk { name: "worker".into(), request, min: pods, most: pods };
            Arc::new(Ask { tasks: vec![task], copies: 1, fit: FitClass(i as u64), run_for: None })
        })
        .collect();
    for i in 0..waiting {
        engine.wait(job(i, queues, &asks));
    }
    (engine, asks)
}

fn job(i: usize, queues: usize, asks: &[Arc<Ask>]) -> Job {
    Job {
        id: format!("{i:08}-0000-4000-8000-000000000000").into(),
        queue: format!("queue{}", i % queues).into(),
        priority: (i % 3) as i32,
        created: i as i64,
        deadline: None,
        ask: Arc::clone(&asks[(i / queues) % asks.len()]),
    }
}

/// B4, core share: a job of a full queue ends; the next one is released.
#[divan::bench(args = [(1, 10_000, 100), (30, 10_000, 100), (1_000, 10_000, 100), (1, 10_000, 10_000), (1_000, 100_000, 100)])]
fn quota_freed_to_release(bencher: Bencher<'_, '_>, (queues, waiting, distinct): (usize, usize, usize)) {
    let (mut engine, asks) = engine(queues, waiting, 1_000, distinct);
    for i in 0..queues {
        let held = [("cpu", Quantity::from_units(1_000))].into_iter().collect();
        engine.hold(&JobId::from(format!("runs{i}")), &format!("queue{i}").into(), &held);
    }
    assert!(engine.next(|_, _| Fit::Yes).is_none());
    let runs = JobId::from("runs0");
    let full: Resources = [("cpu", Quantity::from_units(1_000))].into_iter().collect();
    let less: Resources = [("cpu", Quantity::from_units(0))].into_iter().collect();
    bencher.bench_local(|| {
        engine.hold(&runs, &"queue0".into(), &less);
        let release = engine.next(|_, _| Fit::Yes).unwrap();
        // Back to where it was: measured too, which makes it about twice of what is meant.
        let i: usize = release.id.as_str()[..8].parse().unwrap();
        engine.wait(job(i, queues, &asks));
        engine.hold(&runs, &"queue0".into(), &full);
        assert!(engine.next(|_, _| Fit::Yes).is_none());
    });
}

/// B1: everything fits; nanoseconds per released job.
#[divan::bench(args = [(30, 3_000), (1_000, 10_000)])]
fn drain(bencher: Bencher<'_, '_>, (queues, waiting): (usize, usize)) {
    bencher
        .counter(ItemsCount::new(waiting))
        .with_inputs(|| engine(queues, waiting, 1 << 40, 100).0)
        .bench_local_values(|mut engine| {
            let mut released = 0;
            while engine.next(|_, _| Fit::Yes).is_some() {
                released += 1;
            }
            assert_eq!(released, waiting);
            engine
        });
}

/// A restart: everything that waits is told anew.
#[divan::bench(args = [10_000, 100_000])]
fn rebuild(bencher: Bencher<'_, '_>, waiting: usize) {
    bencher.counter(ItemsCount::new(waiting)).bench_local(|| engine(1_000, waiting, 1_000, 100));
}
