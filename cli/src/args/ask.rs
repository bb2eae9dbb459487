//! Arguments of the commands for users and admins: `caldera why`, `queue`, `cluster`, `events`, `pause`,
//! `unpause`, `history`, `usage`, `shadow` and `top`.

use std::path::PathBuf;

use caldera_controller::usage::Month;
use caldera_core::quantity::Quantity;
use caldera_simulate::time::Millis;
use clap::{ArgGroup, Args as ClapArgs, Subcommand, ValueEnum};
use jiff::Timestamp;

use super::{
    console::ConsoleSourceArgs,
    names,
    values::{
        JobName, WhySubject, parse_amount, parse_job_name, parse_seconds, parse_time, parse_value, parse_why_subject,
    },
};
use crate::{
    json_path::JsonPath,
    output::{ListOutput, ListOutputParser, Output, RecordsOutput, RecordsOutputParser},
};

/// How what only asks ends.
pub(super) const ASK_EXIT: &str = "Exit codes: 0 there is an answer; 1 there is no such object, or the API server does \
                                   not answer or refuses; 2 wrong usage.";

/// How `caldera top` ends.
pub(super) const TOP_EXIT: &str = "Exit codes: 0 it was ended by q, Ctrl-C or a signal, or printed once; 1 there is no \
                                   terminal, or the API server does not answer or refuses; 2 wrong usage.";

#[derive(Debug, ClapArgs)]
pub struct TopArgs {
    /// Jobs of this namespace; without it those of all, or of the kubeconfig's where others are refused.
    #[arg(short, long, value_name = "NAMESPACE", add = names::complete_namespace_names())]
    pub namespace: Option<String>,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Prints what there is, once, and ends: for a pipe, or where there is no terminal.
    #[arg(long)]
    pub once: bool,
    /// Namespace of the controller's lease, where its settings are; without it caldera-system, then default.
    #[arg(long, value_name = "NAMESPACE", add = names::complete_namespace_names())]
    pub lease_namespace: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub struct WhyArgs {
    /// Name of a Volcano Job, or KIND/NAME, such as deployment/web or rayjob/train; hyperjob/NAME for the first of its
    /// jobs that waits, cronjob/NAME for when it makes the next.
    #[arg(value_name = "JOB", add = names::complete_job_names(), value_parser = parse_why_subject)]
    pub job: WhySubject,
    /// Its namespace; without it the kubeconfig's.
    #[arg(short, long, value_name = "NAMESPACE", add = names::complete_namespace_names())]
    pub namespace: Option<String>,
    /// Namespace of the controller's lease, where its settings are; without it caldera-system, then default.
    #[arg(long, value_name = "NAMESPACE", add = names::complete_namespace_names())]
    pub lease_namespace: Option<String>,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// For the expected start: how long jobs run that do not say so.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_value::<Millis>)]
    pub assume_run_for: Millis,
    #[command(flatten)]
    pub source: ConsoleSourceArgs,
    /// How the answer looks.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

#[derive(Debug, ClapArgs)]
pub struct QueueArgs {
    /// What to do; without it all queues are listed.
    #[command(subcommand)]
    pub action: Option<QueueAction>,
    /// One queue, with who waits in it.
    #[arg(value_name = "NAME", add = names::complete_queue_names())]
    pub name: Option<String>,
    /// With one queue: how many jobs of its line are shown.
    #[arg(long, default_value_t = 10, value_name = "JOBS", global = true)]
    pub first: u16,
    /// Namespace of the controller's lease, where its settings are; without it caldera-system, then default.
    #[arg(long, value_name = "NAMESPACE", add = names::complete_namespace_names(), global = true)]
    pub lease_namespace: Option<String>,
    /// In a list: queues with these labels, as kubectl writes selectors.
    #[arg(short = 'l', long, value_name = "LABELS", global = true)]
    pub selector: Option<String>,
    /// In a list: order by this field of its JSON form, such as name or jobs.waiting; those without it come last.
    #[arg(long, value_name = "FIELD", value_parser = JsonPath::parse, global = true)]
    pub sort_by: Option<JsonPath>,
    /// With a list or tree: prints it anew each time it changes, until Ctrl-C; on a terminal over the old one.
    #[arg(short, long, global = true)]
    pub watch: bool,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// How the answer looks.
    #[arg(short, long, default_value = "table", value_parser = ListOutputParser, global = true)]
    pub output: ListOutput,
}

#[derive(Debug, Clone, ClapArgs)]
pub struct ClusterListArgs {
    /// Members with these labels, as kubectl writes selectors.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Order by this field of the JSON form, such as name or region; those without it come last.
    #[arg(long, value_name = "FIELD", value_parser = JsonPath::parse)]
    pub sort_by: Option<JsonPath>,
    /// Prints the list anew each time it changes, until Ctrl-C: on a terminal over the old one.
    #[arg(short, long)]
    pub watch: bool,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How the answer looks.
    #[arg(short, long, default_value = "table", value_parser = ListOutputParser)]
    pub output: ListOutput,
}

#[derive(Debug, Subcommand)]
pub enum QueueAction {
    /// All queues.
    List,
    /// All queues as a tree, or one and those below it.
    Tree {
        /// The queue at the top.
        #[arg(value_name = "NAME", add = names::complete_queue_names())]
        name: Option<String>,
    },
    /// One queue, with who waits in it.
    Describe {
        /// Which.
        #[arg(value_name = "NAME", add = names::complete_queue_names())]
        name: String,
    },
    /// Opens queues, by a Command of Volcano.
    Open {
        /// Which.
        #[arg(value_name = "NAME", add = names::complete_queue_names(), required = true)]
        names: Vec<String>,
    },
    /// Closes queues, by a Command of Volcano: what runs runs on, nothing more starts.
    Close {
        /// Which.
        #[arg(value_name = "NAME", add = names::complete_queue_names(), required = true)]
        names: Vec<String>,
    },
    /// Closes queues, and has the Volcano Jobs that run in them wait in line until the queue is opened.
    Drain {
        /// Which.
        #[arg(value_name = "NAME", add = names::complete_queue_names(), required = true)]
        names: Vec<String>,
    },
    /// Changes a queue's amounts and order. Resources that are not named stay as they are.
    Set(QueueSetArgs),
}

#[derive(Debug, ClapArgs)]
pub struct PauseArgs {
    /// Why, for all who ask what their jobs wait for.
    #[arg(long, value_name = "WORDS", default_value = "no reason given")]
    pub reason: String,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

// Where what the controller recorded is read.
#[derive(Debug, Default, ClapArgs)]
pub struct RecordsArgs {
    /// Namespace of the controller's lease, where its records are; without it caldera-system, then default.
    #[arg(long, value_name = "NAMESPACE", add = names::complete_namespace_names())]
    pub lease_namespace: Option<String>,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Order by this field of the rows' JSON form, such as queue; those without it come last.
    #[arg(long, value_name = "FIELD", value_parser = JsonPath::parse)]
    pub sort_by: Option<JsonPath>,
}

#[derive(Debug, ClapArgs)]
pub struct HistoryArgs {
    /// Of this namespace alone.
    #[arg(short, long, value_name = "NAMESPACE", add = names::complete_namespace_names())]
    pub namespace: Option<String>,
    /// Of this queue alone; with --actions: actions on this queue, not on its jobs.
    #[arg(short, long, value_name = "QUEUE", add = names::complete_queue_names())]
    pub queue: Option<String>,
    /// That this user submitted alone, or with --actions did: a person's name, or an account as
    /// system:serviceaccount:NAMESPACE:NAME.
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
    /// Tells instead who did what: held, released, moved, resized and suspended jobs, paused the fleet, opened, closed
    /// and changed queues, cordoned members, changed settings; and what was evicted.
    #[arg(long, conflicts_with = "result")]
    pub actions: bool,
    /// That ended so alone.
    #[arg(long, value_name = "RESULT", ignore_case = true,
          value_parser = ["Completed", "Failed", "Aborted", "Terminated", "Deleted"])]
    pub result: Option<String>,
    /// That ended, or was done, in this time, as 30s, 5m or 2h.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub since: Option<i64>,
    #[command(flatten)]
    pub records: RecordsArgs,
    /// How the answer looks.
    #[arg(short, long, default_value = "table", value_parser = RecordsOutputParser)]
    pub output: RecordsOutput,
}

#[derive(Debug, ClapArgs)]
pub struct ShadowArgs {
    /// Of this namespace alone.
    #[arg(short, long, value_name = "NAMESPACE", add = names::complete_namespace_names())]
    pub namespace: Option<String>,
    /// Of this queue alone.
    #[arg(short, long, value_name = "QUEUE", add = names::complete_queue_names())]
    pub queue: Option<String>,
    /// Only jobs on which the two compare so. May be repeated.
    #[arg(long, value_name = "VERDICT", value_parser = ["same", "elsewhere", "would-wait", "sooner", "waits"])]
    pub verdict: Vec<String>,
    /// Submitted in this time, as 30s, 5m or 2h.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub since: Option<i64>,
    #[command(flatten)]
    pub records: RecordsArgs,
    /// How the answer looks; wide says why in a sentence, and who would have been evicted.
    #[arg(short, long, default_value = "table", value_parser = ListOutputParser)]
    pub output: ListOutput,
}

#[derive(Debug, ClapArgs)]
pub struct UsageArgs {
    /// One month of UTC, as 2026-11; without it all that are kept.
    #[arg(long, value_name = "MONTH")]
    pub month: Option<Month>,
    /// What a row is of.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [UsageBy::Queue, UsageBy::Namespace])]
    pub by: Vec<UsageBy>,
    #[command(flatten)]
    pub records: RecordsArgs,
    /// How the answer looks.
    #[arg(short, long, default_value = "table", value_parser = RecordsOutputParser)]
    pub output: RecordsOutput,
}

/// What usage is told by, beside the month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageBy {
    /// The queue that was charged.
    Queue,
    /// The jobs' namespace.
    Namespace,
    /// Who submitted the jobs; nobody where that is not known.
    User,
}

#[derive(Debug, ClapArgs)]
pub struct UnpauseArgs {
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
#[command(group(
    ArgGroup::new("what")
        .required(true)
        .multiple(true)
        .args(["capability", "deserved", "guarantee", "weight", "priority", "reclaimable"])
))]
pub struct QueueSetArgs {
    /// Which.
    #[arg(value_name = "NAME", add = names::complete_queue_names())]
    pub name: String,
    /// What it may use at most, as `cpu=20,memory=64Gi`; `cpu=none` takes a limit away.
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',', value_parser = parse_amount)]
    pub capability: Vec<(String, Option<Quantity>)>,
    /// What it may take back from others.
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',', value_parser = parse_amount)]
    pub deserved: Vec<(String, Option<Quantity>)>,
    /// What is kept free for it.
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',', value_parser = parse_amount)]
    pub guarantee: Vec<(String, Option<Quantity>)>,
    /// Its part where it says nothing of what it deserves.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub weight: Option<u32>,
    /// Larger goes first.
    #[arg(long)]
    pub priority: Option<u32>,
    /// Whether others may take back what it borrowed.
    #[arg(long, value_name = "BOOL")]
    pub reclaimable: Option<bool>,
    /// Prints the patch, and changes nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Which Karmada API, and which namespace.
#[derive(Debug, Clone, ClapArgs)]
pub struct ScopeArgs {
    /// Namespace; without it the kubeconfig's.
    #[arg(short, long, value_name = "NAMESPACE", add = names::complete_namespace_names())]
    pub namespace: Option<String>,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct EventsArgs {
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Events of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Events on workloads with these labels, as kubectl writes selectors.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Events on this workload.
    #[arg(long = "for", value_name = "JOB", add = names::complete_job_names(), value_parser = parse_job_name)]
    pub job: Option<JobName>,
    /// What happened in this time, as 30s, 5m or 2h.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub since: Option<i64>,
    /// Warnings alone.
    #[arg(long)]
    pub warnings: bool,
    /// Order by this field of the JSON form, such as object or count; those without it come last.
    #[arg(long, value_name = "FIELD", value_parser = JsonPath::parse)]
    pub sort_by: Option<JsonPath>,
    /// Prints the list anew each time it changes, until Ctrl-C: on a terminal over the old one.
    #[arg(short, long)]
    pub watch: bool,
    /// How the answer looks.
    #[arg(short, long, default_value = "table", value_parser = ListOutputParser)]
    pub output: ListOutput,
}

#[derive(Debug, Subcommand)]
pub enum ClusterAction {
    /// Lists members: state, what they have and what is used, jobs.
    List(ClusterListArgs),
    /// Says everything of a member: conditions, taints, amounts, and the jobs that it has.
    Describe {
        /// Which.
        #[arg(value_name = "NAME", add = names::complete_cluster_names())]
        name: String,
        /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// How the answer looks.
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Lets no more jobs into members, by Karmada's taint. What runs runs on.
    Cordon(ClusterNamesArgs),
    /// Cordons members, and requeues the Volcano Jobs that are there, gang by gang. Services stay, and are told.
    Drain(ClusterDrainArgs),
    /// Lets jobs into members again.
    Uncordon(ClusterNamesArgs),
    /// Keeps a member for nobody for a time: no job starts there that would not end before. What runs runs on.
    Maintenance(MaintenanceArgs),
}

#[derive(Debug, ClapArgs)]
pub struct MaintenanceArgs {
    /// Which.
    #[arg(value_name = "NAME", add = names::complete_cluster_names())]
    pub name: String,
    /// When it begins, as 2026-11-26T08:00:00Z; without it now.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub start: Option<Timestamp>,
    /// How long it takes, as 45m or 4h.
    #[arg(long, value_name = "DURATION", value_parser = parse_seconds, required_unless_present = "cancel")]
    pub duration: Option<i64>,
    /// Why, for all who ask what their jobs wait for.
    #[arg(long, value_name = "WORDS")]
    pub reason: Option<String>,
    /// How long before it begins no job starts that does not say how long it runs; 24h without it.
    #[arg(long, value_name = "DURATION", value_parser = parse_seconds)]
    pub notice: Option<i64>,
    /// Only nodes of this group, by label volcano.sh/nodegroup-name; may be given more than once.
    #[arg(long = "node-group", value_name = "GROUP")]
    pub node_groups: Vec<String>,
    /// Jobs of this queue, and of those below it, start all the same; may be given more than once.
    #[arg(long = "for-queue", value_name = "QUEUE")]
    pub queues: Vec<String>,
    /// Takes all its windows away.
    #[arg(long, conflicts_with_all = ["start", "duration", "reason", "notice", "node_groups", "queues"])]
    pub cancel: bool,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct ClusterDrainArgs {
    /// Which.
    #[arg(value_name = "NAME", add = names::complete_cluster_names(), required = true)]
    pub names: Vec<String>,
    /// Gangs that move at a time: another once one runs again or is in line. Without it all at once.
    #[arg(long, value_name = "GANGS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_at_once: Option<u32>,
    /// Pods of gangs that move at a time; a larger gang moves alone. Without it all at once.
    #[arg(long, value_name = "PODS", value_parser = clap::value_parser!(u32).range(1..))]
    pub budget: Option<u32>,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct ClusterNamesArgs {
    /// Which.
    #[arg(value_name = "NAME", add = names::complete_cluster_names(), required = true)]
    pub names: Vec<String>,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}
