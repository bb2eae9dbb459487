//! The queue engine with many waiting: what a release costs when all is drained, what one freed quota costs, what a
//! change of the tree costs.
//!
//! `cargo bench -p caldera-core --bench queue`

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fmt, sync::Arc};

use caldera_core::{
    quantity::Quantity,
    queue::{Ask, Counted, Engine, Fit, FitClass, FleetResources, Job, JobId, OrderPolicy, QueueSpec, TaskAsk},
    resources::Resources,
    time::{EpochSeconds, SubmitTime},
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

/// What is measured on: `waiting` jobs in `queues` queues.
#[derive(Debug, Clone, Copy)]
struct Cell {
    queues: usize,
    waiting: usize,
    /// Kinds of jobs.
    kinds: usize,
    /// Cpus of each queue.
    quota: i64,
    order: Order,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// By priority and age.
    Strict,
    /// By share, with parts by weight; ten queues above the others.
    Weight,
    /// By share, with three resources deserved everywhere; ten queues above the others.
    Deserved,
    /// The same with a hundred queues in between.
    ThreeLevels,
}

/// `1000 queues, 10000 jobs, Weight`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} queues, {} jobs, {:?}", self.queues, self.waiting, self.order)
    }
}

impl Cell {
    const fn new(queues: usize, waiting: usize, order: Order) -> Self {
        Self { queues, waiting, kinds: 100, quota: 1 << 40, order }
    }

    fn parent(self, i: usize) -> QueueSpec {
        let mut spec = self.deserving(format!("parent{i}"), self.queues / 10);
        if self.order == Order::ThreeLevels && i >= 10 {
            spec.parent = Some(format!("parent{}", i % 10).into());
        }
        spec
    }

    fn queue(self, i: usize) -> QueueSpec {
        let mut spec = self.deserving(format!("queue{i}"), 1);
        let parent = if self.order == Order::ThreeLevels { 10 + i % 100 } else { i % 10 };
        spec.parent = Some(format!("parent{parent}").into());
        spec.capability.set("cpu", Quantity::from_units(self.quota));
        spec.priority = (i % 3) as i32;
        spec
    }

    fn deserving(self, name: String, queues: usize) -> QueueSpec {
        let mut spec = QueueSpec::unlimited(name);
        if matches!(self.order, Order::Deserved | Order::ThreeLevels) {
            for (resource, amount) in request(1_000).iter().filter(|(name, _)| name.as_str() != "pods") {
                spec.deserved.set(resource.clone(), amount.times(queues as u64));
            }
        }
        spec
    }

    fn asks(self) -> Vec<Arc<Ask>> {
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
        (0..self.kinds).map(ask).collect()
    }

    /// Settled, with everything in line.
    fn engine(self, asks: &[Arc<Ask>]) -> Engine {
        let mut engine = Engine::default();
        engine.set_order_policy(if self.order == Order::Strict { OrderPolicy::Strict } else { OrderPolicy::Share });
        engine.set_fleet(fleet(1 << 50));
        (0..if self.order == Order::ThreeLevels { 110 } else { 10 }).for_each(|i| engine.set_queue(self.parent(i)));
        (0..self.queues).for_each(|i| engine.set_queue(self.queue(i)));
        for i in 0..self.waiting {
            engine.enqueue_job(job(i, self.queues, asks));
        }
        engine.resolve_quota();
        engine
    }
}

fn fleet(units: i64) -> FleetResources {
    let ready = request(1).iter().map(|(name, _)| (name.clone(), Quantity::from_units(units))).collect();
    FleetResources { ready, whole: None, ready_clusters: 3 }
}

fn drain_all(engine: &mut Engine) -> usize {
    std::iter::from_fn(|| engine.release_next_by_fit(|_, _| Fit::Yes)).count()
}

fn job(i: usize, queues: usize, asks: &[Arc<Ask>]) -> Job {
    Job {
        id: format!("{i:08}-0000-4000-8000-000000000000").into(),
        queue: format!("queue{}", i % queues).into(),
        priority: (i % 3) as i32,
        created: (i as i64).into(),
        deadline: None,
        ask: Arc::clone(&asks[(i / queues) % asks.len()]),
    }
}

/// B4, core share: a job of a full queue ends; the next one is released.
#[divan::bench(args = [(1, 10_000, 100), (30, 10_000, 100), (1_000, 10_000, 100), (1, 10_000, 10_000), (1_000, 100_000, 100)])]
fn quota_freed_to_release(bencher: Bencher<'_, '_>, (queues, waiting, kinds): (usize, usize, usize)) {
    let cell = Cell { kinds, quota: 1_000, ..Cell::new(queues, waiting, Order::Deserved) };
    let asks = cell.asks();
    let mut engine = cell.engine(&asks);
    for i in 0..queues {
        let held = [("cpu", Quantity::from_units(1_000))].into_iter().collect();
        engine.charge_job(&JobId::from(format!("runs{i}")), &format!("queue{i}").into(), &held);
    }
    assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none());
    let runs = JobId::from("runs0");
    let full: Resources = [("cpu", Quantity::from_units(1_000))].into_iter().collect();
    let less: Resources = [("cpu", Quantity::from_units(0))].into_iter().collect();
    bencher.bench_local(|| {
        engine.charge_job(&runs, &"queue0".into(), &less);
        let release = engine.release_next_by_fit(|_, _| Fit::Yes).unwrap();
        // Back to where it was: measured too, which makes it about twice of what is meant.
        let i: usize = release.id.as_str()[..8].parse().unwrap();
        engine.enqueue_job(job(i, queues, &asks));
        engine.charge_job(&runs, &"queue0".into(), &full);
        assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none());
    });
}

/// The same where the fleet is what is full and every queue has jobs that have waited long: one ends, places are kept
/// for the first of each queue, and one starts.
#[divan::bench(args = [(30, 10_000), (1_000, 10_000), (1_000, 100_000)])]
fn fleet_freed_to_release_with_reservations(bencher: Bencher<'_, '_>, (queues, waiting): (usize, usize)) {
    let cell = Cell::new(queues, waiting, Order::Deserved);
    let asks = cell.asks();
    let mut engine = cell.engine(&asks);
    let mut full = fleet(1 << 50);
    full.ready.set("cpu", Quantity::from_units(1_000 * queues as i64));
    engine.set_fleet(full);
    for i in 0..queues {
        let held = [("cpu", Quantity::from_units(1_000))].into_iter().collect();
        engine.charge_job(&JobId::from(format!("runs{i}")), &format!("queue{i}").into(), &held);
    }
    engine.set_now(EpochSeconds::new(waiting as i64 + 3_600));
    assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none());
    let runs = JobId::from("runs0");
    let full: Resources = [("cpu", Quantity::from_units(1_000))].into_iter().collect();
    let less: Resources = [("cpu", Quantity::from_units(990))].into_iter().collect();
    bencher.bench_local(|| {
        engine.charge_job(&runs, &"queue0".into(), &less);
        let mut released = Vec::new();
        while let Some(release) = engine.release_next_by_fit(|_, _| Fit::Yes) {
            released.push(release.id);
        }
        assert!(!released.is_empty());
        // Back to where it was: measured too.
        engine.charge_job(&runs, &"queue0".into(), &full);
        for id in released {
            let i: usize = id.as_str()[..8].parse().unwrap();
            engine.enqueue_job(job(i, queues, &asks));
        }
        assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none());
    });
}

/// The same while a gang of 400 cpus that its queue deserves waits before all others: its place is kept from everybody.
/// So many come free as are given.
#[divan::bench(args = [(1_000, 100_000, 10), (1_000, 100_000, 400)])]
fn fleet_freed_while_capacity_is_reserved_from_all(
    bencher: Bencher<'_, '_>,
    (queues, waiting, freed): (usize, usize, i64),
) {
    let cell = Cell::new(queues, waiting, Order::Deserved);
    let asks = cell.asks();
    let mut engine = cell.engine(&asks);
    let mut full = fleet(1 << 50);
    full.ready.set("cpu", Quantity::from_units(1_000 * queues as i64));
    engine.set_fleet(full);
    let cpus = |cpus| -> Resources { [("cpu", Quantity::from_units(cpus))].into_iter().collect() };
    for i in 0..queues {
        let held = cpus(if i == 2 { 500 } else { 1_000 });
        engine.charge_job(&JobId::from(format!("runs{i}")), &format!("queue{i}").into(), &held);
    }
    let (runs, queue) = (JobId::from("borrows"), "queue9".into());
    engine.charge_job(&runs, &queue, &cpus(500));
    let task = TaskAsk { name: "worker".into(), request: cpus(4), min: 100, most: 100, step: 1 };
    let ask = Arc::new(Ask {
        tasks: vec![task],
        copies: 1,
        fit: FitClass(u64::MAX),
        run_for: None,
        counted: Counted::Job,
        card: None,
    });
    let gang = || Job {
        id: "gang".into(),
        // No other goes before it, and no other queue.
        queue: "queue2".into(),
        priority: 9,
        created: 0.into(),
        deadline: None,
        ask: Arc::clone(&ask),
    };
    engine.enqueue_job(gang());
    engine.set_now(EpochSeconds::new(waiting as i64 + 3_600));
    assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none());
    bencher.bench_local(|| {
        engine.charge_job(&runs, &queue, &cpus(500 - freed));
        let started = engine.release_next_by_fit(|_, _| Fit::Yes);
        assert_eq!(started.is_some(), freed == 400);
        // Back to where it was: measured too.
        engine.charge_job(&runs, &queue, &cpus(500));
        if started.is_some() {
            engine.enqueue_job(gang());
        }
        assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none());
    });
}

/// A thousand queues are full of a hundred thousand jobs that said how long they run, and each keeps a place for one
/// that waits; another, short one wants to pass it. When can each of the thousand start, after one job said otherwise?
#[divan::bench(args = [1_000, 10_000, 100_000])]
fn etas_of_a_thousand_reservations(bencher: Bencher<'_, '_>, running: usize) {
    let (mut engine, runs) = estimates(running);
    let mut end = 20_000;
    bencher.bench_local(|| {
        end += 1;
        engine.set_expected_end(&runs, Some(EpochSeconds::new(end)));
        assert!((0..1_000).all(|i| engine.reservation_of(&format!("waits{i}")).is_some_and(|kept| kept.start.is_ok())));
    });
}

/// The same: a job said otherwise, who may pass now?
#[divan::bench(args = [1_000, 10_000, 100_000])]
fn backfill_beside_a_thousand_reservations(bencher: Bencher<'_, '_>, running: usize) {
    let (mut engine, runs) = estimates(running);
    let mut end = 20_000;
    bencher.bench_local(|| {
        end += 1;
        engine.set_expected_end(&runs, Some(EpochSeconds::new(end)));
        assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none());
    });
}

fn estimates(running: usize) -> (Engine, String) {
    let mut engine = Engine::default();
    engine.set_fleet(fleet(1 << 50));
    let each = (running / 1_000) as i64;
    for i in 0..1_000 {
        let mut spec = QueueSpec::unlimited(format!("queue{i}"));
        spec.capability.set("cpu", Quantity::from_units(each + 1));
        engine.set_queue(spec);
    }
    for i in 0..running {
        let (id, queue) = (JobId::from(format!("runs{i}")), format!("queue{}", i % 1_000).into());
        engine.charge_job(&id, &queue, &request(1));
        engine.set_expected_end(id.as_str(), Some(EpochSeconds::new(10_000 + (i as i64 * 7_919) % 86_400)));
    }
    let ask = |cpu: i64, run_for| {
        let task = TaskAsk { name: "worker".into(), request: request(cpu), min: 1, most: 1, step: 1 };
        Arc::new(Ask { tasks: vec![task], copies: 1, fit: FitClass(0), run_for, counted: Counted::Job, card: None })
    };
    let (big, long) = (ask(each.min(4) + 1, None), ask(1, Some(1 << 40)));
    for i in 0..1_000 {
        let job = |id: String, ask: &Arc<Ask>, created| {
            let queue = format!("queue{i}").into();
            Job {
                id: id.into(),
                queue,
                priority: 0,
                created: SubmitTime::from(created),
                deadline: None,
                ask: Arc::clone(ask),
            }
        };
        engine.enqueue_job(job(format!("waits{i}"), &big, 0));
        engine.enqueue_job(job(format!("long{i}"), &long, 1));
    }
    engine.set_now(EpochSeconds::new(9_000));
    assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none());
    (engine, "runs0".to_owned())
}

/// B2: 10,000 jobs wait for GPUs, of which none is free (no room in any cluster, or none of their quota), ahead of
/// 1,000 in the same queue that ask for none: until all of these are released. Capacity is asked once for each kind
/// that can not start, and once for each job that does.
#[divan::bench(args = ["room", "quota"])]
fn gpus_are_full_ahead_of_a_thousand_that_need_none(bencher: Bencher<'_, '_>, full: &str) {
    const KINDS: u64 = 100;
    let ask = |kind: u64, gpus: i64| {
        let request: Resources = [("cpu", 1 + kind as i64 % 8), ("nvidia.com/gpu", gpus), ("pods", 1)]
            .into_iter()
            .filter(|(_, units)| *units > 0)
            .map(|(name, units)| (name, Quantity::from_units(units)))
            .collect();
        let task = TaskAsk { name: "worker".into(), request, min: 1, most: 1, step: 1 };
        Arc::new(Ask {
            tasks: vec![task],
            copies: 1,
            fit: FitClass(kind),
            run_for: None,
            counted: Counted::Job,
            card: None,
        })
    };
    let gpus: Vec<Arc<Ask>> = (0..KINDS).map(|kind| ask(kind, 1 + kind as i64 % 8)).collect();
    let none = ask(KINDS, 0);
    let waiting = || {
        let mut engine = Engine::default();
        engine.set_fleet(fleet(1 << 50));
        let mut spec = QueueSpec::unlimited("queue");
        if full == "quota" {
            spec.capability.set("nvidia.com/gpu", Quantity::from_units(8));
        }
        engine.set_queue(spec);
        let held = [("nvidia.com/gpu", Quantity::from_units(8))].into_iter().collect();
        engine.charge_job(&JobId::from("runs"), &"queue".into(), &held);
        for i in 0..11_000_usize {
            let ask = if i < 10_000 { &gpus[i % gpus.len()] } else { &none };
            let id = format!("{i:08}").into();
            engine.enqueue_job(Job {
                id,
                queue: "queue".into(),
                priority: 0,
                created: (i as i64).into(),
                deadline: None,
                ask: Arc::clone(ask),
            });
        }
        engine
    };
    bencher.with_inputs(waiting).bench_local_values(|mut engine| {
        let (mut asked, mut released) = (0, 0);
        let mut fit = |_: &JobId, ask: &Ask| {
            asked += 1;
            if ask.fit == FitClass(KINDS) {
                Fit::Yes
            } else {
                Fit::No { never: false, detail: "GPUs are in use".into() }
            }
        };
        while engine.release_next_by_fit(&mut fit).is_some() {
            released += 1;
        }
        assert_eq!(released, 1_000);
        assert!(asked <= 1_000 + KINDS, "asked {asked} times");
        engine
    });
}

/// B1: everything fits; nanoseconds per released job.
#[divan::bench(args = [
    Cell::new(30, 3_000, Order::Strict),
    Cell::new(30, 3_000, Order::Weight),
    Cell::new(30, 3_000, Order::Deserved),
    Cell::new(30, 3_000, Order::ThreeLevels),
    Cell::new(1_000, 10_000, Order::Strict),
    Cell::new(1_000, 10_000, Order::Weight),
    Cell::new(1_000, 10_000, Order::Deserved),
    Cell::new(1_000, 10_000, Order::ThreeLevels),
])]
fn drain(bencher: Bencher<'_, '_>, cell: Cell) {
    let asks = cell.asks();
    bencher.counter(ItemsCount::new(cell.waiting)).with_inputs(|| cell.engine(&asks)).bench_local_values(
        |mut engine| {
            assert_eq!(drain_all(&mut engine), cell.waiting);
            engine
        },
    );
}

/// B1: one cycle over a thousand queues that each start one job.
#[divan::bench(args = [Order::Strict, Order::Weight, Order::Deserved, Order::ThreeLevels])]
fn cycle_of_a_thousand_queues(bencher: Bencher<'_, '_>, order: Order) {
    let cell = Cell::new(1_000, 1_000, order);
    let asks = cell.asks();
    bencher.with_inputs(|| cell.engine(&asks)).bench_local_values(|mut engine| {
        assert_eq!(drain_all(&mut engine), 1_000);
        engine
    });
}

/// A cluster comes or goes while all quota is used: the tree is worked out anew, ten jobs in each of a thousand queues
/// are looked at again, none starts.
#[divan::bench(args = [Order::Strict, Order::Weight, Order::Deserved, Order::ThreeLevels])]
fn fleet_changes_under_a_thousand_full_queues(bencher: Bencher<'_, '_>, order: Order) {
    let cell = Cell { quota: 1_000, ..Cell::new(1_000, 10_000, order) };
    let mut engine = cell.engine(&cell.asks());
    for i in 0..cell.queues {
        let held = [("cpu", Quantity::from_units(1_000))].into_iter().collect();
        engine.charge_job(&JobId::from(format!("runs{i}")), &format!("queue{i}").into(), &held);
    }
    let mut units = 1 << 50;
    bencher.bench_local(|| {
        units += 1;
        engine.set_fleet(fleet(units));
        assert!(engine.release_next_by_fit(|_, _| Fit::Yes).is_none());
    });
}

/// A restart: everything that waits is told anew.
#[divan::bench(args = [10_000, 100_000])]
fn rebuild(bencher: Bencher<'_, '_>, waiting: usize) {
    let cell = Cell::new(1_000, waiting, Order::Deserved);
    let asks = cell.asks();
    bencher.counter(ItemsCount::new(waiting)).bench_local(|| cell.engine(&asks));
}
