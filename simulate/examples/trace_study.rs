//! The trace study of `docs/trace-study.md`: real jobs on a real fleet, under our engine and under others.
//!
//! `cargo run --profile bench -p caldera-simulate --example trace_study -- DIR [OUT [STUDY...]]`, where DIR holds the
//! public files (`spot_nodes.csv`, `openb_pods.csv`, `dlrm_instances.csv`) and OUT, if given, receives the plots.
//! Without names all studies are made.
//!
//! Everything but the times of the simulations themselves is the same in every run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a study fails by panicking")]

use std::{collections::BTreeSet, fs, path::Path, time::Instant};

use caldera_core::{
    gang::QueueName,
    quantity::Quantity,
    queue::{OrderPolicy, QueueSpec, RESERVATION_AFTER, ReservationWait},
    resources::{ResourceName, Resources},
};
use caldera_simulate::{
    policy::{Caldera, Policy, PolicyName},
    random::Random,
    read::{self, Estimates, TraceFormat, TraceOptions},
    report::{Class, Report, Waits},
    run::{Options, Outcome, simulate},
    svg,
    time::Millis,
    world::{Job, Shapes, World, cluster, gang, task},
};

const SEED: u64 = 1;
const STARVED_AFTER: u32 = 4;
/// Parts of the fleet, in percent, that queues deserve; with limits, the most they may have is half as much again.
const OPENB: [(&str, i64); 4] = [("ls", 60), ("be", 30), ("burstable", 6), ("guaranteed", 4)];
const DLRM: [(&str, i64); 4] = [("tenant-0", 40), ("tenant-1", 30), ("tenant-2", 20), ("tenant-3", 10)];

/// A policy by name, or ours with something switched off.
enum Who {
    Named(PolicyName),
    NoReclaim,
    NoReservations,
    /// With reservations for those alone that waited as long as they say that they run; for a day where none says so.
    WaitsAsItRuns,
}

impl Who {
    const ALL: [Self; 10] = [
        Self::Named(PolicyName::Caldera),
        Self::NoReclaim,
        Self::NoReservations,
        Self::Named(PolicyName::VolcanoGlobal),
        Self::Named(PolicyName::Fifo),
        Self::Named(PolicyName::BestEffortFifo),
        Self::Named(PolicyName::Kueue),
        Self::Named(PolicyName::KueueFair),
        Self::Named(PolicyName::Armada),
        Self::WaitsAsItRuns,
    ];

    fn name(&self) -> &'static str {
        match self {
            Self::Named(name) => name.as_str(),
            Self::NoReclaim => "caldera, no reclaim",
            Self::NoReservations => "caldera, no reservations either",
            Self::WaitsAsItRuns => "caldera, patient",
        }
    }

    fn start(&self, world: &World) -> Box<dyn Policy> {
        match self {
            Self::Named(name) => name.start(world),
            Self::NoReclaim => ours(world, Some(RESERVATION_AFTER)),
            Self::NoReservations => ours(world, None),
            Self::WaitsAsItRuns => {
                let declared = world.jobs.iter().any(|job| job.estimate.is_some());
                let after_run = ReservationWait::After { seconds: None, percent: 100 };
                let after_day = ReservationWait::After { seconds: Some(86_400), percent: 0 };
                let wait = Some(if declared { after_run } else { after_day });
                let queues = world.queues.iter().map(|queue| QueueSpec { reservation_wait: wait, ..queue.clone() });
                let waits = Caldera::with(queues, OrderPolicy::default(), Some(RESERVATION_AFTER));
                Box::new(waits.with_preemption(world))
            }
        }
    }
}

fn ours(world: &World, patience: Option<i64>) -> Box<dyn Policy> {
    Box::new(Caldera::with(world.queues.iter().cloned(), OrderPolicy::default(), patience))
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, rest @ ..] = args.as_slice() else { panic!("usage: trace_study DIR [OUT [STUDY...]]") };
    let out = rest.first().map(Path::new);
    let only = rest.get(1..).unwrap_or_default();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    let read = |name: &str| fs::read_to_string(Path::new(dir).join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (nodes, openb, dlrm) = (read("spot_nodes.csv"), read("openb_pods.csv"), read("dlrm_instances.csv"));
    let options = |format, speed: u64, estimates| TraceOptions {
        format,
        speed_milli: speed * 1_000,
        estimates,
        seed: SEED,
        ..TraceOptions::default()
    };
    // Trace, queues and whether they have ceilings, every how many-th node.
    let studies = [
        ("openb", &openb, (&OPENB, true), 10, options(TraceFormat::Openb, 1_000, Estimates::AsGiven), "nvidia.com/gpu"),
        (
            "openb-estimates",
            &openb,
            (&OPENB, true),
            10,
            options(TraceFormat::Openb, 1_000, Estimates::Rough),
            "nvidia.com/gpu",
        ),
        ("dlrm", &dlrm, (&DLRM, false), 1, options(TraceFormat::Dlrm, 1, Estimates::AsGiven), "cpu"),
        ("dlrm-limits", &dlrm, (&DLRM, true), 1, options(TraceFormat::Dlrm, 1, Estimates::AsGiven), "cpu"),
    ];
    for (name, trace, (queues, limits), every, options, resource) in studies.into_iter().filter(|study| wanted(study.0))
    {
        let clusters = read::read_fleet(&nodes, 8, every).unwrap();
        let trace = read::read_trace(trace, &options, &read::list_offered_resources(&clusters), &mut Shapes::default())
            .unwrap();
        let mut world = World::new(clusters, named(&trace.jobs), trace.jobs, Millis::ZERO).unwrap();
        let total = world.total();
        world.queues = queues.iter().map(|(name, percent)| queue(name, *percent, limits, &total)).collect();
        study(name, &world, &trace.notes, resource, out);
    }
    if wanted("synthetic") {
        study("synthetic", &synthetic(100_000), &[], "nvidia.com/gpu", out);
    }
}

fn named(jobs: &[Job]) -> Vec<QueueSpec> {
    let names: BTreeSet<&QueueName> = jobs.iter().map(|job| &job.queue).collect();
    names.into_iter().cloned().map(QueueSpec::unlimited).collect()
}

fn queue(name: &str, percent: i64, limits: bool, total: &Resources) -> QueueSpec {
    let mut queue = QueueSpec::unlimited(name);
    for resource in ["cpu", "nvidia.com/gpu"] {
        let part = |percent: i64| {
            Quantity::from_units(i64::try_from(total.get(resource).units_ceil()).unwrap() * percent / 100)
        };
        queue.deserved.set(resource, part(percent));
        if limits {
            queue.capability.set(resource, part(percent * 3 / 2));
        }
    }
    queue
}

/// Gangs of 1 to 64 GPUs in ten queues on 3,200 GPUs in eight clusters, at 90 % load.
fn synthetic(jobs: u64) -> World {
    let node: Resources =
        [("cpu", 96), ("nvidia.com/gpu", 8)].map(|(n, a)| (n, Quantity::from_units(a))).into_iter().collect();
    let clusters = (1..=8).map(|i| cluster(&format!("member{i:02}"), &[(50, node.clone())])).collect();
    let mut random = Random::new(SEED);
    let mut shapes = Shapes::default();
    let one: Resources =
        [("cpu", 8), ("nvidia.com/gpu", 1)].map(|(n, a)| (n, Quantity::from_units(a))).into_iter().collect();
    // 2^0 to 2^6 pods, each half as often as the one before: 7 / (2 - 2^-6) GPUs in the mean.
    let sizes: Vec<_> = (0..7).map(|i| shapes.gang(gang(vec![task("worker", 1 << i, 1 << i, one.clone())]))).collect();
    let run = Millis::from_secs(600);
    let gap = Millis(run.0 * 7 * 64 * 100 / (127 * 3_200 * 90));
    let mut at = Millis::ZERO;
    let job = |i: u64| {
        at = at.plus(random.exponential(gap));
        let size = (random.below(127) + 1).ilog2() as usize;
        Job {
            name: format!("job-{i:06}").into(),
            queue: format!("queue-{}", random.below(10)).into(),
            priority: 0,
            arrival: at,
            run: random.exponential(run),
            estimate: None,
            shape: std::sync::Arc::clone(&sizes[6 - size]),
            running: None,
        }
    };
    let jobs: Vec<Job> = (0..jobs).map(job).collect();
    World::new(clusters, named(&jobs), jobs, Millis::ZERO).unwrap()
}

fn study(name: &str, world: &World, notes: &[String], resource: &str, out: Option<&Path>) {
    let nodes: usize = world.clusters.iter().map(|cluster| cluster.nodes.len()).sum();
    println!(
        "\n## {name}\n\n{} jobs, {nodes} nodes in {} clusters, {}.",
        world.jobs.len(),
        world.clusters.len(),
        world.total()
    );
    notes.iter().for_each(|note| println!("- {note}"));
    let mut runs: Vec<(&str, Outcome, f64)> = Vec::new();
    for who in Who::ALL {
        let began = Instant::now();
        let options = Options { resource: Some(ResourceName::from(resource)), ..Options::default() };
        let outcome = simulate(world, who.start(world).as_mut(), &options);
        runs.push((who.name(), outcome, began.elapsed().as_secs_f64()));
    }
    let reports: Vec<Report> =
        runs.iter().map(|(name, outcome, _)| Report::new(name, world, outcome, STARVED_AFTER)).collect();
    table(world, &reports, &runs);
    if let Some(out) = out {
        let runs: Vec<svg::Run<'_>> = runs.iter().map(|(name, outcome, _)| (*name, outcome)).collect();
        fs::create_dir_all(out).unwrap();
        fs::write(out.join(format!("{name}-waits.svg")), svg::draw_waits(world, &runs)).unwrap();
        fs::write(out.join(format!("{name}-utilisation.svg")), svg::draw_utilisation(&runs)).unwrap();
    }
}

fn table(world: &World, reports: &[Report], runs: &[(&str, Outcome, f64)]) {
    let row = |name: &str, cell: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = (0..reports.len()).map(cell).collect();
        println!("| {name} | {} |", cells.join(" | "));
    };
    println!();
    row("", &|i| reports[i].policy.clone());
    row("---", &|_| "---".to_owned());
    row("wait p50 / p90 / p99 / max", &|i| waits(&reports[i].wait_seconds));
    let classes: BTreeSet<Class> =
        reports.iter().flat_map(|report| report.wait_seconds_by_class.keys().copied()).collect();
    for class in classes {
        let resource = &reports[0].resource;
        let jobs = reports[0].wait_seconds_by_class[&class].jobs;
        row(&format!("of {} {resource} ({jobs} jobs)", class.as_str()), &|i| {
            waits(&reports[i].wait_seconds_by_class[&class])
        });
    }
    let queues: BTreeSet<&QueueName> = reports.iter().flat_map(|report| report.wait_seconds_by_queue.keys()).collect();
    for queue in queues.into_iter().take(4) {
        row(&format!("of queue {queue}"), &|i| waits(&reports[i].wait_seconds_by_queue[queue]));
    }
    row("waited beyond the bound", &|i| Report::new("", world, &runs[i].1, 1).starved.to_string());
    row("sent where they did not fit", &|i| reports[i].waited_in_members.to_string());
    row("gave way / work lost", &|i| format!("{} / {}", reports[i].preemptions, reports[i].lost.percent()));
    row("held idle", &|i| reports[i].held_idle.percent());
    row("makespan", &|i| reports[i].makespan_seconds.to_string());
    row("SOR while jobs arrive / while jobs wait", &|i| {
        format!("{} / {}", reports[i].sor_while_arriving.percent(), reports[i].sor_while_waiting.percent())
    });
    row("GAR median / most", &|i| format!("{} / {}", reports[i].gar_median.percent(), reports[i].gar_most.percent()));
    row("GFR / of open nodes", &|i| format!("{} / {}", reports[i].gfr.percent(), reports[i].gfr_of_open.percent()));
    row("contended", &|i| reports[i].shares.contended_seconds.to_string());
    row("deviation mean / most", &|i| {
        format!("{} / {}", reports[i].shares.mean_deviation.percent(), reports[i].shares.max_deviation.percent())
    });
    row("Jain", &|i| reports[i].shares.jain.percent());
    row("queues over their capability", &|i| reports[i].over_limit_seconds.to_string());
    row("simulated in", &|i| format!("{:.1} s", runs[i].2));
}

fn waits(waits: &Waits) -> String {
    format!("{} / {} / {} / {}", waits.p50, waits.p90, waits.p99, waits.max)
}
