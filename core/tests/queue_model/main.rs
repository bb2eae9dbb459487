//! The queue engine against a model that looks at everything anew after every event.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod model;

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{
    gang::QueueName,
    quantity::Quantity,
    queue::{
        Ask, Counted, Dequeue, Engine, Fit, FitClass, FleetResources, Job, JobId, OrderPolicy, PriorityAging,
        QueueSpec, QueueState, RunningLimits, TaskAsk, TenantOrder,
    },
    resources::Resources,
    tenant::Tenant,
    time::EpochSeconds,
};
use proptest::prelude::*;

use self::model::Model;

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
    Capacity(u64),
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
        1 => (0u64..3).prop_map(Event::Capacity),
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
        deadline: deadline.map(EpochSeconds::new),
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
            model.tenant_mean.retain(|(name, ..), _| *name != queue_name(*i));
            model.work_out();
        }
        Event::Fleet(ready, away) => {
            let whole = away.map(|away| amounts(ready[0] + away[0], ready[1] + away[1]));
            model.fleet = FleetResources { ready: amounts(ready[0], ready[1]), whole, ready_clusters: 1 };
            model.work_out();
            engine.set_fleet(model.fleet.clone());
        }
        Event::Policy(policy) => {
            model.change_policy(*policy);
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
        Event::Capacity(class) => {
            *model.capacity.entry(*class).or_default() += 2;
            engine.requeue_after_capacity_change();
        }
        Event::Time(half_lives) => {
            model.pass_time(*half_lives);
            engine.set_now(EpochSeconds::new(model.now));
        }
        Event::Decide => loop {
            let before = model.over();
            let capacity = model.capacity.clone();
            let want = model.next();
            let got = engine.release_next_by_fit(|_, ask| {
                if capacity.get(&ask.fit.0).is_some_and(|capacity| *capacity > 0) {
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
    let history = engine.fair_history(|_, _, _| true);
    for (name, mean) in history.queues {
        for resource in NAMES {
            let wanted = model.mean_of(&name, resource);
            let deserves = model.has.get(&(name.clone(), resource)).is_some_and(|has| has.deserved.is_some());
            let got = if deserves { mean.get(resource).as_nano() } else { wanted };
            prop_assert!(is_rounded(got, wanted), "{} {} of {}", got, wanted, resource);
        }
    }
    let wanted = model.list_tenant_means();
    let got =
        history.tenants.iter().flat_map(|(queue, means)| means.iter().map(move |(tenant, mean)| (queue, tenant, mean)));
    let got: BTreeMap<_, _> = got
        .flat_map(|(queue, tenant, mean)| {
            mean.iter().map(move |(name, mean)| ((queue.clone(), tenant.clone(), name.to_string()), mean.as_nano()))
        })
        .collect();
    prop_assert!(got.keys().eq(wanted.keys()), "{:?} {:?}", got, wanted);
    prop_assert!(
        got.values().zip(wanted.values()).all(|(got, wanted)| is_rounded(*got, *wanted)),
        "{:?} {:?}",
        got,
        wanted
    );
    for id in model.waiting.keys() {
        prop_assert!(engine.explain_pending(id.as_str()).is_some());
    }
    Ok(())
}

/// In four digits.
fn is_rounded(got: i128, wanted: i128) -> bool {
    got <= wanted && wanted - got <= wanted / 1000
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
            Event::Capacity(class) => format!("room {class}"),
            _ => continue,
        };
        facts.insert(key, event.clone());
    }
    facts.into_values().collect()
}

fn drain(engine: &mut Engine, model: &Model) -> Vec<(JobId, Resources)> {
    let mut capacity = model.capacity.clone();
    let mut all = Vec::new();
    while let Some(release) = engine.release_next_by_fit(|_, ask| match capacity.get(&ask.fit.0) {
        Some(1..) => Fit::Yes,
        _ => Fit::No { never: false, detail: String::new() },
    }) {
        let class = model.waiting[&release.id].ask.fit.0;
        *capacity.entry(class).or_default() -= 1;
        all.push((release.id, release.admission.charged));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_verdict_is_that_of_looking_at_everything_again(events in prop::collection::vec(event(), 1..60)) {
        let (mut engine, mut model) = (new_engine(), Model::default());
        let first = [Event::Fleet([30, 20], None), Event::Capacity(0), Event::Capacity(1), Event::Capacity(2)];
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
            let first = [Event::Fleet([30, 20], None), Event::Capacity(0), Event::Capacity(1)];
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
