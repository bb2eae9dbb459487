//! `dlrm_instances.csv` (Yang et al., NSDI'25): instances of services with two roles, CN (no GPU) and HN (one).
//!
//! A job is what a service created within one window of time: a gang with a task for each role and size, that needs all
//! its instances and runs as long as the longest of them (to the end of the trace, where that is not told). What ran
//! before the trace began arrives at its start. Four tenants have the services by turns. `max_instance_per_node` is not
//! looked at.

use std::collections::BTreeMap;

use caldera_core::{gang::QueueName, quantity::Quantity, resources::Resources};

use super::{GPU, ReadError, Reader, TraceOptions, table::Table};
use crate::{
    time::Millis,
    world::{self, Job},
};

/// Queues that the services are dealt out to.
const TENANTS: u64 = 4;

/// What one service created in one window.
#[derive(Default)]
struct Wave {
    /// By role and request.
    tasks: BTreeMap<(String, String), (Resources, u32)>,
    first: Option<Millis>,
    run: Millis,
}

pub(super) fn read_dlrm_jobs(
    text: &str,
    options: &TraceOptions,
    reader: &mut Reader<'_>,
) -> Result<Vec<Job>, ReadError> {
    let columns = [
        "role",
        "app_name",
        "cpu_request",
        "gpu_request",
        "rdma_request",
        "memory_request",
        "creation_time",
        "deletion_time",
    ];
    let table = Table::read(text, &columns)?;
    let mut end = Millis::ZERO;
    for row in table.rows() {
        for column in ["creation_time", "deletion_time"] {
            end = end.max(row.maybe(column)?.unwrap_or_default());
        }
    }
    let window = options.gather.0.max(1);
    let mut waves: BTreeMap<(String, Option<u64>), Wave> = BTreeMap::new();
    for row in table.rows() {
        let created: Option<Millis> = row.maybe("creation_time")?;
        let deleted: Millis = row.maybe("deletion_time")?.unwrap_or(end);
        let wave = waves.entry((row.read("app_name")?, created.map(|at| at.0 / window))).or_default();
        let created = created.unwrap_or_default();
        wave.first = Some(wave.first.map_or(created, |first| first.min(created)));
        wave.run = wave.run.max(deleted.since(created));
        let gib = |text: String| if text.is_empty() { text } else { format!("{text}Gi") };
        let amounts = [
            ("cpu", row.read::<String>("cpu_request")?),
            (GPU, row.read("gpu_request")?),
            ("rdma", row.read("rdma_request")?),
            ("memory", gib(row.read("memory_request")?)),
        ];
        let mut request = Resources::new();
        for (name, text) in &amounts {
            let amount: Quantity = text.parse().map_err(|error| row.wrong(format!("{name}: {error}")))?;
            request.set(*name, amount);
        }
        let request = reader.offered_only(request);
        let task = wave.tasks.entry((row.read::<String>("role")?, request.to_string())).or_insert((request, 0));
        task.1 += 1;
    }
    let jobs = waves.into_iter().map(|((app, window), wave)| job(&app, window, wave, reader)).collect();
    reader.notes.push(format!("instances of one service created within {} are one gang", options.gather));
    Ok(jobs)
}

fn job(app: &str, window: Option<u64>, wave: Wave, reader: &mut Reader<'_>) -> Job {
    let mut roles: BTreeMap<String, u32> = BTreeMap::new();
    let mut tasks = Vec::new();
    for ((role, _), (request, replicas)) in wave.tasks {
        let role = role.to_lowercase();
        let nth = roles.entry(role.clone()).or_default();
        *nth += 1;
        let name = if *nth == 1 { role } else { format!("{role}-{nth}") };
        tasks.push(world::task(&name, replicas, replicas, request));
    }
    let number: u64 = app.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    Job {
        name: window.map_or_else(|| format!("{app}-before"), |window| format!("{app}-{window:06}")).into(),
        queue: QueueName::from(format!("tenant-{}", number % TENANTS)),
        priority: 0,
        arrival: wave.first.unwrap_or_default(),
        run: wave.run,
        estimate: None,
        shape: reader.shapes.gang(world::gang(tasks)),
        running: None,
    }
}
