//! The queue engine against a model that looks at everything anew after every event.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use caldera_core::{
    gang::QueueName,
    quantity::Quantity,
    queue::{Ask, Dequeue, Engine, Fit, FitClass, Fleet, Job, JobId, OrderPolicy, QueueSpec, QueueState, TaskAsk},
    resources::Resources,
};
use proptest::prelude::*;

const NAMES: [&str; 2] = ["cpu", "gpu"];
const QUEUES: usize = 6;
const JOBS: usize = 14;

fn amounts(cpu: i64, gpu: i64) -> Resources {
    NAMES.into_iter().zip([cpu, gpu].map(Quantity::from_units)).collect()
}

fn queue_name(i: usize) -> QueueName {
    format!("q{i}").into()
}

#[derive(Debug, Clone)]
struct Wait {
    queue: usize,
    priority: i32,
    created: i64,
    deadline: Option<i64>,
    cpu: i64,
    gpu: i64,
    min: u32,
    more: u32,
    class: u64,
}

#[derive(Debug, Clone)]
enum Event {
    Policy(OrderPolicy),
    Queue(QueueSpec),
    NoQueue(usize),
    Fleet(i64, i64),
    Wait(usize, Wait),
    Shrink(usize),
    Forget(usize),
    Room(u64),
    Decide,
}

fn queue_spec() -> impl Strategy<Value = QueueSpec> {
    let limit = || prop::option::weighted(0.6, 0i64..12);
    (
        0..QUEUES,
        prop::option::weighted(0.5, 0..QUEUES + 1),
        0i32..3,
        (limit(), limit()),
        (limit(), 0i64..4),
        (prop::bool::weighted(0.2), prop::bool::weighted(0.1)),
    )
        .prop_map(|(name, parent, priority, (cpu, gpu), (deserved, guarantee), (fifo, closed))| {
            let mut spec = QueueSpec::unlimited(queue_name(name));
            spec.parent = parent.map(queue_name);
            spec.priority = priority;
            spec.capability = NAMES
                .into_iter()
                .zip([cpu, gpu])
                .filter_map(|(n, l)| Some((n.into(), Quantity::from_units(l?))))
                .collect();
            spec.deserved = deserved.into_iter().map(|d| ("cpu".into(), Quantity::from_units(d))).collect();
            spec.guarantee = amounts(0, guarantee);
            spec.dequeue = if fifo { Dequeue::Fifo } else { Dequeue::Traverse };
            spec.state = if closed { QueueState::Closed } else { QueueState::Open };
            spec
        })
}

fn wait() -> impl Strategy<Value = Wait> {
    let place = (0..QUEUES, 0i32..3, 0i64..4, prop::option::weighted(0.2, 0i64..4));
    (place, (0i64..5, 0i64..3, 0u32..3, 0u32..3, 0u64..3)).prop_map(
        |((queue, priority, created, deadline), (cpu, gpu, min, more, class))| Wait {
            queue,
            priority,
            created,
            deadline,
            cpu,
            gpu,
            min,
            more,
            class,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => queue_spec().prop_map(Event::Queue),
        1 => (0..QUEUES).prop_map(Event::NoQueue),
        1 => (4i64..40, 4i64..40).prop_map(|(cpu, gpu)| Event::Fleet(cpu, gpu)),
        8 => (0..JOBS, wait()).prop_map(|(job, wait)| Event::Wait(job, wait)),
        2 => (0..JOBS).prop_map(Event::Shrink),
        2 => (0..JOBS).prop_map(Event::Forget),
        1 => (0u64..3).prop_map(Event::Room),
        1 => prop::sample::select(&[OrderPolicy::Share, OrderPolicy::Strict, OrderPolicy::Fifo][..])
            .prop_map(Event::Policy),
        4 => Just(Event::Decide),
    ]
}

#[derive(Debug, Clone, Default)]
struct Model {
    policy: OrderPolicy,
    queues: BTreeMap<QueueName, QueueSpec>,
    fleet: Resources,
    waiting: BTreeMap<JobId, Job>,
    held: BTreeMap<JobId, (QueueName, Resources)>,
    /// How many more jobs of a class find room.
    room: BTreeMap<u64, u32>,
}

impl Model {
    /// The queue itself first; the root is not in it. `None` if its descent is broken.
    fn path(&self, name: &QueueName) -> (Vec<QueueName>, bool) {
        let mut path = vec![name.clone()];
        let mut at = name.clone();
        loop {
            let Some(parent) = self.queues.get(&at).and_then(|spec| spec.parent.clone()) else {
                return (path, self.queues.contains_key(name));
            };
            if !self.queues.contains_key(&parent) {
                return (path, false);
            }
            if path.contains(&parent) {
                return (vec![name.clone()], false);
            }
            path.push(parent.clone());
            at = parent;
        }
    }

    fn in_circle(&self, name: &QueueName) -> bool {
        let (path, sound) = self.path(name);
        let parent = self.queues.get(path.last().unwrap()).and_then(|spec| spec.parent.clone());
        !sound && parent.is_some_and(|parent| self.queues.contains_key(&parent))
    }

    fn children(&self, parent: Option<&QueueName>) -> Vec<&QueueSpec> {
        let top = |spec: &QueueSpec| {
            let (path, _) = self.path(&spec.name);
            path.get(1).cloned()
        };
        self.queues.values().filter(|spec| !self.in_circle(&spec.name) && top(spec).as_ref() == parent).collect()
    }

    fn open(&self, name: &QueueName) -> bool {
        let (path, sound) = self.path(name);
        sound
            && path.iter().all(|queue| self.queues[queue].state == QueueState::Open)
            && self.children(Some(name)).is_empty()
    }

    fn used(&self, queue: Option<&QueueName>, resource: &str) -> Quantity {
        let below = |holder: &QueueName| queue.is_none_or(|queue| self.path(holder).0.contains(queue));
        let held = self.held.values().filter(|(holder, _)| below(holder));
        held.fold(Quantity::ZERO, |sum, (_, charge)| sum.saturating_add(charge.get(resource)))
    }

    fn guarantee(&self, spec: &QueueSpec, resource: &str) -> Quantity {
        let amount = spec.guarantee.get(resource);
        let limit = spec.capability.get(resource).filter(|limit| *limit > Quantity::ZERO);
        limit.map_or(amount, |limit| amount.min(limit))
    }

    /// The smallest ceiling of a queue and everything above; `None` without any.
    fn ceiling(&self, path: &[QueueName], resource: &str) -> Option<Quantity> {
        let Some((queue, above)) = path.split_first() else { return Some(self.fleet.get(resource)) };
        let parent = self.ceiling(above, resource);
        let Some(spec) = self.queues.get(queue) else { return parent };
        let own = spec.capability.get(resource).filter(|limit| resource != "cpu" || *limit > Quantity::ZERO);
        let siblings = self.children(above.first());
        let sum = siblings.iter().fold(Quantity::ZERO, |sum, s| sum.saturating_add(self.guarantee(s, resource)));
        let mine = if self.in_circle(queue) { Quantity::ZERO } else { self.guarantee(spec, resource) };
        let left = parent.map(|parent| {
            if sum == mine || self.in_circle(queue) { parent } else { parent.saturating_sub(sum).saturating_add(mine) }
        });
        [own, left, parent].into_iter().flatten().min()
    }

    fn fits(&self, queue: &QueueName, asked: &Resources) -> bool {
        let (path, _) = self.path(queue);
        asked.iter().all(|(name, asked)| {
            (0..=path.len()).all(|from| {
                let used = self.used(path.get(from), name.as_str());
                self.ceiling(&path[from..], name.as_str()).is_none_or(|most| used.saturating_add(asked) <= most)
            })
        })
    }

    fn share(&self, queue: &QueueName) -> (u128, bool) {
        match self.queues[queue].deserved.get("cpu") {
            None => (1_000_000_000, true),
            Some(deserved) => {
                let used = u128::try_from(self.used(Some(queue), "cpu").as_nano()).unwrap();
                let share = match (used, u128::try_from(deserved.as_nano()).unwrap()) {
                    (0, _) => 0,
                    (_, 0) => 1_000_000_000,
                    (used, deserved) => used * 1_000_000_000 / deserved,
                };
                (share, false)
            }
        }
    }

    /// From the top down; a leaf stands for whatever would be below it.
    fn shares(&self, leaf: &QueueName) -> Vec<(u128, bool)> {
        let (path, _) = self.path(leaf);
        let mut shares: Vec<_> = path.iter().rev().map(|queue| self.share(queue)).collect();
        shares.resize(QUEUES, self.share(leaf));
        shares
    }

    /// What of a job's place its queue's line is ordered by.
    fn place(&self, job: &Job) -> (Reverse<i32>, i64, i64, JobId) {
        let (priority, deadline) = match self.policy {
            OrderPolicy::Fifo => (0, None),
            _ => (job.priority, job.deadline),
        };
        (Reverse(priority), deadline.unwrap_or(i64::MAX), job.created, job.id.clone())
    }

    /// What of its queue's place comes before that.
    fn turn(&self, queue: &QueueName) -> (Reverse<i32>, Vec<(u128, bool)>) {
        let priority = Reverse(self.queues[queue].priority);
        match self.policy {
            OrderPolicy::Share => (priority, self.shares(queue)),
            OrderPolicy::Strict => (priority, Vec::new()),
            OrderPolicy::Fifo => (Reverse(0), Vec::new()),
        }
    }

    /// The first in order of all that may start, by looking at all.
    fn next(&mut self) -> Option<(JobId, Resources)> {
        let mut order: Vec<&Job> = self
            .waiting
            .values()
            .filter(|job| self.open(&job.queue))
            .filter(|job| {
                self.queues[&job.queue].dequeue == Dequeue::Traverse
                    || self.waiting.values().filter(|o| o.queue == job.queue).all(|o| self.place(o) >= self.place(job))
            })
            .collect();
        order.sort_by_key(|job| (self.turn(&job.queue), self.place(job)));
        let job = order
            .into_iter()
            .find(|job| {
                self.fits(&job.queue, &job.ask.minimum()) && self.room.get(&job.ask.fit.0).is_some_and(|r| *r > 0)
            })?
            .clone();
        let mut charged = job.ask.minimum();
        for task in &job.ask.tasks {
            for _ in task.min..task.most {
                let mut more = charged.clone();
                more.add(&task.request.times(u64::from(job.ask.copies)));
                if self.fits(&job.queue, &more) {
                    charged = more;
                }
            }
        }
        *self.room.entry(job.ask.fit.0).or_default() -= 1;
        self.waiting.remove(&job.id);
        self.held.insert(job.id.clone(), (job.queue.clone(), charged.clone()));
        Some((job.id, charged))
    }

    fn over(&self) -> BTreeSet<(Option<QueueName>, &'static str)> {
        let mut over = BTreeSet::new();
        for name in self.queues.keys() {
            let (path, _) = self.path(name);
            for resource in NAMES {
                for from in 0..=path.len() {
                    let most = self.ceiling(&path[from..], resource);
                    if most.is_some_and(|most| self.used(path.get(from), resource) > most) {
                        over.insert((path.get(from).cloned(), resource));
                    }
                }
            }
        }
        over
    }
}

fn job(id: usize, wait: &Wait) -> Job {
    let Wait { queue, priority, created, deadline, cpu, gpu, min, more, class } = wait;
    let task = TaskAsk { name: "t".into(), request: amounts(*cpu, *gpu), min: *min, most: min + more };
    let extra = TaskAsk { name: "u".into(), request: amounts(1, 0), min: 0, most: *more };
    let ask =
        Ask { tasks: vec![task, extra], copies: 1 + u32::from(*class == 2), fit: FitClass(*class), run_for: None };
    Job {
        id: format!("j{id:02}").into(),
        queue: queue_name(*queue),
        priority: *priority,
        created: *created,
        deadline: *deadline,
        ask: Arc::new(ask),
    }
}

/// Applies an event to both; on `Decide`, drains both and compares.
fn step(engine: &mut Engine, model: &mut Model, event: &Event) -> Result<(), TestCaseError> {
    match event {
        Event::Queue(spec) => {
            engine.set_queue(spec.clone());
            model.queues.insert(spec.name.clone(), spec.clone());
        }
        Event::NoQueue(i) => {
            engine.remove_queue(&queue_name(*i));
            model.queues.remove(&queue_name(*i));
        }
        Event::Fleet(cpu, gpu) => {
            model.fleet = amounts(*cpu, *gpu);
            engine.set_fleet(Fleet { ready: model.fleet.clone(), whole: None, ready_clusters: 1 });
        }
        Event::Policy(policy) => {
            model.policy = *policy;
            engine.set_policy(*policy);
        }
        Event::Wait(id, wait) => {
            let job = job(*id, wait);
            model.held.remove(&job.id);
            model.waiting.insert(job.id.clone(), job.clone());
            engine.wait(job);
        }
        Event::Shrink(id) => {
            let id = JobId::from(format!("j{id:02}"));
            if let Some((queue, charge)) = model.held.get_mut(&id) {
                *charge = charge.iter().map(|(n, a)| (n.clone(), Quantity::from_nano(a.as_nano() / 2))).collect();
                engine.hold(&id, queue, charge);
            }
        }
        Event::Forget(id) => {
            let id = JobId::from(format!("j{id:02}"));
            model.held.remove(&id);
            model.waiting.remove(&id);
            engine.forget(id.as_str());
        }
        Event::Room(class) => {
            *model.room.entry(*class).or_default() += 2;
            engine.room_grew();
        }
        Event::Decide => loop {
            let before = model.over();
            let room = model.room.clone();
            let want = model.next();
            let got = engine.next(|_, ask| {
                if room.get(&ask.fit.0).is_some_and(|room| *room > 0) {
                    Fit::Yes
                } else {
                    Fit::No { never: false, detail: String::new() }
                }
            });
            let got = got.map(|release| (release.id, release.admission.charged));
            prop_assert_eq!(&got, &want);
            prop_assert!(model.over().is_subset(&before), "a release broke a limit: {:?}", model.over());
            if got.is_none() {
                break;
            }
        },
    }
    engine.settle();
    for name in model.queues.keys() {
        for resource in NAMES {
            prop_assert_eq!(
                engine.usage(name).used.get(resource),
                model.used(Some(name), resource),
                "{} of {}",
                resource,
                name
            );
        }
    }
    for id in model.waiting.keys() {
        prop_assert!(engine.why(id.as_str()).is_some());
    }
    Ok(())
}

/// Facts that say something about different things may arrive in any order.
fn last_facts(events: &[Event]) -> Vec<Event> {
    let mut facts: BTreeMap<String, Event> = BTreeMap::new();
    for event in events {
        let key = match event {
            Event::Queue(spec) => format!("queue {}", spec.name),
            Event::Fleet(..) => "fleet".to_owned(),
            Event::Policy(_) => "policy".to_owned(),
            Event::Wait(job, _) => format!("job {job}"),
            Event::Room(class) => format!("room {class}"),
            _ => continue,
        };
        facts.insert(key, event.clone());
    }
    facts.into_values().collect()
}

fn drain(engine: &mut Engine, model: &Model) -> Vec<(JobId, Resources)> {
    let mut room = model.room.clone();
    let mut all = Vec::new();
    while let Some(release) = engine.next(|_, ask| match room.get(&ask.fit.0) {
        Some(1..) => Fit::Yes,
        _ => Fit::No { never: false, detail: String::new() },
    }) {
        let class = model.waiting[&release.id].ask.fit.0;
        *room.entry(class).or_default() -= 1;
        all.push((release.id, release.admission.charged));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_verdict_is_that_of_looking_at_everything_again(events in prop::collection::vec(event(), 1..60)) {
        let (mut engine, mut model) = (Engine::default(), Model::default());
        let first = [Event::Fleet(30, 20), Event::Room(0), Event::Room(1), Event::Room(2)];
        for event in first.iter().chain(&events).chain([&Event::Decide]) {
            step(&mut engine, &mut model, event)?;
        }
    }

    #[test]
    fn the_order_of_events_does_not_matter(
        (events, shuffled) in prop::collection::vec(event(), 1..60)
            .prop_map(|events| last_facts(&events))
            .prop_flat_map(|facts| (Just(facts.clone()), Just(facts).prop_shuffle()))
    ) {
        let mut outcomes = Vec::new();
        for events in [events, shuffled] {
            let (mut engine, mut model) = (Engine::default(), Model::default());
            let first = [Event::Fleet(30, 20), Event::Room(0), Event::Room(1)];
            for event in first.iter().chain(&events) {
                step(&mut engine, &mut model, event)?;
            }
            let releases = drain(&mut engine, &model);
            let reasons: Vec<_> = model.waiting.keys().map(|id| engine.why(id.as_str())).collect();
            outcomes.push((releases, reasons));
        }
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }
}
