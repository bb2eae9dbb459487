//! Reads the simulated fleet, queues and jobs from a host as it is now.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use caldera_controller::snapshot::{self, take_snapshot};
use caldera_core::{
    fleet::Update,
    inventory::{Change, Node, Pod},
    place::Cluster,
};
use caldera_runtime::client::WriteCounts;
use caldera_simulate::{
    live::{LiveJob, Member, State, world},
    world::World,
};

use super::{Asked, SimulateArgs, WrongInput, input};
use crate::{components, live};

/// The host's state, with the files' queues and jobs where they are given.
pub(super) async fn read_host(args: &SimulateArgs, kubeconfig: &Path) -> anyhow::Result<Asked> {
    let client = components::connect_client(Some(kubeconfig), "simulate", &WriteCounts::default()).await?;
    let (live, told) = live::read_sources(&client, None).await?;
    let seen = take_snapshot(&live.controller);
    let queues = input::read_queues(args)?.unwrap_or(seen.queues);
    let state = State {
        now: live.now.as_second(),
        members: read_members(seen.clusters, told),
        queues,
        jobs: seen.jobs.into_iter().map(read_job).collect(),
    };
    let wrong = |error: caldera_simulate::world::WorldError| WrongInput(error.to_string());
    let (now, mut notes) = world(&state, args.assume_run_for).map_err(wrong)?;
    notes.extend(live.gaps.iter().map(|gap| format!("not seen: {}: {}", gap.what, gap.why)));
    let more = input::read_trace(args, &now.clusters)?;
    notes.extend(more.notes);
    // The trace begins now.
    let later =
        more.jobs.into_iter().map(|job| caldera_simulate::world::Job { arrival: now.start.plus(job.arrival), ..job });
    let jobs = now.jobs.into_iter().chain(later).collect();
    let world = World::new(now.clusters, now.queues, jobs, now.start).map_err(wrong)?;
    Ok(Asked { world, notes, horizon: None })
}

fn read_members(clusters: Vec<Cluster>, told: Vec<(String, Update)>) -> Vec<Member> {
    let mut seen: BTreeMap<String, (Vec<Node>, Vec<Pod>)> = BTreeMap::new();
    for (name, update) in told {
        let (nodes, pods) = seen.entry(name).or_default();
        match update {
            Update::Change(Change::Nodes(all)) => *nodes = all,
            Update::Change(Change::Pods(all)) => *pods = all,
            Update::Change(_) | Update::Up | Update::Down(_) | Update::From(_) | Update::Queues(_) => {}
        }
    }
    let member = |cluster: Cluster| {
        let (nodes, pods) = seen.remove(&cluster.name).unwrap_or_default();
        Member { cluster, nodes, pods }
    };
    clusters.into_iter().map(member).collect()
}

fn read_job(job: snapshot::Job) -> LiveJob {
    LiveJob {
        name: Arc::from(job.name),
        workload: job.workload,
        queue: job.queue,
        priority: job.priority,
        created: job.created,
        began: job.began,
        placed: job.placed,
        run_for: job.run_for,
        gang: job.gang,
        binding: job.binding,
        whole: job.whole,
    }
}
