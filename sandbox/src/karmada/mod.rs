//! A stand-in for Karmada: what its controller-manager, default scheduler and webhook do, as clients of the Kubernetes
//! API only. It works against any API server that serves Karmada's CRDs.
//!
//! It follows Karmada 1.19's code and recordings of it, including what Karmada refuses and what it overwrites.
//! Decisions are plain functions of values (`plan.rs`, `interpreter/`); around them is a thin edge that watches every
//! kind once ([`api`]) and retries with Karmada's gaps ([`queue`]).

pub mod admission;
pub mod api;
pub mod assignments;
pub mod binding;
pub mod cluster;
pub mod control;
pub mod detector;
pub mod distributor;
pub mod emptying;
pub mod events;
pub mod eviction;
pub mod execution;
pub mod gc;
pub mod impersonation;
pub mod interpreter;
pub mod names;
pub mod namespaces;
pub mod object;
pub mod queue;
pub mod quotas;
pub mod rebalancer;
pub mod scheduler;
pub mod select;
pub mod status;
pub mod ttl;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use caldera_runtime::clock::{SharedClock, SystemClock};
use kube::Client;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use api::{ApiError, Change, Server};
use cluster::run::{Access, Pace};
use control::{Control, Gates, Lag, Settings, binding_kind, cluster_binding_kind, cluster_kind, work_kind};
use detector::{plan::Scope, run::Detector};
use eviction::Evictions;
use object::{Gvk, Shared};

pub use cluster::join::{Member, join_member};

/// What the stand-in is started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The time.
    pub clock: SharedClock,
    /// Feature gates that are on.
    pub gates: Gates,
    /// What is evicted, and how.
    pub evictions: Evictions,
    /// Resource interpreter webhooks that are served in this process.
    pub interpreters: interpreter::webhook::InProcess,
    /// How long the binding controllers take to see a change of a binding.
    pub binding_lag: Lag,
    /// How members are found.
    pub access: Access,
    /// How often members are looked at.
    pub pace: Pace,
    /// Whether to stand in for kube-controller-manager on the host: garbage collection, TTL of finished Jobs, deletion
    /// of namespaces.
    pub collect_garbage: bool,
    /// Whether to serve Karmada's admission webhooks (a real karmada-webhook may be there already).
    pub admission: bool,
    /// Whether to stand in for karmada-scheduler.
    pub schedule: bool,
    /// Whether to stand in for karmada-controller-manager.
    pub control: bool,
}

/// Why the stand-in does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The host does not answer.
    #[error("failed to ask the host what it serves: {0}")]
    Host(#[from] ApiError),
    /// There are no webhooks.
    #[error(transparent)]
    Admission(#[from] admission::run::AdmissionError),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            gates: Gates::default(),
            evictions: Evictions::default(),
            interpreters: interpreter::webhook::InProcess::new(),
            binding_lag: Lag::default(),
            access: Access::default(),
            pace: Pace::default(),
            collect_garbage: true,
            admission: true,
            schedule: true,
            control: true,
        }
    }
}

/// Runs until the shutdown.
///
/// # Errors
/// When the host does not answer at the start, or the webhooks cannot be served.
pub async fn run(config: Config, host: Client, shutdown: CancellationToken) -> Result<(), StartError> {
    let server = Server::new("host", host, shutdown.child_token());
    let kinds = server.discover_all().await?;
    info!(kinds = kinds.len(), "Karmada stand-in starts");
    if config.admission {
        admission::run::serve_webhooks(&server, config.clock.clone(), config.gates, shutdown.child_token()).await?;
    }
    let interpreter = interpreter::Interpreter::new(server.clone(), config.interpreters, config.clock.clone());
    let settings = Settings {
        clock: config.clock.clone(),
        gates: config.gates,
        evictions: config.evictions,
        binding_lag: config.binding_lag,
    };
    let control = Control::new(server.clone(), interpreter, settings, shutdown.child_token());
    // What decisions are made from is known before the first of them.
    let known = [
        interpreter::configuration_kind(),
        interpreter::lua::customization_kind(),
        Scope::Namespace.gvk(),
        Scope::Cluster.gvk(),
        Gvk::new("policy.karmada.io/v1alpha1", "OverridePolicy"),
        Gvk::new("policy.karmada.io/v1alpha1", "ClusterOverridePolicy"),
        cluster_kind(),
        binding_kind(),
        cluster_binding_kind(),
        work_kind(),
    ];
    for gvk in &known {
        server.watch_kind(gvk);
    }
    for gvk in &known {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            () = server.until_synced(gvk) => {}
        }
    }
    if config.schedule {
        scheduler::run::run_scheduler(&control);
    }
    let detector = config.control.then(|| {
        run_controllers(&control);
        cluster::run::run_controllers(&control, config.access, config.pace);
        cluster::taint_policy::run_controller(&control);
        Detector::start(&control)
    });
    let collector = config.collect_garbage.then(|| gc::Collector::start(&server));
    if config.collect_garbage {
        ttl::run_controller(&control);
        emptying::run_controller(&server, config.clock.clone());
    }
    follow_kinds(&server, move |gvk| {
        if let Some(detector) = &detector {
            detector.follow_kind(gvk);
        }
        if let Some(collector) = &collector {
            collector.follow_kind(gvk);
        }
    })
    .await;
    Ok(())
}

/// The controllers of karmada-controller-manager that look after neither clusters nor templates.
fn run_controllers(control: &Arc<Control>) {
    execution::run::run_controller(control);
    status::work::run_controller(control);
    status::binding::run_controller(control);
    binding::run::run_controller(control);
    namespaces::run_controller(control);
    impersonation::run_controller(control);
    distributor::run_controller(control);
    rebalancer::run_controller(control);
    assignments::run_controllers(control);
    if control.gates.federated_quota {
        quotas::run_controller(control);
    }
    eviction::run::run_controllers(control);
}

/// Collects garbage and empties namespaces on one server (a member, say) until the shutdown.
pub async fn collect_garbage(name: &str, client: Client, clock: SharedClock, shutdown: CancellationToken) {
    let server = Server::new(name, client, shutdown);
    emptying::run_controller(&server, clock);
    let collector = gc::Collector::start(&server);
    follow_kinds(&server, move |gvk| collector.follow_kind(gvk)).await;
}

/// Tells of every watchable kind, now and as definitions come.
async fn follow_kinds(server: &Arc<Server>, tell: impl Fn(&Gvk)) {
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    let definitions = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let established =
        |one: &Option<Shared>| one.as_ref().map(|one| object::condition_status(one, "Established").to_owned());
    server.add_handler(
        &definitions,
        Arc::new(move |change: &Change| {
            if established(&change.old) != established(&change.new) {
                notify.notify_one();
            }
        }),
    );
    let mut told = BTreeSet::new();
    loop {
        match server.discover_all().await {
            Ok(kinds) => {
                for kind in kinds.iter().filter(|kind| kind.watchable()) {
                    if told.insert(kind.gvk.clone()) {
                        tell(&kind.gvk);
                    }
                }
            }
            Err(error) => {
                warn!(server = server.name, %error, "its kinds are not known");
                changed.notify_one();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        tokio::select! {
            biased;
            () = server.shutdown().cancelled() => return,
            () = changed.notified() => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
