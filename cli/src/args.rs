//! What can be said on the command line.

mod ask;
mod check;
#[cfg(test)]
mod reference;
mod simulate;
mod values;

use std::{net::SocketAddr, path::PathBuf};

use caldera_core::queue::preemption::PreemptionRule;
use caldera_crds::trusted::{TrustedWriters, Writer};
use caldera_runtime::telemetry::Format;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

pub use self::{
    ask::{
        ClusterAction, ClusterNamesArgs, JobAction, JobListArgs, JobNamesArgs, JobOrder, QueueAction, QueueArgs,
        QueueSetArgs, ScopeArgs, WhyArgs,
    },
    check::{DoctorArgs, FailOn, UninstallArgs},
    simulate::{ReportForm, SimulateArgs},
    values::{JobName, parse_job_name, parse_node_group},
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
    /// Runs the main job on a sandbox: example queues and jobs, live progress, tables at the end.
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
    /// Runs a member's collector: watches its nodes and pods and publishes what is free there, for all to use.
    Inventory(InventoryArgs),
    /// Answers karmada-scheduler about one member, node by node, in place of karmada-scheduler-estimator.
    Estimator(EstimatorArgs),
    /// Prints what a Karmada host needs, to `kubectl apply --server-side -f -`.
    Manifests(ManifestsArgs),
    /// Says where a job stands and why: what it lacks, who is ahead, when it starts, where it runs.
    #[command(after_help = ask::ASK_EXIT)]
    Why(WhyArgs),
    /// Shows the queues of the fleet: what each has, deserves and borrowed, and who waits. Opens, closes and sets them.
    #[command(after_help = ask::ASK_EXIT)]
    Queue(QueueArgs),
    /// Lists and describes jobs, holds, releases and deletes them.
    #[command(subcommand, after_help = ask::ASK_EXIT)]
    Job(JobAction),
    /// Lists and describes members, cordons and uncordons them.
    #[command(subcommand, after_help = ask::ASK_EXIT)]
    Cluster(ClusterAction),
    /// Prints a script that completes commands and flags in a shell.
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

/// Which API server, and where a component shows its health.
#[derive(Debug, Clone, ClapArgs)]
pub struct ComponentArgs {
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where /healthz, /readyz and /metrics listen; none if not given.
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
    /// Namespace of the lease that lets one replica of a component be active (it must exist).
    #[arg(long, default_value = "default", value_name = "NAMESPACE")]
    pub lease_namespace: String,
    /// Seconds until another replica takes over from one that is gone or cut off, from 3 to 15. It is renewed seven times
    /// in that time.
    #[arg(long, default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..=15))]
    pub lease_duration: u64,
    /// Runs without a lease: for a single replica. The lease of an earlier controller must be deleted, else nothing
    /// is placed.
    #[arg(long)]
    pub no_lease: bool,
}

#[derive(Debug, ClapArgs)]
pub struct ControllerArgs {
    #[command(flatten)]
    pub component: ComponentArgs,
    /// Who goes first, after queue priority. `caldera why` and `caldera queue` read it, and what follows, from
    /// ConfigMap caldera-controller in the lease's namespace, where the controller writes it.
    #[arg(long, value_enum, default_value_t = Order::Share, value_name = "ORDER")]
    pub order: Order,
    /// Seconds that a job is blocked before it gets a reservation; 0 makes none, and large jobs may wait for ever.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub reservation_after: u32,
    /// Seconds that a job waits before others are evicted for it.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub preempt_after: u32,
    /// Seconds that each cluster's part of a gang has to start; then the whole gang is requeued and goes elsewhere.
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub pods_ready_timeout: u32,
    /// No reclaim: a queue gets what others borrowed only when their jobs end.
    #[arg(long)]
    pub no_reclaim: bool,
    /// No preemption by jobs of higher priority.
    #[arg(long)]
    pub no_preemption: bool,
    /// Who may preempt whom, for instance `by.queue=research,by.least=1000,of.most=0,scope=any-queue`; the preemptor's
    /// priority is higher in any case. May be repeated: one match is enough. If not given, any job of its queue.
    #[arg(long = "preempt", value_name = "RULE", conflicts_with = "no_preemption")]
    pub preempt: Vec<PreemptionRule>,
    /// Jobs that do not say whether they are preemptable may be preempted too.
    #[arg(long, conflicts_with = "no_preemption")]
    pub preempt_unset: bool,
    /// Evictions in a minute at most, in the whole fleet.
    #[arg(long, default_value_t = 32, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub evictions_per_minute: u32,
    /// A namespace whose jobs are never evicted, beside kube-system, karmada-system and volcano-system. May be
    /// repeated.
    #[arg(long = "protect-namespace", value_name = "NAMESPACE")]
    pub protect_namespaces: Vec<String>,
}

/// Who goes first among the waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// The queue with the least of what it deserves, then job priority, deadline, age.
    Share,
    /// Job priority, deadline, age; what a queue has already does not matter.
    Strict,
    /// Age, across all queues.
    Fifo,
}

#[derive(Debug, ClapArgs)]
pub struct SchedulerArgs {
    #[command(flatten)]
    pub component: ComponentArgs,
    /// Lists clusters that get none of a divided workload's replicas too, with 0, as karmada-scheduler does with it.
    #[arg(long)]
    pub enable_empty_workload_propagation: bool,
    #[command(flatten)]
    pub estimators: EstimatorsArgs,
}

/// Where estimators of members are, named as by karmada-scheduler. A Cluster's annotation `caldera.dev/estimator` goes
/// before all of it.
#[derive(Debug, ClapArgs)]
pub struct EstimatorsArgs {
    /// Asks a member's accurate estimator where the member's nodes can not be read.
    #[arg(long)]
    pub enable_scheduler_estimator: bool,
    /// Not those of Pull members.
    #[arg(long)]
    pub disable_scheduler_estimator_in_pull_mode: bool,
    /// Names of the estimators' Services: this, a dash, the member.
    #[arg(long, default_value = caldera_crds::estimator::SERVICE_PREFIX, value_name = "NAME")]
    pub scheduler_estimator_service_prefix: String,
    /// Namespace of the estimators' Services.
    #[arg(long, default_value = "karmada-system", value_name = "NAMESPACE")]
    pub scheduler_estimator_service_namespace: String,
    /// Port of the estimators' Services.
    #[arg(long, default_value_t = caldera_crds::estimator::PORT, value_name = "PORT")]
    pub scheduler_estimator_port: u16,
    /// PEM bundle that signed the estimators' certificates. Without it TLS is not spoken.
    #[arg(long, value_name = "FILE")]
    pub scheduler_estimator_ca_file: Option<PathBuf>,
    /// PEM certificate chain to show to estimators.
    #[arg(long, requires = "scheduler_estimator_key_file", value_name = "FILE")]
    pub scheduler_estimator_cert_file: Option<PathBuf>,
    /// PEM private key for it.
    #[arg(long, requires = "scheduler_estimator_cert_file", value_name = "FILE")]
    pub scheduler_estimator_key_file: Option<PathBuf>,
    /// Speaks TLS to whoever answers.
    #[arg(long)]
    pub insecure_skip_estimator_verify: bool,
}

/// Which member, and how it is reached.
#[derive(Debug, Clone, ClapArgs)]
pub struct MemberArgs {
    /// The member, as Karmada names it. It is reached as Karmada reaches it, unless one of the following says
    /// otherwise.
    #[arg(long, alias = "cluster-name", value_name = "NAME")]
    pub cluster: String,
    /// Kubeconfig of the member, for running inside a Pull member.
    #[arg(long, value_name = "FILE")]
    pub member_kubeconfig: Option<PathBuf>,
    /// Runs inside the member with the service account of its pod; then --kubeconfig names the Karmada API.
    #[arg(long, conflicts_with = "member_kubeconfig", requires = "kubeconfig")]
    pub in_member: bool,
}

#[derive(Debug, ClapArgs)]
pub struct InventoryArgs {
    #[command(flatten)]
    pub component: ComponentArgs,
    #[command(flatten)]
    pub member: MemberArgs,
    /// Seconds between two heartbeats. Nobody trusts what is published for longer than three of them.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub heartbeat: u32,
}

#[derive(Debug, ClapArgs)]
pub struct EstimatorArgs {
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where /healthz, /readyz and /metrics listen; none if not given.
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
    #[command(flatten)]
    pub member: MemberArgs,
    /// Where gRPC listens; if not given 0.0.0.0:10352, or 127.0.0.1:10352 where no TLS is spoken. karmada-scheduler asks
    /// the Service karmada-scheduler-estimator-NAME at this port.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Speaks no TLS: whoever reaches it may ask.
    #[arg(long, conflicts_with = "grpc_auth_cert_file")]
    pub insecure: bool,
    /// PEM certificate chain of the server. It is read again when it changes, and so are its key and the clients'
    /// bundle.
    #[arg(long, requires = "grpc_auth_key_file", value_name = "FILE")]
    pub grpc_auth_cert_file: Option<PathBuf>,
    /// PEM private key of the server.
    #[arg(long, requires = "grpc_auth_cert_file", value_name = "FILE")]
    pub grpc_auth_key_file: Option<PathBuf>,
    /// PEM bundle: only clients with a certificate that it has signed may ask. It is wanted unless anybody may.
    #[arg(long, requires = "grpc_auth_cert_file", value_name = "FILE")]
    pub grpc_client_ca_file: Option<PathBuf>,
    /// Lets anybody ask, whatever certificate they have.
    #[arg(long)]
    pub insecure_skip_grpc_client_verify: bool,
}

#[derive(Debug, ClapArgs)]
pub struct WebhookArgs {
    #[command(flatten)]
    pub component: ComponentArgs,
    /// Where the webhook listens for HTTPS.
    #[arg(long, default_value = "0.0.0.0:8443", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// PEM certificate chain, read again when it changes. Without it a private authority and a certificate are made at
    /// start.
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM private key.
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Registers the webhook configurations with this URL (https://host:port) at start, trusting --ca-bundle, or the
    /// authority that all replicas share: the first one makes it and keeps it in Secret caldera-webhook-authority of the
    /// lease's namespace.
    #[arg(long, value_name = "URL")]
    pub register_url: Option<String>,
    /// PEM bundle that clients must trust, for --register-url with a certificate of one's own.
    #[arg(long, value_name = "FILE")]
    pub ca_bundle: Option<PathBuf>,
    /// PEM bundle: only clients with a certificate that it has signed are served. An API server takes its own from its
    /// admission configuration.
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// KiB of the largest object. An API server takes requests of 3072.
    #[arg(long, default_value_t = 3_072, value_name = "KIB", value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub largest_object: u32,
    /// Connections at once. One more closes the one that is idle longest.
    #[arg(long, default_value_t = 128, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub connections: u32,
    #[command(flatten)]
    pub trusted: TrustedArgs,
}

/// Whose word counts on what is admitted and placed.
#[derive(Debug, Clone, ClapArgs)]
pub struct TrustedArgs {
    /// Who may write what says what is admitted, placed and sent to members: group:NAME or user:NAME, again and again.
    /// The same for the webhook and for the manifests. Without it group:system:masters, group:system:karmada:agents and
    /// the service accounts of Caldera in caldera-system and of Karmada in karmada-system.
    #[arg(long = "trusted-writer", value_name = "WRITER")]
    pub writers: Vec<Writer>,
}

impl TrustedArgs {
    /// Those that were named, else the default.
    pub fn to_writers(&self) -> TrustedWriters {
        if self.writers.is_empty() { TrustedWriters::default() } else { self.writers.iter().cloned().collect() }
    }
}

#[derive(Debug, ClapArgs)]
pub struct DemoArgs {
    /// Prints one JSON document instead of progress and tables.
    #[arg(long)]
    pub json: bool,
    /// Leaves everything running at the end, until Ctrl-C.
    #[arg(long)]
    pub keep: bool,
    /// With --keep: where kubeconfigs are written.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Gives up after this many seconds.
    #[arg(long, default_value_t = 55)]
    pub deadline: u64,
}

#[derive(Debug, ClapArgs)]
pub struct SandboxArgs {
    /// Where `host.kubeconfig` and `members/NAME.kubeconfig` are written.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// How many members.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub members: u16,
    /// Where the host's API server listens; port 0 for any.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Only the servers and the stand-ins, without Caldera's own components.
    #[arg(long)]
    pub bare: bool,
    /// A collector for each member too, which publishes its nodes: `kubectl get clusterinventories`. It writes also
    /// when nothing happens, a heartbeat each 30 s.
    #[arg(long, conflicts_with = "bare")]
    pub collectors: bool,
}

#[derive(Debug, ClapArgs)]
pub struct MemberSimArgs {
    /// Kubeconfig of the member; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Simulated nodes: NAME=COUNT:RESOURCE=AMOUNT,... (may be repeated), for instance cpu=2:cpu=8,memory=32Gi.
    #[arg(long = "nodes", value_name = "GROUP", value_parser = parse_node_group)]
    pub nodes: Vec<caldera_sandbox::member::NodeGroup>,
    /// Seconds that a pod runs if its manifest says nothing.
    #[arg(long, default_value_t = 2.0)]
    pub default_run: f64,
    /// Leaves Deployments, StatefulSets and batch Jobs to a kube-controller-manager.
    #[arg(long)]
    pub no_workloads: bool,
    /// Where the simulated Volcano's admission listens; the API server must reach it.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub admission: SocketAddr,
}

#[derive(Debug, ClapArgs)]
pub struct KarmadaSimArgs {
    /// Kubeconfig of the host; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct ManifestsArgs {
    /// URL of the webhook as the Karmada API server reaches it: https://host:port.
    #[arg(long, value_name = "URL", conflicts_with = "webhook_service")]
    pub webhook_url: Option<String>,
    /// Service of the webhook instead of a URL: `NAMESPACE/NAME[:PORT]`.
    #[arg(long, value_name = "SERVICE")]
    pub webhook_service: Option<String>,
    /// PEM bundle that signed the webhook's certificate.
    #[arg(long, value_name = "FILE")]
    pub ca_bundle: Option<PathBuf>,
    /// Only these groups; all if not given.
    #[arg(long = "only", value_enum)]
    pub only: Vec<ManifestGroup>,
    /// Lets the webhook register itself, for `caldera webhook --register-url`.
    #[arg(long)]
    pub registers_webhooks: bool,
    /// Name of a Secret by which Karmada reaches a member (`spec.secretRef` of its Cluster). May be repeated. Without it
    /// all Secrets of the namespace karmada-cluster may be read.
    #[arg(long = "member-secret", value_name = "NAME")]
    pub member_secrets: Vec<String>,
    #[command(flatten)]
    pub trusted: TrustedArgs,
    /// Whoever names a queue needs verb `use` on it (queues.scheduling.volcano.sh).
    #[arg(long)]
    pub require_queue_access: bool,
    #[command(flatten)]
    pub deploy: DeployArgs,
}

/// What runs Caldera, in place of what the Karmada API needs.
#[derive(Debug, ClapArgs)]
pub struct DeployArgs {
    /// Prints what runs the components instead, for the cluster that they run in.
    #[arg(long, requires = "image", conflicts_with_all = ["only", "member"])]
    pub deployments: bool,
    /// Prints what a member needs instead, so that a collector or an estimator inside it can read it.
    #[arg(long, conflicts_with = "only")]
    pub member: bool,
    /// The image, for --deployments, or for the collector of --member.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Namespace of what runs.
    #[arg(long, default_value = "caldera-system", value_name = "NAMESPACE")]
    pub namespace: String,
    /// With --deployments: a member that gets a collector. May be repeated. With --member: the member, as Karmada names
    /// it.
    #[arg(long = "collector", value_name = "CLUSTER")]
    pub collectors: Vec<String>,
    /// With --deployments: a namespace whose pods may call the webhook, where Karmada's API server and controllers run.
    /// May be repeated.
    #[arg(long = "caller", value_name = "NAMESPACE", default_value = "karmada-system")]
    pub callers: Vec<String>,
    /// With --deployments: a network from which the webhook may be called, for an API server outside the cluster. May be
    /// repeated.
    #[arg(long = "caller-address", value_name = "CIDR")]
    pub caller_addresses: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ManifestGroup {
    /// Volcano's CRDs and our own for the Karmada API.
    Crds,
    /// Webhook and resource interpreter configurations, and the admission policies that hold without the webhook.
    Webhooks,
    /// What propagates queues and priority classes to members.
    Policies,
    /// Roles of the components.
    Rbac,
}

impl Command {
    /// What is logged unless the environment says otherwise: a viewer's output should not be full of logs.
    pub const fn default_log(&self) -> &'static str {
        match self {
            Self::Demo(_)
            | Self::Sandbox(_)
            | Self::Why(_)
            | Self::Queue(_)
            | Self::Simulate(_)
            | Self::Doctor(_)
            | Self::Uninstall(_) => "warn",
            _ => "info,kube=warn,hyper=warn,h2=warn",
        }
    }
}
