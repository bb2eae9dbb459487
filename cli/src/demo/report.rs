//! The demo's report: the expectations, the tables and the JSON document.

use std::{collections::BTreeMap, fmt, time::Duration};

use caldera_runtime::client::WriteCounts;
use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use serde::Serialize;

use super::observed::{DemoJob, Observed, Queue, format_clusters};

/// Something that the demo must show.
#[derive(Debug, Clone, Serialize)]
pub struct Expectation {
    /// In words.
    pub what: &'static str,
    /// Whether it was seen.
    pub held: bool,
}

/// Checks what the demo must show against what was observed.
pub fn check_expectations(observed: &Observed) -> Vec<Expectation> {
    let job = |name: &str| observed.job(name);
    let completed = |name: &str| job(name).phase == "Completed";
    let mut all = Vec::new();
    let mut expect = |what, held| all.push(Expectation { what, held });
    let pods = |job: &DemoJob| job.clusters.values().flat_map(BTreeMap::values).sum::<u32>();

    let split = job("mindspore-cpu");
    expect(
        "mindspore-cpu was split over two clusters, 10 pods in all",
        split.clusters.len() == 2 && pods(&split) == 10,
    );
    expect(
        "mindspore-cpu completed, and was not called Completed before it ran",
        completed("mindspore-cpu") && split.started.is_some(),
    );
    let gpu = job("pytorch-gpu");
    expect(
        "pytorch-gpu ran whole in one cluster",
        gpu.clusters.len() == 1 && pods(&gpu) == 4 && completed("pytorch-gpu"),
    );
    let big = job("too-big");
    expect(
        "too-big was never released, and its PodGroup says why with numbers",
        big.released.is_none() && big.message.contains("48") && big.message.contains("20"),
    );
    let (low, urgent) = (job("low-priority"), job("urgent-report"));
    expect(
        "urgent-report overtook low-priority, which was submitted first",
        low.seen < urgent.seen && matches!((urgent.released, low.released), (Some(urgent), Some(low)) if urgent < low),
    );
    expect("low-priority and urgent-report completed", completed("low-priority") && completed("urgent-report"));
    let web = job("web");
    expect("web has its three replicas, released by its queue", web.ready == (3, 3) && web.released.is_some());
    let read = |text: &str| text.parse::<caldera_core::quantity::Quantity>().unwrap_or_default();
    expect(
        "no queue ever used more than its limit",
        observed
            .queues
            .values()
            .all(|queue| queue.resources.values().all(|(most, _, limit)| read(most) <= read(limit))),
    );
    let is_empty = |name: &str| {
        let queue = observed.queues.get(name);
        queue.is_some_and(|queue| queue.resources.values().all(|(_, used, _)| read(used) == read("0")))
    };
    expect("what the completed jobs held went back to their queues", is_empty("research") && is_empty("training"));
    all
}

#[derive(Debug, Serialize)]
struct JobSummary {
    name: String,
    kind: String,
    queue: String,
    priority: String,
    /// Seconds from submission to release.
    waited: Option<f64>,
    clusters: BTreeMap<String, BTreeMap<String, u32>>,
    phase: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct QueueSummary {
    name: String,
    state: String,
    /// By resource.
    used: BTreeMap<String, String>,
    most_used: BTreeMap<String, String>,
    limit: BTreeMap<String, String>,
}

/// The report as a JSON document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    expectations: Vec<Expectation>,
    jobs: Vec<JobSummary>,
    queues: Vec<QueueSummary>,
    /// Writes to the host's API by component, then by verb and resource.
    writes: BTreeMap<String, BTreeMap<String, u64>>,
    writes_in_all: u64,
    /// Of those, before the first job was submitted.
    setup_writes: u64,
    writes_per_job: f64,
    sandbox_ready_seconds: f64,
    total_seconds: f64,
}

impl Summary {
    pub fn new(
        observed: &Observed,
        counts: &WriteCounts,
        setup_writes: u64,
        sandbox_ready: Duration,
        total: Duration,
    ) -> Self {
        let waited = |job: &DemoJob| Some((job.released?.saturating_sub(job.seen?)).as_secs_f64());
        let jobs: Vec<JobSummary> = observed
            .jobs
            .iter()
            .map(|(name, job)| JobSummary {
                name: name.clone(),
                kind: job.kind.clone(),
                queue: job.queue.clone(),
                priority: job.priority.clone(),
                waited: waited(job),
                clusters: job.clusters.clone(),
                phase: job.phase.clone(),
                reason: if job.released.is_none() { job.message.clone() } else { String::new() },
            })
            .collect();
        let queue = |(name, queue): (&String, &Queue)| {
            let column = |f: fn(&(String, String, String)) -> &String| {
                queue.resources.iter().map(|(resource, row)| (resource.clone(), f(row).clone())).collect()
            };
            QueueSummary {
                name: name.clone(),
                state: queue.state.clone(),
                most_used: column(|row| &row.0),
                used: column(|row| &row.1),
                limit: column(|row| &row.2),
            }
        };
        let mut writes: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let mut writes_in_all = 0;
        for (key, count) in counts.read_counts() {
            writes_in_all += count;
            *writes.entry(key.component).or_default().entry(format!("{} {}", key.verb, key.resource)).or_default() +=
                count;
        }
        #[allow(clippy::cast_precision_loss)]
        let writes_per_job = writes_in_all.saturating_sub(setup_writes) as f64 / jobs.len().max(1) as f64;
        Self {
            expectations: check_expectations(observed),
            queues: observed.queues.iter().map(queue).collect(),
            jobs,
            writes,
            writes_in_all,
            setup_writes,
            writes_per_job: (writes_per_job * 100.0).round() / 100.0,
            sandbox_ready_seconds: sandbox_ready.as_secs_f64(),
            total_seconds: total.as_secs_f64(),
        }
    }

    pub fn all_held(&self) -> bool {
        self.expectations.iter().all(|expectation| expectation.held)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut jobs = Table::new();
        jobs.load_style(UTF8_BORDERS_ONLY).set_header(["JOB", "QUEUE", "PRIORITY", "WAITED", "CLUSTERS", "PHASE"]);
        for job in &self.jobs {
            let waited = job.waited.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}s"));
            let phase = if job.phase.is_empty() { "Pending" } else { &job.phase };
            let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
            jobs.add_row([
                job.name.clone(),
                or_dash(&job.queue),
                or_dash(&job.priority),
                waited,
                or_dash(&format_clusters(&job.clusters)),
                phase.to_owned(),
            ]);
        }
        writeln!(f, "\n{jobs}")?;
        for job in self.jobs.iter().filter(|job| !job.reason.is_empty()) {
            writeln!(f, "{}: {}", job.name, job.reason)?;
        }
        let mut queues = Table::new();
        queues.load_style(UTF8_BORDERS_ONLY).set_header(["QUEUE", "STATE", "RESOURCE", "USED", "MOST USED", "LIMIT"]);
        for queue in &self.queues {
            for (resource, limit) in &queue.limit {
                let of = |column: &BTreeMap<String, String>| column.get(resource).cloned().unwrap_or_default();
                queues.add_row([
                    queue.name.clone(),
                    queue.state.clone(),
                    resource.clone(),
                    of(&queue.used),
                    of(&queue.most_used),
                    limit.clone(),
                ]);
            }
        }
        writeln!(f, "\n{queues}\n")?;
        for expectation in &self.expectations {
            writeln!(f, "{} {}", if expectation.held { "✓" } else { "✗" }, expectation.what)?;
        }
        writeln!(
            f,
            "\n{} writes to the host's API by Caldera for queues, {} for {} jobs ({} a job); {:.1} s in all",
            self.setup_writes,
            self.writes_in_all - self.setup_writes,
            self.jobs.len(),
            self.writes_per_job,
            self.total_seconds
        )
    }
}
