//! Arguments of the commands that run components: `caldera controller`, `scheduler`, `webhook`, `inventory` and
//! `estimator`, and `caldera server`, which runs three of them. Groups of arguments that several commands take are
//! structs of their own.

use std::{net::SocketAddr, path::PathBuf};

use caldera_controller::catalogue::CatalogueUrl;
use caldera_core::{
    load_aware::{LoadPolicy, Thresholds},
    queue::{OrderPolicy, preemption::PreemptionRule},
    topology_discovery::TopologyLabels,
};
use caldera_crds::trusted::{TrustedWriters, Writer};
use clap::{
    Args as ClapArgs,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use super::{
    probe::ProbeArgs,
    values::{parse_topology_labels, parse_value},
};

/// Which API server, and where a component shows its health.
#[derive(Debug, Clone, ClapArgs)]
pub struct ComponentArgs {
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub process: ProcessArgs,
}

/// Where a process shows its health, and which of several replicas is active.
#[derive(Debug, Clone, ClapArgs)]
pub struct ProcessArgs {
    /// Where /healthz, /readyz and /metrics listen, of webhook, controller and scheduler also /debug/state; none if not
    /// given.
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
    /// Namespace of the lease that lets one replica of a component be active (it must exist).
    #[arg(long, default_value = "default", value_name = "NAMESPACE")]
    pub lease_namespace: String,
    /// Seconds until another replica takes over from one that is gone or cut off, from 3 to 15. It is renewed seven
    /// times in that time.
    #[arg(long, default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..=15))]
    pub lease_duration: u64,
    /// Runs without a lease: for a single replica. The lease of an earlier controller must be deleted, else nothing
    /// is placed.
    #[arg(long)]
    pub no_lease: bool,
    /// Sends spans about workloads to a collector of traces, by OTLP over HTTP with JSON: http://HOST:4318, or with a
    /// path where that is not /v1/traces. Without it OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, or
    /// OTEL_EXPORTER_OTLP_ENDPOINT with /v1/traces behind it; none if neither is the URL of one.
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
}

/// Who chooses clusters for what is admitted.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub struct PlacerArgs {
    /// Leaves placement to the scheduler that policies name, karmada-scheduler unless they say otherwise. Webhook and
    /// controller take it both or neither, and `caldera scheduler` does not run.
    #[arg(long)]
    pub stock_scheduler: bool,
}

#[derive(Debug, ClapArgs)]
pub struct ControllerArgs {
    #[command(flatten)]
    pub component: ComponentArgs,
    #[command(flatten)]
    pub rules: QueueRulesArgs,
    #[command(flatten)]
    pub placer: PlacerArgs,
    /// Decides beside another scheduler and writes nothing but ConfigMap caldera-shadow in the lease's namespace: what
    /// it would have released, placed and evicted, and how that differs. No webhook, scheduler or lease. `caldera
    /// shadow` shows it.
    #[arg(long, conflicts_with_all = ["stock_scheduler", "no_lease", "data_catalogue"])]
    pub shadow: bool,
}

/// Who goes first, and who gives way.
#[derive(Debug, ClapArgs)]
pub struct QueueRulesArgs {
    /// Who goes first, after queue priority. `caldera why` and `caldera queue` read it, and what follows, from
    /// ConfigMap caldera-controller in the lease's namespace, where the controller writes it.
    #[arg(long, value_parser = parse_order(), default_value = OrderPolicy::Share.as_str(), value_name = "ORDER")]
    pub order: OrderPolicy,
    /// Seconds after which what a queue, or a tenant that takes turns, used counts half, with --order fair-history.
    #[arg(long, default_value_t = 604_800, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(10..))]
    pub history_half_life: u32,
    /// Seconds that a job is blocked before it gets a reservation; 0 makes none, and large jobs may wait for ever.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub reservation_after: u32,
    /// Seconds that a job waits before others are evicted for it.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub preempt_after: u32,
    /// Seconds that each cluster's part of a gang has to start; then the whole gang is requeued and goes elsewhere.
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub pods_ready_timeout: u32,
    /// Seconds that a cluster is not ready before it is lost: gangs there are withdrawn, and run again elsewhere once
    /// their old copies are known to be gone; 0 for never.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub member_lost_after: u32,
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
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub catalogue: CatalogueArgs,
}

/// Which jobs leave clusters whose nodes are really hot; the words are those of Volcano's descheduler.
#[derive(Debug, ClapArgs)]
pub struct LoadArgs {
    /// Moves jobs off clusters whose nodes really use more than the target thresholds, by the NodeMetrics of their
    /// members.
    #[arg(long)]
    pub load_aware: bool,
    /// Moves gangs that name a hard tier of a FederationTopology and run in clusters whose link has become worse than
    /// that, at the pace that the next flags say.
    #[arg(long)]
    pub link_aware: bool,
    /// Percent of cpu and memory up to which a cluster may receive such jobs. Without it `cpu=30,memory=30`.
    #[arg(long, value_name = "cpu=N,memory=N")]
    pub load_thresholds: Option<Thresholds>,
    /// Percent of cpu and memory above which a cluster is hot; of the same resources. Without it `cpu=80,memory=85`.
    #[arg(long, value_name = "cpu=N,memory=N")]
    pub load_target_thresholds: Option<Thresholds>,
    /// Seconds between two rounds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(10..))]
    pub load_interval: u32,
    /// Readings in a row in which a cluster must be hot, or may receive; there are about two in a minute.
    #[arg(long, default_value_t = 3, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub load_samples: u32,
    /// Jobs that leave a cluster in a round at most.
    #[arg(long, default_value_t = 2, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub load_moves: u32,
    /// Seconds that a job is left alone after it was moved.
    #[arg(long, default_value_t = 3_600, value_name = "SECONDS")]
    pub load_cooldown: u32,
    /// Jobs of this priority, or a higher one, are never moved.
    #[arg(long, value_name = "PRIORITY", allow_negative_numbers = true)]
    pub load_priority_threshold: Option<i32>,
    /// A namespace whose jobs are never moved, beside those that are never evicted. May be repeated.
    #[arg(long = "load-exclude-namespace", value_name = "NAMESPACE")]
    pub load_exclude_namespaces: Vec<String>,
}

impl LoadArgs {
    /// What was chosen.
    ///
    /// # Errors
    /// If both thresholds do not agree.
    pub fn to_policy(&self) -> Result<LoadPolicy, String> {
        let default = LoadPolicy::default();
        let policy = LoadPolicy {
            enabled: self.load_aware,
            links: self.link_aware,
            thresholds: self.load_thresholds.unwrap_or(default.thresholds),
            target_thresholds: self.load_target_thresholds.unwrap_or(default.target_thresholds),
            interval: self.load_interval.into(),
            samples: self.load_samples,
            moves: self.load_moves,
            cooldown: self.load_cooldown.into(),
            priority_threshold: self.load_priority_threshold,
            excluded_namespaces: self.load_exclude_namespaces.iter().map(|name| name.as_str().into()).collect(),
        };
        policy.check_thresholds().map(|()| policy)
    }
}

/// Who is asked where data is.
#[derive(Debug, ClapArgs)]
pub struct CatalogueArgs {
    /// Asks this URL where data is that a DataSourceClaim names and no DataSource has, with `{system}`, `{type}` and
    /// `{name}` in its path replaced. It answers `{"clusterNames": ["member1"]}`, or 404.
    #[arg(long, value_name = "URL", value_parser = parse_value::<CatalogueUrl>)]
    pub data_catalogue: Option<CatalogueUrl>,
    /// Seconds that an answer of it may take.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub data_catalogue_timeout: u64,
}

/// Who goes first among the waiting, by name.
pub(super) fn parse_order() -> impl TypedValueParser<Value = OrderPolicy> {
    let describe = |order: OrderPolicy| match order {
        OrderPolicy::Share => "The queue with the least of what it deserves, then job priority, deadline, age",
        OrderPolicy::FairHistory => {
            "The same, where what a queue used over the last time counts as much as what it has"
        }
        OrderPolicy::Strict => "Job priority, deadline, age; what a queue has already does not matter",
        OrderPolicy::Fifo => "Age, across all queues",
    };
    let named = OrderPolicy::ALL.map(|order| PossibleValue::new(order.as_str()).help(describe(order)));
    let find = |name: String| OrderPolicy::ALL.into_iter().find(|order| order.as_str() == name).ok_or("no order");
    PossibleValuesParser::new(named).try_map(find)
}

#[derive(Debug, ClapArgs)]
pub struct SchedulerArgs {
    #[command(flatten)]
    pub component: ComponentArgs,
    #[command(flatten)]
    pub placing: PlacingArgs,
}

/// What the scheduler goes by.
#[derive(Debug, ClapArgs)]
pub struct PlacingArgs {
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
    /// Does not ask the estimators of Pull members.
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
    /// Labels of nodes, from that of the widest network domain to that of the narrowest, as in
    /// `example.org/zone,example.org/rack`. While the member has no HyperNodes, the domains that these labels make are
    /// published.
    #[arg(long, value_name = "LABELS", value_parser = parse_topology_labels)]
    pub topology_labels: Option<TopologyLabels>,
    #[command(flatten)]
    pub probe: ProbeArgs,
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
    /// Where gRPC listens; if not given 0.0.0.0:10352, or 127.0.0.1:10352 where no TLS is spoken. karmada-scheduler
    /// asks the Service karmada-scheduler-estimator-NAME at this port.
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
    #[command(flatten)]
    pub serving: ServingArgs,
    #[command(flatten)]
    pub placer: PlacerArgs,
}

/// Where the webhook listens, and whom it serves.
#[derive(Debug, ClapArgs)]
pub struct ServingArgs {
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
    /// authority that all replicas share: the first one makes it and keeps it in Secret caldera-webhook-authority of
    /// the lease's namespace, and it is replaced before it ends.
    #[arg(long, value_name = "URL")]
    pub register_url: Option<String>,
    /// PEM bundle that clients must trust, for --register-url with a certificate of one's own; read again when it
    /// changes.
    #[arg(long, value_name = "FILE")]
    pub ca_bundle: Option<PathBuf>,
    /// PEM bundle: only clients with a certificate that it has signed are served. An API server takes its own from its
    /// admission configuration.
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// KiB of the largest object. An API server takes requests of 3072.
    #[arg(long, default_value_t = 3_072, value_name = "KIB", value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub largest_object: u32,
    /// Connections at once. One more closes the one that is idle longest, once that is three seconds.
    #[arg(long, default_value_t = 512, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub connections: u32,
    /// Seconds that pods of a queued workload may take to end (terminationGracePeriodSeconds): they are charged to
    /// nobody then. New copies that say more go to members with this; what a member has already keeps what it has.
    #[arg(long, default_value_t = caldera_webhook::LONGEST_GRACE_PERIOD, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(30..))]
    pub longest_grace_period: u64,
    #[command(flatten)]
    pub trusted: TrustedArgs,
}

#[derive(Debug, ClapArgs)]
pub struct ServerArgs {
    /// Kubeconfig of the Karmada API with the webhook's account.
    #[arg(long, value_name = "FILE")]
    pub webhook_kubeconfig: PathBuf,
    /// Kubeconfig of the Karmada API with the controller's account.
    #[arg(long, value_name = "FILE")]
    pub controller_kubeconfig: PathBuf,
    /// Kubeconfig of the Karmada API with the scheduler's account.
    #[arg(long, value_name = "FILE")]
    pub scheduler_kubeconfig: PathBuf,
    #[command(flatten)]
    pub process: ProcessArgs,
    #[command(flatten)]
    pub serving: ServingArgs,
    #[command(flatten)]
    pub rules: QueueRulesArgs,
    #[command(flatten)]
    pub placing: PlacingArgs,
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
