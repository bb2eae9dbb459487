//! A host and two members, with every write noted by its writer. All of it is in one process, without a socket, and on
//! tokio's time: on a paused runtime a scenario of minutes takes as long as what is computed in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Router, extract::Request, response::IntoResponse, routing::post};
use caldera_core::webster::Tie;
use caldera_runtime::clock::TokioClock;
use caldera_sandbox::karmada::{
    self, Config,
    api::Server,
    cluster::run::{Access, Pace},
    control::{Gates, Lag},
    eviction::Evictions,
    object::{Gvk, ObjectExt},
};
use embedded_apiserver::{ApiServer, Ids, Options, SeededIds, TokioClock as ServerClock};
use serde_json::json;
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    interpreter::{self, Interpreter},
    log::{SharedLog, tapped},
    recorder::{Calls, admit},
    recording::Recording,
};

/// When a scenario begins.
pub const START: &str = "2026-01-01T00:00:00Z";

/// Host and port of Karmada's own admission webhooks.
const WEBHOOKS: &str = "karmada-webhook:443";

/// Karmada's admission webhooks, or nobody while Karmada does not run.
#[derive(Clone, Default)]
struct Admission(Arc<Mutex<Option<Router>>>);

impl Admission {
    fn replace(&self, router: Option<Router>) {
        *self.0.lock().unwrap() = router;
    }

    fn router(&self) -> Router {
        let own = self.clone();
        Router::new().fallback(move |request: Request| {
            let current = own.0.lock().unwrap().clone();
            async move {
                match current {
                    Some(router) => router.oneshot(request).await.into_response(),
                    None => http::StatusCode::SERVICE_UNAVAILABLE.into_response(),
                }
            }
        })
    }
}

/// The same uids in every run. Karmada divides equal quotients by whether a hash of the template's uid is even, which a
/// recording does not tell: so whoever creates a template says which uids come next.
struct SteeredIds {
    ids: SeededIds,
    tie: Mutex<Tie>,
}

impl Ids for SteeredIds {
    fn next(&self) -> uuid::Uuid {
        let wanted = *self.tie.lock().unwrap();
        loop {
            let id = self.ids.next();
            if Tie::of_uid(&id.to_string()) == wanted {
                return id;
            }
        }
    }
}

pub struct Stage {
    servers: BTreeMap<&'static str, ApiServer>,
    host_ids: Arc<SteeredIds>,
    pub log: SharedLog,
    pub shutdown: CancellationToken,
    clock: Arc<TokioClock>,
    karmada: CancellationToken,
    admission: Admission,
    interpreter: Router,
    gates: Gates,
    evictions: Evictions,
    /// How late the binding controllers are.
    pub binding_lag: Lag,
    /// Whether controllers, scheduler and garbage collector run.
    pub control: bool,
    pub schedule: bool,
    pub collect: bool,
    down: BTreeMap<&'static str, Arc<AtomicBool>>,
    clients: BTreeMap<(String, String), Arc<Server>>,
}

impl Stage {
    pub async fn build(recording: &Recording, interpreter: &Interpreter) -> Self {
        let shutdown = CancellationToken::new();
        let log = SharedLog::default();
        let calls = Calls {
            answers: Arc::new(Mutex::new(recording.admission_calls().to_vec())),
            denials: Arc::new(Mutex::new(recording.denials())),
        };
        let recorder = Router::new().fallback(post(admit)).with_state(calls);
        let start = START.parse().unwrap();
        let admission = Admission::default();
        let host_ids = Arc::new(SteeredIds { ids: SeededIds::new(0), tie: Mutex::default() });
        let mut servers = BTreeMap::new();
        for (name, seed) in [("host", 0), ("m1", 1), ("m2", 2)] {
            let ids: Arc<dyn Ids> = if name == "host" { host_ids.clone() } else { Arc::new(SeededIds::new(seed)) };
            let webhooks = BTreeMap::from([
                ("recorder:443".to_owned(), recorder.clone()),
                (WEBHOOKS.to_owned(), admission.router()),
            ]);
            let clock = Arc::new(ServerClock::starting_at(start));
            let options = Options { name: name.to_owned(), clock, ids, webhooks, ..Options::default() };
            servers.insert(name, ApiServer::new(options));
        }
        let mut stage = Self {
            servers,
            host_ids,
            log,
            karmada: shutdown.child_token(),
            shutdown,
            clock: Arc::new(TokioClock::starting_at(start)),
            admission,
            interpreter: interpreter.router(),
            gates: Gates {
                federated_quota: recording.gate("FederatedQuotaEnforcement"),
                multiple_templates: recording.gate("MultiplePodTemplatesScheduling"),
                policy_preemption: recording.gate("PropagationPolicyPreemption"),
                stateful_failover: recording.gate("StatefulFailoverInjection"),
                workload_affinity: recording.gate("WorkloadAffinity"),
            },
            evictions: recording.evictions(),
            binding_lag: Lag::default(),
            control: true,
            schedule: true,
            collect: recording.document["flags"]["kube-controller-manager"].is_null(),
            down: ["m1", "m2"].into_iter().map(|name| (name, Arc::default())).collect(),
            clients: BTreeMap::new(),
        };
        stage.install().await;
        stage.start().await;
        stage.gate(recording).await;
        stage
    }

    /// A server, written to by somebody.
    pub fn server(&mut self, at: &str, who: &str) -> Arc<Server> {
        let (servers, log, shutdown) = (&self.servers, &self.log, &self.shutdown);
        let (name, server) = servers.get_key_value(at).unwrap();
        self.clients
            .entry((at.to_owned(), who.to_owned()))
            .or_insert_with(|| {
                Server::new(
                    at,
                    tapped(server, name, Some(who.to_owned()), log.clone(), Arc::default()),
                    shutdown.clone(),
                )
            })
            .clone()
    }

    /// Whether the uids that the host makes up next have an even hash.
    pub fn steer_ids(&self, tie: Tie) {
        *self.host_ids.tie.lock().unwrap() = tie;
    }

    /// Runs Karmada with what is on now; one that runs ends first.
    pub async fn run(&mut self) {
        self.karmada.cancel();
        self.karmada = self.shutdown.child_token();
        let given = ["m1", "m2"].map(|name| {
            (name.to_owned(), tapped(&self.servers[name], name, None, self.log.clone(), self.down[name].clone()))
        });
        let config = Config {
            access: Access::Given(BTreeMap::from(given)),
            pace: Pace { coalesce: Duration::from_millis(10), ..Pace::default() },
            clock: self.clock.clone(),
            gates: self.gates,
            evictions: self.evictions,
            binding_lag: self.binding_lag.clone(),
            interpreters: BTreeMap::from([(interpreter::ADDRESS.to_owned(), self.interpreter.clone())]),
            control: self.control,
            schedule: self.schedule,
            collect_garbage: self.collect,
            admission: false,
        };
        let host = tapped(&self.servers["host"], "host", None, self.log.clone(), Arc::default());
        let shutdown = self.karmada.clone();
        let server = Server::new("host", host.clone(), shutdown.clone());
        self.admission.replace(Some(karmada::admission::run::webhook_router(&server, self.clock.clone(), self.gates)));
        karmada::admission::run::register_webhooks(&server, &format!("https://{WEBHOOKS}"), "").await.unwrap();
        tokio::spawn(async move { karmada::run(config, host, shutdown).await.unwrap() });
    }

    /// Whether Karmada's admission webhooks answer.
    pub fn admit(&mut self, answers: bool) {
        let server = self.server("host", "webhook");
        let router = || karmada::admission::run::webhook_router(&server, self.clock.clone(), self.gates);
        self.admission.replace(answers.then(router));
    }

    /// Makes a member one of Karmada's.
    pub async fn join(&mut self, name: &str) -> Result<(), String> {
        let member = karmada::Member {
            name: name.to_owned(),
            endpoint: format!("https://{name}:6443"),
            token: "token".to_owned(),
            ..karmada::Member::default()
        };
        let server = self.server("host", "cluster-admin");
        karmada::join_member(server.client(), &member).await.map_err(|error| error.to_string())
    }

    /// Makes a member unreachable for Karmada, or reachable again.
    pub fn set_down(&self, member: &str, down: bool) {
        self.down[member].store(down, Ordering::SeqCst);
    }

    async fn install(&mut self) {
        let volcano = caldera_crds::manifests::build_volcano_crds();
        let mut host = caldera_crds::manifests::build_karmada_crds();
        host.push(caldera_crds::manifests::build_cluster_crd());
        host.extend(volcano.clone());
        for (at, crds) in [("host", host), ("m1", volcano.clone()), ("m2", volcano)] {
            let writer = self.server(at, "setup").writer("setup");
            for crd in &crds {
                writer.create(crd).await.unwrap();
            }
            let definitions = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
            let server = writer.server();
            server.watch_kind(&definitions);
            server.until_synced(&definitions).await;
            let established = || {
                let all = server.list(&definitions);
                all.len() >= crds.len()
                    && all.iter().all(|crd| karmada::object::condition_status(crd, "Established") == "True")
            };
            eventually("definitions are served", established).await;
            if at != "host" {
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("{at}-node")}, "status": {
                    "allocatable": {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "8", "pods": "110"},
                    "capacity": {"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": "8", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}]}});
                let made = writer.create(&node).await.unwrap();
                writer.modify(&made, "status", |one| one.put(&["status"], node["status"].clone())).await.unwrap();
            }
        }
    }

    async fn start(&mut self) {
        self.run().await;
        let server = self.server("host", "setup");
        for name in ["m1", "m2"] {
            self.join(name).await.unwrap();
        }
        let clusters = karmada::control::cluster_kind();
        server.watch_kind(&clusters);
        let ready = || {
            let all = server.list(&clusters);
            let spaces = ["m1", "m2"]
                .iter()
                .all(|name| all.iter().any(|one| one.name() == *name && karmada::control::is_ready(one)));
            spaces && all.iter().all(|one| one.items("/spec/taints").is_empty())
        };
        eventually("members are ready", ready).await;
        quiet(&self.log).await;
        let mut log = self.log.lock().unwrap();
        log.begin();
    }

    /// Registers the recorder's own admission webhooks, by the paths that were called.
    async fn gate(&mut self, recording: &Recording) {
        let paths: BTreeSet<&str> =
            recording.admission_calls().iter().filter_map(|call| call["path"].as_str()).collect();
        for path in paths {
            let calls = recording.admission_calls().iter().filter(|call| call["path"] == path);
            let operations: BTreeSet<&str> = calls.clone().filter_map(|call| call["operation"].as_str()).collect();
            let resources: BTreeSet<&str> = calls.filter_map(|call| call["resource"].as_str()).collect();
            let name = format!("recorder-{}", path.trim_matches('/'));
            let configuration = json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": name},
                "webhooks": [{
                    "name": format!("recorder-{}.example.com", path.trim_matches('/')),
                    "clientConfig": {"url": format!("https://recorder:443{path}"), "caBundle": ""},
                    "rules": [{"operations": operations, "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources, "scope": "*"}],
                    "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 3,
                }],
            });
            let servers: &[&str] = if path == "/volcano" { &["m1", "m2"] } else { &["host"] };
            for at in servers {
                self.server(at, "recorder").writer("recorder").create(&configuration).await.unwrap();
            }
        }
        let mut log = self.log.lock().unwrap();
        log.begin();
    }
}

/// Waits for a condition.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}: not within two minutes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until nobody has written for a while.
pub async fn quiet(log: &SharedLog) {
    const LONG: Duration = Duration::from_millis(150);
    let start = Instant::now();
    loop {
        let last = log.lock().unwrap().last;
        match last {
            Some(last) if last.elapsed() < LONG && start.elapsed() < Duration::from_secs(3) => {
                tokio::time::sleep(LONG.saturating_sub(last.elapsed())).await;
            }
            _ => return,
        }
    }
}
