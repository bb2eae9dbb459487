//! Reads the fleet, the trace and the queues of a simulation from files, and applies `--cordon` and `--resource`.
//!
//! Rule: without a file of queues, each queue that a job of the trace names exists and has no limits. A cordoned
//! cluster gets Karmada's taint of unschedulable clusters. `--resource` must name a resource that some node has. A
//! wrong file or argument is a `WrongInput`: the command ends with exit code 2.

use std::{collections::BTreeSet, fs, path::Path};

use caldera_core::{gang::QueueName, gang::Taint, queue::QueueSpec};
use caldera_simulate::{
    read::{self, Trace, TraceOptions},
    time::Millis,
    world::{Job, MemberCluster, Shapes, World},
};

use super::{SimulateArgs, SimulationQuestion, WrongInput};

/// Karmada's own taint of a cordoned cluster.
const CORDONED: &str = "cluster.karmada.io/unschedulable";

/// A trace on a fleet.
pub(super) fn read_files(args: &SimulateArgs) -> Result<SimulationQuestion, WrongInput> {
    let Some(fleet) = &args.fleet else {
        return Err(WrongInput("a trace needs a fleet to run on: --fleet FILE".to_owned()));
    };
    let clusters = name_file_in_error(fleet, read::read_fleet(&read_text(fleet)?, args.clusters, args.every))?;
    let trace = read_trace(args, &clusters)?;
    let queues = match read_queues(args)? {
        Some(queues) => queues,
        None => queues_of_jobs(&trace.jobs),
    };
    let world =
        World::new(clusters, queues, trace.jobs, Millis::ZERO).map_err(|error| WrongInput(error.to_string()))?;
    Ok(SimulationQuestion { world: World { terms: trace.terms, ..world }, notes: trace.notes, horizon: None })
}

/// The trace's jobs; none without a trace.
pub(super) fn read_trace(args: &SimulateArgs, clusters: &[MemberCluster]) -> Result<Trace, WrongInput> {
    let Some(path) = &args.trace else { return Ok(Trace::default()) };
    let options = TraceOptions {
        format: args.trace_format,
        speed_milli: args.speed,
        estimates: args.estimates,
        seed: args.seed,
        gather: args.gather,
    };
    let offered = read::list_offered_resources(clusters);
    name_file_in_error(path, read::read_trace(&read_text(path)?, &options, &offered, &mut Shapes::default()))
}

/// The queues of the file, if there is one.
pub(super) fn read_queues(args: &SimulateArgs) -> Result<Option<Vec<QueueSpec>>, WrongInput> {
    let Some(path) = &args.queues else { return Ok(None) };
    name_file_in_error(path, read::read_queues(&read_text(path)?)).map(Some)
}

/// A queue without limits for every name.
fn queues_of_jobs(jobs: &[Job]) -> Vec<QueueSpec> {
    let names: BTreeSet<&QueueName> = jobs.iter().map(|job| &job.queue).collect();
    names.into_iter().cloned().map(QueueSpec::unlimited).collect()
}

/// Lets a cluster take nothing new.
pub(super) fn cordon_cluster(world: &mut World, name: &str) -> Result<(), WrongInput> {
    let known: Vec<String> = world.clusters.iter().map(|one| one.cluster.name.clone()).collect();
    let Some(member) = world.clusters.iter_mut().find(|one| one.cluster.name == name) else {
        return Err(WrongInput(format!("--cordon {name}: there is no such cluster; there are {}", known.join(", "))));
    };
    let taint = Taint { key: CORDONED.to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
    member.cluster.taints.push(taint);
    Ok(())
}

/// Checks that some node has the resource.
pub(super) fn check_offered(world: &World, resource: &str) -> Result<(), WrongInput> {
    let total = world.total();
    if total.get(resource).is_zero() {
        return Err(WrongInput(format!("--resource {resource}: no node has any of it; all nodes have {total}")));
    }
    Ok(())
}

fn read_text(path: &Path) -> Result<String, WrongInput> {
    fs::read_to_string(path).map_err(|error| WrongInput(format!("failed to read {}: {error}", path.display())))
}

fn name_file_in_error<T>(path: &Path, read: Result<T, read::ReadError>) -> Result<T, WrongInput> {
    read.map_err(|error| WrongInput(format!("{}: {error}", path.display())))
}
