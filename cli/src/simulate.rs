//! `caldera simulate`: runs jobs on a fleet in virtual time, under Caldera's engine and under other policies.

mod input;
mod state;

use std::{fs, path::Path, process::ExitCode};

use anyhow::Context;
use caldera_core::{quantity::Quantity, resources::ResourceName, text::count_noun};
use caldera_simulate::{
    report::Report,
    rules::Rules,
    run::{Options, Outcome, simulate},
    series::{Document, jobs_csv, time_csv},
    svg, tables,
    time::Millis,
    world::World,
};

use crate::{
    args::{ReportForm, SimulateArgs},
    output,
};

/// The input is wrong: the same call would fail again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongInput(String);

/// Everything that is simulated.
struct SimulationQuestion {
    world: World,
    notes: Vec<String>,
    horizon: Option<Millis>,
}

pub async fn run_simulate(args: SimulateArgs) -> anyhow::Result<ExitCode> {
    let asked = match read_input(&args).await {
        Ok(asked) => asked,
        Err(error) if error.is::<WrongInput>() => {
            output::write_warning(&error.to_string());
            return Ok(ExitCode::from(2));
        }
        Err(error) => return Err(error),
    };
    tokio::task::spawn_blocking(move || print_report(&args, &asked)).await??;
    Ok(ExitCode::SUCCESS)
}

async fn read_input(args: &SimulateArgs) -> anyhow::Result<SimulationQuestion> {
    let mut asked = match (&args.scenario, &args.kubeconfig) {
        (Some(scenario), _) => {
            let world = scenario.world(args.seed, args.estimates).map_err(|error| WrongInput(error.to_string()))?;
            SimulationQuestion { world, notes: Vec::new(), horizon: Some(scenario.horizon()) }
        }
        (None, Some(kubeconfig)) => state::read_host(args, kubeconfig).await?,
        (None, None) => input::read_files(args)?,
    };
    for name in &args.cordon {
        input::cordon_cluster(&mut asked.world, name)?;
    }
    choose_rules(args, &mut asked.world.rules);
    // A horizon counts from the start of the simulation.
    let horizon = args.horizon.map(|horizon| asked.world.start.plus(horizon));
    asked.horizon = horizon.or(asked.horizon);
    if let Some(resource) = &args.resource {
        input::check_offered(&asked.world, resource)?;
    }
    Ok(asked)
}

/// What the call says of policy caldera, before what the host's controller does.
fn choose_rules(args: &SimulateArgs, rules: &mut Rules) {
    rules.order = args.order.unwrap_or(rules.order);
    rules.history_half_life = args.history_half_life.map_or(rules.history_half_life, i64::from);
    if let Some(seconds) = args.reservation_after {
        rules.reservation_after = Some(i64::from(seconds)).filter(|seconds| *seconds > 0);
    }
}

fn print_report(args: &SimulateArgs, asked: &SimulationQuestion) -> anyhow::Result<()> {
    let world = &asked.world;
    let resource = args.resource.as_deref().map(ResourceName::from);
    let options = Options { horizon: asked.horizon, resource, ..Options::default() };
    let mut policies = args.policy.clone();
    policies.sort_unstable();
    policies.dedup();
    let mut runs: Vec<(&'static str, Outcome)> = Vec::new();
    for policy in policies {
        runs.push((policy.as_str(), simulate(world, policy.start(world).as_mut(), &options)));
    }
    let reports: Vec<Report> =
        runs.iter().map(|(name, outcome)| Report::new(name, world, outcome, args.starved_after)).collect();
    if let Some(dir) = &args.csv {
        for (name, outcome) in &runs {
            write_file(dir, &format!("{name}-jobs.csv"), &jobs_csv(world, outcome, args.starved_after))?;
            write_file(dir, &format!("{name}-time.csv"), &time_csv(outcome))?;
        }
    }
    if let Some(dir) = &args.svg {
        let runs: Vec<svg::Run<'_>> = runs.iter().map(|(name, outcome)| (*name, outcome)).collect();
        write_file(dir, "waits.svg", &svg::draw_waits(world, &runs))?;
        write_file(dir, "utilisation.svg", &svg::draw_utilisation(&runs))?;
    }
    let text = match args.output {
        ReportForm::Table => format_head(args, asked, &reports) + &tables::tables(&reports),
        ReportForm::Json => {
            let (notes, starved_after) = (asked.notes.clone(), args.starved_after);
            Document { seed: args.seed, notes, starved_after, policies: reports }.to_json()
        }
    };
    output::write_stdout(&text);
    Ok(())
}

/// The line above the tables: seed, jobs, nodes and clusters.
fn format_head(args: &SimulateArgs, asked: &SimulationQuestion, reports: &[Report]) -> String {
    let world = &asked.world;
    let nodes: usize = world.clusters.iter().map(|cluster| cluster.nodes.len()).sum();
    let what = reports.first().map_or(String::new(), |report| {
        // How many nodes come depends on the policy.
        let most = reports.iter().map(|report| report.capacity).max().unwrap_or(0);
        let Report { first_capacity: first, resource, .. } = report;
        let amount = |units: u64| {
            let all = Quantity::from_units(i64::try_from(units).unwrap_or(i64::MAX));
            ResourceName::from(resource.as_str()).quantity_from_nano(all.as_nano()).plain()
        };
        let more = if most > *first { format!(", {} at most", amount(most)) } else { String::new() };
        format!(", {} {resource}{more}", amount(*first))
    });
    let (jobs, nodes) = (count_noun(world.jobs.len(), "job"), count_noun(nodes, "node"));
    let clusters = count_noun(world.clusters.len(), "cluster");
    let mut text = format!("seed {}: {jobs} on {nodes} in {clusters}{what}\n", args.seed);
    for note in &asked.notes {
        text += &format!("- {note}\n");
    }
    text
}

fn write_file(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("failed to make {}", dir.display()))?;
    let path = dir.join(name);
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
}
