//! Arguments of `caldera job`.

use std::ffi::OsStr;

use caldera_simulate::time::Millis;
use clap::{
    Arg, ArgGroup, Args as ClapArgs, Command, Subcommand,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};

use super::{
    ask::{ScopeArgs, WhyArgs},
    console::ConsoleSourceArgs,
    names,
    values::{JobName, parse_job_name, parse_seconds, parse_value},
};
use crate::{
    json_path::JsonPath,
    output::{ListOutput, ListOutputParser},
    view::State,
};

#[derive(Debug, Subcommand)]
pub enum JobAction {
    /// Lists jobs and services of queues: state, reason, pods, clusters.
    List(JobListArgs),
    /// Says where a job stands and why; `caldera why` is the same.
    Why(WhyArgs),
    /// Says everything of a job: where it stands and why, in full, and its events.
    Describe(WhyArgs),
    /// Keeps jobs that wait in their queue until they are released. What runs runs on.
    Hold(JobNamesArgs),
    /// Takes the hold of jobs away.
    Release(JobNamesArgs),
    /// Takes jobs off their clusters until they are resumed: their quota is free for others, and they keep their age.
    Suspend(JobNamesArgs),
    /// Puts suspended jobs in line again.
    Resume(JobNamesArgs),
    /// Takes Volcano Jobs off their clusters and puts them in line again with their age, by a Command of Volcano.
    Requeue(JobNamesArgs),
    /// Says to which clusters a job may go, and takes it off others: whole, and in line with its age.
    Move(JobMoveArgs),
    /// Shows what the pods of a job say, each line with its cluster and pod.
    Logs(JobLogsArgs),
    /// Runs a command in a pod of a job, whichever cluster it is in.
    Exec(JobExecArgs),
    /// Deletes jobs: their pods are stopped.
    Delete(JobNamesArgs),
}

#[derive(Debug, ClapArgs)]
pub struct JobListArgs {
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Jobs of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Jobs with these labels, as kubectl writes selectors.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Jobs of this queue.
    #[arg(short, long, value_name = "QUEUE", add = names::complete_queue_names())]
    pub queue: Option<String>,
    /// Jobs in this state.
    #[arg(long, value_enum, ignore_case = true, value_name = "STATE")]
    pub state: Option<State>,
    /// Jobs that were submitted in this time, as 30s, 5m or 2h.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub since: Option<i64>,
    /// Prints the list anew each time it changes, until Ctrl-C: on a terminal over the old one.
    #[arg(short, long)]
    pub watch: bool,
    /// Adds when each job that waits is expected to start: reads what the whole fleet waits for and runs, and plays it
    /// forward.
    #[arg(long)]
    pub start: bool,
    /// With --start: how long jobs run that do not say so.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_value::<Millis>, requires = "start")]
    pub assume_run_for: Millis,
    #[command(flatten)]
    pub source: ConsoleSourceArgs,
    /// Order, or any other field of the JSON form; those without it come last.
    #[arg(long, default_value = "name", value_name = "FIELD", value_parser = JobOrderParser)]
    pub sort_by: JobOrder,
    /// How the answer looks.
    #[arg(short, long, default_value = "table", value_parser = ListOutputParser)]
    pub output: ListOutput,
}

/// By what jobs are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobOrder {
    /// Namespace and name.
    Name,
    /// The oldest first.
    Age,
    /// The most urgent first.
    Priority,
    /// A field of the rows' JSON form.
    Field(JsonPath),
}

/// Reads a [`JobOrder`], and says what jobs are mostly ordered by.
#[derive(Debug, Clone, Copy)]
pub struct JobOrderParser;

impl TypedValueParser for JobOrderParser {
    type Value = JobOrder;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<JobOrder, clap::Error> {
        let read = |text: &str| match text {
            "name" => Ok(JobOrder::Name),
            "age" => Ok(JobOrder::Age),
            "priority" => Ok(JobOrder::Priority),
            field => JsonPath::parse(field).map(JobOrder::Field),
        };
        StringValueParser::new().try_map(move |text| read(&text)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        let value = |name: &'static str, help: &'static str| PossibleValue::new(name).help(help);
        Some(Box::new(
            [
                value("name", "Namespace and name"),
                value("queue", "Queue"),
                value("state", "State"),
                value("age", "The oldest first"),
                value("priority", "The most urgent first"),
            ]
            .into_iter(),
        ))
    }
}

#[derive(Debug, ClapArgs)]
pub struct JobNamesArgs {
    /// Volcano Jobs, or KIND/NAME, such as deployment/web or rayjob/train.
    #[arg(value_name = "JOB", add = names::complete_job_names(), required = true, value_parser = parse_job_name)]
    pub jobs: Vec<JobName>,
    #[command(flatten)]
    pub scope: ScopeArgs,
}

#[derive(Debug, ClapArgs)]
#[command(group(ArgGroup::new("where").required(true).multiple(true).args(["to", "away_from", "anywhere"])))]
pub struct JobMoveArgs {
    /// Name of a Volcano Job, or KIND/NAME, such as deployment/web or rayjob/train.
    #[arg(value_name = "JOB", add = names::complete_job_names(), value_parser = parse_job_name)]
    pub job: JobName,
    /// To these clusters alone, of those that its policy selects.
    #[arg(long, value_name = "CLUSTERS", value_delimiter = ',', add = names::complete_cluster_names())]
    pub to: Vec<String>,
    /// To none of these clusters.
    #[arg(long, value_name = "CLUSTERS", value_delimiter = ',', add = names::complete_cluster_names())]
    pub away_from: Vec<String>,
    /// Wherever its policy lets it: takes back what was said before.
    #[arg(long, conflicts_with_all = ["to", "away_from"])]
    pub anywhere: bool,
    /// Also if it runs and there is no room there now: it waits in line for it.
    #[arg(long)]
    pub may_wait: bool,
    /// Namespace of the controller's lease, where its settings are; without it caldera-system, then default.
    #[arg(long, value_name = "NAMESPACE", add = names::complete_namespace_names())]
    pub lease_namespace: Option<String>,
    #[command(flatten)]
    pub scope: ScopeArgs,
}

/// Which pods of which job.
#[derive(Debug, Clone, ClapArgs)]
pub struct PodsArgs {
    /// Name of a Volcano Job, or KIND/NAME, such as deployment/web or rayjob/train.
    #[arg(value_name = "JOB", add = names::complete_job_names(), value_parser = parse_job_name)]
    pub job: JobName,
    /// Pods of this task.
    #[arg(long, value_name = "TASK")]
    pub task: Option<String>,
    /// Pods of this number in their task. Each cluster of a split job numbers its own.
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Pods in this cluster.
    #[arg(long, value_name = "CLUSTER", add = names::complete_cluster_names())]
    pub cluster: Option<String>,
    /// This container; without it each pod's first.
    #[arg(short, long, value_name = "CONTAINER")]
    pub container: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub struct JobLogsArgs {
    #[command(flatten)]
    pub pods: PodsArgs,
    /// Goes on with what is said from now on, until the pods that are there now have ended.
    #[arg(short, long)]
    pub follow: bool,
    /// The last lines of each pod.
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(i64).range(0..))]
    pub tail: Option<i64>,
    /// What was said in this time, as 30s, 5m or 2h.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub since: Option<i64>,
    #[command(flatten)]
    pub scope: ScopeArgs,
}

#[derive(Debug, ClapArgs)]
pub struct JobExecArgs {
    #[command(flatten)]
    pub pods: PodsArgs,
    /// In each of the pods that are chosen, where there are several.
    #[arg(long, conflicts_with_all = ["stdin", "tty"])]
    pub all: bool,
    /// Sends standard input to the command.
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Gives the command a terminal.
    #[arg(short, long, requires = "stdin")]
    pub tty: bool,
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// The command, after `--`.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}
