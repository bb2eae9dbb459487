//! What load-aware rescheduling brings: a day on four clusters where a third of the jobs uses more than twice what it
//! asks for, without it and with it at several paces. Sums and means of ten made-up days.
//!
//! `cargo run --profile bench -p caldera-simulate --example load`

use caldera_core::load_aware::{LoadPolicy, Thresholds};
use caldera_simulate::{
    load::{LoadOutcome, make_up_load, simulate_load},
    run::Options,
    world::WorldError,
};

const DAYS: u64 = 10;

fn main() -> Result<(), WorldError> {
    let on = LoadPolicy {
        enabled: true,
        thresholds: Thresholds { cpu: Some(30), memory: None },
        target_thresholds: Thresholds { cpu: Some(80), memory: None },
        ..LoadPolicy::default()
    };
    let wide = LoadPolicy { thresholds: Thresholds { cpu: Some(50), memory: None }, ..on.clone() };
    let quick = LoadPolicy { interval: 60, moves: 4, ..wide.clone() };
    let ways = [
        ("nobody is moved", LoadPolicy { enabled: false, ..on.clone() }),
        ("as installed, by cpu", on),
        ("clusters below 50 % receive", wide),
        ("and 4 jobs a minute", quick),
    ];
    println!(
        "| who is moved | hot cluster-hours | core-hours wanted in vain | moved | core-hours lost | from submission to \
         end, mean min | longer than its run by %, p99 |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, policy) in ways {
        let (mut outcomes, mut longer) = (Vec::new(), Vec::new());
        for seed in 0..DAYS {
            let loaded = make_up_load(seed)?;
            let outcome = simulate_load(&loaded, &policy, &Options::default());
            let jobs = outcome.outcome.jobs.iter().zip(&loaded.world.jobs);
            longer.extend(jobs.filter_map(|(one, of)| {
                let took = one.ended?.since(of.arrival).0;
                Some(took.saturating_sub(of.run.0) * 100 / of.run.0.max(1))
            }));
            outcomes.push(outcome);
        }
        longer.sort_unstable();
        print_row(name, &outcomes, longer.get(longer.len() * 99 / 100).copied().unwrap_or(0));
    }
    Ok(())
}

fn print_row(name: &str, outcomes: &[LoadOutcome], longer: u64) {
    const HOUR: f64 = 3_600_000.0;
    let sum = |of: &dyn Fn(&LoadOutcome) -> f64| outcomes.iter().map(of).sum::<f64>() / DAYS as f64;
    let turnaround = |outcome: &LoadOutcome| {
        let ended = outcome.outcome.jobs.iter().filter_map(|job| Some(job.ended?.since(job.arrival).0));
        let (count, all) = ended.fold((0_u64, 0), |(count, all), one| (count + 1, all + one));
        all as f64 / count.max(1) as f64 / 60_000.0
    };
    println!(
        "| {name} | {:.1} | {:.0} | {:.1} | {:.1} | {:.1} | {longer} |",
        sum(&|one| one.hot.iter().map(|hot| hot.0 as f64).sum::<f64>() / HOUR),
        sum(&|one| one.wanted_in_vain as f64 / 1_000.0 / HOUR),
        sum(&|one| one.moves.len() as f64),
        sum(&|one| one.outcome.lost as f64 / HOUR),
        sum(&turnaround),
    );
}
