//! The built-in scenarios, as demands on the engine; the comments say what was measured.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use caldera_core::queue::{FitClass, OrderPolicy};
use caldera_simulate::{
    metrics::JobRecord,
    policy::{Caldera, Policy, PolicyName},
    read::Estimates,
    report::{Ratio, Report},
    run::{Options, simulate},
    scenario::{LARGE, Scenario},
    time::Millis,
    world::{Job, Shape, Shapes, World, gang, task},
};

/// Twice the bound of the gang of B9 after it arrived.
const TWENTY_MINUTES: Millis = Millis::from_secs(1_200);

/// The report, and the large gang's record where there is one.
fn run(world: &World, policy: &mut dyn Policy, horizon: Millis) -> (Report, Option<JobRecord>) {
    let outcome = simulate(world, policy, &Options { horizon: Some(horizon), ..Options::default() });
    let large = world.jobs.iter().position(|job| &*job.name == LARGE).map(|job| outcome.jobs[job].clone());
    (Report::new("p", world, &outcome, 4), large)
}

/// The engine without any kept place.
fn without_reservations(world: &World) -> Caldera {
    Caldera::with(world.queues.iter().cloned(), OrderPolicy::default(), None)
}

const fn percent(percent: u64) -> Ratio {
    Ratio(percent * 10_000)
}

#[test]
fn b9_the_offered_load_is_what_it_claims_to_be() {
    for seed in 1..4 {
        let world = Scenario::Starvation.world(seed, Estimates::AsGiven).unwrap();
        let small = world.jobs.iter().filter(|job| &*job.name != LARGE);
        let gpu = |job: &caldera_simulate::world::Job| job.shape.full.get("nvidia.com/gpu").units_ceil();
        let work: i128 = small.map(|job| gpu(job) * i128::from(job.run.0)).sum();
        let load = work * 100 / (128 * 3_600_000);
        assert!((90..=100).contains(&load), "seed {seed}: {load} %");
    }
}

/// Measured (seeds 1 to 3): the gang starts after 145, 157 and 181 s, bounds are 397, 423 and 436 s; it runs once and
/// to its end, though it holds more than its queue deserves and the small ones wait. What is allocated over the hour is
/// 92.3, 93.5 and 93.6 %, against 90.9, 92.6 and 92.3 % where no place is ever kept and the gang never starts: no loss
/// at all.
#[test]
fn b9_a_large_gang_among_endless_small_jobs_starts_within_its_bound_and_costs_little() {
    let rounds = [
        (1, Estimates::AsGiven),
        (1, Estimates::Exact),
        (1, Estimates::Rough),
        (2, Estimates::AsGiven),
        (3, Estimates::AsGiven),
    ];
    for (seed, estimates) in rounds {
        let world = Scenario::Starvation.world(seed, estimates).unwrap();
        let (without, never) = run(&world, &mut without_reservations(&world), Scenario::Starvation.horizon());
        assert_eq!(never.unwrap().started, None);
        let (report, large) = run(&world, &mut Caldera::new(&world), Scenario::Starvation.horizon());
        let large = large.unwrap();
        let waited = large.started.unwrap().since(large.arrival);
        assert!(waited <= large.bound, "{seed} {estimates}: {waited} of {}", large.bound);
        assert!(large.bound < Millis::from_secs(600), "{seed} {estimates}: {large:?}");
        let ran = large.ended.unwrap().since(large.started.unwrap());
        assert_eq!((large.evictions, ran), (0, Millis::from_secs(60)), "{seed} {estimates}");
        assert_eq!((report.starved, report.waited_in_members), (0, 0), "{seed} {estimates}");
        assert!(report.sor.0 + percent(5).0 >= without.sor.0, "{estimates}: {:?}, {:?}", report.sor, without.sor);
    }
}

/// The two ways in which peers handle it: never, or at the price of everybody else.
#[test]
fn b9_under_the_peers_policies() {
    let world = Scenario::Starvation.world(1, Estimates::AsGiven).unwrap();
    let peer = |policy: PolicyName| run(&world, policy.start(&world).as_mut(), TWENTY_MINUTES);
    for policy in [PolicyName::VolcanoGlobal, PolicyName::BestEffortFifo] {
        assert_eq!(peer(policy).1.unwrap().started, None, "{policy}");
    }
    let (report, large) = peer(PolicyName::Fifo);
    let large = large.unwrap();
    assert!(large.started.unwrap().since(large.arrival) <= large.bound);
    assert!(report.wait_seconds.p50 > Millis(10_000), "{report:?}");
}

fn b10(policy: impl Fn(&World) -> Box<dyn Policy>) -> Report {
    let world = Scenario::Fairness.world(1, Estimates::AsGiven).unwrap();
    let (report, _) = run(&world, policy(&world).as_mut(), Scenario::Fairness.horizon());
    assert!(report.sor >= percent(99), "{report:?}");
    report
}

/// Measured: mean deviation 2.3 %, Jain 98.4 %; the longest time that a newcomer is short of its share by more than a
/// job 210 s (a run and a bit of what is there).
#[test]
fn b10_staggered_tenants_get_their_shares_by_order_alone() {
    let shares = b10(|world| Box::new(without_reservations(world))).shares;
    assert!(shares.mean_deviation <= percent(3) && shares.jain >= percent(97), "{shares:?}");
    assert!(shares.longest_short_seconds <= Millis::from_secs(240), "{shares:?}");
}

/// Measured, with places kept and without: mean deviation 2.1 %, Jain 98.6 %; 11 jobs give way. Silver and gold deserve
/// 16 and 24 jobs' room: in the minute before a claim is made most of that comes free by itself. That nobody ever holds
/// a place that others deserve more: the fences change nothing here.
#[test]
fn b10_with_the_defaults_tenants_get_their_shares_and_few_give_way() {
    let without = b10(|world| Box::new(without_reservations(world).with_preemption(world)));
    let with = b10(|world| Box::new(Caldera::new(world)));
    for report in [&without, &with] {
        let shares = report.shares;
        assert!(shares.mean_deviation <= percent(3) && shares.jain >= percent(97), "{shares:?}");
        assert!(shares.longest_short_seconds <= Millis::from_secs(240), "{shares:?}");
        assert!(report.preemptions <= 20, "{}", report.preemptions);
    }
    assert!(with.shares.jain.0 + percent(1).0 >= without.shares.jain.0, "{:?}, {:?}", with.shares, without.shares);
}

/// B10 with a gang of half of what its queue deserves first in silver's and in gold's line, and one of all of it in
/// bronze's. Measured: they wait 161 s, 60 s (others give way) and 485 s: bronze has to run empty first. Mean deviation
/// 6.3 %, Jain 94.0 %, 31 jobs give way.
#[test]
fn b10_large_gangs_start_soon_and_shares_hold() {
    let mut world = Scenario::Fairness.world(1, Estimates::AsGiven).unwrap();
    for (queue, pods, arrival, priority) in [("silver", 16, 899, 0), ("bronze", 16, 1200, 1), ("gold", 24, 1799, 0)] {
        let job = world.jobs.iter().find(|job| job.queue.as_str() == queue).unwrap();
        let request = job.shape.gang.tasks[0].request.clone();
        let shape = Shapes::default().gang(gang(vec![task("worker", pods, pods, request)]));
        // These shapes are not made together with the others.
        let shape = Shape { class: FitClass(u64::from(pods) + 1_000), ..(*shape).clone() };
        let name = format!("{LARGE}-{queue}").into();
        let (arrival, run) = (Millis::from_secs(arrival), Millis::from_secs(180));
        world.jobs.push(Job { name, arrival, run, priority, shape: Arc::new(shape), ..job.clone() });
    }
    let World { clusters, queues, jobs, start, .. } = world;
    let world = World::new(clusters, queues, jobs, start).unwrap();
    let horizon = Some(Scenario::Fairness.horizon());
    let longest = world.jobs.iter().map(|job| job.run).max().unwrap();
    let outcome = simulate(&world, &mut Caldera::new(&world), &Options { horizon, ..Options::default() });
    let report = Report::new("p", &world, &outcome, 4);
    for (job, record) in world.jobs.iter().zip(&outcome.jobs).filter(|(job, _)| job.name.contains(LARGE)) {
        let waited = record.started.unwrap().since(record.arrival);
        // Its patience, its own queue, its ceiling.
        assert!(waited <= Millis::from_secs(60).plus(longest).plus(longest), "{}: {waited}", job.name);
        assert!(waited <= Millis::from_secs(600), "{}: {waited}", job.name);
        assert_eq!(record.evictions, 0, "{}", job.name);
    }
    assert!(
        report.shares.jain >= percent(92) && report.preemptions <= 40,
        "{:?} {}",
        report.shares,
        report.preemptions
    );
}

#[test]
fn b10_under_the_peers_policies() {
    for policy in [PolicyName::Fifo, PolicyName::VolcanoGlobal] {
        let shares = b10(|world| policy.start(world)).shares;
        assert!(shares.mean_deviation > percent(40), "{policy}: {shares:?}");
    }
}
