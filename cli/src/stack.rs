//! Caldera's three components in this process, pointed at one Karmada host: what `sandbox` and `demo` run.

use std::net::Ipv4Addr;

use anyhow::Context;
use caldera_runtime::{
    client::WriteCounts,
    tls::Authority,
    write::{self, Failure},
};
use caldera_sandbox::fleet::Endpoint;
use kube::Client;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::manifests;

/// Who applies what the components need.
const INSTALLER: &str = "install";

/// The running components.
pub struct Stack {
    tasks: JoinSet<()>,
}

impl Stack {
    /// Starts webhook, controller and scheduler against `host` and applies what they need there. Returns once the
    /// webhook serves and its configurations are applied.
    ///
    /// # Errors
    /// If the webhook's port can not be bound, or the host refuses what is applied.
    pub async fn start(host: &Endpoint, counts: &WriteCounts, stop: &CancellationToken) -> anyhow::Result<Self> {
        // What is installed once is not a job's.
        let uncounted = WriteCounts::default();
        let counts = |component: &str| if component == INSTALLER { &uncounted } else { counts };
        Self::start_with(|component| Ok(host.client(component, counts(component))?), stop).await
    }

    /// The same with a client made by `client` for each component.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with(
        client: impl Fn(&str) -> anyhow::Result<Client>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let mut tasks = JoinSet::new();
        let installer = client(INSTALLER)?;

        let authority = Authority::new("caldera-webhook")?;
        let identity = authority.server("caldera-webhook", &["localhost"], &[Ipv4Addr::LOCALHOST.into()])?;
        let listener =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to bind the webhook's port")?;
        let address = listener.local_addr()?;
        let config = caldera_webhook::Config::new(listener, identity);
        let (webhook, stopped) = (client("webhook")?, stop.clone());
        tasks.spawn(async move { tell("webhook", caldera_webhook::run(config, webhook, stopped).await) });

        let endpoint = caldera_webhook::Endpoint::Url(format!("https://{address}"));
        let mut objects = manifests::webhooks(&endpoint, &authority.cert_pem);
        objects.extend(manifests::policies());
        for object in objects {
            apply(&installer, object).await?;
        }

        let (controller, stopped) = (client("controller")?, stop.clone());
        tasks.spawn(async move {
            let config = caldera_controller::Config::default();
            tell("controller", caldera_controller::run(config, controller, stopped).await);
        });
        let (scheduler, stopped) = (client("scheduler")?, stop.clone());
        tasks.spawn(async move {
            let config = caldera_global_scheduler::Config::default();
            tell("scheduler", caldera_global_scheduler::run(config, scheduler, stopped).await);
        });
        Ok(Self { tasks })
    }

    /// Lets the components run on until their token is cancelled.
    pub fn detach(mut self) {
        self.tasks.detach_all();
    }

    /// Waits until all components have stopped.
    pub async fn stopped(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

fn tell<E: std::error::Error + 'static>(component: &str, result: Result<(), E>) {
    if let Err(error) = result {
        tracing::error!(component, error = &error as &dyn std::error::Error, "a component stopped");
    }
}

/// Applies one object, whatever it is.
pub async fn apply(client: &Client, object: Value) -> anyhow::Result<Value> {
    let write = manifests::apply_write(object, "caldera-install")?;
    // An API server that has just been given a CRD or a webhook may need a moment.
    let mut last = Failure::Transient(String::new());
    for wait in [10, 20, 50, 100, 200, 400, 800] {
        match write::execute(client, &write).await {
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
