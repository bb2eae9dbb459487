//! What `caldera install` and `caldera upgrade` take.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::component::TrustedArgs;

/// How it ends.
pub(super) const INSTALL_EXIT: &str = "Exit codes: 0 everything is there and the doctor finds no error; 1 something is \
                                       missing, refused or not there in time, or the doctor finds an error: run it \
                                       again; 2 wrong usage.";

/// How an upgrade ends.
pub(super) const UPGRADE_EXIT: &str = "Exit codes: 0 all is of this version and the doctor finds no error; 1 something is \
                                       to be mended first, refused or not replaced in time, or the doctor finds an \
                                       error: run it again; 2 wrong usage.";

#[derive(Debug, ClapArgs)]
pub struct UpgradeArgs {
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the leases; without it caldera-system.
    #[arg(long, value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Name of a Secret by which Karmada reaches a member. May be repeated. Without it all Secrets of the namespace
    /// karmada-cluster may be read.
    #[arg(long = "member-secret", value_name = "NAME")]
    pub member_secrets: Vec<String>,
    #[command(flatten)]
    pub trusted: TrustedArgs,
    /// Whoever names a queue needs verb `use` on it. Where that is so already it stays.
    #[arg(long)]
    pub require_queue_access: bool,
    /// Seconds within which the components are to be replaced, and after that the doctor finds no error.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub wait: u32,
    /// Prints what would be done, and does nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Does not ask.
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, ClapArgs)]
pub struct InstallArgs {
    /// Kubeconfig of an admin of the Karmada API.
    #[arg(long, value_name = "FILE")]
    pub host_kubeconfig: PathBuf,
    /// URL at which the Karmada API server and controllers reach the webhook: https://HOST:PORT.
    #[arg(long, value_name = "URL")]
    pub components_at: String,
    /// Where the kubeconfigs of the accounts and the webhook's certificate are written, for the processes to read.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// URL of the Karmada API server as the components reach it; without it that of the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub host_server: Option<String>,
    /// Writes a kubeconfig for collectors, too.
    #[arg(long)]
    pub collectors: bool,
    /// Name of a Secret by which Karmada reaches a member. May be repeated. Without it all Secrets of the namespace
    /// karmada-cluster may be read.
    #[arg(long = "member-secret", value_name = "NAME")]
    pub member_secrets: Vec<String>,
    #[command(flatten)]
    pub trusted: TrustedArgs,
    /// Whoever names a queue needs verb `use` on it.
    #[arg(long)]
    pub require_queue_access: bool,
    /// The agents of Pull members answer about Volcano Jobs themselves, so they need no way to the webhook.
    #[arg(long)]
    pub pull_members: bool,
    /// Seconds that the webhook may take to answer, and after it the components until the doctor finds no error.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub wait: u32,
    /// Ends once there is what the processes read, and prints the command that runs them. Nothing fails closed then.
    #[arg(long)]
    pub prepare: bool,
    /// Prints what would be done, and does nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Does not ask.
    #[arg(short, long)]
    pub yes: bool,
}
