//! Watching the members: each in a task of its own, so that one that hangs, lies or is gone delays nobody else.
//!
//! A member is reached as Karmada reaches it: Push by `spec.apiEndpoint` with the token and CA of `spec.secretRef` (a
//! Secret on the host), otherwise through Karmada's cluster proxy. Its nodes, pods and HyperNodes become
//! [`caldera_core::inventory::Change`]s on a channel; HyperNodes are read before the others are followed, so that nobody decides
//! by nodes whose domains are not known yet. A member without that kind (or where it may not be read) has no domains; it is looked
//! for again now and then. A probe with a deadline notices a member that stopped answering
//! (a watch alone may hang for minutes) and says so; credentials are read again whenever it fails, so that a rotated
//! secret is picked up.

use std::{collections::BTreeMap, time::Duration};

use caldera_core::{
    fleet::Update,
    inventory::{Change, HyperNode, Node, Pod},
};
use caldera_crds::{
    inventory::{hyper_node, name, namespace, node, pod},
    karmada::cluster::{Cluster, SyncMode},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::ApiResource, runtime::watcher};
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    client::{ClientError, WriteCounts, config_for, from_config},
    watch::{Event, follow_json, list_json_as, resource},
};

/// How often a member is asked whether it is there.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// How long it may take to answer.
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// So many unanswered probes in a row, and its inventory is not trusted any more.
const PROBES_MISSED: u32 = 3;
/// How often, in probes, a member without HyperNodes is asked for them again.
const HYPER_NODES_EVERY: u32 = 30;
/// First wait before another attempt to reach it; doubles up to [`PROBE_EVERY`].
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// What happened in a member.
#[derive(Debug, Clone)]
pub struct MemberEvent {
    /// Which.
    pub cluster: String,
    /// What.
    pub update: Update,
}

/// How a member is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Route {
    Direct { endpoint: String, namespace: String, secret: String, insecure: bool },
    Proxy,
}

/// Why a member can not be reached.
#[derive(Debug, thiserror::Error)]
enum MemberError {
    #[error("failed to read its secret {namespace}/{name} on the host: {source}")]
    Secret { namespace: String, name: String, source: Box<kube::Error> },
    #[error("its secret {namespace}/{name} has no token")]
    NoToken { namespace: String, name: String },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("its API does not answer: {0}")]
    Probe(Box<kube::Error>),
    #[error("its API does not answer within {} s", PROBE_DEADLINE.as_secs())]
    Deadline,
}

/// The members that are being watched.
pub struct Members {
    host: Client,
    component: String,
    counts: WriteCounts,
    events: mpsc::Sender<MemberEvent>,
    shutdown: CancellationToken,
    watched: BTreeMap<String, (Route, CancellationToken)>,
}

impl Members {
    /// Watches nobody yet; events of members will arrive at `events`.
    #[must_use]
    pub fn new(
        host: Client,
        component: &str,
        counts: WriteCounts,
        events: mpsc::Sender<MemberEvent>,
        shutdown: CancellationToken,
    ) -> Self {
        Self { host, component: component.to_owned(), counts, events, shutdown, watched: BTreeMap::new() }
    }

    /// Starts (or, where the way to it changed, restarts) watching the member that a Cluster object names.
    pub fn observe(&mut self, cluster: &Cluster) {
        let Some(name) = cluster.metadata.name.as_deref() else { return };
        let route = route(cluster);
        if self.watched.get(name).is_some_and(|(known, _)| *known == route) {
            return;
        }
        self.forget(name);
        let stop = self.shutdown.child_token();
        let member = Member {
            name: name.to_owned(),
            host: self.host.clone(),
            route: route.clone(),
            component: self.component.clone(),
            counts: self.counts.clone(),
            events: self.events.clone(),
        };
        tokio::spawn(member.run(stop.clone()));
        self.watched.insert(name.to_owned(), (route, stop));
    }

    /// Stops watching a member.
    pub fn forget(&mut self, name: &str) {
        if let Some((_, stop)) = self.watched.remove(name) {
            stop.cancel();
        }
    }

    /// Stops watching all members but these.
    pub fn keep_only(&mut self, names: &[&str]) {
        let gone: Vec<String> = self.watched.keys().filter(|name| !names.contains(&name.as_str())).cloned().collect();
        for name in gone {
            self.forget(&name);
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for (_, stop) in self.watched.values() {
            stop.cancel();
        }
    }
}

fn route(cluster: &Cluster) -> Route {
    let spec = &cluster.spec;
    let direct = spec.sync_mode != Some(SyncMode::Pull) && spec.proxy_url.as_ref().is_none_or(String::is_empty);
    match (&spec.api_endpoint, &spec.secret_ref) {
        (Some(endpoint), Some(secret)) if direct && !endpoint.is_empty() => Route::Direct {
            endpoint: endpoint.clone(),
            namespace: secret.namespace.clone(),
            secret: secret.name.clone(),
            insecure: spec.insecure_skip_tls_verification.unwrap_or(false),
        },
        _ => Route::Proxy,
    }
}

struct Member {
    name: String,
    host: Client,
    route: Route,
    component: String,
    counts: WriteCounts,
    events: mpsc::Sender<MemberEvent>,
}

/// What a client is made of, to notice a rotated secret.
#[derive(PartialEq, Eq)]
enum Credentials {
    Token { token: String, ca: Option<Vec<u8>> },
    Host,
}

impl Member {
    /// Reaches the member, watches it until it stops answering, and again, until `stop`.
    async fn run(self, stop: CancellationToken) {
        let mut wait = FIRST_WAIT;
        let mut told = false;
        while !stop.is_cancelled() {
            match self.connect().await {
                Ok((client, credentials)) => {
                    if told {
                        tracing::info!(cluster = self.name, "the member answers again");
                    }
                    (wait, told) = (FIRST_WAIT, false);
                    if !self.tell(Update::Up).await {
                        return;
                    }
                    self.watch(&client, &credentials, &stop).await;
                }
                Err(error) => {
                    if !told {
                        tracing::warn!(cluster = self.name, %error, "can not reach the member; trying again until it works");
                        told = true;
                        if !self.tell(Update::Down(error.to_string())).await {
                            return;
                        }
                    }
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(wait) => {}
                    }
                    wait = (wait * 2).min(PROBE_EVERY);
                }
            }
        }
    }

    async fn tell(&self, update: Update) -> bool {
        self.events.send(MemberEvent { cluster: self.name.clone(), update }).await.is_ok()
    }

    async fn connect(&self) -> Result<(Client, Credentials), MemberError> {
        let credentials = self.credentials().await?;
        let client = client_for(&self.host, &self.name, &self.route, &credentials, &self.component, &self.counts)?;
        probe(&client).await?;
        Ok((client, credentials))
    }

    async fn credentials(&self) -> Result<Credentials, MemberError> {
        credentials(&self.host, &self.route).await
    }

    /// Follows nodes and pods with this client until the member stops answering, its secret changed, or `stop`.
    async fn watch(&self, client: &Client, credentials: &Credentials, stop: &CancellationToken) {
        let watches = stop.child_token();
        let mut tasks = JoinSet::new();
        let follow = |tasks: &mut JoinSet<()>, resource: ApiResource, convert: Convert| {
            let cluster = self.name.clone();
            let to_event = move |event: Event<Value>| {
                let update = Update::Change(convert(event)?);
                Some(MemberEvent { cluster: cluster.clone(), update })
            };
            let config = watcher::Config::default();
            tasks.spawn(follow_json(client.clone(), resource, config, self.events.clone(), to_event, watches.clone()));
        };
        let mut domains = match list_hyper_nodes(client).await {
            Ok(found) => {
                let known = found.is_some();
                let all = found.unwrap_or_default();
                if !self.tell(Update::Change(Change::HyperNodes(all))).await {
                    return;
                }
                known
            }
            Err(error) => {
                tracing::warn!(cluster = self.name, %error, "can not read the member's HyperNodes; trying again");
                self.tell(Update::Down(format!("its HyperNodes can not be read: {error}"))).await;
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(PROBE_EVERY) => {}
                }
                return;
            }
        };
        if domains {
            follow(&mut tasks, hyper_nodes_resource(), hyper_nodes);
        }
        for (kind, plural, convert) in WATCHED {
            follow(&mut tasks, resource("", "v1", kind, plural), convert);
        }
        let (mut missed, mut probes) = (0, 0_u32);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Both follow for ever unless nobody listens any more.
                Some(_) = tasks.join_next() => break,
                () = tokio::time::sleep(PROBE_EVERY) => {}
            }
            match probe(client).await {
                Ok(()) => {
                    missed = 0;
                    probes = probes.wrapping_add(1);
                    if !domains && probes.is_multiple_of(HYPER_NODES_EVERY) {
                        domains = list_hyper_nodes(client).await.is_ok_and(|found| found.is_some());
                        if domains {
                            follow(&mut tasks, hyper_nodes_resource(), hyper_nodes);
                        }
                    }
                }
                Err(error) => {
                    missed += 1;
                    let rotated = self.credentials().await.is_ok_and(|now| now != *credentials);
                    if rotated {
                        tracing::info!(cluster = self.name, "the member's credentials changed; connecting anew");
                        break;
                    }
                    if missed >= PROBES_MISSED {
                        tracing::warn!(cluster = self.name, %error, "the member does not answer any more");
                        self.tell(Update::Down(error.to_string())).await;
                        break;
                    }
                }
            }
        }
        watches.cancel();
        tasks.shutdown().await;
    }
}

fn client_for(
    host: &Client,
    cluster: &str,
    route: &Route,
    credentials: &Credentials,
    component: &str,
    counts: &WriteCounts,
) -> Result<Client, MemberError> {
    match (route, credentials) {
        (Route::Direct { endpoint, insecure, .. }, Credentials::Token { token, ca }) => {
            let config = config_for(endpoint, token, ca.as_deref(), *insecure)?;
            Ok(from_config(config, component, counts)?)
        }
        _ => Ok(proxied(host, cluster)),
    }
}

async fn credentials(host: &Client, route: &Route) -> Result<Credentials, MemberError> {
    let Route::Direct { namespace, secret: name, .. } = route else { return Ok(Credentials::Host) };
    let secrets: Api<Secret> = Api::namespaced(host.clone(), namespace);
    let secret = match tokio::time::timeout(PROBE_DEADLINE, secrets.get(name)).await {
        Ok(Ok(secret)) => secret,
        Ok(Err(source)) => {
            let (namespace, name) = (namespace.clone(), name.clone());
            return Err(MemberError::Secret { namespace, name, source: Box::new(source) });
        }
        Err(_) => return Err(MemberError::Deadline),
    };
    let mut data = secret.data.unwrap_or_default();
    let token = data.remove("token").and_then(|token| String::from_utf8(token.0).ok()).unwrap_or_default();
    if token.trim().is_empty() {
        return Err(MemberError::NoToken { namespace: namespace.clone(), name: name.clone() });
    }
    Ok(Credentials::Token { token: token.trim().to_owned(), ca: data.remove("caBundle").map(|ca| ca.0) })
}

/// What a member has now, read once: its nodes and pods, or why they can not be read. Who may not read its secret on the
/// host is sent through Karmada's cluster proxy, where that lets them.
pub async fn snapshot(host: &Client, cluster: &Cluster, component: &str, counts: &WriteCounts) -> Vec<Update> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let read = async {
        let route = route(cluster);
        let client = match credentials(host, &route).await {
            Ok(credentials) => client_for(host, name, &route, &credentials, component, counts)?,
            Err(error @ MemberError::Secret { .. }) => {
                let client = proxied(host, name);
                probe(&client).await.map_err(|_| error)?;
                client
            }
            Err(error) => return Err(error),
        };
        let mut updates = vec![Update::Up];
        let found = list_hyper_nodes(&client).await?;
        updates.push(Update::Change(Change::HyperNodes(found.unwrap_or_default())));
        for (kind, plural, convert) in WATCHED {
            let resource = resource("", "v1", kind, plural);
            let listed = list_json_as(client.clone(), &resource, None, None, Some).await;
            let all = listed.map_err(|error| MemberError::Probe(Box::new(error)))?;
            updates.extend(convert(Event::Reset(all)).map(Update::Change));
        }
        Ok(updates)
    };
    read.await.unwrap_or_else(|error: MemberError| vec![Update::Down(error.to_string())])
}

/// The member's HyperNodes; `None` if it has no such kind, or lets nobody read it.
async fn list_hyper_nodes(client: &Client) -> Result<Option<Vec<HyperNode>>, MemberError> {
    let read = |object: Value| hyper_node(&object);
    let resource = hyper_nodes_resource();
    let listed = list_json_as(client.clone(), &resource, None, None, read);
    match tokio::time::timeout(PROBE_DEADLINE, listed).await {
        Ok(Ok(all)) => Ok(Some(all)),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => Ok(None),
        Ok(Err(error)) => Err(MemberError::Probe(Box::new(error))),
        Err(_) => Err(MemberError::Deadline),
    }
}

fn hyper_nodes_resource() -> ApiResource {
    resource("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes")
}

/// Asks for what is going to be watched: `/version` would say nothing about the token or its permissions.
async fn probe(client: &Client) -> Result<(), MemberError> {
    for path in ["/api/v1/nodes?limit=1", "/api/v1/pods?limit=1"] {
        let Ok(request) = http::Request::get(path).body(Vec::new()) else { continue };
        match tokio::time::timeout(PROBE_DEADLINE, client.request::<Value>(request)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(MemberError::Probe(Box::new(error))),
            Err(_) => return Err(MemberError::Deadline),
        }
    }
    Ok(())
}

/// A client that sends every request through Karmada's cluster proxy.
fn proxied(host: &Client, cluster: &str) -> Client {
    let prefix = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/proxy");
    let host = host.clone();
    let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
        let host = host.clone();
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = format!("{prefix}{path}").parse::<http::Uri>();
        async move {
            *request.uri_mut() = uri?;
            Ok::<_, tower::BoxError>(host.send(request).await?)
        }
    });
    Client::new(service, "default")
}

type Convert = fn(Event<Value>) -> Option<Change>;

/// What is read of a member.
const WATCHED: [(&str, &str, Convert); 2] = [("Node", "nodes", nodes), ("Pod", "pods", pods)];

fn hyper_nodes(event: Event<Value>) -> Option<Change> {
    Some(match event {
        Event::Reset(all) => Change::HyperNodes(all.iter().filter_map(hyper_node).collect()),
        Event::Applied(one) => Change::HyperNode(hyper_node(&one)?),
        Event::Deleted(one) => Change::HyperNodeGone(name(&one)?),
    })
}

fn nodes(event: Event<Value>) -> Option<Change> {
    Some(match event {
        Event::Reset(all) => Change::Nodes(all.iter().filter_map(node).collect::<Vec<Node>>()),
        Event::Applied(one) => Change::Node(node(&one)?),
        Event::Deleted(one) => Change::NodeGone(name(&one)?),
    })
}

fn pods(event: Event<Value>) -> Option<Change> {
    Some(match event {
        Event::Reset(all) => Change::Pods(all.iter().filter_map(pod).collect::<Vec<Pod>>()),
        Event::Applied(one) => Change::Pod(pod(&one)?),
        Event::Deleted(one) => Change::PodGone(namespace(&one), name(&one)?),
    })
}
