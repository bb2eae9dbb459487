//! The arguments of `caldera simulate`.

use std::path::PathBuf;

use caldera_core::{quantity::Quantity, queue::OrderPolicy};
use caldera_simulate::{
    policy::PolicyName,
    read::{Estimates, TraceFormat},
    scenario::Scenario,
    time::Millis,
};
use clap::{Args as ClapArgs, ValueEnum};

use super::{component::parse_order, values::parse_value};

/// What `--help` says before the options.
pub const LONG_ABOUT: &str = "\
Simulates jobs on a fleet on virtual time: the same queue engine and the same placement as in the controller and the
scheduler, next to other policies in the same world. Reports waits, utilisation (GAR, SOR), fragmentation (GFR), shares
and starvation. The same input and seed give the same report, byte for byte. Nothing is changed anywhere.

What is simulated is one of
  --scenario NAME               built in: `starvation` (a large gang among endless small jobs), `fairness` (three
                                weighted tenants who come one after another)
  --trace FILE --fleet FILE     jobs with their arrivals and run times, on nodes
  --kubeconfig FILE             what waits and runs on a host now; --trace adds jobs from now on, --queues other quotas,
                                --cordon takes a cluster out

Queues (--queues) are Volcano's Queue objects in YAML, as for kubectl; without them every queue that is named has no
limit. A fleet is YAML
  clusters:
  - name: east
    nodes:
    - {count: 4, allocatable: {cpu: 96, memory: 768Gi, nvidia.com/gpu: 8}, labels: {disk: ssd}}
or CSV with the columns cluster, count and a column for each resource. A trace is CSV: a row for each task of a job
  job,queue,priority,arrival,run,estimate,task,replicas,min,cpu,memory,nvidia.com/gpu
  train,ml,0,0,3600,4000,master,1,1,8,32Gi,
  train,,,,,,worker,16,8,8,64Gi,8
with columns namespace and user for whose a job is, cards for the models that a task may use (A100|H100), qos for the
level of its pods (BE) and data for where a job's data is, as annotation caldera.dev/data says it. Needed are job,
arrival and run (seconds, or a number with ms, s, m, h, d); rows of one job are one gang, and what is not a column named
here is a resource. The files of the Alibaba cluster trace program are read too: openb_nodes.csv
and spot_nodes.csv as fleets, openb_pods.csv (--trace-format openb) and dlrm_instances.csv (dlrm).

Wrong input ends with exit code 2 and a sentence that says where.";

#[derive(Debug, ClapArgs)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["scenario", "trace", "kubeconfig"])))]
pub struct SimulateArgs {
    /// A built-in workload.
    #[arg(long, value_name = "NAME", value_parser = parse_value::<Scenario>, conflicts_with_all = ["trace", "kubeconfig", "queues", "fleet"])]
    pub scenario: Option<Scenario>,
    /// Jobs, as CSV.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// How the trace is written: caldera, openb or dlrm.
    #[arg(long, value_name = "FORMAT", default_value = "caldera", value_parser = parse_value::<TraceFormat>)]
    pub trace_format: TraceFormat,
    /// Nodes, as YAML or CSV.
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    pub fleet: Option<PathBuf>,
    /// Volcano's Queue objects, as YAML.
    #[arg(long, value_name = "FILE")]
    pub queues: Option<PathBuf>,
    /// Kubeconfig of a Karmada API: begins with what waits and runs there now. Only reads.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Who decides: caldera, volcano-global, fifo, best-effort-fifo, kueue, kueue-fair, armada; one after the other,
    /// each in its own world.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "caldera", value_parser = parse_value::<PolicyName>)]
    pub policy: Vec<PolicyName>,
    /// Who goes first by policy caldera; without it as the host's controller has it, or share.
    #[arg(long, value_parser = parse_order(), value_name = "ORDER")]
    pub order: Option<OrderPolicy>,
    /// Seconds after which what a queue, or a tenant that takes turns, used counts half, with --order fair-history;
    /// without it as the host's controller has it, or a week.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(10..))]
    pub history_half_life: Option<u32>,
    /// Seconds that a job is blocked before it gets a reservation by policy caldera; 0 makes none. Without it as the
    /// host's controller has it, or 60. A queue may say otherwise.
    #[arg(long, value_name = "SECONDS")]
    pub reservation_after: Option<u32>,
    /// What everything random follows from: scenarios, and --estimates rough.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Jobs of the trace arrive this many times as fast; they run as long as before.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_factor)]
    pub speed: u64,
    /// What users say of run times: as-given, exact, or rough (one to five times the truth).
    #[arg(long, value_name = "HOW", default_value = "as-given", value_parser = parse_value::<Estimates>)]
    pub estimates: Estimates,
    /// In the DLRM trace, instances of one service that were created within this time are one gang.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_value::<Millis>)]
    pub gather: Millis,
    /// Into how many clusters a fleet without clusters is cut.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clusters: u32,
    /// Of a fleet without clusters only every so many-th node of a kind is used.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub every: u32,
    /// With --kubeconfig: how long jobs run that do not say so, nor do the last of their queue or a limit tell it.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_value::<Millis>)]
    pub assume_run_for: Millis,
    /// A cluster that takes nothing new; may be repeated.
    #[arg(long, value_name = "CLUSTER", add = super::names::complete_cluster_names())]
    pub cordon: Vec<String>,
    /// Stops after this time, whatever still waits.
    #[arg(long, value_name = "TIME", value_parser = parse_value::<Millis>)]
    pub horizon: Option<Millis>,
    /// The resource that rates and shares are of; without it the accelerator that there is most of, else cpu.
    #[arg(long, value_name = "RESOURCE")]
    pub resource: Option<String>,
    /// A job counts as starved once it has waited this many times what the work before it takes.
    #[arg(long, value_name = "TIMES", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub starved_after: u32,
    /// Where POLICY-jobs.csv and POLICY-time.csv are written.
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
    /// Where waits.svg and utilisation.svg are written.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// How the report looks.
    #[arg(short, long, value_enum, default_value_t = ReportForm::Table)]
    pub output: ReportForm,
}

/// How a report looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportForm {
    /// For people.
    Table,
    /// One JSON document.
    Json,
}

fn parse_factor(text: &str) -> Result<u64, String> {
    let quantity: Quantity =
        text.parse().map_err(|_| format!("{text:?} is no factor: want a number such as 2 or 0.5"))?;
    let factor = u64::try_from(quantity.milli_ceil()).ok().filter(|factor| *factor > 0);
    factor.ok_or_else(|| format!("{text:?} is no factor: want more than 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_exact_and_above_nothing() {
        assert_eq!((parse_factor("2"), parse_factor("0.5"), parse_factor("1k")), (Ok(2_000), Ok(500), Ok(1_000_000)));
        for text in ["0", "-1", "fast", ""] {
            assert!(parse_factor(text).unwrap_err().contains("is no factor"), "{text}");
        }
    }
}
