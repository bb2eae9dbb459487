//! The built-in scenarios: what the engine does with them today, in numbers that were measured. Where a number is not
//! what it should be, the comment says what it should become.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use caldera_core::queue::OrderPolicy;
use caldera_simulate::{
    metrics::JobRecord,
    policy::{Caldera, Policy, PolicyName},
    read::Estimates,
    report::{Ratio, Report},
    run::{Options, simulate},
    scenario::{LARGE, Scenario},
    time::Millis,
    world::World,
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
fn without_fences(world: &World) -> Caldera {
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

/// Measured (seed 1): the gang starts after 151 s without estimates, 151 s with exact ones, 250 s with rough ones; its
/// bound is 397 s. What is allocated over the hour is 92.2 %, and 90.9 % where no place is ever kept and the gang never
/// starts: no loss at all.
#[test]
fn b9_a_large_gang_among_endless_small_jobs_starts_within_its_bound_and_costs_little() {
    let world = Scenario::Starvation.world(1, Estimates::AsGiven).unwrap();
    let (without, never) = run(&world, &mut without_fences(&world), TWENTY_MINUTES);
    assert_eq!(never.unwrap().started, None);
    for (seed, estimates) in
        [(1, Estimates::AsGiven), (1, Estimates::Exact), (1, Estimates::Rough), (2, Estimates::AsGiven)]
    {
        let world = Scenario::Starvation.world(seed, estimates).unwrap();
        let (report, large) = run(&world, &mut Caldera::new(&world), TWENTY_MINUTES);
        let large = large.unwrap();
        let waited = large.started.unwrap().since(large.arrival);
        assert!(waited <= large.bound, "{seed} {estimates}: {waited} of {}", large.bound);
        assert!(large.bound < Millis::from_secs(600), "{seed} {estimates}: {large:?}");
        assert_eq!((report.starved, report.waited_in_members), (0, 0), "{seed} {estimates}");
        if seed == 1 {
            assert!(report.sor.0 + percent(5).0 >= without.sor.0, "{estimates}: {:?}, {:?}", report.sor, without.sor);
        }
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
    let shares = b10(|world| Box::new(without_fences(world))).shares;
    assert!(shares.mean_deviation <= percent(3) && shares.jain >= percent(97), "{shares:?}");
    assert!(shares.longest_short_seconds <= Millis::from_secs(240), "{shares:?}");
}

/// Measured: mean deviation 0.8 %, Jain 99.5 %, short for 107 s at the longest; 33 jobs give way: 16 for silver and 17
/// for gold, who deserve 16 and 24 jobs' room.
#[test]
fn b10_staggered_tenants_get_them_sooner_when_others_give_way() {
    let report = b10(|world| Box::new(without_fences(world).giving_back(world)));
    let shares = report.shares;
    assert!(shares.mean_deviation <= percent(1) && shares.jain >= percent(99), "{shares:?}");
    assert!(shares.longest_short_seconds <= Millis::from_secs(120), "{shares:?}");
    assert!((16..=40).contains(&report.preemptions), "{}", report.preemptions);
}

/// Measured with the engine's defaults: mean deviation 21.6 %, Jain 78.2 %, 372 jobs give way. While every queue has more
/// than it can run, the oldest job of all is blocked for longer than the engine's patience and gets the fence and with it
/// whatever is freed, whatever its queue already has; then it gives way to a queue that deserves more, and so on. It
/// should be as without fences, above: tighten these bounds to those.
#[test]
fn b10_with_places_kept_today() {
    let report = b10(|world| Box::new(Caldera::new(world)));
    assert!(report.shares.mean_deviation <= percent(25) && report.shares.jain >= percent(70), "{:?}", report.shares);
    assert!(report.preemptions <= 450, "{}", report.preemptions);
}

#[test]
fn b10_under_the_peers_policies() {
    for policy in [PolicyName::Fifo, PolicyName::VolcanoGlobal] {
        let shares = b10(|world| policy.start(world)).shares;
        assert!(shares.mean_deviation > percent(40), "{policy}: {shares:?}");
    }
}
