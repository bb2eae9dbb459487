//! `caldera doctor` and `caldera uninstall`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use crate::output::Output;

/// How the doctor ends.
pub(super) const DOCTOR_EXIT: &str = "Exit codes: 0 nothing is as bad as --fail-on says; 1 something is, or the API \
                                      server does not answer; 2 wrong usage.";

/// How the removal ends.
pub(super) const UNINSTALL_EXIT: &str = "Exit codes: 0 done, also where jobs that run keep a part until they end; 1 jobs \
                                         wait and their gates may not be opened, something still holds a Lease, or the \
                                         API server refuses; 2 wrong usage.";

#[derive(Debug, ClapArgs)]
pub struct DoctorArgs {
    /// Namespace of the leases; without it caldera-system and default.
    #[arg(long, value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// A namespace in which a binding and a job are created without being stored; without it the kubeconfig's.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The manifests were printed with --registers-webhooks.
    #[arg(long)]
    pub registers_webhooks: bool,
    /// The manifests were printed with this --member-secret. May be repeated.
    #[arg(long = "member-secret", value_name = "NAME")]
    pub member_secrets: Vec<String>,
    /// Whom the Karmada API takes karmada-controller-manager for.
    #[arg(long, default_value = "system:admin", value_name = "USER")]
    pub karmada_user: String,
    /// A group of that user. May be repeated.
    #[arg(long, default_value = "system:masters", value_name = "GROUP")]
    pub karmada_group: Vec<String>,
    /// A directory with kubeconfigs of components, as `caldera install` has it: of each FILE.kubeconfig it is told when
    /// its credentials end.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Seconds that a binding, a Work, a PodGroup or a Command may take to settle.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub grace: u32,
    /// What makes the exit code 1.
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY")]
    pub fail_on: FailOn,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How the answer looks; the wide one has notes too.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// From which severity on a finding is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Errors.
    Error,
    /// Errors and warnings.
    Warning,
    /// Nothing is.
    Never,
}

#[derive(Debug, ClapArgs)]
pub struct UninstallArgs {
    /// Lets every job that waits start at once, by karmada-scheduler. Without it nothing is removed while one waits.
    #[arg(long)]
    pub open_gates: bool,
    /// Removes our own CustomResourceDefinitions too, and with them all CapacityReservations, ClusterInventories,
    /// ClusterScores and FederationTopologies. Volcano's stay: with them Karmada would delete every job.
    #[arg(long)]
    pub crds: bool,
    /// Prints what would be done, and does nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Does not ask.
    #[arg(short, long)]
    pub yes: bool,
    /// Namespace of the leases; without it caldera-system and default.
    #[arg(long, value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Kubeconfig of the Karmada API; without it KUBECONFIG, ~/.kube/config or the service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}
