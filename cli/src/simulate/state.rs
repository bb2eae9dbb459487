//! Reads the simulated fleet, queues and jobs from a host as it is now.

use std::path::Path;

use caldera_simulate::{live::world, world::World};

use super::{SimulateArgs, SimulationQuestion, WrongInput, input};
use crate::{components, live};

/// The host's state, with the files' queues and jobs where they are given.
pub(super) async fn read_host(args: &SimulateArgs, kubeconfig: &Path) -> anyhow::Result<SimulationQuestion> {
    let client = components::connect_for_command(Some(kubeconfig), "simulate").await?;
    let mut live = live::read_undecided(&client, None, None).await?;
    let mut state = live.take_state();
    if let Some(queues) = input::read_queues(args)? {
        state.queues = queues;
    }
    let wrong = |error: caldera_simulate::world::WorldError| WrongInput(error.to_string());
    let (now, mut notes) = world(&state, args.assume_run_for).map_err(wrong)?;
    notes.extend(live.gaps.iter().map(|gap| format!("not seen: {}: {}", gap.what, gap.why)));
    let more = input::read_trace(args, &now.clusters)?;
    notes.extend(more.notes);
    let of_trace = more.terms;
    // The trace begins now.
    let later =
        more.jobs.into_iter().map(|job| caldera_simulate::world::Job { arrival: now.start.plus(job.arrival), ..job });
    let World { clusters, queues, jobs, start, origin, links, rules, mut terms } = now;
    terms.extend(of_trace);
    let all = World::new(clusters, queues, jobs.into_iter().chain(later).collect(), start).map_err(wrong)?;
    let world = World { origin, links, rules, terms, ..all };
    Ok(SimulationQuestion { world, notes, horizon: None })
}
