//! The built-in scenarios: what the engine does with them today, in numbers that were measured. Where a number is not
//! what it should be, the comment says what it should become.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use caldera_simulate::{
    metrics::JobRecord,
    policy::PolicyName,
    report::{Ratio, Report},
    run::{Options, simulate},
    scenario::{LARGE, Scenario},
    time::Millis,
};

const SEEDS: [u64; 2] = [1, 2];

/// Enough to call the gang of B9 starved.
const FORTY_MINUTES: Millis = Millis::from_secs(2_400);

/// The report, and the large gang's record where there is one.
fn run(scenario: Scenario, seed: u64, policy: PolicyName) -> (Report, Option<JobRecord>) {
    let world = scenario.world(seed).unwrap();
    let options = Options {
        horizon: Some(if scenario == Scenario::Starvation { FORTY_MINUTES } else { scenario.horizon() }),
        ..Options::default()
    };
    let outcome = simulate(&world, policy.start(&world).as_mut(), &options);
    let large = world.jobs.iter().position(|job| &*job.name == LARGE).map(|job| outcome.jobs[job].clone());
    (Report::new(policy.as_str(), &world, &outcome, 4), large)
}

const fn percent(percent: u64) -> Ratio {
    Ratio(percent * 10_000)
}

#[test]
fn b9_the_offered_load_is_what_it_claims_to_be() {
    for seed in SEEDS {
        let world = Scenario::Starvation.world(seed).unwrap();
        let small = world.jobs.iter().filter(|job| &*job.name != LARGE);
        let gpu = |job: &caldera_simulate::world::Job| job.shape.full.get("nvidia.com/gpu").units_ceil();
        let work: i128 = small.map(|job| gpu(job) * i128::from(job.run.0)).sum();
        let load = work * 100 / (128 * 3_600_000);
        assert!((90..=100).contains(&load), "seed {seed}: {load} %");
    }
}

/// Measured today, over the whole hour: the gang never starts (55 minutes of waiting), SOR 90.9 % and 92.6 %. With
/// reservations: it starts within its bound (397 s and 423 s), and SOR falls by no more than five points.
#[test]
fn b9_a_large_gang_among_endless_small_jobs() {
    for seed in SEEDS {
        let (report, large) = run(Scenario::Starvation, seed, PolicyName::Caldera);
        let large = large.unwrap();
        assert_eq!(large.started, None, "seed {seed}: it starts now; tighten this test");
        assert!(large.bound < Millis::from_secs(600), "seed {seed}: {large:?}");
        assert!(report.sor >= percent(88), "seed {seed}: {:?}", report.sor);
        assert_eq!((report.starved, report.waited_in_members), (1, 0), "seed {seed}");
    }
}

/// The two ways in which peers handle it: never, or at the price of everybody else.
#[test]
fn b9_under_the_peers_policies() {
    for seed in [1] {
        for policy in [PolicyName::VolcanoGlobal, PolicyName::BestEffortFifo] {
            let (report, large) = run(Scenario::Starvation, seed, policy);
            assert_eq!((large.unwrap().started, report.starved > 0), (None, true), "{policy} {seed}");
        }
        let (report, large) = run(Scenario::Starvation, seed, PolicyName::Fifo);
        let large = large.unwrap();
        assert!(large.started.unwrap().since(large.arrival) <= large.bound, "seed {seed}");
        let (ours, _) = run(Scenario::Starvation, seed, PolicyName::Caldera);
        assert!(report.wait_seconds.p50 > Millis(60_000).max(ours.wait_seconds.p50), "seed {seed}: {report:?}");
    }
}

/// Measured today: mean deviation 2.3 % for both seeds, Jain 98.4 %, the longest time that a newcomer is short of its
/// share by more than a job 211 s and 199 s (a run and a bit of what is there). Reclaim should make that seconds.
#[test]
fn b10_staggered_tenants_get_their_shares() {
    for seed in SEEDS {
        let (ours, _) = run(Scenario::Fairness, seed, PolicyName::Caldera);
        let shares = ours.shares;
        assert!(shares.mean_deviation <= percent(4) && shares.jain >= percent(96), "seed {seed}: {shares:?}");
        assert!(shares.longest_short_seconds <= Millis::from_secs(360), "seed {seed}: {shares:?}");
        assert!(ours.sor >= percent(99), "seed {seed}: {:?}", ours.sor);
        for policy in [PolicyName::VolcanoGlobal, PolicyName::Fifo].into_iter().filter(|_| seed == 1) {
            let (peer, _) = run(Scenario::Fairness, seed, policy);
            assert!(peer.shares.mean_deviation > percent(40), "{policy} {seed}: {:?}", peer.shares);
        }
    }
}
