//! `caldera console`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub struct ConsoleArgs {
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where /healthz, /readyz and /metrics listen; none if not given.
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
    /// Where it listens; without it port 8444 of all addresses, with --insecure of the loopback.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// PEM certificate chain to serve; read again as it is renewed.
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// PEM private key for it.
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Speaks plain text: behind a proxy that speaks TLS, or on this machine alone.
    #[arg(long, conflicts_with = "tls_cert")]
    pub insecure: bool,
    /// Namespace of the controller's lease, where its settings are; without it caldera-system, then default.
    #[arg(long, value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Works expected starts out every five minutes, also while nobody looks, and shows at --admin how wrong the first
    /// was that was told of each job: caldera_expected_start_error_seconds.
    #[arg(long, requires = "admin")]
    pub measure_starts: bool,
    /// Connections at once.
    #[arg(long, default_value_t = 256, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub connections: u32,
}
