//! The command line of `caldera`: its subcommands with their arguments, and what each logs by default.

mod ask;
mod check;
mod component;
mod console;
mod install;
mod job;
mod manifests;
pub(crate) mod names;
mod probe;
#[cfg(test)]
mod reference;
mod reservation;
mod sandbox;
mod simulate;
mod topology;
mod values;

use caldera_runtime::telemetry::Format;
use clap::{Parser, Subcommand, ValueEnum};

pub(crate) use self::probe::check_peers;
pub use self::{
    ask::{
        ClusterAction, ClusterDrainArgs, ClusterListArgs, ClusterNamesArgs, EventsArgs, HistoryArgs, MaintenanceArgs,
        PauseArgs, QueueAction, QueueArgs, QueueSetArgs, RecordsArgs, ScopeArgs, ShadowArgs, TopArgs, UnpauseArgs,
        UsageArgs, UsageBy, WhyArgs,
    },
    check::{DoctorArgs, FailOn, UninstallArgs},
    component::{
        ComponentArgs, ControllerArgs, EstimatorArgs, EstimatorsArgs, InventoryArgs, MemberArgs, PlacerArgs,
        PlacingArgs, ProcessArgs, QueueRulesArgs, SchedulerArgs, ServerArgs, ServingArgs, TrustedArgs, WebhookArgs,
    },
    console::{ConsoleArgs, ConsoleSourceArgs, ConsoleUrl},
    install::{InstallArgs, UpgradeArgs},
    job::{JobAction, JobExecArgs, JobListArgs, JobLogsArgs, JobMoveArgs, JobNamesArgs, JobOrder, PodsArgs},
    manifests::{DeployArgs, ManifestGroup, ManifestsArgs},
    probe::ProbeArgs,
    reservation::{ReservationAction, ReservationCreateArgs},
    sandbox::{DemoArgs, KarmadaSimArgs, MemberSimArgs, SandboxArgs},
    simulate::{ReportForm, SimulateArgs},
    topology::{DiscoverArgs, TopologyAction},
    values::{JobName, WhySubject, parse_job_name, parse_node_group},
};

/// Multi-cluster batch federation on Karmada and Volcano.
#[derive(Debug, Parser)]
#[command(name = "caldera", version, about)]
pub struct Args {
    /// How logs look on standard error.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,
    #[command(subcommand)]
    pub command: Command,
}

/// See [`Format`].
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// One line of text a record.
    Text,
    /// One JSON object a record.
    Json,
}

impl From<LogFormat> for Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Auto => Self::Auto,
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Plays five acts on a sandbox: gangs, order, expected start, lent quota, and clusters that go.
    Demo(DemoArgs),
    /// Serves a Karmada host and members in this process until Ctrl-C, with kubeconfigs for kubectl.
    Sandbox(SandboxArgs),
    /// Gives an API server simulated nodes and a simulated Volcano.
    MemberSim(MemberSimArgs),
    /// Runs the Karmada stand-ins against an API server that has Karmada's and Volcano's CRDs.
    KarmadaSim(KarmadaSimArgs),
    /// Runs the webhook: gates, plans, validation, Karmada's resource interpreter.
    Webhook(WebhookArgs),
    /// Runs the controller: queues, quotas, releases.
    Controller(ControllerArgs),
    /// Runs the global scheduler: placement and gang split.
    Scheduler(SchedulerArgs),
    /// Runs webhook, controller and scheduler in one process, each with an account and a lease of its own.
    Server(Box<ServerArgs>),
    /// Runs a member's collector: watches its nodes and pods and publishes what is free there, for all to use.
    Inventory(InventoryArgs),
    /// Answers karmada-scheduler about one member, node by node, in place of karmada-scheduler-estimator.
    Estimator(EstimatorArgs),
    /// Serves a web page of fleet, queues and jobs that changes nothing, to each what his own token may list.
    Console(ConsoleArgs),
    /// Prints what a Karmada host needs, to `kubectl apply --server-side -f -`.
    Manifests(ManifestsArgs),
    /// Installs Caldera on a Karmada API for components that run as processes, in the order that is safe.
    #[command(after_help = install::INSTALL_EXIT)]
    Install(Box<InstallArgs>),
    /// Brings a Karmada API from an older Caldera to this one while jobs run, in the order that is safe.
    #[command(after_help = install::UPGRADE_EXIT)]
    Upgrade(Box<UpgradeArgs>),
    /// Says where a job stands and why: what it lacks, who is ahead, when it starts, where it runs.
    #[command(after_help = ask::ASK_EXIT)]
    Why(WhyArgs),
    /// Shows the queues of the fleet: what each has, deserves and borrowed, and who waits. Opens, closes and sets them.
    #[command(alias = "queues", after_help = ask::ASK_EXIT)]
    Queue(QueueArgs),
    /// Lists and describes jobs and shows their logs. Holds, releases, suspends, resumes, requeues, moves and deletes
    /// them, and runs commands in their pods.
    #[command(subcommand, alias = "jobs", after_help = ask::ASK_EXIT)]
    Job(JobAction),
    /// Lists what was said of jobs, queues and bindings, the oldest first.
    #[command(after_help = ask::ASK_EXIT)]
    Events(EventsArgs),
    /// Lists and describes members, cordons, drains and uncordons them.
    #[command(subcommand, alias = "clusters", after_help = ask::ASK_EXIT)]
    Cluster(ClusterAction),
    /// Keeps an amount of the fleet for some queues, or for nobody, for a time; lists what is kept.
    #[command(subcommand, alias = "reservations", after_help = ask::ASK_EXIT)]
    Reservation(ReservationAction),
    /// Stops all releases in the whole fleet, whatever restarts, until `unpause`. What is released runs on.
    #[command(after_help = ask::ASK_EXIT)]
    Pause(PauseArgs),
    /// Has jobs released again.
    #[command(after_help = ask::ASK_EXIT)]
    Unpause(UnpauseArgs),
    /// Lists how jobs ended that were given quota, long after they are gone.
    #[command(after_help = ask::ASK_EXIT)]
    History(HistoryArgs),
    /// Says what was used, by month, queue and namespace, long after the jobs are gone.
    #[command(after_help = ask::ASK_EXIT)]
    Usage(UsageArgs),
    /// Shows what a controller with --shadow would have done beside another scheduler, and where that differs.
    #[command(after_help = ask::ASK_EXIT)]
    Shadow(ShadowArgs),
    /// Shows fleet, queues, members and jobs on the terminal, as they change. Keys sort, filter, ask why, hold and
    /// release.
    #[command(after_help = ask::TOP_EXIT)]
    Top(TopArgs),
    /// Finds which nodes of a member are close to each other in its network.
    #[command(subcommand)]
    Topology(TopologyAction),
    /// Prints a script that completes commands, flags, and names of the API in a shell.
    Completions {
        /// Of which shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Looks for what is wrong with an installation, and says what mends it.
    #[command(after_help = check::DOCTOR_EXIT)]
    Doctor(DoctorArgs),
    /// Takes Caldera off a Karmada API: opens its gates and removes what is its own. What runs goes on running.
    #[command(after_help = check::UNINSTALL_EXIT)]
    Uninstall(UninstallArgs),
    /// Simulates jobs on a fleet on virtual time, under this engine and others: a trace, a scenario, or what is there
    /// now.
    #[command(long_about = simulate::LONG_ABOUT)]
    Simulate(SimulateArgs),
}

impl Command {
    /// What a component is told about its process; `None` of what is none.
    pub fn process(&self) -> Option<&ProcessArgs> {
        match self {
            Self::Webhook(WebhookArgs { component, .. })
            | Self::Controller(ControllerArgs { component, .. })
            | Self::Scheduler(SchedulerArgs { component, .. })
            | Self::Inventory(InventoryArgs { component, .. }) => Some(&component.process),
            Self::Server(args) => Some(&args.process),
            _ => None,
        }
    }

    /// What is logged unless the environment says otherwise: a viewer's output should not be full of logs.
    pub const fn default_log_filter(&self) -> &'static str {
        match self {
            Self::Sandbox(_)
            | Self::Why(_)
            | Self::Queue(_)
            | Self::Job(_)
            | Self::Events(_)
            | Self::Cluster(_)
            | Self::Reservation(_)
            | Self::Pause(_)
            | Self::Unpause(_)
            | Self::History(_)
            | Self::Usage(_)
            | Self::Shadow(_)
            | Self::Simulate(_)
            | Self::Topology(_)
            | Self::Doctor(_)
            | Self::Install(_)
            | Self::Upgrade(_)
            | Self::Uninstall(_) => "warn",
            // It switches a member off itself: what then can not be reached is no news.
            Self::Demo(_) => "error",
            // It says itself what fails, and owns the screen.
            Self::Top(_) => "off",
            _ => "info,kube=warn,hyper=warn,h2=warn",
        }
    }
}
