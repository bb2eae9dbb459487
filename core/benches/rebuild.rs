//! What a restart costs: the engine is told of every binding anew. Time, and with it the memory that the engine then
//! has ("max alloc", of which the list itself is no part).
//!
//! `cargo bench -p caldera-core --bench rebuild`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fmt, sync::Arc};

use caldera_core::{
    quantity::Quantity,
    queue::{Ask, Counted, Engine, Fit, FitClass, FleetResources, Job, JobId, QueueSpec, TaskAsk},
    resources::Resources,
    time::EpochSeconds,
};
use divan::{AllocProfiler, Bencher, counter::ItemsCount};

#[global_allocator]
static MEMORY: AllocProfiler = AllocProfiler::system();

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

/// A binding as it is listed: its job, and what it is charged if it holds something.
type Binding = (Job, Option<Resources>);

/// What is listed.
#[derive(Debug, Clone, Copy)]
struct List {
    bindings: usize,
    queues: usize,
    /// Of a hundred bindings.
    holding: usize,
}

/// `100000 bindings, 1000 queues, 10 % hold`.
impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bindings, {} queues, {} % hold", self.bindings, self.queues, self.holding)
    }
}

/// Of a hundred kinds.
fn bindings(list: List) -> Vec<Binding> {
    let ask = |i: usize| {
        let pods = 1 + (i / 8) as u32;
        let task =
            TaskAsk { name: "worker".into(), request: request(1 + (i % 8) as i64), min: pods, most: pods, step: 1 };
        Arc::new(Ask {
            tasks: vec![task],
            copies: 1,
            fit: FitClass(i as u64),
            run_for: None,
            counted: Counted::Job,
            card: None,
        })
    };
    let asks: Vec<Arc<Ask>> = (0..100).map(ask).collect();
    let binding = |i: usize| {
        let ask = Arc::clone(&asks[(i / list.queues) % asks.len()]);
        let charge = (i % 100 < list.holding).then(|| ask.minimum());
        let job = Job {
            id: format!("{i:08}-0000-4000-8000-000000000000").into(),
            queue: format!("queue{}", i % list.queues).into(),
            priority: (i % 3) as i32,
            created: (i as i64).into(),
            deadline: None,
            ask,
        };
        (job, charge)
    };
    (0..list.bindings).map(binding).collect()
}

/// Nothing can start: the first decision looks at every queue and every kind, and keeps places in every queue.
fn rebuild(list: List, bindings: &[Binding]) -> Engine {
    let mut engine = Engine::default();
    let fleet = FleetResources { ready: Resources::new(), whole: None, ready_clusters: 3 };
    engine.set_fleet(fleet);
    for i in 0..list.queues {
        let mut spec = QueueSpec::unlimited(format!("queue{i}"));
        spec.deserved.set("cpu", Quantity::from_units(1_000));
        engine.set_queue(spec);
    }
    for (job, charge) in bindings {
        match charge {
            Some(charge) => engine.charge_job(&JobId::from(job.id.as_str()), &job.queue, charge),
            None => {
                engine.enqueue_job(Job { id: JobId::from(job.id.as_str()), ..job.clone() });
            }
        }
    }
    engine.set_now(EpochSeconds::new(list.bindings as i64 + 3_600));
    assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none());
    engine
}

#[divan::bench(args = [
    List { bindings: 100_000, queues: 1_000, holding: 0 },
    List { bindings: 100_000, queues: 1_000, holding: 10 },
    List { bindings: 100_000, queues: 1_000, holding: 50 },
    List { bindings: 100_000, queues: 1_000, holding: 100 },
    List { bindings: 1_000_000, queues: 10_000, holding: 10 },
], sample_count = 5, sample_size = 1)]
fn rebuild_from_a_list(bencher: Bencher<'_, '_>, list: List) {
    let all = bindings(list);
    bencher.counter(ItemsCount::new(list.bindings)).bench_local(|| rebuild(list, &all));
}
