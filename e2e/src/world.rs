//! The world scenarios run in, started once for all of them.
//!
//! The sandbox by default; a real Karmada where kubeconfigs are given. There Caldera's components are started in this
//! process against the host, unless `CALDERA_E2E_COMPONENTS=external` says that they already run; a member without a
//! Volcano (real or simulated) gets a simulated one.

use std::{collections::BTreeMap, path::PathBuf, sync::OnceLock, time::Duration};

use anyhow::Context;
use caldera_cli::{
    manifests,
    stack::{Component, ControllerConfig, Stack},
};
use caldera_runtime::{
    client::{self, WriteCounts},
    watch::api_resource,
    write,
};
use caldera_sandbox::{
    fleet::{Config, Endpoint, Fleet},
    karmada, member,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use tokio::{
    runtime::Runtime,
    sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use tokio_util::sync::CancellationToken;

/// A Karmada host and its members.
pub struct World {
    /// The Karmada API.
    pub host: Client,
    /// The members' APIs by cluster name.
    pub members: BTreeMap<String, Client>,
    /// Whether a pod of a service image ends by itself, as simulated pods do.
    pub simulated: bool,
    /// Caldera's components, where this process runs them.
    components: Option<Mutex<Stack>>,
    /// Held by every scenario; exclusively by those that stop components or need all members' capacity.
    turns: RwLock<()>,
    stop: CancellationToken,
}

/// A scenario's turn in the world.
pub enum Turn {
    /// Together with others.
    Shared(#[allow(dead_code)] RwLockReadGuard<'static, ()>),
    /// With nobody else.
    Alone(#[allow(dead_code)] RwLockWriteGuard<'static, ()>),
}

impl World {
    /// Waits for a turn among the scenarios of this process.
    pub async fn turn(&'static self, alone: bool) -> Turn {
        if alone { Turn::Alone(self.turns.write().await) } else { Turn::Shared(self.turns.read().await) }
    }

    /// Stops everything that was started for it.
    pub(crate) fn end(&self) {
        self.stop.cancel();
    }

    /// Whether that was stopped: nobody answers any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Whether components can be killed here: not those that somebody else runs.
    #[must_use]
    pub const fn runs_components(&self) -> bool {
        self.components.is_some()
    }

    /// Kills a component in the middle of what it does.
    pub async fn kill(&self, component: Component) {
        if let Some(components) = &self.components {
            components.lock().await.kill(component).await;
        }
    }

    /// Starts the controller anew, set up otherwise from now on; gives back how it was set up.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn reconfigure(&self, change: impl FnOnce(&mut ControllerConfig)) -> anyhow::Result<ControllerConfig> {
        let Some(components) = &self.components else { return Ok(ControllerConfig::default()) };
        let mut stack = components.lock().await;
        let before = stack.controller_config_mut().clone();
        change(stack.controller_config_mut());
        stack.kill(Component::Controller).await;
        stack.restart_component(Component::Controller).await?;
        Ok(before)
    }

    /// Leaves placement to karmada-scheduler from now on, or takes it back.
    ///
    /// # Errors
    /// If a component does not start.
    pub async fn use_stock_scheduler(&self, stock: bool) -> anyhow::Result<()> {
        match &self.components {
            Some(components) => components.lock().await.use_stock_scheduler(stock).await,
            None => Ok(()),
        }
    }

    /// Starts it again; nothing if it runs.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn resume(&self, component: Component) -> anyhow::Result<()> {
        match &self.components {
            Some(components) => components.lock().await.restart_component(component).await,
            None => Ok(()),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The runtime that the world and all scenarios share.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        caldera_runtime::telemetry::start_logging("warn", caldera_runtime::telemetry::Format::Text);
        caldera_runtime::tls::install_provider();
        #[allow(clippy::expect_used)]
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a tokio runtime can be built")
    })
}

/// The world, started by whoever asks first.
pub async fn world() -> anyhow::Result<&'static World> {
    static WORLD: tokio::sync::OnceCell<World> = tokio::sync::OnceCell::const_new();
    WORLD.get_or_try_init(start).await
}

async fn start() -> anyhow::Result<World> {
    match std::env::var_os("CALDERA_E2E_HOST_KUBECONFIG") {
        None => sandbox().await,
        Some(host) => real(host.into()).await,
    }
}

/// Whether the world is somebody else's Karmada.
pub(crate) fn is_given() -> bool {
    std::env::var_os("CALDERA_E2E_HOST_KUBECONFIG").is_some()
}

/// A sandbox of three members with Caldera's components.
pub(crate) async fn sandbox() -> anyhow::Result<World> {
    let stop = CancellationToken::new();
    let fleet = fleet(3, &stop).await?;
    of_fleet(&fleet, stop).await
}

/// A host with this many members of its own.
///
/// # Errors
/// If a server does not start.
pub async fn fleet(members: usize, stop: &CancellationToken) -> anyhow::Result<Fleet> {
    Ok(Fleet::start(Config::with_members(members), stop).await?)
}

/// Makes another fleet's member one of this host.
///
/// # Errors
/// If the host does not answer, or refuses it.
pub async fn join(fleet: &Fleet, name: &str, member: &Endpoint) -> anyhow::Result<()> {
    let request = karmada::Member {
        name: name.to_owned(),
        endpoint: member.server.clone(),
        token: member.token.clone(),
        ca_pem: member.ca_pem.clone(),
        ..karmada::Member::default()
    };
    Ok(karmada::join_member(&fleet.host.client("e2e", &WriteCounts::default())?, &request).await?)
}

/// The world of a sandbox that was started with the token `stop`, with Caldera's components.
///
/// # Errors
/// If a component does not start.
pub async fn of_fleet(fleet: &Fleet, stop: CancellationToken) -> anyhow::Result<World> {
    let counts = WriteCounts::default();
    let stack = Stack::start(&fleet.host, &counts, &stop).await?;
    let member =
        |endpoint: &Endpoint| Ok::<_, anyhow::Error>((endpoint.name.clone(), endpoint.client("e2e", &counts)?));
    let members = fleet.members.iter().map(member).collect::<Result<_, _>>()?;
    let host = fleet.host.client("e2e", &counts)?;
    Ok(World { host, members, simulated: true, components: Some(Mutex::new(stack)), turns: RwLock::default(), stop })
}

/// The same where nothing of Caldera runs: karmada-scheduler places what there is.
///
/// # Errors
/// If no client can be made.
pub fn without_components(fleet: &Fleet, stop: CancellationToken) -> anyhow::Result<World> {
    let counts = WriteCounts::default();
    let member =
        |endpoint: &Endpoint| Ok::<_, anyhow::Error>((endpoint.name.clone(), endpoint.client("e2e", &counts)?));
    let members = fleet.members.iter().map(member).collect::<Result<_, _>>()?;
    let host = fleet.host.client("e2e", &counts)?;
    Ok(World { host, members, simulated: true, components: None, turns: RwLock::default(), stop })
}

async fn real(host: PathBuf) -> anyhow::Result<World> {
    let stop = CancellationToken::new();
    let counts = WriteCounts::default();
    let config = client::load_config(Some(&host)).await?;
    let host = client::from_config(config.clone(), "e2e", &counts)?;
    let (mut members, mut simulated) = (BTreeMap::new(), true);
    let named = std::env::var("CALDERA_E2E_MEMBERS").context("CALDERA_E2E_MEMBERS=m1=FILE,m2=FILE is not set")?;
    for part in named.split(',').filter(|part| !part.is_empty()) {
        let (name, file) = part.split_once('=').with_context(|| format!("{part:?} is not NAME=FILE"))?;
        let config = client::load_config(Some(file.as_ref())).await?;
        let client = client::from_config(config, "e2e", &counts)?;
        wait_for_starting_volcano(&client).await?;
        simulated &= bring_volcano(name, &client, &stop).await?;
        members.insert(name.to_owned(), client);
    }
    let components = if std::env::var("CALDERA_E2E_COMPONENTS").as_deref() == Ok("external") {
        None
    } else {
        install(&host, caldera_crds::manifests::build_volcano_crds()).await?;
        Some(Mutex::new(Stack::start_as_admin(config, &counts, &stop).await?))
    };
    Ok(World { host, members, simulated, components, turns: RwLock::default(), stop })
}

/// Looks for a second each at a member that has Volcano's definitions, until its webhooks are registered.
const LOOKS_FOR_VOLCANO: u32 = 60;

/// Waits for a Volcano that starts just now: it has its definitions, and has not registered its webhooks. A second one
/// beside it would leave its own behind.
async fn wait_for_starting_volcano(client: &Client) -> anyhow::Result<()> {
    let kind = "CustomResourceDefinition";
    let resource = api_resource("apiextensions.k8s.io", "v1", kind, "customresourcedefinitions");
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    if definitions.get_metadata_opt("jobs.batch.volcano.sh").await?.is_none() {
        return Ok(());
    }
    for _ in 0..LOOKS_FOR_VOLCANO {
        if find_volcano(client).await?.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Gives a member that has no Volcano the simulated one, and says whether the member's is a simulated one.
///
/// # Errors
/// If the member refuses what a Volcano needs.
pub async fn bring_volcano(name: &str, client: &Client, stop: &CancellationToken) -> anyhow::Result<bool> {
    install(client, caldera_crds::manifests::build_member_volcano_crds()).await?;
    if let Some(configuration) = find_volcano(client).await? {
        // A real one is a service of its cluster; a simulated one is wherever it was started.
        return Ok(configuration.data.pointer("/webhooks/0/clientConfig/url").is_some());
    }
    let (client, stop, name) = (client.clone(), stop.clone(), name.to_owned());
    tokio::spawn(async move {
        if let Err(error) = member::run(member::Config::default(), client, stop).await {
            tracing::error!(member = name, %error, "the simulated Volcano stopped");
        }
    });
    Ok(true)
}

/// The registration of a Volcano's webhooks.
async fn find_volcano(client: &Client) -> anyhow::Result<Option<DynamicObject>> {
    let kind = "MutatingWebhookConfiguration";
    let resource = api_resource("admissionregistration.k8s.io", "v1", kind, "mutatingwebhookconfigurations");
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let is_volcanos = |one: &DynamicObject| {
        one.metadata.name.as_deref().is_some_and(|name| name.starts_with("volcano-admission-service"))
    };
    Ok(all.list(&ListParams::default()).await?.items.into_iter().find(is_volcanos))
}

/// Creates what is not there.
async fn install(client: &Client, objects: Vec<serde_json::Value>) -> anyhow::Result<()> {
    for object in objects {
        let mut create = manifests::build_apply_write(object.clone(), "caldera-e2e")?;
        create.body = write::Body::Create(object);
        match write::execute_write(client, &create).await {
            Ok(_) | Err(write::Failure::Exists(_)) => {}
            Err(failure) => return Err(failure).with_context(|| format!("failed to create {}", create.name)),
        }
    }
    Ok(())
}

/// A kind's API: all namespaces, or one.
#[must_use]
pub fn api(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}
