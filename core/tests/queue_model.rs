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
    queue::{
        Ask, Counted, Dequeue, Engine, Fit, FitClass, FleetResources, Job, JobId, OrderPolicy, PriorityAging,
        QueueSpec, QueueState, RunningLimits, TaskAsk, TenantOrder,
    },
    resources::Resources,
    tenant::Tenant,
};
use proptest::prelude::*;

/// The last is of one card model: no cluster has it by this name, and queues have ceilings of it alone.
const NAMES: [&str; 3] = ["cpu", "gpu", "gpu:a"];
/// More than anybody asks for.
const ANY: i128 = 1 << 100;
const POLICIES: [OrderPolicy; 4] =
    [OrderPolicy::Share, OrderPolicy::FairHistory, OrderPolicy::Strict, OrderPolicy::Fifo];
const HALF_LIFE: i64 = 10;
const QUEUES: usize = 6;
const JOBS: usize = 14;

fn amounts(cpu: i64, gpu: i64) -> Resources {
    NAMES.into_iter().zip([cpu, gpu].map(Quantity::from_units)).collect()
}

fn of_fleet(fleet: &Resources, resource: &str) -> i128 {
    if resource == "gpu:a" { ANY } else { fleet.get(resource).as_nano() }
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
    /// Whether it names the card model.
    named: bool,
    min: u32,
    more: u32,
    class: u64,
    namespace: u8,
}

#[derive(Debug, Clone)]
enum Event {
    Policy(OrderPolicy),
    Queue(Box<QueueSpec>),
    NoQueue(usize),
    Fleet([i64; 2], Option<[i64; 2]>),
    Wait(usize, Wait),
    Shrink(usize),
    Forget(usize),
    Room(u64),
    /// So many half-lives pass.
    Time(u32),
    Decide,
}

/// What `2/20s` is: after how long, and by how much.
const AGING: [(i64, i32); 2] = [(10, 1), (20, 1)];

fn queue_spec() -> impl Strategy<Value = QueueSpec> {
    let limit = || prop::option::weighted(0.6, -1i64..12);
    let deserved = || prop::option::weighted(0.3, -1i64..12);
    let running = || prop::option::weighted(0.2, 0u32..4);
    let guarantee = || prop_oneof![3 => Just(0i64), 3 => -1i64..5, 1 => 5i64..30];
    (
        (0..QUEUES, prop::option::weighted(0.5, 0..QUEUES + 1)),
        (0i32..3, 0u32..4),
        [limit(), limit(), limit()],
        [deserved(), deserved()],
        [guarantee(), guarantee()],
        (prop::bool::weighted(0.2), prop::bool::weighted(0.1)),
        (running(), running(), running()),
        prop::option::weighted(0.3, prop::bool::weighted(0.7)),
        prop::option::weighted(
            0.4,
            prop::sample::select(vec![TenantOrder::None, TenantOrder::Namespaces, TenantOrder::Users]),
        ),
    )
        .prop_map(
            |(
                (name, parent),
                (priority, weight),
                capability,
                deserved,
                guarantee,
                (fifo, closed),
                running,
                aging,
                tenant_order,
            )| {
                let limits = |amounts: &[Option<i64>]| {
                    NAMES
                        .into_iter()
                        .zip(amounts)
                        .filter_map(|(n, l)| Some((n.into(), Quantity::from_units((*l)?))))
                        .collect()
                };
                QueueSpec {
                    parent: parent.map(queue_name),
                    priority,
                    weight,
                    capability: limits(&capability),
                    deserved: limits(&deserved),
                    guarantee: amounts(guarantee[0], guarantee[1]),
                    running: RunningLimits { all: running.0, of_namespace: running.1, of_user: running.2 },
                    aging: aging.map(|ages| PriorityAging::parse(if ages { "2/20s" } else { "none" }).unwrap()),
                    tenant_order,
                    dequeue: if fifo { Dequeue::Fifo } else { Dequeue::Traverse },
                    state: if closed { QueueState::Closed } else { QueueState::Open },
                    ..QueueSpec::unlimited(queue_name(name))
                }
            },
        )
}

fn wait() -> impl Strategy<Value = Wait> {
    let place = (0..QUEUES, 0i32..3, 0i64..4, prop::option::weighted(0.2, 0i64..4));
    (place, (0i64..5, 0i64..3, 0u32..3, 0u32..3, 0u64..3), 0u8..3, any::<bool>()).prop_map(
        |((queue, priority, created, deadline), (cpu, gpu, min, more, class), namespace, named)| Wait {
            namespace,
            named,
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
        3 => queue_spec().prop_map(|spec| Event::Queue(Box::new(spec))),
        1 => (0..QUEUES).prop_map(Event::NoQueue),
        1 => ([4i64..40, 4i64..40], prop::option::of([0i64..9, 0i64..9]))
            .prop_map(|(ready, away)| Event::Fleet(ready, away)),
        8 => (0..JOBS, wait()).prop_map(|(job, wait)| Event::Wait(job, wait)),
        2 => (0..JOBS).prop_map(Event::Shrink),
        2 => (0..JOBS).prop_map(Event::Forget),
        1 => (0u64..3).prop_map(Event::Room),
        1 => prop::sample::select(&POLICIES[..]).prop_map(Event::Policy),
        1 => (1u32..4).prop_map(Event::Time),
        4 => Just(Event::Decide),
    ]
}

/// Billionths.
#[derive(Debug, Clone, Copy)]
struct Has {
    real: i128,
    kept: i128,
    deserved: Option<i128>,
}

/// What each of `(weight, least, most)` gets of `whole`, by trying levels.
fn fill(whole: i128, claims: &[(i128, i128, i128)]) -> Vec<i128> {
    let at = |level: i128| claims.iter().map(move |(weight, least, most)| (level * weight).clamp(*least, *most));
    let (mut low, mut high) = (0, 1i128 << 80);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if at(middle).sum::<i128>() <= whole { low = middle } else { high = middle }
    }
    let mut rest = (whole - at(low).sum::<i128>()).max(0);
    let parts = at(low).zip(at(low + 1)).map(|(part, next)| {
        let more = rest.min(next - part);
        rest -= more;
        part + more
    });
    parts.collect()
}

/// Compared by cross products, which are small here.
#[derive(Debug, Clone, Copy)]
struct Fraction(i128, i128);

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self.1, other.1) {
            (0, 0) => std::cmp::Ordering::Equal,
            _ => (self.0 * other.1).cmp(&(other.0 * self.1)),
        }
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Fraction {}

#[derive(Debug, Clone, Default)]
struct Model {
    policy: OrderPolicy,
    queues: BTreeMap<QueueName, QueueSpec>,
    fleet: FleetResources,
    /// What was above each queue when it had a sound descent last.
    last: BTreeMap<QueueName, Vec<QueueName>>,
    /// Of every queue in the tree and every resource.
    has: BTreeMap<(QueueName, &'static str), Has>,
    waiting: BTreeMap<JobId, Job>,
    held: BTreeMap<JobId, (QueueName, Resources, Counted)>,
    /// How many more jobs of a class find room.
    room: BTreeMap<u64, u32>,
    now: i64,
    /// What each queue used lately, in billionths, and whether anybody counted before `now`.
    mean: BTreeMap<(QueueName, &'static str), i128>,
    counts: bool,
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

    /// Where its jobs are charged: while it has no descent, where it was, as far as that is still there.
    fn charged_path(&self, name: &QueueName) -> Vec<QueueName> {
        let (path, sound) = self.path(name);
        let Some(last) = self.last.get(name).filter(|_| !sound) else { return path };
        let mut path = vec![name.clone()];
        for above in last.iter().filter(|above| self.queues.contains_key(*above)) {
            match self.path(above) {
                (rest, true) => {
                    path.extend(rest);
                    break;
                }
                _ => path.push(above.clone()),
            }
        }
        path
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
        let below = |holder: &QueueName| queue.is_none_or(|queue| self.charged_path(holder).contains(queue));
        let held = self.held.values().filter(|(holder, ..)| below(holder));
        held.fold(Quantity::ZERO, |sum, (_, charge, _)| sum.saturating_add(charge.get(resource)))
    }

    fn capability(spec: &QueueSpec, resource: &str) -> Option<i128> {
        let limit = spec.capability.get(resource)?;
        (resource != "cpu" || limit > Quantity::ZERO).then(|| limit.as_nano().max(0))
    }

    /// The most that a queue could have if no cluster were away; `None` while nobody knows.
    fn most(&self, queue: Option<&QueueName>, resource: &str) -> Option<i128> {
        let path = queue.map(|queue| self.path(queue).0).unwrap_or_default();
        let whole = self.fleet.whole.as_ref().map(|whole| of_fleet(whole, resource));
        path.iter().filter_map(|queue| Self::capability(&self.queues[queue], resource)).chain(whole).min()
    }

    fn asked_guarantee(&self, spec: &QueueSpec, resource: &str) -> i128 {
        let own = spec.guarantee.get(resource).as_nano().max(0);
        let sum = self.children(Some(&spec.name)).iter().map(|child| self.asked_guarantee(child, resource)).sum();
        let guarantee = own.max(sum).min(Self::capability(spec, resource).unwrap_or(i128::MAX));
        let never = self.most(self.path(&spec.name).0.get(1), resource).is_some_and(|most| guarantee > most);
        if never { 0 } else { guarantee }
    }

    fn asked_deserved(&self, spec: &QueueSpec, resource: &str) -> Option<i128> {
        if spec.deserved.is_unlimited() {
            let below = self.children(Some(&spec.name));
            return below.iter().filter_map(|child| self.asked_deserved(child, resource)).reduce(|a, b| a + b);
        }
        spec.deserved.get(resource).map(|amount| amount.as_nano().max(0))
    }

    fn work_out(&mut self) {
        self.has.clear();
        for name in self.queues.keys().cloned().collect::<Vec<_>>() {
            if let (path, true) = self.path(&name) {
                self.last.insert(name, path[1..].to_vec());
            }
        }
        for resource in NAMES {
            let fleet = of_fleet(&self.fleet.ready, resource);
            let deserved = if fleet == ANY { 0 } else { fleet };
            self.divide(None, resource, fleet, deserved);
        }
    }

    /// Divides among the children of a queue what it can have, and what it deserves.
    fn divide(&mut self, parent: Option<&QueueName>, resource: &'static str, real: i128, have: i128) {
        let children: Vec<QueueSpec> = self.children(parent).into_iter().cloned().collect();
        let asked: Vec<i128> = children.iter().map(|child| self.asked_guarantee(child, resource)).collect();
        let kept = if asked.iter().sum::<i128>() > real {
            fill(real, &asked.iter().map(|asked| (1, 0, *asked)).collect::<Vec<_>>())
        } else {
            asked
        };
        let free = real - kept.iter().sum::<i128>();
        let reals: Vec<i128> = (children.iter().zip(&kept))
            .map(|(child, kept)| (free + kept).min(Self::capability(child, resource).unwrap_or(i128::MAX)))
            .collect();
        let said: Vec<Option<i128>> = children.iter().map(|child| self.asked_deserved(child, resource)).collect();
        let mut parts: Vec<i128> =
            (0..children.len()).map(|i| said[i].unwrap_or(0).min(reals[i]).max(kept[i])).collect();
        if parent.is_some() && parts.iter().sum::<i128>() > have {
            parts = fill(have, &(0..children.len()).map(|i| (1, kept[i], parts[i])).collect::<Vec<_>>());
        }
        let (free, fixed): (Vec<usize>, Vec<usize>) =
            (0..children.len()).partition(|i| children[*i].deserved.is_unlimited());
        let rest = (have - fixed.iter().map(|i| parts[*i]).sum::<i128>()).max(0);
        let claims: Vec<_> =
            free.iter().map(|i| (i128::from(children[*i].weight.max(1)), parts[*i], reals[*i])).collect();
        for (i, part) in free.iter().zip(fill(rest, &claims)) {
            parts[*i] = part;
        }
        for (i, child) in children.iter().enumerate() {
            let deserved = Some(parts[i]).filter(|part| *part > 0 || said[i].is_some());
            self.has.insert((child.name.clone(), resource), Has { real: reals[i], kept: kept[i], deserved });
            self.divide(Some(&child.name), resource, reals[i], deserved.unwrap_or(0));
        }
    }

    /// The smallest ceiling of a queue and everything above.
    fn ceiling(&self, path: &[QueueName], resource: &'static str) -> i128 {
        let fleet = of_fleet(&self.fleet.ready, resource);
        let Some(queue) = path.first() else { return fleet };
        let outside = || self.queues.get(queue).and_then(|spec| Self::capability(spec, resource)).unwrap_or(fleet);
        self.has.get(&(queue.clone(), resource)).map_or_else(outside, |has| has.real).min(fleet)
    }

    /// The most that a queue could have if nothing ran and no cluster were away; `None` while nobody knows.
    fn reach(&self, queue: Option<&QueueName>, resource: &str) -> Option<i128> {
        let Some(queue) = queue else { return self.fleet.whole.as_ref().map(|whole| of_fleet(whole, resource)) };
        let parent = self.path(queue).0.get(1).cloned();
        let left = self.reach(parent.as_ref(), resource).map(|have| {
            let siblings = self.children(parent.as_ref());
            let asked: Vec<i128> = siblings.iter().map(|spec| self.asked_guarantee(spec, resource)).collect();
            let kept = match asked.iter().sum::<i128>() > have {
                true => fill(have, &asked.iter().map(|asked| (1, 0, *asked)).collect::<Vec<_>>()),
                false => asked,
            };
            let of_others = siblings.iter().zip(&kept).filter(|(spec, _)| spec.name != *queue);
            have - of_others.map(|(_, kept)| kept).sum::<i128>()
        });
        Self::capability(&self.queues[queue], resource).into_iter().chain(left).min()
    }

    fn is_never(&self, job: &Job) -> bool {
        let asked = job.ask.minimum();
        let more = |name: &str| self.reach(Some(&job.queue), name).is_some_and(|most| asked.get(name).as_nano() > most);
        NAMES.into_iter().any(|name| !asked.get(name).is_zero() && more(name))
    }

    fn fits(&self, queue: &QueueName, asked: &Resources) -> bool {
        let (path, _) = self.path(queue);
        NAMES.into_iter().filter(|name| !asked.get(name).is_zero()).all(|name| {
            (0..=path.len()).all(|from| {
                let used = self.used(path.get(from), name).saturating_add(asked.get(name));
                used.as_nano() <= self.ceiling(&path[from..], name)
            })
        })
    }

    /// Jobs that hold something in a queue or below it: all, or those of this tenant.
    fn running(&self, queue: &QueueName, of: Option<&Tenant>) -> u32 {
        let counts = |(holder, charge, counted): &&(QueueName, Resources, Counted)| {
            let holds = charge.iter().any(|(_, amount)| !amount.is_zero());
            holds && self.charged_path(holder).contains(queue) && of.is_none_or(|of| counted.tenants().contains(of))
        };
        u32::try_from(self.held.values().filter(counts).count()).unwrap()
    }

    fn may_run(&self, job: &Job) -> bool {
        self.path(&job.queue).0.iter().all(|queue| {
            let RunningLimits { all, of_namespace, of_user } = self.queues[queue].running;
            let [namespace, user] = job.ask.counted.tenants() else { panic!("{job:?}") };
            all.is_none_or(|most| self.running(queue, None) < most)
                && of_namespace.is_none_or(|most| self.running(queue, Some(namespace)) < most)
                && of_user.is_none_or(|most| self.running(queue, Some(user)) < most)
        })
    }

    fn mean_of(&self, queue: &QueueName, resource: &'static str) -> i128 {
        self.mean.get(&(queue.clone(), resource)).copied().unwrap_or(0)
    }

    /// So many half-lives pass in which everybody uses what they use now.
    fn pass_time(&mut self, half_lives: u32) {
        self.now += i64::from(half_lives) * HALF_LIFE;
        if self.policy != OrderPolicy::FairHistory {
            return;
        }
        for name in self.queues.keys().filter(|_| self.counts).cloned().collect::<Vec<_>>() {
            for resource in NAMES {
                let used = self.used(Some(&name), resource).as_nano();
                let more = self.mean_of(&name, resource) - used;
                self.mean.insert((name.clone(), resource), used + more.div_euclid(1 << half_lives));
            }
        }
        self.counts = true;
    }

    fn share(&self, queue: &QueueName) -> (i128, bool) {
        let of = |resource| {
            let deserved = self.has[&(queue.clone(), resource)].deserved.filter(|deserved| *deserved > 0)?;
            let used = match (self.policy, self.used(Some(queue), resource).as_nano()) {
                (OrderPolicy::FairHistory, used) => (used + self.mean_of(queue, resource)) / 2,
                (_, used) => used,
            };
            Some(used * 1_000_000_000 / deserved)
        };
        let share = NAMES.into_iter().filter_map(of).max();
        (share.unwrap_or(1_000_000_000), share.is_none())
    }

    /// From the top down; a leaf stands for whatever would be below it.
    fn shares(&self, leaf: &QueueName) -> Vec<(i128, bool)> {
        let (path, _) = self.path(leaf);
        let mut shares: Vec<_> = path.iter().rev().map(|queue| self.share(queue)).collect();
        shares.resize(QUEUES, self.share(leaf));
        shares
    }

    /// What of a job's place its queue's line is ordered by.
    fn place(&self, job: &Job) -> (Reverse<i32>, Fraction, i64, i64, JobId) {
        let (path, _) = self.path(&job.queue);
        let aging = path.iter().find_map(|queue| self.queues.get(queue)?.aging);
        let waited = self.now - job.created.as_second();
        let aged = aging.map_or(0, |_| AGING.iter().filter(|(after, _)| *after <= waited).map(|(_, by)| by).sum());
        let aged = if aging == Some(PriorityAging::default()) { 0 } else { aged };
        let (priority, deadline) = match self.policy {
            OrderPolicy::Fifo => (0, None),
            _ => (job.priority + aged, job.deadline),
        };
        let created = job.created.as_second();
        (Reverse(priority), self.tenant_share(job), deadline.unwrap_or(i64::MAX), created, job.id.clone())
    }

    /// What the tenant of a job has of its queue, where tenants take turns there.
    fn tenant_share(&self, job: &Job) -> Fraction {
        let (path, _) = self.path(&job.queue);
        let order = path.iter().find_map(|queue| self.queues.get(queue)?.tenant_order);
        let [namespace, user] = job.ask.counted.tenants() else { panic!("{job:?}") };
        let tenant = match order {
            Some(TenantOrder::Namespaces) => namespace,
            Some(TenantOrder::Users) => user,
            Some(TenantOrder::None) | None => return Fraction(0, 1),
        };
        if self.queues[&job.queue].dequeue == Dequeue::Fifo || self.policy == OrderPolicy::Fifo {
            return Fraction(0, 1);
        }
        let of = |resource| {
            let real = self.has.get(&(job.queue.clone(), resource)).map_or(ANY, |has| has.real);
            let held = self
                .held
                .values()
                .filter(|(queue, _, counted)| *queue == job.queue && counted.tenants().contains(tenant));
            let held: i128 = held.map(|(_, charge, _)| charge.get(resource).as_nano()).sum();
            (held > 0 && real < ANY).then_some(Fraction(held, real.max(0)))
        };
        NAMES.into_iter().filter_map(of).max().unwrap_or(Fraction(0, 1))
    }

    /// What of its queue's place comes before that.
    fn turn(&self, queue: &QueueName) -> (Reverse<i32>, Vec<(i128, bool)>) {
        let priority = Reverse(self.queues[queue].priority);
        match self.policy {
            OrderPolicy::Share | OrderPolicy::FairHistory => (priority, self.shares(queue)),
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
                    || self
                        .waiting
                        .values()
                        .filter(|o| o.queue == job.queue)
                        .all(|o| self.place(o) >= self.place(job) || self.is_never(o))
            })
            .collect();
        order.sort_by_key(|job| (self.turn(&job.queue), self.place(job)));
        let job = order
            .into_iter()
            .find(|job| {
                self.may_run(job)
                    && self.fits(&job.queue, &job.ask.minimum())
                    && self.room.get(&job.ask.fit.0).is_some_and(|r| *r > 0)
            })?
            .clone();
        let mut charged = job.ask.minimum();
        for task in &job.ask.tasks {
            for _ in 0..(task.most - task.min) / task.step {
                let mut more = charged.clone();
                more.add(&task.request.times(u64::from(task.step * job.ask.copies)));
                if self.fits(&job.queue, &more) {
                    charged = more;
                }
            }
        }
        *self.room.entry(job.ask.fit.0).or_default() -= 1;
        self.waiting.remove(&job.id);
        self.held.insert(job.id.clone(), (job.queue.clone(), charged.clone(), job.ask.counted.clone()));
        Some((job.id, charged))
    }

    fn over(&self) -> BTreeSet<(Option<QueueName>, &'static str)> {
        let mut over = BTreeSet::new();
        for name in self.queues.keys() {
            let (path, _) = self.path(name);
            for resource in NAMES {
                for from in 0..=path.len() {
                    let most = self.ceiling(&path[from..], resource);
                    if self.used(path.get(from), resource).as_nano() > most {
                        over.insert((path.get(from).cloned(), resource));
                    }
                }
            }
        }
        over
    }
}

fn job(id: usize, wait: &Wait) -> Job {
    let Wait { queue, priority, created, deadline, cpu, gpu, named, min, more, class, namespace } = wait;
    let step = 1 + u32::from(*class == 1);
    let mut request = amounts(*cpu, *gpu);
    if *named {
        request.set("gpu:a", Quantity::from_units(*gpu));
    }
    let task = TaskAsk { name: "t".into(), request, min: *min, most: min + more, step };
    let extra = TaskAsk { name: "u".into(), request: amounts(1, 0), min: 0, most: *more, step: 1 };
    // Two namespaces have a user in common.
    let tenants =
        [Tenant::Namespace(format!("ns{namespace}").into()), Tenant::User((namespace % 2).to_string().into())];
    let counted = Counted::JobOf(tenants.into());
    let copies = 1 + u32::from(*class == 2);
    let ask = Ask { tasks: vec![task, extra], copies, fit: FitClass(*class), run_for: None, counted, card: None };
    Job {
        id: format!("j{id:02}").into(),
        queue: queue_name(*queue),
        priority: *priority,
        created: (*created).into(),
        deadline: *deadline,
        ask: Arc::new(ask),
    }
}

fn new_engine() -> Engine {
    let mut engine = Engine::default();
    engine.set_history_half_life(HALF_LIFE);
    // Reservations have a model of their own.
    engine.set_reservation_after(None);
    engine
}

/// Applies an event to both; on `Decide`, drains both and compares.
fn step(engine: &mut Engine, model: &mut Model, event: &Event) -> Result<(), TestCaseError> {
    match event {
        Event::Queue(spec) => {
            engine.set_queue((**spec).clone());
            model.queues.insert(spec.name.clone(), (**spec).clone());
            model.work_out();
        }
        Event::NoQueue(i) => {
            engine.remove_queue(&queue_name(*i));
            model.queues.remove(&queue_name(*i));
            model.mean.retain(|(name, _), _| *name != queue_name(*i));
            model.work_out();
        }
        Event::Fleet(ready, away) => {
            let whole = away.map(|away| amounts(ready[0] + away[0], ready[1] + away[1]));
            model.fleet = FleetResources { ready: amounts(ready[0], ready[1]), whole, ready_clusters: 1 };
            model.work_out();
            engine.set_fleet(model.fleet.clone());
        }
        Event::Policy(policy) => {
            model.counts &= model.policy == *policy;
            model.policy = *policy;
            engine.set_order_policy(*policy);
        }
        Event::Wait(id, wait) => {
            let job = job(*id, wait);
            model.held.remove(&job.id);
            model.waiting.insert(job.id.clone(), job.clone());
            engine.enqueue_job(job);
        }
        Event::Shrink(id) => {
            let id = JobId::from(format!("j{id:02}"));
            if let Some((queue, charge, counted)) = model.held.get_mut(&id) {
                *charge = charge.iter().map(|(n, a)| (n.clone(), Quantity::from_nano(a.as_nano() / 2))).collect();
                engine.charge_job_with_ancestors(&id, queue, &[], charge, counted);
            }
        }
        Event::Forget(id) => {
            let id = JobId::from(format!("j{id:02}"));
            model.held.remove(&id);
            model.waiting.remove(&id);
            engine.remove_job(id.as_str());
        }
        Event::Room(class) => {
            *model.room.entry(*class).or_default() += 2;
            engine.requeue_after_capacity_change();
        }
        Event::Time(half_lives) => {
            model.pass_time(*half_lives);
            engine.set_now(model.now);
        }
        Event::Decide => loop {
            let before = model.over();
            let room = model.room.clone();
            let want = model.next();
            let got = engine.release_next_by_fit(|_, ask| {
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
    engine.resolve_quota();
    for name in model.queues.keys() {
        for resource in NAMES {
            prop_assert_eq!(
                engine.usage_of(name).used.get(resource),
                model.used(Some(name), resource),
                "{} of {}",
                resource,
                name
            );
            prop_assert_eq!(engine.usage_of(name).running, u64::from(model.running(name, None)));
            let Some(has) = model.has.get(&(name.clone(), resource)) else { continue };
            let entitled = engine.entitlement_of(name);
            let got = [&entitled.real, &entitled.guarantee, &entitled.deserved].map(|of| of.get(resource).as_nano());
            // Without a ceiling none is listed.
            let real = Some(has.real).filter(|real| *real < ANY).unwrap_or(0);
            prop_assert_eq!(got, [real, has.kept, has.deserved.unwrap_or(0)], "{} of {}", resource, name);
        }
    }
    for (name, mean) in engine.mean_used() {
        for resource in NAMES {
            let wanted = model.mean_of(&name, resource);
            let deserves = model.has.get(&(name.clone(), resource)).is_some_and(|has| has.deserved.is_some());
            let got = if deserves { mean.get(resource).as_nano() } else { wanted };
            prop_assert!(got <= wanted && wanted - got <= wanted / 1000, "{} {} of {}", got, wanted, resource);
        }
    }
    for id in model.waiting.keys() {
        prop_assert!(engine.explain_pending(id.as_str()).is_some());
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
    while let Some(release) = engine.release_next_by_fit(|_, ask| match room.get(&ask.fit.0) {
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
        let (mut engine, mut model) = (new_engine(), Model::default());
        let first = [Event::Fleet([30, 20], None), Event::Room(0), Event::Room(1), Event::Room(2)];
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
            let (mut engine, mut model) = (new_engine(), Model::default());
            let first = [Event::Fleet([30, 20], None), Event::Room(0), Event::Room(1)];
            for event in first.iter().chain(&events) {
                step(&mut engine, &mut model, event)?;
            }
            let releases = drain(&mut engine, &model);
            let reasons: Vec<_> = model.waiting.keys().map(|id| engine.explain_pending(id.as_str())).collect();
            outcomes.push((releases, reasons));
        }
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }
}
