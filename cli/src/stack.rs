//! Runs Caldera's webhook, controller and scheduler in this process, and collectors where they are asked for, against
//! one Karmada host: for `sandbox`, `demo` and end-to-end scenarios, which also end and restart them. Each component
//! has the rights of its own account and no others, as `caldera manifests` grants them.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    time::Duration,
};

use anyhow::{Context, bail};
pub use caldera_controller::Config as ControllerConfig;
use caldera_crds::trusted::TrustedWriters;
use caldera_runtime::{
    client::{self, WriteCounts},
    members::collector,
    tls::{Authority, Identity, server_config},
    write::{self, Failure},
};
use caldera_sandbox::fleet::Endpoint;
use caldera_webhook::Placer;
use kube::{Client, Config};
use serde_json::Value;
use tokio::{net::TcpSocket, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    manifests,
    roles::{self, CONTROLLER_LEASE, Granted},
};

/// One of Caldera's components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// `caldera webhook`.
    Webhook,
    /// `caldera controller`.
    Controller,
    /// `caldera scheduler`.
    Scheduler,
}

impl Component {
    const fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Controller => "controller",
            Self::Scheduler => "scheduler",
        }
    }
}

/// A component that runs; dropping it ends it.
struct Running {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
        self.task.abort();
    }
}

/// The running components; dropping it ends them.
pub struct Stack {
    /// The Karmada API, as an administrator.
    host: Config,
    counts: WriteCounts,
    stop: CancellationToken,
    /// Where the webhook listens, also after it was started again: its configurations name this address.
    webhook: SocketAddr,
    /// Bound and never listening: while the webhook is killed, its callers are refused and nobody else gets the port.
    _port: TcpSocket,
    identity: Identity,
    controller: ControllerConfig,
    /// karmada-scheduler places, and our scheduler does not run.
    stock_scheduler: bool,
    running: BTreeMap<Component, Running>,
    collectors: Vec<Running>,
}

impl Stack {
    /// Starts webhook, controller and scheduler against `host` and applies what they need there. Returns once the
    /// webhook serves and its configurations are applied.
    ///
    /// # Errors
    /// If the webhook's port can not be bound, or the host refuses what is applied.
    pub async fn start(host: &Endpoint, counts: &WriteCounts, stop: &CancellationToken) -> anyhow::Result<Self> {
        Self::start_as_admin(host.config()?, counts, stop).await
    }

    /// The same against the API that an administrator's configuration leads to.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_as_admin(host: Config, counts: &WriteCounts, stop: &CancellationToken) -> anyhow::Result<Self> {
        // Objects that are installed once do not count as writes for jobs.
        let installer = client::from_config(host.clone(), "install", &WriteCounts::default())?;
        for object in roles::build_component_roles(&Granted::default()) {
            apply_object(&installer, object).await?;
        }
        let authority = Authority::new("caldera-webhook")?;
        let identity =
            authority.issue_server_identity("caldera-webhook", &["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
        let port = reserve_port().context("failed to bind the webhook's port")?;
        let webhook = port.local_addr()?;
        let (running, collectors) = (BTreeMap::new(), Vec::new());
        let mut controller = ControllerConfig { namespace: roles::NAMESPACE.to_owned(), ..ControllerConfig::default() };
        // In a demo a minute before the first reclaim is too long.
        controller.preemption.bounds.patience = 2;
        let (counts, stop) = (counts.clone(), stop.clone());
        let mut stack = Self {
            host,
            counts,
            stop,
            webhook,
            _port: port,
            identity,
            controller,
            stock_scheduler: false,
            running,
            collectors,
        };
        stack.restart_component(Component::Webhook).await?;

        let endpoint = caldera_webhook::Endpoint::Url(format!("https://{webhook}"));
        let mut objects = caldera_crds::manifests::build_federation_crds();
        objects.extend(caldera_webhook::build_configurations(&endpoint, &authority.cert_pem));
        objects.extend(manifests::list_admission_policies(&TrustedWriters::default(), false));
        objects.extend(manifests::build_propagation_policies());
        for object in objects {
            apply_object(&installer, object).await?;
        }
        stack.restart_component(Component::Controller).await?;
        stack.restart_component(Component::Scheduler).await?;
        Ok(stack)
    }

    /// A client with a component's own rights.
    fn connect_as(&self, component: &str) -> anyhow::Result<Client> {
        let mut host = self.host.clone();
        host.auth_info.impersonate = Some(roles::name_account(component));
        Ok(client::from_config(host, component, &self.counts)?)
    }

    /// Ends a component in the middle of what it does, as if its process was killed.
    pub async fn kill(&mut self, component: Component) {
        if let Some(mut running) = self.running.remove(&component) {
            running.stop.cancel();
            // Open connections to the webhook end with its server. The other components end at once.
            if component == Component::Webhook {
                let _ = tokio::time::timeout(Duration::from_secs(5), &mut running.task).await;
            }
        }
    }

    /// How the controller is set up from its next start on.
    pub fn controller_config_mut(&mut self) -> &mut ControllerConfig {
        &mut self.controller
    }

    /// Leaves placement to karmada-scheduler from now on, or takes it back.
    ///
    /// # Errors
    /// As [`Self::restart_component`].
    pub async fn use_stock_scheduler(&mut self, stock: bool) -> anyhow::Result<()> {
        self.stock_scheduler = stock;
        self.controller.stock_scheduler = stock;
        for component in [Component::Scheduler, Component::Controller, Component::Webhook] {
            self.kill(component).await;
        }
        for component in [Component::Webhook, Component::Controller, Component::Scheduler] {
            self.restart_component(component).await?;
        }
        Ok(())
    }

    /// Starts a component (again); nothing if it runs, nor if it is a scheduler that is not to run.
    ///
    /// # Errors
    /// If the webhook's port stays taken by somebody else.
    pub async fn restart_component(&mut self, component: Component) -> anyhow::Result<()> {
        if self.running.contains_key(&component) || self.stock_scheduler && component == Component::Scheduler {
            return Ok(());
        }
        match component {
            Component::Webhook => {
                let listener = listen_again(self.webhook).await?;
                self.serve_webhook(listener)?;
            }
            Component::Controller => {
                let config = self.controller.clone();
                let client = self.connect_as(component.name())?;
                self.spawn(component, |stop| caldera_controller::run(config, client, stop));
            }
            Component::Scheduler => {
                let config = caldera_global_scheduler::Config::default();
                let client = self.connect_as(component.name())?;
                self.spawn(component, |stop| caldera_global_scheduler::run(config, client, stop));
            }
        }
        Ok(())
    }

    /// Starts a collector for a member, as `caldera inventory --cluster NAME` is.
    ///
    /// # Errors
    /// If no client can be made for it.
    pub fn start_collector(&mut self, member: &str) -> anyhow::Result<()> {
        let client = self.connect_as("inventory")?;
        let stop = self.stop.child_token();
        let task = tokio::spawn(collector::run_collector(collector::Config::new(member), client, stop.clone()));
        self.collectors.push(Running { task, stop });
        Ok(())
    }

    fn serve_webhook(&mut self, listener: TcpListener) -> anyhow::Result<()> {
        // The parts run without leases here: there is none of this name.
        let lease = || (roles::NAMESPACE.to_owned(), CONTROLLER_LEASE.to_owned());
        let placer = if self.stock_scheduler { Placer::Stock { lease: lease() } } else { Placer::Caldera };
        let served = server_config(&self.identity)?.into();
        let config = caldera_webhook::Config { placer, ..caldera_webhook::Config::new(listener, served) };
        let client = self.connect_as(Component::Webhook.name())?;
        self.spawn(Component::Webhook, |stop| caldera_webhook::run(config, client, stop));
        Ok(())
    }

    fn spawn<F, E>(&mut self, component: Component, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + 'static,
    {
        let stop = self.stop.child_token();
        let running = run(stop.clone());
        let task = tokio::spawn(async move { log_failure(component.name(), running.await) });
        self.running.insert(component, Running { task, stop });
    }

    /// Waits until all components have stopped.
    pub async fn wait_until_stopped(mut self) {
        for running in self.running.values_mut().chain(&mut self.collectors) {
            let _ = (&mut running.task).await;
        }
    }
}

/// A port of this machine that nobody else is given while the socket lives; who shares it, as std's listeners do, may
/// listen on it.
fn reserve_port() -> std::io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    Ok(socket)
}

/// Listens where a listener was closed just now. A program that this process starts meanwhile holds a copy of the
/// closed one from its fork until its exec.
async fn listen_again(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() != ErrorKind::AddrInUse || tokio::time::Instant::now() > until => {
                bail!("failed to listen on {address} again: {error}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Ok(listener) => return Ok(listener),
        }
    }
}

fn log_failure<E: std::error::Error + 'static>(component: &str, result: Result<(), E>) {
    if let Err(error) = result {
        tracing::error!(component, error = &error as &dyn std::error::Error, "a component stopped");
    }
}

/// Applies one object, whatever it is.
pub async fn apply_object(client: &Client, object: Value) -> anyhow::Result<Value> {
    let write = manifests::build_apply_write(object, "caldera-install")?;
    // An API server that has just been given a CRD or a webhook may need a moment.
    let mut last = Failure::Transient(String::new());
    for wait in [10, 20, 50, 100, 200, 400, 800] {
        match write::execute_write(client, &write).await {
            Ok(stored) => return Ok(stored),
            Err(failure @ (Failure::Transient(_) | Failure::Conflict(_) | Failure::Gone(_))) => last = failure,
            Err(failure) => {
                last = failure;
                break;
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
    }
    Err(last).with_context(|| format!("failed to apply {} {}", write.resource.kind, write.name))
}

#[cfg(test)]
mod tests {
    use caldera_sandbox::fleet::{Config, Fleet};

    use super::*;

    #[tokio::test]
    async fn a_webhooks_port_is_its_own_and_waits_for_a_copy_of_its_listener_to_close() {
        let port = reserve_port().unwrap();
        let address = port.local_addr().unwrap();
        assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens");
        let first = listen_again(address).await.unwrap();
        let copy = first.try_clone().unwrap();
        drop(first);
        let (again, ()) = tokio::join!(listen_again(address), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(copy);
        });
        assert_eq!(again.unwrap().local_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn components_have_the_rights_of_their_accounts_and_no_others() {
        caldera_runtime::tls::install_provider();
        let stop = CancellationToken::new();
        let fleet = Fleet::start(Config::with_members(0), &stop).await.unwrap();
        let stack = Stack::start(&fleet.host, &WriteCounts::default(), &stop).await.unwrap();
        for (component, path, is_granted) in [
            ("controller", "/apis/work.karmada.io/v1alpha2/resourcebindings", true),
            ("controller", "/api/v1/namespaces/default/secrets", false),
            ("scheduler", "/apis/bus.volcano.sh/v1alpha1/commands", false),
            ("webhook", "/apis/cluster.karmada.io/v1alpha1/clusters", false),
        ] {
            let client = stack.connect_as(component).unwrap();
            let answer = client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await;
            let refused = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403);
            assert_eq!(!refused, is_granted, "{component} {path}: {answer:?}");
        }
        stop.cancel();
    }
}
