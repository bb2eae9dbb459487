//! Members at work: access, execution namespaces, taints, and the status that is collected.
//!
//! Karmada collects every 10 seconds; here every change of a node or pod does, with a short pause for the rest of a
//! burst, and the 10 seconds are left for the health check.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_runtime::client::{WriteCounts, build_token_config, from_config};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::plan::{self, Health};
use crate::karmada::{
    api::{Change, Delete, Handler, Server, lock_state},
    control::{Control, binding_kind, cluster_binding_kind, cluster_kind},
    events::About,
    names,
    object::{Gvk, ObjectExt, ObjectKey, set_condition},
    queue::{Failure, Next, Queue},
};

/// How members are found.
#[derive(Clone, Default)]
pub enum Access {
    /// Through each Cluster's endpoint and secret, as Karmada does.
    #[default]
    Secrets,
    /// By clients that are given, by name.
    Given(BTreeMap<String, Client>),
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Secrets => "Secrets",
            Self::Given(_) => "Given",
        })
    }
}

/// How often and how patiently members are looked at.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between health checks.
    pub every: Duration,
    /// How long a change of readiness must last.
    pub threshold: Duration,
    /// How long the rest of a burst of nodes and pods is waited for.
    pub coalesce: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { every: Duration::from_secs(10), threshold: Duration::from_secs(30), coalesce: Duration::from_millis(50) }
    }
}

/// What a running member was made from, to notice when that changes.
type Source = (String, String, String, bool);

struct Members {
    control: Arc<Control>,
    access: Access,
    pace: Pace,
    clusters: Arc<Queue<String>>,
    running: Mutex<BTreeMap<String, (Source, Arc<Notify>)>>,
}

fn namespace_kind() -> Gvk {
    Gvk::new("v1", "Namespace")
}

/// Starts to look after members.
pub fn run_controllers(control: &Arc<Control>, access: Access, pace: Pace) {
    let members = Arc::new(Members {
        control: control.clone(),
        access,
        pace,
        clusters: Queue::new("cluster", control.shutdown.clone()),
        running: Mutex::default(),
    });
    let queue = members.clusters.clone();
    let by_name: Handler = Arc::new(move |change: &Change| {
        if let Some(cluster) = change.latest() {
            queue.add(cluster.name().to_owned());
        }
    });
    control.host.add_handler(&cluster_kind(), by_name);
    let queue = members.clusters.clone();
    let by_secret: Handler = Arc::new(move |change: &Change| {
        if let Some(secret) = change.latest().filter(|secret| secret.namespace() == names::CLUSTER_NAMESPACE) {
            queue.add(secret.name().to_owned());
        }
    });
    control.host.add_handler(&Gvk::new("v1", "Secret"), by_secret);
    let own = members.clone();
    members.clusters.run(2, move |name| {
        let own = own.clone();
        async move { own.sync_cluster(&name).await }
    });
}

impl Members {
    async fn sync_cluster(self: &Arc<Self>, name: &str) -> Result<Next, Failure> {
        let control = &self.control;
        let Some(cluster) = control.cluster(name) else {
            self.disconnect_member(name);
            return Ok(Next::Done);
        };
        if cluster.is_deleting() {
            return self.remove_cluster(&cluster).await;
        }
        let namespace = names::execution_namespace(name);
        if control.host.get_cached_or_live(&namespace_kind(), "", &namespace).await?.is_none() {
            let object = json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace, "labels": {"karmada.io/system": "true"}}});
            match control.writer.create(&object).await {
                Err(error) if !error.already_exists() => return Err(error.into()),
                _ => {}
            }
            let message = format!("Created execution space({namespace}) for cluster({name}).");
            control.events.normal(
                "cluster-controller",
                About::object(&cluster),
                "CreateExecutionSpaceSucceed",
                message,
            );
        }
        let now = control.now();
        let tainted = control.writer.modify(&cluster, "", |cluster| {
            let taints = plan::taints_of_conditions(cluster, &now);
            if taints != cluster.items("/spec/taints") {
                cluster.put_or_remove(&["spec", "taints"], (!taints.is_empty()).then(|| json!(taints)));
            }
        });
        if let Some(tainted) = tainted.await? {
            control.writer.modify(&tainted, "", |cluster| cluster.add_finalizer(names::CLUSTER_FINALIZER)).await?;
        }
        self.connect_member(&cluster).await
    }

    async fn remove_cluster(&self, cluster: &Value) -> Result<Next, Failure> {
        let (control, name) = (&self.control, cluster.name());
        let namespace = names::execution_namespace(name);
        if let Some(object) = control.host.get_cached_or_live(&namespace_kind(), "", &namespace).await? {
            if !object.is_deleting() {
                control.writer.delete(&ObjectKey::of(&object), &Delete::default()).await?;
                let message = format!("Removed execution space for cluster({name}).");
                control.events.normal(
                    "cluster-controller",
                    About::object(cluster),
                    "RemoveExecutionSpaceSucceed",
                    message,
                );
            }
            // `CleanupCheckInterval`: nothing else brings it here again.
            return Ok(Next::After(self.pace.every));
        }
        let held = [binding_kind(), cluster_binding_kind()].iter().any(|gvk| {
            control
                .host
                .list(gvk)
                .iter()
                .any(|binding| binding.items("/spec/clusters").iter().any(|one| one.text("/name") == name))
        });
        if held {
            return Ok(Next::After(self.pace.every));
        }
        control.writer.modify(cluster, "", |cluster| cluster.remove_finalizer(names::CLUSTER_FINALIZER)).await?;
        Ok(Next::Done)
    }

    /// Gives access to a member, anew when its endpoint or secret changed.
    async fn connect_member(self: &Arc<Self>, cluster: &Value) -> Result<Next, Failure> {
        let name = cluster.name();
        let source = self.read_source(cluster).await?;
        let known = lock_state(&self.running).get(name).map(|(source, trigger)| (source.clone(), trigger.clone()));
        if let Some((_, trigger)) = known.filter(|(known, _)| *known == source) {
            trigger.notify_one();
            return Ok(Next::Done);
        }
        let client = match &self.access {
            Access::Given(clients) => match clients.get(name) {
                Some(client) => client.clone(),
                None => return Ok(Next::Done),
            },
            Access::Secrets => {
                let (endpoint, token, ca, insecure) = &source;
                let config = build_token_config(endpoint, token, Some(ca.as_bytes()), *insecure);
                let client = config.and_then(|config| from_config(config, "karmada", &WriteCounts::default()));
                client.map_err(|error| Failure(format!("failed to create a ClusterClient: {error}")))?
            }
        };
        info!(cluster = name, "member is looked after");
        let server = Server::new(name, client, self.control.shutdown.child_token());
        let trigger = Arc::new(Notify::new());
        for kind in ["Node", "Pod"] {
            let notify = trigger.clone();
            server.add_handler(&Gvk::new("v1", kind), Arc::new(move |_: &Change| notify.notify_one()));
        }
        let (notify, enablements) = (trigger.clone(), Arc::new(Mutex::new(KnownApis::default())));
        let stale = enablements.clone();
        server.add_handler(
            &Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            Arc::new(move |_: &Change| {
                lock_state(&stale).forget();
                notify.notify_one();
            }),
        );
        lock_state(&self.running).insert(name.to_owned(), (source, trigger.clone()));
        self.control.set_member(name, Some(server.clone()));
        let collector = Collector { control: self.control.clone(), server, pace: self.pace, enablements };
        tokio::spawn(collector.collect_until_shutdown(trigger));
        Ok(Next::Done)
    }

    fn disconnect_member(&self, name: &str) {
        if lock_state(&self.running).remove(name).is_some() {
            self.control.set_member(name, None);
        }
    }

    async fn read_source(&self, cluster: &Value) -> Result<Source, Failure> {
        if let Access::Given(_) = self.access {
            return Ok((cluster.uid().to_owned(), String::new(), String::new(), false));
        }
        let (namespace, name) = (cluster.text("/spec/secretRef/namespace"), cluster.text("/spec/secretRef/name"));
        let secret = self.control.host.get_cached_or_live(&Gvk::new("v1", "Secret"), namespace, name).await?;
        let Some(secret) = secret else {
            return Err(Failure(format!("secrets \"{name}\" not found in {namespace}")));
        };
        let decoded = |key: &str| {
            let bytes = STANDARD.decode(secret.text(&format!("/data/{key}"))).unwrap_or_default();
            String::from_utf8(bytes).unwrap_or_default()
        };
        let insecure = cluster.flag("/spec/insecureSkipTLSVerification");
        Ok((cluster.text("/spec/apiEndpoint").to_owned(), decoded("token"), decoded("caBundle"), insecure))
    }
}

/// What a member serves, and whether all of it answered.
type Found = (Vec<Value>, bool);

/// What a member was found to serve; `None` where it must be asked again.
#[derive(Default)]
struct KnownApis {
    found: Option<Found>,
    changes: u64,
}

impl KnownApis {
    fn forget(&mut self) {
        self.found = None;
        self.changes += 1;
    }

    /// Keeps an answer, unless something changed since it was asked for.
    fn keep(&mut self, found: &Found, asked_at: u64) {
        if self.changes == asked_at {
            self.found = Some(found.clone());
        }
    }
}

type Enablements = Arc<Mutex<KnownApis>>;

/// Collects one member's status.
struct Collector {
    control: Arc<Control>,
    server: Arc<Server>,
    pace: Pace,
    enablements: Enablements,
}

/// What readiness was seen last, and since when.
struct Seen {
    ready: bool,
    since: tokio::time::Instant,
}

impl Collector {
    async fn collect_until_shutdown(self, trigger: Arc<Notify>) {
        let shutdown = self.server.shutdown().clone();
        let work = async {
            let mut seen = None;
            let mut check = true;
            let mut next = tokio::time::Instant::now();
            let mut health = Health::NotReachable;
            loop {
                if check {
                    health = self.probe_health().await;
                    next = tokio::time::Instant::now() + self.pace.every;
                }
                self.collect_status(health, &mut seen).await;
                check = tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(next) => true,
                    () = trigger.notified() => {
                        tokio::time::sleep(self.pace.coalesce).await;
                        health != Health::Ready
                    }
                };
            }
        };
        run_until(&shutdown, work).await;
    }

    async fn probe_health(&self) -> Health {
        let request = http::Request::get("/readyz").body(Vec::new());
        let Ok(request) = request else { return Health::NotReachable };
        let answer = tokio::time::timeout(Duration::from_secs(5), self.server.client().request_text(request)).await;
        match answer {
            Ok(Ok(_)) => Health::Ready,
            Ok(Err(kube::Error::Api(_))) => Health::NotReady,
            Ok(Err(error)) => {
                debug!(cluster = self.server.name, %error, "no answer");
                Health::NotReachable
            }
            Err(_) => Health::NotReachable,
        }
    }

    /// A change of readiness counts once it has lasted; the first sight counts at once.
    fn settle_readiness(&self, cluster: &Value, health: Health, seen: &mut Option<Seen>) -> Option<Value> {
        let ready = health == Health::Ready;
        let current = cluster.items("/status/conditions").iter().find(|one| one["type"] == "Ready");
        let Some(last) = seen else {
            *seen = Some(Seen { ready, since: tokio::time::Instant::now() - self.pace.threshold });
            return Some(plan::ready_condition(health));
        };
        if last.ready != ready {
            *last = Seen { ready, since: tokio::time::Instant::now() };
        }
        let was_ready = current.map(|one| one["status"] == "True");
        if was_ready.is_some_and(|was| was != ready) && last.since.elapsed() < self.pace.threshold {
            return current.cloned();
        }
        Some(plan::ready_condition(health))
    }

    async fn collect_status(&self, health: Health, seen: &mut Option<Seen>) {
        let name = &self.server.name;
        let Some(cluster) = self.control.cluster(name) else { return };
        if !cluster.has_finalizer(names::CLUSTER_FINALIZER) {
            // The finalizer's own event comes back here.
            return;
        }
        let ready = self.settle_readiness(&cluster, health, seen);
        let mut conditions = Vec::new();
        let mut fields = BTreeMap::new();
        if health == Health::Ready && ready.as_ref().is_some_and(|one| one["status"] == "True") {
            match self.collect_contents(&cluster).await {
                Ok((contents, condition)) => {
                    fields = contents;
                    conditions.push(condition);
                }
                Err(error) => {
                    debug!(cluster = name, %error, "the status is not complete");
                    return;
                }
            }
        }
        conditions.extend(ready);
        let now = self.control.now();
        let written = self.control.writer.modify(&cluster, "status", |cluster| {
            for (field, value) in &fields {
                cluster.put(&["status", field], value.clone());
            }
            let mut all = cluster.items("/status/conditions").to_vec();
            for condition in &conditions {
                set_condition(&mut all, condition.clone(), &now);
            }
            if all != cluster.items("/status/conditions") {
                cluster.put(&["status", "conditions"], Value::Array(all));
            }
        });
        if let Err(error) = written.await {
            debug!(cluster = name, %error, "the status was not written");
        }
    }

    async fn collect_contents(&self, cluster: &Value) -> Result<(BTreeMap<&'static str, Value>, Value), Failure> {
        let (node, pod) = (Gvk::new("v1", "Node"), Gvk::new("v1", "Pod"));
        self.server.until_synced(&node).await;
        self.server.until_synced(&pod).await;
        let (known, asked_at) = {
            let known = lock_state(&self.enablements);
            (known.found.clone(), known.changes)
        };
        let (enablements, complete) = match known {
            Some(known) => known,
            None => {
                let found = list_enablements(&self.server).await?;
                lock_state(&self.enablements).keep(&found, asked_at);
                found
            }
        };
        let version = self.server.get_raw("/version").await?;
        let (nodes, pods) = (self.server.list(&node), self.server.list(&pod));
        let condition = plan::enablements_condition(&enablements, complete);
        let fields = BTreeMap::from([
            ("kubernetesVersion", version["gitVersion"].clone()),
            ("apiEnablements", Value::Array(enablements)),
            ("nodeSummary", plan::node_summary(&nodes)),
            ("resourceSummary", plan::resource_summary(cluster.items("/spec/resourceModels"), &nodes, &pods)),
        ]);
        Ok((fields, condition))
    }
}

/// What a member serves, in every version, and whether all groups answered.
async fn list_enablements(server: &Server) -> Result<Found, Failure> {
    let mut versions = vec!["v1".to_owned()];
    for group in server.get_raw("/apis").await?.items("/groups") {
        versions.extend(group.items("/versions").iter().map(|one| one.text("/groupVersion").to_owned()));
    }
    versions.sort();
    let (mut found, mut complete) = (Vec::new(), true);
    for version in versions {
        let root = if version.contains('/') { "/apis" } else { "/api" };
        let Ok(list) = server.get_raw(&format!("{root}/{version}")).await else {
            complete = false;
            continue;
        };
        let mut resources: Vec<Value> = list
            .items("/resources")
            .iter()
            .filter(|one| !one.text("/name").contains('/'))
            .map(|one| json!({"name": one.text("/name"), "kind": one.text("/kind")}))
            .collect();
        resources.sort_by(|a, b| a.text("/name").cmp(b.text("/name")));
        found.push(json!({"groupVersion": version, "resources": resources}));
    }
    Ok((found, complete))
}

async fn run_until(shutdown: &CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = work => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_a_change_overtook_is_asked_for_again() {
        let mut known = KnownApis::default();
        let asked_at = known.changes;
        known.forget();
        known.keep(&(Vec::new(), true), asked_at);
        assert_eq!(known.found, None);
        let asked_at = known.changes;
        known.keep(&(Vec::new(), true), asked_at);
        assert!(known.found.is_some());
    }
}
