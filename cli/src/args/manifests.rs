//! What `caldera manifests` takes.

use std::path::PathBuf;

use caldera_runtime::probe::Peer;
use clap::{Args as ClapArgs, ValueEnum};

use super::{
    component::TrustedArgs,
    probe::{parse_peer, parse_secret_name},
};

#[derive(Debug, ClapArgs)]
pub struct ManifestsArgs {
    /// URL of the webhook as the Karmada API server reaches it: https://host:port.
    #[arg(long, value_name = "URL", conflicts_with = "webhook_service")]
    pub webhook_url: Option<String>,
    /// Service of the webhook instead of a URL: `NAMESPACE/NAME[:PORT]`.
    #[arg(long, value_name = "SERVICE")]
    pub webhook_service: Option<String>,
    /// PEM bundle that signed the webhook's certificate. Without it webhook configurations are not printed, unless one
    /// of the next two says who is trusted.
    #[arg(long, value_name = "FILE")]
    pub ca_bundle: Option<PathBuf>,
    /// The webhook's certificate is signed by an authority that callers trust anyway.
    #[arg(long, conflicts_with = "ca_bundle")]
    pub system_trust: bool,
    /// Only these groups; all but `shadow` and `pull-members` if not given.
    #[arg(long = "only", value_enum)]
    pub only: Vec<ManifestGroup>,
    /// Lets the webhook register itself, for `caldera webhook --register-url`. Without --ca-bundle its configurations
    /// are left to it, so that nothing is refused before it is ready.
    #[arg(long)]
    pub registers_webhooks: bool,
    /// Name of a Secret by which Karmada reaches a member (`spec.secretRef` of its Cluster). May be repeated. Without
    /// it all Secrets of the namespace karmada-cluster may be read.
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
    /// Lets each collector measure the way to other members, by the certificate in this Secret: `tls.crt`, `tls.key`
    /// and `ca.crt`. Each gets a Service of type LoadBalancer. With --deployments they run beside the control plane
    /// and measure its way to others; with --member that of the member.
    #[arg(long, requires = "image", value_name = "SECRET", value_parser = parse_secret_name)]
    pub probe_secret: Option<String>,
    /// Another member, and where its collector listens. All collectors may be given all members: each leaves out its
    /// own.
    #[arg(long = "probe-peer", requires = "probe_secret", value_name = "NAME=HOST:PORT", value_delimiter = ',',
        value_parser = parse_peer)]
    pub probe_peers: Vec<Peer>,
    /// With --deployments: leaves placement to karmada-scheduler, and runs no scheduler of ours.
    #[arg(long, requires = "deployments")]
    pub stock_scheduler: bool,
    /// With --deployments: runs the console, too.
    #[arg(long, requires = "deployments")]
    pub console: bool,
    /// With --deployments: the webhook registers itself with this URL, by https that of Service caldera-webhook, and
    /// makes its certificate itself; what the Karmada API needs for that is printed with --registers-webhooks.
    #[arg(long, requires = "deployments", value_name = "URL")]
    pub register_url: Option<String>,
    /// With --deployments: a namespace whose pods may call the webhook, where Karmada's API server and controllers run.
    /// May be repeated.
    #[arg(long = "caller", value_name = "NAMESPACE", default_value = "karmada-system")]
    pub callers: Vec<String>,
    /// With --deployments: a network from which the webhook may be called, for an API server outside the cluster. May
    /// be repeated.
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
    /// The role of a controller with --shadow, which reads what a controller reads.
    Shadow,
    /// What the agents of Pull members answer themselves about Volcano Jobs, where they do not reach the webhook.
    PullMembers,
}
