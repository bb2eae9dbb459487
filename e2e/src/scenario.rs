//! A scenario's own corner of the world: a namespace, names of its own for what has no namespace, and conditions to
//! wait for.

mod conditions;
mod controllers;
mod in_member;
mod outcome;
mod waiting;

use std::{
    fmt::Write as _,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use caldera_cli::stack::{Component, ControllerConfig};
use caldera_crds::names::caldera::FORCE_DELETE;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    kinds::Kind,
    manifest::policy,
    world::{Turn, World, api, is_given, runtime, sandbox, world},
};

pub use self::outcome::{Skipped, skip};
use self::waiting::{await_met, retry_late_server};

/// How long a condition may take, on a machine that is busy with much else too. Only failures last as long.
pub const PATIENCE: Duration = Duration::from_secs(400);

/// How long what a scenario leaves may take to go. What is in a member that is out of reach stays.
const ENDINGS: Duration = Duration::from_secs(30);

/// See the module.
pub struct Scenario {
    world: &'static World,
    /// The scenario's namespace.
    pub namespace: String,
    /// Cluster-scoped objects to take away at the end.
    cluster_scoped: Mutex<Vec<(Kind, String)>>,
    _turn: Turn,
}

/// Runs a scenario in a namespace of its own and cleans up after it; on failure tells what was there.
///
/// # Panics
/// If the scenario fails: this is a test.
pub fn run<F, Fut>(name: &str, play: F)
where
    F: FnOnce(Arc<Scenario>) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    run_in_turn(name, world(), false, play);
}

/// The same while no other scenario of this process runs: for those that need the members' whole capacity.
///
/// # Panics
/// As [`run`].
pub fn run_alone<F, Fut>(name: &str, play: F)
where
    F: FnOnce(Arc<Scenario>) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    run_in_turn(name, world(), true, play);
}

/// The same for scenarios that kill components; skipped where somebody else runs them.
///
/// # Panics
/// As [`run`].
pub fn run_with_components<F, Fut>(name: &str, play: F)
where
    F: FnOnce(Arc<Scenario>) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    run_in_turn(name, world(), true, async |scenario: Arc<Scenario>| {
        if !scenario.world.runs_components() {
            return skip("Caldera's components are not run by this process");
        }
        let result = play(scenario.clone()).await;
        for component in [Component::Webhook, Component::Controller, Component::Scheduler] {
            scenario.world.resume(component).await?;
        }
        result
    });
}

/// The same with a controller that is set up otherwise: in a sandbox of the scenario's own, or on a given Karmada as
/// [`run_with_components`].
///
/// # Panics
/// As [`run`].
pub fn run_configured<F, Fut>(name: &str, change: fn(&mut ControllerConfig), play: F)
where
    F: FnOnce(Arc<Scenario>) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    if !is_given() {
        return run_in(name, sandbox(), async |scenario: Arc<Scenario>| {
            scenario.world.reconfigure(change).await?;
            play(scenario).await
        });
    }
    run_with_components(name, async |scenario: Arc<Scenario>| {
        let before = scenario.world.reconfigure(change).await?;
        let result = play(scenario.clone()).await;
        scenario.world.reconfigure(|config| *config = before).await?;
        result
    });
}

/// The same where karmada-scheduler places: in a sandbox of the scenario's own, or on a given Karmada as
/// [`run_with_components`].
///
/// # Panics
/// As [`run`].
pub fn run_with_stock_scheduler<F, Fut>(name: &str, play: F)
where
    F: FnOnce(Arc<Scenario>) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    if !is_given() {
        return run_in(name, sandbox(), async |scenario: Arc<Scenario>| {
            scenario.world.use_stock_scheduler(true).await?;
            play(scenario).await
        });
    }
    run_with_components(name, async |scenario: Arc<Scenario>| {
        scenario.world.use_stock_scheduler(true).await?;
        let result = play(scenario.clone()).await;
        scenario.world.use_stock_scheduler(false).await?;
        result
    });
}

/// A scenario that a given Karmada can not play: there it is skipped for this reason, and `true` is given back.
#[must_use]
pub fn is_skipped_on_given(name: &str, reason: &str) -> bool {
    if is_given() {
        outcome::report(name, Some(&Skipped(reason.to_owned())));
    }
    is_given()
}

/// The same in a world of the scenario's own, which ends with it.
///
/// # Panics
/// As [`run`].
pub fn run_in<F, Fut>(name: &str, start: impl Future<Output = anyhow::Result<World>>, play: F)
where
    F: FnOnce(Arc<Scenario>) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let own = async { start.await.map(|world| &*Box::leak(Box::new(world))) };
    run_in_turn(name, own, true, async |scenario: Arc<Scenario>| {
        let result = play(scenario.clone()).await;
        if let Err(error) = &result
            && !error.is::<Skipped>()
        {
            eprintln!("{error:#}\n{}", scenario.account().await);
        }
        scenario.world.end();
        result
    });
}

fn run_in_turn<F, Fut>(name: &str, world: impl Future<Output = anyhow::Result<&'static World>>, alone: bool, play: F)
where
    F: FnOnce(Arc<Scenario>) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    runtime().block_on(async {
        let scenario = match Scenario::start(name, world, alone).await {
            Ok(scenario) => Arc::new(scenario),
            #[allow(clippy::panic)]
            Err(error) => panic!("the world did not start: {error:#}"),
        };
        let result = play(scenario.clone()).await;
        let (result, skipped) = match result.map_err(anyhow::Error::downcast::<Skipped>) {
            Ok(()) => (Ok(()), None),
            Err(Ok(skipped)) => (Ok(()), Some(skipped)),
            Err(Err(error)) => (Err(error), None),
        };
        let account = if result.is_err() { scenario.account().await } else { String::new() };
        scenario.clean_up().await;
        #[allow(clippy::panic)]
        if let Err(error) = result {
            panic!("{error:#}\n{account}");
        }
        outcome::report(name, skipped.as_ref());
    });
}

impl Scenario {
    async fn start(
        name: &str,
        world: impl Future<Output = anyhow::Result<&'static World>>,
        alone: bool,
    ) -> anyhow::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let world = world.await?;
        let turn = world.turn(alone).await;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("e2e-{name}-{}-{number}", std::process::id());
        let scenario = Self { world, namespace, cluster_scoped: Mutex::default(), _turn: turn };
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scenario.namespace}});
        scenario.create(Kind::Namespace, object).await?;
        Ok(scenario)
    }

    /// The Karmada API, for what this type has no method for.
    #[must_use]
    pub fn host(&self) -> Client {
        self.world.host.clone()
    }

    /// Kills one of Caldera's components in the middle of what it does.
    pub async fn kill(&self, component: Component) {
        self.world.kill(component).await;
    }

    /// Starts it again.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn resume(&self, component: Component) -> anyhow::Result<()> {
        self.world.resume(component).await
    }

    /// Whether a pod of a service image ends by itself.
    #[must_use]
    pub const fn is_simulated(&self) -> bool {
        self.world.simulated
    }

    /// Names of the members.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.world.members.keys().map(String::as_str)
    }

    /// A name for a cluster-scoped object that no other scenario uses.
    #[must_use]
    pub fn own(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let namespace = (!kind.is_cluster_scoped()).then_some(self.namespace.as_str());
        api(&self.world.host, &kind.resource(), namespace)
    }

    fn member_api(&self, member: &str, kind: Kind) -> anyhow::Result<Api<DynamicObject>> {
        let client = self.world.members.get(member).with_context(|| format!("there is no member {member}"))?;
        let namespace = (!kind.is_cluster_scoped()).then_some(self.namespace.as_str());
        Ok(api(client, &kind.resource(), namespace))
    }

    /// Creates an object on the host.
    ///
    /// # Errors
    /// If the server refuses it: the error is the server's.
    pub async fn create(&self, kind: Kind, object: Value) -> anyhow::Result<Value> {
        if kind.is_cluster_scoped() {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            self.cluster_scoped.lock().unwrap_or_else(PoisonError::into_inner).push((kind, name));
        }
        let (api, object) = (self.api(kind), serde_json::from_value::<DynamicObject>(object)?);
        let created = retry_late_server(async || api.create(&PostParams::default(), &object).await).await?;
        Ok(serde_json::to_value(created)?)
    }

    /// Creates an object in a namespace that is not the scenario's own.
    ///
    /// # Errors
    /// If the server refuses it.
    pub async fn create_in(&self, kind: Kind, namespace: &str, object: Value) -> anyhow::Result<()> {
        let api = api(&self.world.host, &kind.resource(), Some(namespace));
        let object: DynamicObject = serde_json::from_value(object)?;
        retry_late_server(async || api.create(&PostParams::default(), &object).await).await?;
        Ok(())
    }

    /// Creates an object that other scenarios may use too and that stays; one that is there already is as good.
    ///
    /// # Errors
    /// If the server refuses it.
    pub async fn create_shared(&self, kind: Kind, object: Value) -> anyhow::Result<()> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let api = self.api(kind);
        match retry_late_server(async || api.create(&PostParams::default(), &object).await).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }

    /// Creates a workload and a policy for it.
    ///
    /// # Errors
    /// If the server refuses one of them.
    pub async fn submit(&self, kind: Kind, workload: Value, placement: &Value) -> anyhow::Result<Value> {
        self.create(Kind::Policy, policy(&workload, placement)).await?;
        self.create(kind, workload).await
    }

    /// Creates a queue of this scenario's own with these limits and returns its name once it is open.
    ///
    /// # Errors
    /// If the server refuses it or it does not open.
    pub async fn queue(&self, name: &str, capability: Value) -> anyhow::Result<String> {
        let name = self.own(name);
        self.create(Kind::Queue, crate::manifest::queue(&name, &capability)).await?;
        self.until(Kind::Queue, &name, "is open", |queue| queue["status"]["state"] == "Open").await?;
        Ok(name)
    }

    /// An object on the host, if it is there.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn get(&self, kind: Kind, name: &str) -> anyhow::Result<Option<Value>> {
        Ok(self.api(kind).get_opt(name).await?.map(serde_json::to_value).transpose()?)
    }

    /// An object in a namespace that is not the scenario's own.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn get_in(&self, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let api = api(&self.world.host, &kind.resource(), Some(namespace));
        Ok(api.get_opt(name).await?.map(serde_json::to_value).transpose()?)
    }

    /// All objects of a kind in the scenario's namespace (or the cluster).
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn list(&self, kind: Kind) -> anyhow::Result<Vec<Value>> {
        let all = self.api(kind).list(&ListParams::default()).await?;
        all.items.into_iter().map(|object| Ok(serde_json::to_value(object)?)).collect()
    }

    /// Merges `patch` into an object.
    ///
    /// # Errors
    /// If the server refuses it.
    pub async fn patch(&self, kind: Kind, name: &str, patch: &Value) -> anyhow::Result<Value> {
        let (api, patch) = (self.api(kind), Patch::Merge(patch));
        let patched = retry_late_server(async || api.patch(name, &PatchParams::default(), &patch).await).await?;
        Ok(serde_json::to_value(patched)?)
    }

    /// Merges `patch` into the status of an object.
    ///
    /// # Errors
    /// If the server refuses it.
    pub async fn patch_status(&self, kind: Kind, name: &str, patch: &Value) -> anyhow::Result<Value> {
        let (api, patch) = (self.api(kind), Patch::Merge(patch));
        let patched = retry_late_server(async || api.patch_status(name, &PatchParams::default(), &patch).await).await?;
        Ok(serde_json::to_value(patched)?)
    }

    /// Deletes an object in the background.
    ///
    /// # Errors
    /// If the server refuses it.
    pub async fn delete(&self, kind: Kind, name: &str) -> anyhow::Result<()> {
        let api = self.api(kind);
        retry_late_server(async || api.delete(name, &DeleteParams::background()).await).await?;
        Ok(())
    }

    /// Deletes a Volcano Job's binding and waits until Karmada has made a new one. Karmada makes it when it next sees
    /// the job change, so the job is touched until then.
    ///
    /// # Errors
    /// If there is no binding, or no new one within the scenario's patience.
    pub async fn lose_binding(&self, job: &str) -> anyhow::Result<Value> {
        let name = format!("{job}-job");
        let old = self.get(Kind::Binding, &name).await?.context("there is no binding to delete")?;
        let uid = old["metadata"]["uid"].clone();
        self.delete(Kind::Binding, &name).await?;
        let renewed = |binding: Option<&DynamicObject>| {
            binding.is_some_and(|binding| binding.metadata.uid.as_deref().is_some_and(|new| uid != new))
        };
        let touch_until_renewed = async {
            let mut touches = 0;
            loop {
                let waiting = await_met(self.api(Kind::Binding), &name, renewed);
                if let Ok(binding) = tokio::time::timeout(Duration::from_secs(1), waiting).await {
                    return Ok(serde_json::to_value(binding?)?);
                }
                touches += 1;
                let annotations = json!({"e2e.caldera.dev/touched": touches.to_string()});
                self.patch(Kind::Job, job, &json!({"metadata": {"annotations": annotations}})).await?;
            }
        };
        let late = || anyhow::bail!("Karmada made no new binding {name} within {PATIENCE:?}");
        tokio::time::timeout(PATIENCE, touch_until_renewed).await.unwrap_or_else(|_| late())
    }

    /// What there is, for a failure's account.
    async fn account(&self) -> String {
        let mut text = String::new();
        for kind in [Kind::Job, Kind::PodGroup, Kind::Binding, Kind::Event] {
            for object in self.list(kind).await.unwrap_or_default() {
                let brief = json!({
                    "name": object["metadata"]["name"], "annotations": object["metadata"]["annotations"],
                    "spec.clusters": object["spec"]["clusters"], "suspension": object["spec"]["suspension"],
                    "status": object["status"], "message": object["message"],
                });
                let _ = writeln!(text, "{kind:?} {brief}");
            }
        }
        text
    }

    async fn clean_up(&self) {
        if self.world.has_ended() {
            return;
        }
        for kind in [Kind::Policy, Kind::Job, Kind::Deployment, Kind::BatchJob, Kind::Pod] {
            let _ = self.api(kind).delete_collection(&DeleteParams::background(), &ListParams::default()).await;
        }
        // What ends must have ended before its queue goes, and before its namespace does.
        for kind in [Kind::Job, Kind::Deployment, Kind::BatchJob, Kind::Pod] {
            self.until_none(kind).await;
        }
        let own = std::mem::take(&mut *self.cluster_scoped.lock().unwrap_or_else(PoisonError::into_inner));
        for (kind, name) in own.into_iter().rev() {
            if self.api(kind).delete(&name, &DeleteParams::background()).await.is_err() && kind == Kind::Queue {
                let forced = json!({"metadata": {"annotations": {FORCE_DELETE: "true"}}});
                let _ = self.api(kind).patch(&name, &PatchParams::default(), &Patch::Merge(&forced)).await;
                let _ = self.api(kind).delete(&name, &DeleteParams::background()).await;
            }
        }
    }

    /// Waits a while until there is nothing of a kind in the scenario's namespace.
    async fn until_none(&self, kind: Kind) {
        let began = Instant::now();
        while began.elapsed() < ENDINGS && !self.list(kind).await.is_ok_and(|all| all.is_empty()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
