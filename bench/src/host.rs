//! A host with queues, members, jobs and gated bindings, and a look at every write of one component as it arrives.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use axum::{
    extract::Request,
    middleware::{self, Next},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use caldera_runtime::client::WriteCounts;
use caldera_sandbox::fleet::Endpoint;
use embedded_apiserver::{ApiServer, Options};
use futures::TryStreamExt;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::world;

/// A patch of a job's binding arrived: its release, or its placement.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub job: usize,
    pub at: Instant,
}

/// What the component wrote.
struct Writes {
    /// Its name.
    component: &'static str,
    bindings: mpsc::UnboundedSender<Seen>,
    groups: AtomicUsize,
    events: AtomicUsize,
    all: AtomicUsize,
    last: Mutex<Instant>,
}

pub struct Host {
    /// For the component.
    pub kubeconfig: PathBuf,
    pub client: Client,
    writes: Arc<Writes>,
    bindings: mpsc::UnboundedReceiver<Seen>,
    _dir: tempfile::TempDir,
}

impl Host {
    /// Queue `i` has room for `slots` jobs; job `i` is in queue `i % queues`.
    pub async fn start(component: &'static str, queues: usize, slots: usize, jobs: usize) -> anyhow::Result<Self> {
        let (server, local) = world::start_host().await?;
        let (sender, bindings) = mpsc::unbounded_channel();
        let [groups, events, all] = [(); 3].map(|()| AtomicUsize::new(0));
        let writes =
            Arc::new(Writes { component, bindings: sender, groups, events, all, last: Mutex::new(Instant::now()) });
        let watched = writes.clone();
        let router = server.router().layer(middleware::from_fn(move |request: Request, next: Next| {
            watched.observe_request(&request);
            next.run(request)
        }));
        let endpoint = world::serve_router("host", &server, router)?;
        let dir = tempfile::tempdir()?;
        let kubeconfig = dir.path().join("host.kubeconfig");
        std::fs::write(&kubeconfig, endpoint.kubeconfig())?;
        add_members(&local, queues * slots).await?;
        for i in 0..queues {
            world::create_object(&local, world::QUEUES, &make_queue(i, slots)).await?;
        }
        create_bindings(&local, queues, jobs).await?;
        let client = endpoint.client("bench", &WriteCounts::default())?;
        Ok(Self { kubeconfig, client, writes, bindings, _dir: dir })
    }

    /// The next patch of a binding.
    pub async fn next_patch(&mut self) -> anyhow::Result<Seen> {
        self.bindings.recv().await.context("the host is gone")
    }

    /// PodGroups that the component created so far.
    pub fn count_pod_groups(&self) -> usize {
        self.writes.groups.load(Ordering::Relaxed)
    }

    /// Its events and its other writes so far.
    pub fn events_and_others(&self) -> (usize, usize) {
        let events = self.writes.events.load(Ordering::Relaxed);
        (events, self.writes.all.load(Ordering::Relaxed) - events)
    }

    /// When it last wrote.
    pub fn last_write(&self) -> Instant {
        *self.writes.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the gates of all jobs.
    pub async fn release_all(&self, jobs: usize) -> anyhow::Result<()> {
        use futures::StreamExt;
        let releasing = futures::stream::iter(0..jobs).map(|i| async move {
            let path = binding_path(i);
            let binding = world::get_object(&self.client, &path).await?;
            let patch = world::make_release_patch(world::read_text(&binding, "/metadata/resourceVersion"));
            world::patch_object(&self.client, &path, "json", &patch).await
        });
        releasing.buffered(16).try_for_each(|_| async { Ok(()) }).await
    }

    /// Until the component has written nothing for `quiet`, or `at_most`: in a long line it goes on to refresh
    /// positions, ten a second.
    pub async fn rest_until_quiet(&self, quiet: Duration, at_most: Duration) {
        let _ = self.wait_until_quiet(quiet, at_most).await;
    }

    /// Until the component has written nothing for `quiet`.
    pub async fn wait_until_quiet(&self, quiet: Duration, patience: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let since = self.last_write().elapsed();
            if since >= quiet && began.elapsed() >= quiet {
                return Ok(());
            }
            anyhow::ensure!(began.elapsed() < patience, "the component does not come to rest");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The job ends.
    pub async fn end_job(&self, job: usize) -> anyhow::Result<()> {
        let path = format!("{}/job-{job}/status", world::JOBS);
        world::patch_object(&self.client, &path, "merge", &completed_status()).await?;
        Ok(())
    }

    /// The job is placed.
    pub async fn place_job(&self, job: usize) -> anyhow::Result<()> {
        // The release may still be under way: the placement has no precondition, so it must not overtake it.
        for _ in 0..1000 {
            let binding = world::get_object(&self.client, &binding_path(job)).await?;
            if binding.pointer("/spec/suspension/scheduling") == Some(&json!(false)) {
                world::patch_object(&self.client, &binding_path(job), "json", &placement_patch()).await?;
                let told = json!([{"clusterName": "m1", "status": {"state": {"phase": "Running"}}}]);
                let status = json!({"status": {"aggregatedStatus": told}});
                world::patch_object(&self.client, &format!("{}/status", binding_path(job)), "merge", &status).await?;
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        anyhow::bail!("job-{job} was not released after all")
    }
}

impl Writes {
    fn observe_request(&self, request: &Request) {
        let agent = request.headers().get("user-agent").and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let ours = agent.strip_prefix("caldera-").and_then(|agent| agent.strip_prefix(self.component));
        if request.method() == http::Method::GET || !ours.is_some_and(|rest| rest.starts_with('/')) {
            return;
        }
        self.all.fetch_add(1, Ordering::Relaxed);
        let at = Instant::now();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = at;
        let path = request.uri().path();
        if request.method() == http::Method::POST && path.ends_with("/podgroups") {
            self.groups.fetch_add(1, Ordering::Relaxed);
        }
        if path.contains("/events") {
            self.events.fetch_add(1, Ordering::Relaxed);
        }
        let name = path.strip_prefix(world::BINDINGS).and_then(|rest| rest.strip_prefix("/job-"));
        if let Some(job) = name.and_then(|name| name.strip_suffix("-job")?.parse().ok()) {
            let _ = self.bindings.send(Seen { job, at });
        }
    }
}

/// Three members, each with room for everybody who holds quota.
pub async fn add_members(host: &Client, held: usize) -> anyhow::Result<()> {
    let namespaces = "/api/v1/namespaces";
    world::create_object(host, namespaces, &json!({"metadata": {"name": "karmada-cluster"}})).await?;
    for name in ["m1", "m2", "m3"] {
        let server = ApiServer::new(Options { name: name.into(), ..Options::default() });
        let client = Client::new(server.router(), "default");
        for i in 0..held.div_ceil(16) {
            let allocatable = json!({"cpu": "96", "memory": "768Gi", "pods": "250"});
            let node =
                world::create_object(&client, "/api/v1/nodes", &json!({"metadata": {"name": format!("n{i}")}})).await?;
            let status = json!({"status": {
                "capacity": allocatable, "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": "True"}],
            }});
            let path = format!("/api/v1/nodes/{}/status", world::read_text(&node, "/metadata/name"));
            world::patch_object(&client, &path, "merge", &status).await?;
            // A node is created with the taint that its lifecycle controller takes away once it is ready.
            let path = format!("/api/v1/nodes/{}", world::read_text(&node, "/metadata/name"));
            world::patch_object(&client, &path, "merge", &json!({"spec": {"taints": null}})).await?;
        }
        let endpoint = world::serve_router(name, &server, server.router())?;
        join_member(host, &endpoint).await?;
    }
    Ok(())
}

async fn join_member(host: &Client, member: &Endpoint) -> anyhow::Result<()> {
    let data = json!({"token": STANDARD.encode(&member.token), "caBundle": STANDARD.encode(&member.ca_pem)});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": member.name}, "data": data});
    world::create_object(host, "/api/v1/namespaces/karmada-cluster/secrets", &secret).await?;
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": member.name},
        "spec": {
            "syncMode": "Push", "apiEndpoint": member.server,
            "secretRef": {"namespace": "karmada-cluster", "name": member.name},
        },
    });
    world::create_object(host, world::CLUSTERS, &cluster).await?;
    let now = "2026-11-21T12:00:00Z";
    let status = json!({"status": {
        "apiEnablements": [
            {"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}]},
        ],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "", "lastTransitionTime": now},
            {
                "type": "CompleteAPIEnablements", "status": "True", "reason": "Full", "message": "",
                "lastTransitionTime": now,
            },
        ],
    }});
    world::patch_object(host, &format!("{}/{}/status", world::CLUSTERS, member.name), "merge", &status).await?;
    Ok(())
}

fn make_queue(i: usize, slots: usize) -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": format!("q{i}")},
        "spec": {"weight": 1, "capability": {"cpu": (4 * slots).to_string()}},
    })
}

/// Jobs and their gated bindings.
async fn create_bindings(client: &Client, queues: usize, jobs: usize) -> anyhow::Result<()> {
    use futures::StreamExt;
    let filling = futures::stream::iter(0..jobs).map(|i| async move {
        let job = world::create_object(client, world::JOBS, &world::make_job(i, &format!("q{}", i % queues))).await?;
        let binding = world::make_binding(i, world::read_text(&job, "/metadata/uid"));
        world::create_object(client, world::BINDINGS, &binding).await
    });
    filling.buffered(16).try_for_each(|_| async { Ok(()) }).await
}

/// A job's end, as Karmada's status aggregation writes it.
fn completed_status() -> serde_json::Value {
    json!({"status": {"state": {"phase": "Completed", "lastTransitionTime": "2026-11-21T12:00:00Z"}, "succeeded": 4}})
}

/// Where a released job goes.
fn placement_patch() -> serde_json::Value {
    let plan =
        json!({"clusters": {"m1": {"tasks": {"worker": {"replicas": 4, "minAvailable": 4}}, "minAvailable": 4}}});
    json!([
        {"op": "add", "path": "/spec/clusters", "value": [{"name": "m1", "replicas": 4}]},
        {"op": "add", "path": "/metadata/annotations/caldera.dev~1plan", "value": plan.to_string()},
    ])
}

fn binding_path(job: usize) -> String {
    format!("{}/job-{job}-job", world::BINDINGS)
}
