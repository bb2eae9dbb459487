//! Runs one component against any Karmada: `caldera webhook`, `controller`, `scheduler`, `inventory` and `estimator`.
//!
//! Also here, for other commands: connecting to the Karmada API, and running a component only while its lease is held.
//! `caldera server` runs three of the components by the same functions.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use caldera_controller::catalogue::Catalogue;
use caldera_core::queue::preemption::EvictionRate;
use caldera_global_scheduler::estimators::{client::Trust, pool::Settings};
use caldera_runtime::{
    client::{self, WriteCounts},
    clock::Clock,
    lease::{LeaseCandidate, LeaseDuration},
    members::collector,
    serve::Ready,
    shutdown,
    tls::{CertificateExpiry, Identity, RELOAD_EVERY, ServedTls, estimator_server_config},
    watch::{declare_kinds, read_declared_kinds},
};
use caldera_webhook::Placer;
use jiff::SignedDuration;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{AdminServer, serve_admin},
    args::{
        ComponentArgs, ControllerArgs, EstimatorArgs, EstimatorsArgs, InventoryArgs, MemberArgs, PlacerArgs,
        PlacingArgs, ProcessArgs, QueueRulesArgs, SchedulerArgs, ScopeArgs, ServingArgs, WebhookArgs,
    },
    pem_files::{read_file, read_identity},
    probe,
    roles::CONTROLLER_LEASE,
    webhook_identity::serve_identity,
};

/// Connects to the API server once, so that a wrong kubeconfig is reported at start and not in a log later.
pub async fn connect_client(
    kubeconfig: Option<&Path>,
    component: &str,
    counts: &WriteCounts,
) -> anyhow::Result<Client> {
    let config = client::load_config(kubeconfig).await?;
    let server = config.cluster_url.to_string();
    let client = client::from_config(config, component, counts)?;
    client::check_server(&client, &server).await?;
    Ok(client)
}

/// The same for a command that changes nothing all the time, so that nobody counts its writes.
pub async fn connect_for_command(kubeconfig: Option<&Path>, command: &str) -> anyhow::Result<Client> {
    let client = connect_client(kubeconfig, command, &WriteCounts::default()).await?;
    // What does not answer now is told by what the command asks for.
    if let Err(error) = read_declared_kinds(&client).await {
        tracing::debug!(%error, "can not read which kinds are declared");
    }
    Ok(client)
}

/// The same, and the namespace that is asked for or is the kubeconfig's.
pub async fn connect_scope(scope: &ScopeArgs, command: &str) -> anyhow::Result<(Client, String)> {
    let client = connect_for_command(scope.kubeconfig.as_deref(), command).await?;
    let namespace = scope.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    Ok((client, namespace))
}

/// Starts a component in a process of its own: its client, its admin port, the counts of its writes, and when to stop.
pub(crate) async fn prepare_component(
    name: &str,
    kubeconfig: Option<&Path>,
    listen: Option<SocketAddr>,
) -> anyhow::Result<(Client, AdminServer, WriteCounts, CancellationToken)> {
    let (stop, counts) = (shutdown::cancel_on_signal(), WriteCounts::default());
    let client = connect_client(kubeconfig, name, &counts).await?;
    let admin = serve_admin(&[name], Ready::default(), listen, (&client, &counts), &stop).await?;
    Ok((client, admin, counts, stop))
}

pub async fn run_controller(args: ControllerArgs) -> anyhow::Result<ExitCode> {
    let ComponentArgs { kubeconfig, process } = &args.component;
    if args.shadow {
        let (client, admin, _, stop) = prepare_component("shadow", kubeconfig.as_deref(), process.admin).await?;
        let config = configure_controller(process, (&args.rules, args.placer), &admin)?;
        caldera_controller::run_in_shadow(config, client, stop).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let (client, admin, _, stop) = prepare_component("controller", kubeconfig.as_deref(), process.admin).await?;
    lead_controller(process, (&args.rules, args.placer), client, admin, stop).await
}

/// Runs the controller while its lease is held.
pub(crate) async fn lead_controller(
    process: &ProcessArgs,
    (rules, placer): (&QueueRulesArgs, PlacerArgs),
    client: Client,
    admin: AdminServer,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let config = configure_controller(process, (rules, placer), &admin)?;
    run_under_lease(CONTROLLER_LEASE, process, &admin, client.clone(), stop, |active, epoch| async move {
        Ok(caldera_controller::run(caldera_controller::Config { epoch, ..config }, client, active).await?)
    })
    .await
}

/// How the controller of this process is set up.
fn configure_controller(
    process: &ProcessArgs,
    (rules, placer): (&QueueRulesArgs, PlacerArgs),
    admin: &AdminServer,
) -> anyhow::Result<caldera_controller::Config> {
    Ok(caldera_controller::Config {
        ready: admin.ready.clone(),
        registry: admin.registry.clone(),
        states: admin.states.clone(),
        namespace: process.lease_namespace.clone(),
        stock_scheduler: placer.stock_scheduler,
        ..build_controller_config(rules)?
    })
}

/// The controller's order, reservation, preemption and load settings, from its flags.
fn build_controller_config(args: &QueueRulesArgs) -> anyhow::Result<caldera_controller::Config> {
    let mut config = caldera_controller::Config {
        order: args.order,
        history_half_life: args.history_half_life.into(),
        reservation_after: Some(i64::from(args.reservation_after)).filter(|seconds| *seconds > 0),
        pods_ready_timeout: SignedDuration::from_secs(args.pods_ready_timeout.into()),
        member_lost_after: (args.member_lost_after > 0)
            .then(|| SignedDuration::from_secs(args.member_lost_after.into())),
        catalogue: args
            .catalogue
            .data_catalogue
            .clone()
            .map(|url| Catalogue { url, timeout: Duration::from_secs(args.catalogue.data_catalogue_timeout) }),
        ..caldera_controller::Config::default()
    };
    let policy = &mut config.preemption;
    policy.reclaim = !args.no_reclaim;
    if args.no_preemption {
        policy.preempt.clear();
    } else if !args.preempt.is_empty() {
        policy.preempt.clone_from(&args.preempt);
    }
    policy.unset.preempt = args.preempt_unset;
    policy.bounds.patience = args.preempt_after.into();
    policy.bounds.rate = EvictionRate { evictions: args.evictions_per_minute, seconds: 60 };
    policy.protected.extend(args.protect_namespaces.iter().map(|name| name.as_str().into()));
    config.load = args.load.to_policy().map_err(anyhow::Error::msg)?;
    Ok(config)
}

pub async fn run_scheduler(args: SchedulerArgs) -> anyhow::Result<ExitCode> {
    let ComponentArgs { kubeconfig, process } = &args.component;
    let (client, admin, _, stop) = prepare_component("scheduler", kubeconfig.as_deref(), process.admin).await?;
    lead_scheduler(process, &args.placing, client, admin, stop).await
}

/// Runs the scheduler while its lease is held.
pub(crate) async fn lead_scheduler(
    process: &ProcessArgs,
    placing: &PlacingArgs,
    client: Client,
    admin: AdminServer,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let config = caldera_global_scheduler::Config {
        ready: admin.ready.clone(),
        registry: admin.registry.clone(),
        states: admin.states.clone(),
        estimators: build_estimator_settings(&placing.estimators)?,
        empty_workloads: placing.enable_empty_workload_propagation,
        // A controller without a lease writes grants without an epoch. They are placed where there is no lease.
        grants: Some((process.lease_namespace.clone(), CONTROLLER_LEASE.to_owned())),
        ..caldera_global_scheduler::Config::default()
    };
    run_under_lease("caldera-scheduler", process, &admin, client.clone(), stop, |active, _| async move {
        Ok(caldera_global_scheduler::run(config, client, active).await?)
    })
    .await
}

/// Where estimators are. Their certificates are read and tried now, so that a wrong one is reported at start.
fn build_estimator_settings(args: &EstimatorsArgs) -> anyhow::Result<Settings> {
    let identity = match (&args.scheduler_estimator_cert_file, &args.scheduler_estimator_key_file) {
        (Some(cert), Some(key)) => Some(Identity { cert_pem: read_file(cert)?, key_pem: read_file(key)? }),
        _ => None,
    };
    let ca_pem = args.scheduler_estimator_ca_file.as_deref().map(read_file).transpose()?;
    let trust = Trust { ca_pem, identity, insecure: args.insecure_skip_estimator_verify };
    trust.client_config()?;
    Ok(Settings {
        enabled: args.enable_scheduler_estimator,
        prefix: args.scheduler_estimator_service_prefix.clone(),
        namespace: args.scheduler_estimator_service_namespace.clone(),
        port: args.scheduler_estimator_port,
        pull: !args.disable_scheduler_estimator_in_pull_mode,
        trust,
    })
}

pub async fn run_collector(args: InventoryArgs) -> anyhow::Result<ExitCode> {
    let ComponentArgs { kubeconfig, process } = &args.component;
    let (client, admin, counts, stop) = prepare_component("inventory", kubeconfig.as_deref(), process.admin).await?;
    let pace =
        collector::Pace { heartbeat: Duration::from_secs(u64::from(args.heartbeat)), ..collector::Pace::default() };
    let member = connect_member(&args.member, "inventory", &counts).await?;
    probe::start_probe_server(&args.probe, &args.member.cluster, &admin.registry, &stop)?;
    let config = collector::Config {
        member,
        pace,
        ready: admin.ready.clone(),
        counts,
        registry: admin.registry.clone(),
        topology_labels: args.topology_labels.clone(),
        ..collector::Config::new(&args.member.cluster)
    };
    let lease = format!("caldera-inventory-{}", args.member.cluster);
    run_under_lease(&lease, process, &admin, client.clone(), stop, |active, _| async move {
        let links = probe::start_prober(&args.probe, &config.cluster, &config.registry, active.clone());
        collector::run_collector(collector::Config { links, ..config }, client, active).await;
        Ok(())
    })
    .await
}

/// Certificate, key and the clients' bundle; none for plain text. What is missing for TLS on both sides must be given
/// up in words.
fn list_estimator_tls_files(args: &EstimatorArgs) -> anyhow::Result<Option<Vec<PathBuf>>> {
    if args.insecure {
        return Ok(None);
    }
    let (Some(cert), Some(key)) = (&args.grpc_auth_cert_file, &args.grpc_auth_key_file) else {
        anyhow::bail!(
            "give --grpc-auth-cert-file and --grpc-auth-key-file, or --insecure to let whoever reaches it ask in plain \
             text"
        );
    };
    let mut files = vec![cert.clone(), key.clone()];
    if !args.insecure_skip_grpc_client_verify {
        let bundle = args.grpc_client_ca_file.clone();
        files.push(
            bundle.context("give --grpc-client-ca-file, or --insecure-skip-grpc-client-verify to let anybody ask")?,
        );
    }
    Ok(Some(files))
}

/// Plain text is spoken on the loopback alone, unless an address is given.
fn estimator_address(args: &EstimatorArgs) -> SocketAddr {
    let host = if args.insecure { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    args.listen.unwrap_or_else(|| (host, caldera_crds::estimator::PORT).into())
}

pub async fn run_estimator(args: EstimatorArgs) -> anyhow::Result<ExitCode> {
    let kubeconfig = args.kubeconfig.as_deref();
    let (client, AdminServer { ready, registry, .. }, counts, stop) =
        prepare_component("estimator", kubeconfig, args.admin).await?;
    let tls = match list_estimator_tls_files(&args)? {
        Some(files) => Some(ServedTls::from_files(files, RELOAD_EVERY, |pems| {
            estimator_server_config(&read_identity(pems), pems.get(2).map(String::as_str))
        })?),
        None => None,
    };
    let listen = estimator_address(&args);
    let listener = std::net::TcpListener::bind(listen).with_context(|| format!("failed to listen on {listen}"))?;
    let config = caldera_estimator::serve::Config {
        listener,
        tls,
        cluster: args.member.cluster.clone(),
        member: connect_member(&args.member, "estimator", &counts).await?,
        clock: Arc::new(caldera_runtime::clock::SystemClock),
        ready,
        counts,
        registry,
    };
    caldera_estimator::serve::run(config, client, stop).await.context("failed to serve the estimator")?;
    Ok(ExitCode::SUCCESS)
}

/// A client of the member, for a component that runs inside it.
async fn connect_member(args: &MemberArgs, component: &str, counts: &WriteCounts) -> anyhow::Result<Option<Client>> {
    let config = match &args.member_kubeconfig {
        Some(path) => client::load_config(Some(path)).await?,
        None if args.in_member => kube::Config::incluster().context("failed to read the pod's service account")?,
        None => return Ok(None),
    };
    Ok(Some(client::from_config(config, component, counts)?))
}

/// Runs `component` while this replica holds the lease, and passes it the lease's epoch. A lost lease ends the process,
/// which starts again from the state in the API. A standby replica reports ready, since a rollout would otherwise wait
/// for it for ever.
async fn run_under_lease<Fut>(
    lease: &str,
    args: &ProcessArgs,
    AdminServer { ready, leaders, credentials, .. }: &AdminServer,
    client: Client,
    stop: CancellationToken,
    component: impl FnOnce(CancellationToken, Option<String>) -> Fut,
) -> anyhow::Result<ExitCode>
where
    Fut: Future<Output = anyhow::Result<()>>,
{
    let leads = leaders.add_lease(lease);
    if args.no_lease {
        leads.set(1);
        component(stop, None).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned());
    let started = caldera_runtime::clock::SystemClock.now().as_nanosecond();
    let candidate = LeaseCandidate {
        namespace: args.lease_namespace.clone(),
        name: lease.to_owned(),
        identity: format!("{host}-{}-{started:x}", std::process::id()),
        lasts: LeaseDuration::from_seconds(args.lease_duration),
        // `caldera-inventory-MEMBER` is of the inventory.
        credentials: credentials.of_component(lease.split('-').nth(1).unwrap_or_default()),
    };
    let clock = std::sync::Arc::new(caldera_runtime::clock::SystemClock);
    ready.set_ready(true);
    let Some(held) = caldera_runtime::lease::acquire_lease(client, candidate, clock, stop.clone()).await else {
        return Ok(ExitCode::SUCCESS);
    };
    ready.set_ready(false);
    leads.set(1);
    let active = stop.child_token();
    let lost = held.lost.clone();
    let ended = active.clone();
    tokio::spawn(async move {
        lost.cancelled().await;
        ended.cancel();
    });
    component(active, Some(held.epoch.clone())).await?;
    anyhow::ensure!(!held.lost.is_cancelled(), "the lease {lease} was lost");
    held.release_lease().await;
    Ok(ExitCode::SUCCESS)
}

/// Admissions are granted under the controller's lease, unless there is none.
fn choose_placer(placer: PlacerArgs, process: &ProcessArgs) -> Placer {
    let lease = || (process.lease_namespace.clone(), CONTROLLER_LEASE.to_owned());
    if placer.stock_scheduler { Placer::Stock { lease: lease() } } else { Placer::Caldera }
}

/// What the webhook's clients may take of it. Room for bodies and their values follows from the largest object.
fn build_webhook_limits(args: &ServingArgs) -> caldera_webhook::Limits {
    let mut limits = caldera_webhook::Limits::for_objects_of(args.largest_object as usize * 1024);
    limits.bounds.connections = args.connections as usize;
    limits
}

pub async fn run_webhook(args: WebhookArgs) -> anyhow::Result<ExitCode> {
    let ComponentArgs { kubeconfig, process } = &args.component;
    let (client, admin, _, stop) = prepare_component("webhook", kubeconfig.as_deref(), process.admin).await?;
    serve_webhook(process, (&args.serving, args.placer), client, admin, stop).await
}

/// Serves the webhook.
pub(crate) async fn serve_webhook(
    process: &ProcessArgs,
    (args, placer): (&ServingArgs, PlacerArgs),
    client: Client,
    AdminServer { ready, registry, .. }: AdminServer,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let listener =
        std::net::TcpListener::bind(args.listen).with_context(|| format!("failed to listen on {}", args.listen))?;
    let expiry = CertificateExpiry::register(&registry);
    // A webhook that registers itself names the kinds that the host declares.
    declare_kinds(&client, &stop).await;
    let served = serve_identity(args, &process.lease_namespace, &client, expiry, &stop).await?;
    let config = caldera_webhook::Config {
        limits: build_webhook_limits(args),
        trusted: args.trusted.to_writers(),
        placer: choose_placer(placer, process),
        longest_grace_period: args.longest_grace_period,
        ready,
        registry,
        ..caldera_webhook::Config::new(listener, served)
    };
    caldera_webhook::run(config, client, stop).await?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use caldera_core::queue::OrderPolicy;
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn an_estimator_speaks_plain_text_only_where_that_is_said_and_then_on_the_loopback() {
        let args = |flags: &[&str]| {
            let words = ["caldera", "estimator", "--cluster", "m"].iter().chain(flags);
            match Args::try_parse_from(words).unwrap().command {
                Command::Estimator(args) => args,
                other => panic!("{other:?}"),
            }
        };
        let pair = ["--grpc-auth-cert-file=c", "--grpc-auth-key-file=k"];
        assert!(list_estimator_tls_files(&args(&[])).unwrap_err().to_string().contains("--insecure"));
        assert!(list_estimator_tls_files(&args(&pair)).unwrap_err().to_string().contains("--grpc-client-ca-file"));
        let files = |more: &str| list_estimator_tls_files(&args(&[pair[0], pair[1], more])).unwrap().unwrap().len();
        assert_eq!([files("--grpc-client-ca-file=b"), files("--insecure-skip-grpc-client-verify")], [3, 2]);
        assert_eq!(list_estimator_tls_files(&args(&["--insecure"])).unwrap(), None);
        let address = |flags: &[&str]| estimator_address(&args(flags)).to_string();
        assert_eq!(address(&pair), "0.0.0.0:10352");
        assert_eq!(address(&["--insecure"]), "127.0.0.1:10352");
        assert_eq!(address(&["--insecure", "--listen=0.0.0.0:1"]), "0.0.0.0:1");
    }

    fn decided(flags: &[&str]) -> caldera_controller::Config {
        let words = ["caldera", "controller"].iter().chain(flags);
        match Args::try_parse_from(words).unwrap().command {
            Command::Controller(args) => build_controller_config(&args.rules).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_admin_who_says_nothing_gets_the_defaults() {
        let (said, default) = (decided(&[]), caldera_controller::Config::default());
        assert_eq!((said.order, said.reservation_after), (default.order, default.reservation_after));
        assert_eq!(said.pods_ready_timeout, default.pods_ready_timeout);
        assert_eq!(said.member_lost_after, default.member_lost_after);
        assert_eq!(format!("{:?}", said.preemption), format!("{:?}", default.preemption));
        assert_eq!(said.load, default.load);
    }

    #[test]
    fn an_admin_says_from_when_on_a_cluster_is_hot() {
        let flags =
            ["--load-aware", "--load-thresholds=cpu=20", "--load-target-thresholds=cpu=70", "--load-interval=60"];
        let said = decided(&flags).load;
        assert!(said.enabled && !said.links && said.interval == 60);
        assert!(decided(&["--link-aware"]).load.links);
        assert_eq!(
            (said.thresholds.to_string(), said.target_thresholds.to_string()),
            ("cpu=20".into(), "cpu=70".into())
        );
        let words = ["caldera", "controller", "--load-thresholds=cpu=90,memory=30"];
        let Command::Controller(args) = Args::try_parse_from(words).unwrap().command else { panic!("another command") };
        assert!(build_controller_config(&args.rules).unwrap_err().to_string().contains("has to be below"));
        assert!(Args::try_parse_from(["caldera", "controller", "--load-thresholds=cpu=101"]).is_err());
    }

    #[test]
    fn an_admin_says_who_goes_first_and_who_gives_way() {
        let said = decided(&[
            "--order=fifo",
            "--reservation-after=0",
            "--preempt-after=5",
            "--pods-ready-timeout=7",
            "--no-reclaim",
            "--no-preemption",
            "--evictions-per-minute=4",
            "--protect-namespace=prod",
        ]);
        assert_eq!((said.order, said.reservation_after), (OrderPolicy::Fifo, None));
        assert_eq!(said.pods_ready_timeout.as_secs(), 7);
        let policy = said.preemption;
        assert!(!policy.reclaim && policy.preempt.is_empty());
        assert!(policy.protected.contains("prod") && policy.protected.contains("kube-system"));
        assert_eq!((policy.bounds.patience, policy.bounds.rate.evictions), (5, 4));
        for wrong in ["--evictions-per-minute=0", "--preempt=by.least=high", "--preempt=scope=here"] {
            assert!(Args::try_parse_from(["caldera", "controller", wrong]).is_err());
        }
        assert!(Args::try_parse_from(["caldera", "controller", "--no-preemption", "--preempt=of.most=0"]).is_err());
    }

    #[test]
    fn an_admin_says_who_may_preempt_whom() {
        let rules = ["by.queue=research,scope=any-queue", "by.least=1000,of.most=0,scope=same-parent"];
        let flags = rules.map(|rule| format!("--preempt={rule}"));
        let policy = decided(&[&flags[0], &flags[1], "--preempt-unset"]).preemption;
        assert_eq!(policy.preempt.iter().map(ToString::to_string).collect::<Vec<_>>(), rules);
        assert!(policy.unset.preempt);
    }
}
