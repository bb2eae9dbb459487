//! Whatever is simulated: nothing is ever over a limit that the policy keeps, every job ends exactly once, and the same
//! input gives the same bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use caldera_core::{quantity::Quantity, queue::QueueSpec, resources::Resources};
use caldera_simulate::{
    policy::PolicyName,
    read::Estimates,
    report::Report,
    run::{Options, simulate, simulate_observed},
    scenario::Scenario,
    series::{Document, jobs_csv, time_csv},
    site::{JobState, Site},
    svg,
    time::Millis,
    world::{Hold, Job, Shapes, World, cluster, gang, task},
};
use proptest::prelude::*;

fn amounts(cpu: i64, gpu: i64) -> Resources {
    [("cpu", cpu), ("nvidia.com/gpu", gpu)]
        .map(|(name, units)| (name, Quantity::from_units(units)))
        .into_iter()
        .collect()
}

/// Arrival, run, estimate (true or not), queue, priority, and (replicas, minimum, cpu, gpu) by task.
type Draft = (u64, u64, Option<u64>, usize, i32, Vec<(u32, u32, i64, i64)>);

fn draft() -> impl Strategy<Value = Draft> {
    let task = (1..5u32, 0..5u32, 0..6i64, 0..4i64);
    (
        0..300_000u64,
        0..200_000u64,
        prop::option::of(0..200_000u64),
        0..3usize,
        0..2i32,
        prop::collection::vec(task, 1..3),
    )
}

/// Queues `a` and `b` below `top`, and `c`; the ceilings are `top`'s and `a`'s in GPUs.
fn world(nodes: &[Vec<(u32, i64, i64)>], ceilings: (i64, i64), drafts: &[Draft], reversed: bool) -> World {
    let clusters = nodes.iter().enumerate().map(|(i, groups)| {
        let groups: Vec<(u32, Resources)> =
            groups.iter().map(|(count, cpu, gpu)| (*count, amounts(*cpu, *gpu))).collect();
        cluster(&format!("m{i}"), &groups)
    });
    let mut top = QueueSpec::unlimited("top");
    top.capability.set("nvidia.com/gpu", Quantity::from_units(ceilings.0));
    let mut a = QueueSpec { parent: Some("top".into()), ..QueueSpec::unlimited("a") };
    a.capability.set("nvidia.com/gpu", Quantity::from_units(ceilings.1));
    let b = QueueSpec { parent: Some("top".into()), ..QueueSpec::unlimited("b") };
    let mut shapes = Shapes::default();
    let mut jobs: Vec<Job> = drafts
        .iter()
        .enumerate()
        .map(|(i, (arrival, run, estimate, queue, priority, tasks))| {
            let task = |(n, (replicas, min, cpu, gpu)): (usize, &(u32, u32, i64, i64))| {
                task(&format!("t{n}"), *replicas, if n == 0 { (*min).max(1) } else { *min }, amounts(*cpu, *gpu))
            };
            Job {
                name: format!("job-{i:03}").into(),
                queue: ["a", "b", "c"][*queue].into(),
                priority: *priority,
                arrival: Millis(*arrival),
                run: Millis(*run),
                estimate: estimate.map(Millis),
                shape: shapes.gang(gang(tasks.iter().enumerate().map(task).collect())),
                running: None,
            }
        })
        .collect();
    if reversed {
        jobs.reverse();
    }
    World::new(clusters.collect(), vec![top, a, b, QueueSpec::unlimited("c")], jobs, Millis::ZERO).unwrap()
}

fn holds(state: &JobState) -> &[Hold] {
    match state {
        JobState::Sent { holds, .. } | JobState::Running { holds, .. } => holds,
        JobState::Future | JobState::Waiting | JobState::Done => &[],
    }
}

/// No node over what it has; what is free is what is not held; gangs run with their minimum at least.
fn check(site: &Site<'_>, keeps_limits: bool) {
    let world = site.world();
    let mut by_node: BTreeMap<&str, Resources> = BTreeMap::new();
    let mut held = Resources::new();
    for (i, job) in world.jobs.iter().enumerate() {
        let mut sum = Resources::new();
        for hold in holds(site.state(i)) {
            by_node.entry(&hold.node).or_default().add(&hold.amount);
            sum.add(&hold.amount);
        }
        if matches!(site.state(i), JobState::Running { .. }) {
            assert!(job.shape.least.fits_in(&sum), "{}: {sum} is less than {}", job.name, job.shape.least);
        }
        held.add(&sum);
    }
    for node in world.clusters.iter().flat_map(|cluster| &cluster.nodes) {
        let used = by_node.remove(node.name.as_str()).unwrap_or_default();
        assert!(used.fits_in(&node.allocatable), "{}: {used} of {}", node.name, node.allocatable);
    }
    assert!(by_node.is_empty());
    let mut free = world.total();
    free.saturating_sub(&held);
    assert_eq!(site.members().free(), free);
    if keeps_limits {
        assert_eq!(site.books().list_queues_over_ceiling().next(), None, "at {}", site.now());
        // What was found a place fits there.
        assert_eq!(site.members().count_waiting_parts(), 0, "at {}", site.now());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn limits_hold_at_every_instant_and_every_job_ends_once(
        nodes in prop::collection::vec(prop::collection::vec((1..4u32, 4..10i64, 0..9i64), 1..3), 1..4),
        ceilings in (0..24i64, 0..16i64),
        drafts in prop::collection::vec(draft(), 1..40),
    ) {
        let world = world(&nodes, ceilings, &drafts, false);
        let mirrored = self::world(&nodes, ceilings, &drafts, true);
        for name in PolicyName::ALL {
            let keeps_limits = name != PolicyName::VolcanoGlobal;
            let mut policy = name.start(&world);
            let options = Options::default();
            let outcome = simulate_observed(&world, policy.as_mut(), &options, |site| check(site, keeps_limits));
            for (i, record) in outcome.jobs.iter().enumerate() {
                let never = outcome.never.contains(&i);
                if keeps_limits {
                    // What can start does, and ends.
                    prop_assert_eq!(record.ended.is_none(), never, "{} {} {:?}", name, world.jobs[i].name, record);
                }
                if let (Some(started), Some(ended)) = (record.started, record.ended) {
                    prop_assert!(record.arrival <= started && started.plus(world.jobs[i].run) <= ended);
                    prop_assert!(record.sent.is_some_and(|sent| sent <= started || record.evictions > 0));
                }
            }
            let again = simulate(&mirrored, name.start(&mirrored).as_mut(), &Options::default());
            prop_assert_eq!(&again.jobs, &outcome.jobs);
            prop_assert_eq!(&again.samples, &outcome.samples);
        }
    }
}

/// Everything that is written of a simulation.
fn all(seed: u64) -> String {
    let world = Scenario::Starvation.world(seed, Estimates::AsGiven).unwrap();
    let options = Options { horizon: Some(Millis::from_secs(600)), ..Options::default() };
    let run = |name: &PolicyName| (name.as_str(), simulate(&world, name.start(&world).as_mut(), &options));
    let outcomes: Vec<_> = PolicyName::ALL.iter().map(run).collect();
    let policies = outcomes.iter().map(|(name, outcome)| Report::new(name, &world, outcome, 4)).collect();
    let document = Document { seed, notes: Vec::new(), starved_after: 4, policies };
    let runs: Vec<svg::Run<'_>> = outcomes.iter().map(|(name, outcome)| (*name, outcome)).collect();
    let mut text = document.to_json() + &svg::draw_waits(&world, &runs) + &svg::draw_utilisation(&runs);
    for (_, outcome) in &outcomes {
        text += &(jobs_csv(&world, outcome, 4) + &time_csv(outcome));
    }
    text
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let text = all(3);
    assert_eq!(text, all(3));
    assert_ne!(text, all(4));
}
