//! One history: a host, two members, our three parts, users who submit, suspend and delete, and a fate from a seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::Request, response::IntoResponse};
use caldera_apiserver::{ApiServer, Options, SeededIds, TokioClock as ServerClock};
use caldera_controller as controller;
use caldera_global_scheduler as scheduler;
use caldera_runtime::{
    clock::{SharedClock, TokioClock},
    lease::{self, Candidate},
    serve::{Ready, SharedRegistry},
    watch::resource,
    write::{self, Body, Failure},
};
use caldera_webhook as webhook;
use kube::Client;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Duration, Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    faults::{Faults, Life, Way},
    history::{History, Trace},
    invariants::{Invariants, Limit, Stage, has_ended},
    ledger,
    prng::Prng,
    stand_in::{self, NAMESPACE, StandIn, write_to},
};

/// What a history came to.
#[derive(Debug)]
pub struct Outcome {
    pub history: Trace,
    pub virtual_seconds: u64,
    jobs: usize,
    commits: u64,
    writes: u64,
    kills: u64,
    pub faults: BTreeMap<&'static str, u64>,
    /// Commits at which more was granted, by two replicas, than a limit.
    pub over_granted: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { history, jobs, commits, writes, kills, faults, virtual_seconds, over_granted } = self;
        let faults: u64 = faults.values().sum();
        write!(
            f,
            "history {:016x}: {jobs} jobs, {commits} commits checked, {writes} writes tried by us, {faults} faults, \
             {kills} kills, {virtual_seconds} s virtual, {over_granted} commits with more granted than a limit",
            history.number()
        )
    }
}

/// Its holder grants.
const LEASE: &str = "caldera-controller";
const STEP: Duration = Duration::from_millis(100);
/// While things go wrong.
const STORM: Duration = Duration::from_secs(120);
/// Until everything must be done after that.
const CALM: Duration = Duration::from_secs(20 * 60);
/// Nothing is written for so long, and it is over: the controller puts a queue's note off for up to five minutes.
const QUIET: Duration = Duration::from_secs(330);
/// Then nothing is written for so long.
const IDLE: Duration = Duration::from_secs(10 * 60);

#[derive(Debug)]
enum Action {
    Submit(Value),
    Delete(String),
    Suspend(String),
    Resume(String),
    /// Fields of a binding that are none of our business.
    Edit(String),
    /// A member is out of reach, or back.
    Reach(&'static str, bool),
    /// Karmada says of a cluster whether it is ready.
    Ready(&'static str, bool),
    /// A job's first task has so many replicas from now on.
    Scale(String, u64),
    /// Its policy wants all of it in every cluster.
    Duplicate(String),
    /// Something of a queue but its limits.
    Retune(&'static str, Value),
    /// A queue is deleted, or made anew, while its jobs wait and run.
    Queue(&'static str, bool),
    /// A PriorityClass is there, or not.
    Class(&'static str, bool),
}

/// One of our processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Process {
    Controller,
    /// Another replica; only in worlds where they need a lease.
    Standby,
    Scheduler,
    Webhook,
}

impl Process {
    const ALL: [Self; 4] = [Self::Controller, Self::Standby, Self::Scheduler, Self::Webhook];

    fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Standby => "standby",
            Self::Scheduler => "scheduler",
            Self::Webhook => "webhook",
        }
    }
}

/// One life of a process.
struct Running {
    life: Life,
    stop: CancellationToken,
    /// The webhook has none: it is called.
    task: Option<JoinHandle<()>>,
}

type Answering = Arc<Mutex<Option<(Router, Life)>>>;

struct World {
    faults: Faults,
    way: Way,
    user: Client,
    clock: SharedClock,
    webhook: Answering,
    /// Two replicas of the controller, of which a lease lets one be active.
    replicated: bool,
    /// They go on for a while after they gave the lease up, as if they had not noticed.
    unfenced: bool,
    running: BTreeMap<Process, Running>,
    lives: u64,
    kills: u64,
}

impl World {
    /// Another life of a process, from nothing.
    fn start(&mut self, process: Process) {
        if process == Process::Standby && !self.replicated {
            return;
        }
        self.lives += 1;
        let (stop, life) = (CancellationToken::new(), Life::default());
        let client = self.way.client(process.name(), life.clone());
        let clock = self.clock.clone();
        let task = match process {
            Process::Controller | Process::Standby if self.replicated => {
                let identity = format!("{}-{}", process.name(), self.lives);
                if self.unfenced {
                    let faults = self.faults.clone();
                    Some(tokio::spawn(beyond_its_lease(identity, client, clock, stop.clone(), faults)))
                } else {
                    Some(tokio::spawn(while_active(identity, client, clock, stop.clone())))
                }
            }
            Process::Controller | Process::Standby => {
                let config = controller::Config { clock, ..controller::Config::default() };
                let task = controller::run(config, client, stop.clone());
                Some(tokio::spawn(async move { task.await.expect("the controller stopped by itself") }))
            }
            Process::Scheduler => {
                let grants = Some((NAMESPACE.to_owned(), LEASE.to_owned()));
                let config = scheduler::Config { clock, grants, ..scheduler::Config::default() };
                let task = scheduler::run(config, client, stop.clone());
                Some(tokio::spawn(async move { task.await.expect("the scheduler stopped by itself") }))
            }
            Process::Webhook => {
                let ready = Ready::default();
                let memory = webhook::Memory::new(client.clone(), &SharedRegistry::default());
                webhook::follow(&memory, &client, ready.clone(), &stop);
                *self.webhook.lock().unwrap() = Some((webhook::router(memory, ready), life.clone()));
                None
            }
        };
        self.running.insert(process, Running { life, stop, task });
    }

    /// The process dies where it stands.
    fn kill(&mut self, process: Process) {
        let Some(Running { life, stop, task }) = self.running.remove(&process) else { return };
        self.kills += 1;
        life.end();
        if let Some(task) = task {
            task.abort();
        }
        stop.cancel();
    }

    fn must_live(&self) {
        for (process, running) in &self.running {
            let ended = running.task.as_ref().is_some_and(JoinHandle::is_finished);
            assert!(!ended, "the {} stopped by itself", process.name());
        }
    }

    async fn act(&self, action: &Action, invariants: &mut Invariants) -> Result<(), Failure> {
        if self.faults.told {
            println!("{action:?}");
        }
        let binding = |name: &String, suspended: bool| {
            let patch = json!({"spec": {"suspension": {"scheduling": suspended}}});
            write_to(stand_in::bindings(), NAMESPACE, &format!("{name}-job"), Body::MergePatch(patch))
        };
        let write = match action {
            Action::Submit(job) => {
                let name = job["metadata"]["name"].as_str().unwrap();
                write_to(stand_in::jobs(), NAMESPACE, name, Body::Create(job.clone()))
            }
            Action::Delete(name) => {
                invariants.deleted.insert(name.clone());
                write_to(stand_in::jobs(), NAMESPACE, name, Body::Delete { uid: None })
            }
            Action::Edit(name) => {
                let patch = json!({
                    "metadata": {"labels": {"team/own": "yes"}, "annotations": {"team/note": "mine"}},
                    "spec": {"suspension": {"dispatchingOnClusters": {"clusterNames": ["m9"]}}},
                });
                write_to(stand_in::bindings(), NAMESPACE, &format!("{name}-job"), Body::MergePatch(patch))
            }
            Action::Reach(member, yes) => {
                self.faults.reach(member, *yes);
                return Ok(());
            }
            Action::Ready(cluster, yes) => {
                let status = json!({"status": {"conditions": [ready(*yes)]}});
                let write = write_to(clusters(), "", cluster, Body::MergePatch(status));
                write::Write { subresource: Some("status"), ..write }
            }
            Action::Suspend(name) => binding(name, true),
            Action::Resume(name) => binding(name, false),
            Action::Scale(name, replicas) => {
                let patch = json!([{"op": "replace", "path": "/spec/tasks/0/replicas", "value": replicas}]);
                write_to(stand_in::jobs(), NAMESPACE, name, Body::JsonPatch(patch))
            }
            Action::Duplicate(name) => {
                let scheduling = json!({"replicaSchedulingType": "Duplicated", "replicaDivisionPreference": null});
                let patch = json!({"spec": {"placement": {"replicaScheduling": scheduling}}});
                write_to(stand_in::bindings(), NAMESPACE, &format!("{name}-job"), Body::MergePatch(patch))
            }
            Action::Retune(queue, spec) => write_to(queues(), "", queue, Body::MergePatch(json!({"spec": spec}))),
            Action::Queue(name, true) => write_to(queues(), "", name, Body::Create(queue(name))),
            Action::Queue(name, false) => write_to(queues(), "", name, Body::Delete { uid: None }),
            Action::Class(name, true) => write_to(classes(), "", name, Body::Create(class(name))),
            Action::Class(name, false) => write_to(classes(), "", name, Body::Delete { uid: None }),
        };
        match write::execute(&self.user, &write).await {
            Err(Failure::Exists(_)) => Ok(()),
            Err(failure @ Failure::Refused { .. }) => panic!("{failure}"),
            Ok(object)
                if matches!(
                    action,
                    Action::Suspend(_) | Action::Resume(_) | Action::Edit(_) | Action::Scale(..) | Action::Duplicate(_)
                ) =>
            {
                let version = object["metadata"]["resourceVersion"].as_str().unwrap();
                invariants.by_users.insert(version.parse().unwrap());
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

/// A replica of the controller as `caldera controller` runs it: active while it holds the lease, begun anew when lost.
async fn while_active(identity: String, client: Client, clock: SharedClock, stop: CancellationToken) {
    let candidate = Candidate { namespace: NAMESPACE.into(), name: LEASE.into(), identity };
    while let Some(held) = lease::hold(client.clone(), candidate.clone(), clock.clone(), stop.clone()).await {
        let active = stop.child_token();
        let (lost, ended) = (held.lost.clone(), active.clone());
        tokio::spawn(async move {
            lost.cancelled().await;
            ended.cancel();
        });
        let epoch = Some(held.epoch.clone());
        let config = controller::Config { clock: clock.clone(), epoch, ..controller::Config::default() };
        controller::run(config, client.clone(), active).await.expect("the controller stopped by itself");
    }
}

/// The same without a lease that works: it gives it up now and then, so that another takes it, and goes on granting what
/// it has seen until it notices, under the lease that it had.
async fn beyond_its_lease(
    identity: String,
    client: Client,
    clock: SharedClock,
    stop: CancellationToken,
    faults: Faults,
) {
    let candidate = Candidate { namespace: NAMESPACE.into(), name: LEASE.into(), identity };
    while let Some(held) = lease::hold(client.clone(), candidate.clone(), clock.clone(), stop.clone()).await {
        let active = stop.child_token();
        let epoch = Some(held.epoch.clone());
        let config = controller::Config { clock: clock.clone(), epoch, ..controller::Config::default() };
        let running = tokio::spawn(controller::run(config, client.clone(), active.clone()));
        while faults.is_on() && !faults.between(0, 20).is_multiple_of(20) {
            sleep(Duration::from_secs(1)).await;
        }
        if faults.is_on() {
            drop(held);
            sleep(Duration::from_millis(faults.between(1_000, 40_000))).await;
        } else {
            held.lost.cancelled().await;
        }
        active.cancel();
        running.await.unwrap().expect("the controller stopped by itself");
    }
}

/// Whoever answers for the webhook at this moment, if anybody.
fn switched(current: Answering) -> Router {
    Router::new().fallback(move |request: Request| {
        let current = current.lock().unwrap().clone();
        async move {
            let nobody = || http::StatusCode::SERVICE_UNAVAILABLE.into_response();
            let Some((router, life)) = current.filter(|(_, life)| !life.is_over()) else { return nobody() };
            let answer = router.oneshot(request).await.into_response();
            if life.is_over() { nobody() } else { answer }
        }
    })
}

async fn create(client: &Client, of: kube::api::ApiResource, namespace: &str, object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let status = object["status"].clone();
    write::execute(client, &write_to(of.clone(), namespace, &name, Body::Create(object))).await.unwrap();
    if status.is_object() {
        let body = Body::MergePatch(json!({"status": status}));
        let write = write::Write { subresource: Some("status"), ..write_to(of, namespace, &name, body) };
        write::execute(client, &write).await.unwrap();
    }
}

async fn prepare_host(client: &Client) {
    let definitions = resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
    let mut crds = caldera_crds::manifests::karmada_crds();
    crds.push(caldera_crds::manifests::cluster_crd());
    crds.extend(caldera_crds::manifests::volcano_crds());
    for mut crd in crds {
        crd.as_object_mut().unwrap().remove("status");
        create(client, definitions.clone(), "", crd).await;
    }
    sleep(Duration::from_secs(1)).await;
    let namespaces = resource("", "v1", "Namespace", "namespaces");
    for name in [NAMESPACE, "karmada-es-m1", "karmada-es-m2"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(client, namespaces.clone(), "", namespace).await;
    }
    for name in ["m1", "m2"] {
        let enablements = json!([{
            "groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}],
        }]);
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"syncMode": "Pull"},
            "status": {
                "apiEnablements": enablements,
                "conditions": [ready(true)],
                "resourceSummary": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "200"}},
            },
        });
        create(client, clusters(), "", cluster).await;
    }
    // Karmada has an interpreter's configuration, which only the stand-in would read.
    for configuration in webhook::configurations(&webhook::Endpoint::Url(format!("https://{WEBHOOK}")), "") {
        let kind = configuration["kind"].as_str().unwrap();
        if kind != "ResourceInterpreterWebhookConfiguration" {
            let plural = format!("{}s", kind.to_lowercase());
            create(client, resource("admissionregistration.k8s.io", "v1", kind, &plural), "", configuration).await;
        }
    }
}

const WEBHOOK: &str = "webhook.simulation:443";

fn clusters() -> kube::api::ApiResource {
    resource("cluster.karmada.io", "v1alpha1", "Cluster", "clusters")
}

fn ready(yes: bool) -> Value {
    let (status, reason) = if yes { ("True", "ClusterReady") } else { ("False", "ClusterNotReachable") };
    json!({
        "type": "Ready", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn queues() -> kube::api::ApiResource {
    resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues")
}

/// `lab` is smaller than its children together, and the fleet is smaller than all.
fn limits() -> BTreeMap<String, Limit> {
    let limit = |name: &str, parent, cores| (name.to_owned(), Limit { parent, cores });
    BTreeMap::from([
        limit("lab", None, Some(10)),
        limit("vision", Some("lab"), Some(8)),
        limit("speech", Some("lab"), Some(6)),
        limit("open", None, None),
    ])
}

const QUEUES: [&str; 4] = ["lab", "vision", "speech", "open"];

async fn prepare_queues(client: &Client) {
    // Parents first.
    for name in QUEUES {
        create(client, queues(), "", queue(name)).await;
    }
    for name in CLASSES {
        create(client, classes(), "", class(name)).await;
    }
}

fn queue(name: &str) -> Value {
    let limit = &limits()[name];
    let mut spec = json!({"weight": 1, "reclaimable": true});
    if let Some(parent) = limit.parent {
        spec["parent"] = parent.into();
    }
    if let Some(cores) = limit.cores {
        spec["capability"] = json!({"cpu": cores.to_string()});
    }
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

const CLASSES: [&str; 2] = ["urgent", "idle"];

fn classes() -> kube::api::ApiResource {
    resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses")
}

fn class(name: &str) -> Value {
    let value = if name == "urgent" { 1000 } else { -1000 };
    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
}

const NODES: [(&str, u64); 2] = [("n1", 4), ("n2", 4)];

async fn prepare_member(client: &Client) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create(client, resource("", "v1", "Namespace", "namespaces"), "", namespace).await;
    for (name, cores) in NODES {
        let allocatable = json!({"cpu": cores.to_string(), "memory": "32Gi", "pods": "100"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {
                "allocatable": allocatable, "capacity": allocatable,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        let nodes = resource("", "v1", "Node", "nodes");
        create(client, nodes.clone(), "", node).await;
        // Every node is born with a not-ready taint, which a kube-controller-manager would take away.
        let healthy = Body::MergePatch(json!({"spec": {"taints": null}}));
        write::execute(client, &write_to(nodes, "", name, healthy)).await.unwrap();
    }
}

/// What users will do, by when.
struct Story {
    actions: Vec<(u64, Action)>,
    /// Jobs that must be done in the end.
    finish: BTreeSet<String>,
    /// Jobs that never fit and must wait for ever.
    wait: BTreeSet<String>,
}

fn story(prng: &mut Prng) -> Story {
    let mut story = Story { actions: Vec::new(), finish: BTreeSet::new(), wait: BTreeSet::new() };
    let jobs = prng.between(10, 16);
    for index in 0..jobs {
        let name = format!("j{index}");
        let at = prng.below(90_000);
        let queue = ["vision", "speech", "open"][usize::try_from(prng.below(3)).unwrap()];
        let suspended = prng.below(8) == 0;
        let tasks = (0..prng.between(1, 3)).map(|task| {
            let replicas = prng.between(1, 4);
            let minimum = if prng.below(3) == 0 { prng.between(1, replicas + 1) } else { replicas };
            (format!("t{task}"), replicas, minimum, prng.between(1, 3))
        });
        let mut tasks: Vec<_> = tasks.collect();
        // It must fit the smallest queue.
        while tasks.iter().map(|(_, replicas, _, cores)| replicas * cores).sum::<u64>() > 6 {
            tasks.pop();
            if tasks.is_empty() {
                tasks.push(("t0".into(), 3, 3, 1));
            }
        }
        let seconds = prng.between(3, 25);
        let mut submitted = job(&name, queue, &tasks, seconds, suspended);
        if prng.below(3) == 0 {
            submitted["spec"]["priorityClassName"] = CLASSES[usize::try_from(prng.below(2)).unwrap()].into();
        }
        story.actions.push((at, Action::Submit(submitted)));
        story.finish.insert(name.clone());
        if suspended {
            story.actions.push((at + prng.between(20_000, 100_000), Action::Resume(name.clone())));
            continue;
        }
        let cores: u64 = tasks.iter().map(|(_, replicas, _, cores)| replicas * cores).sum();
        let change = at + prng.between(1, 40_000);
        match prng.below(10) {
            // Its minimum stays what it was; nobody wants more than fits its queue.
            8 if cores + tasks[0].3 <= 6 => story.actions.push((change, Action::Scale(name.clone(), tasks[0].1 + 1))),
            8 if tasks[0].1 > tasks[0].2 => story.actions.push((change, Action::Scale(name.clone(), tasks[0].1 - 1))),
            9 if cores <= 3 => story.actions.push((change, Action::Duplicate(name.clone()))),
            _ => {}
        }
        match prng.below(8) {
            0 => {
                story.actions.push((at + prng.between(1, 40_000), Action::Delete(name.clone())));
                story.finish.remove(&name);
            }
            1 | 2 => {
                let from = at + prng.between(1, 20_000);
                story.actions.push((from, Action::Suspend(name.clone())));
                story.actions.push((from + prng.between(10_000, 60_000), Action::Resume(name)));
            }
            3 => story.actions.push((at + prng.between(1, 40_000), Action::Edit(name))),
            _ => {}
        }
    }
    for member in ["m1", "m2"] {
        if prng.below(3) == 0 {
            let from = prng.between(10_000, 90_000);
            let until = from + prng.between(1_000, 60_000);
            story.actions.push((from, Action::Reach(member, false)));
            story.actions.push((until, Action::Reach(member, true)));
            if prng.below(2) == 0 {
                story.actions.push((from + prng.below(10_000), Action::Ready(member, false)));
                story.actions.push((until + prng.below(10_000), Action::Ready(member, true)));
            }
        }
    }
    for _ in 0..prng.below(4) {
        let tuned = json!({"weight": prng.between(1, 9), "priority": prng.below(3)});
        story
            .actions
            .push((prng.below(100_000), Action::Retune(QUEUES[usize::try_from(prng.below(4)).unwrap()], tuned)));
    }
    if prng.below(2) == 0 {
        let from = prng.between(10_000, 80_000);
        story.actions.push((from, Action::Queue("open", false)));
        story.actions.push((from + prng.between(1_000, 40_000), Action::Queue("open", true)));
    }
    for name in CLASSES {
        if prng.below(2) == 0 {
            let from = prng.below(80_000);
            story.actions.push((from, Action::Class(name, false)));
            if prng.below(2) == 0 {
                story.actions.push((from + prng.between(1_000, 40_000), Action::Class(name, true)));
            }
        }
    }
    let giant = job("giant", "open", &[("t0".into(), 10, 10, 2)], 5, false);
    story.actions.push((prng.below(60_000), Action::Submit(giant)));
    story.wait.insert("giant".into());
    story.actions.sort_by_key(|(at, _)| *at);
    story
}

fn job(name: &str, queue: &str, tasks: &[(String, u64, u64, u64)], seconds: u64, suspended: bool) -> Value {
    let minimum: u64 = tasks.iter().map(|(_, _, minimum, _)| minimum).sum();
    let task = |(name, replicas, minimum, cores): &(String, u64, u64, u64)| {
        let container = json!({
            "name": "c", "image": "i", "resources": {"requests": {"cpu": cores.to_string(), "memory": "16Mi"}},
        });
        json!({
            "name": name, "replicas": replicas, "minAvailable": minimum,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        })
    };
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "annotations": {"simulation/seconds": seconds.to_string(), "simulation/suspended": suspended.to_string()},
        },
        "spec": {
            "schedulerName": "volcano", "queue": queue, "minAvailable": minimum,
            "tasks": tasks.iter().map(task).collect::<Vec<_>>(),
        },
    })
}

/// Runs a history to its end.
pub async fn run(seed: u64, keep: bool) -> Outcome {
    let began = Instant::now();
    let mut prng = Prng::new(seed);
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let webhook = Arc::default();
    let hook = switched(Arc::clone(&webhook));
    let mut ids = prng.fork();
    let mut server = |name: &str, webhooks| {
        let ids = Arc::new(SeededIds::new(ids.next()));
        let clock = Arc::new(ServerClock::starting_at(start));
        ApiServer::new(Options { name: name.into(), clock, ids, webhooks, ..Options::default() })
    };
    let host = server("host", BTreeMap::from([(WEBHOOK.to_owned(), hook.clone())])).router();
    let members: BTreeMap<String, Router> =
        ["m1", "m2"].into_iter().map(|name| (name.to_owned(), server(name, BTreeMap::new()).router())).collect();
    let user = Client::new(host.clone(), "default");
    let member_clients: BTreeMap<String, Client> =
        members.iter().map(|(name, router)| (name.clone(), Client::new(router.clone(), "default"))).collect();
    prepare_host(&user).await;
    let mut stand_in = {
        let history = History::new();
        for of in [
            stand_in::jobs(),
            stand_in::bindings(),
            stand_in::works(),
            stand_in::pod_groups(),
            queues(),
            classes(),
            clusters(),
        ] {
            history.follow("host", user.clone(), of);
        }
        let stand_in = StandIn::new(user.clone(), member_clients.clone(), hook, history.clone());
        (stand_in, history)
    };
    for (name, client) in &member_clients {
        prepare_member(client).await;
        let nodes = NODES.iter().map(|(name, cores)| ((*name).to_owned(), *cores)).collect();
        stand_in.0.nodes.insert(name.clone(), nodes);
    }
    let (mut stand_in, history) = (stand_in.0, stand_in.1);
    let told = std::env::var_os("CALDERA_SIMULATION_TRACE").is_some();
    let faults = Faults::new(prng.fork(), told);
    let mut world = World {
        way: Way { host, members, faults: faults.clone(), who: "", life: Life::default() },
        faults,
        user,
        clock: Arc::new(TokioClock::starting_at(start)),
        webhook,
        replicated: true,
        unfenced: false,
        running: BTreeMap::new(),
        lives: 0,
        kills: 0,
    };
    // Each second world has one replica; of the others each second has no lease that works.
    let replicas = prng.below(4);
    (world.replicated, world.unfenced) = (replicas >= 2, replicas == 3);
    for process in Process::ALL.into_iter().rev() {
        world.start(process);
    }
    prepare_queues(&world.user).await;
    sleep(Duration::from_secs(5)).await;
    let invariants = Invariants::new(limits(), world.unfenced);
    let mut tale =
        Tale { invariants, trace: Trace::new(keep), told, history, last_writes: 0, quiet_since: Instant::now() };
    let mut story = story(&mut prng);
    let actions = std::mem::take(&mut story.actions);
    storm(&mut world, &mut stand_in, &mut tale, &mut prng, actions).await;
    calm(&mut world, &mut stand_in, &mut tale, story).await;
    Outcome {
        history: tale.trace,
        over_granted: tale.invariants.over_granted,
        jobs: tale.invariants.jobs().len(),
        commits: tale.invariants.checked,
        writes: world.faults.writes(),
        kills: world.kills,
        faults: world.faults.injected(),
        virtual_seconds: began.elapsed().as_secs(),
    }
}

struct Tale {
    invariants: Invariants,
    trace: Trace,
    /// Each commit is printed.
    told: bool,
    history: History,
    last_writes: u64,
    quiet_since: Instant,
}

impl Tale {
    /// Checks every commit since the last time, one after the other.
    async fn check(&mut self) {
        // On virtual time this ends when nobody has anything to do: all watches have delivered.
        sleep(Duration::from_millis(1)).await;
        self.history.must_be_complete();
        for commit in self.history.take() {
            self.trace.add(&commit);
            if self.told {
                let object = commit.object.as_ref();
                let parts =
                    ["/metadata/annotations", "/spec/suspension", "/spec/clusters", "/status/state", "/status/phase"];
                let parts: Vec<_> =
                    parts.into_iter().filter_map(|part| object?.pointer(part)).map(ToString::to_string).collect();
                println!("{} ms: {} {:?} {}", commit.millis, commit.version, commit.name, parts.join(" "));
            }
            self.invariants.observe(&commit);
        }
    }
}

/// Users act, requests fail, processes die.
async fn storm(
    world: &mut World,
    stand_in: &mut StandIn,
    tale: &mut Tale,
    prng: &mut Prng,
    actions: Vec<(u64, Action)>,
) {
    world.faults.switch(true);
    let began = Instant::now();
    let mut actions: Vec<_> = actions.into_iter().map(|(at, action)| (Duration::from_millis(at), action)).collect();
    let mut down: Vec<(Instant, Process)> = Vec::new();
    while began.elapsed() < STORM || !actions.is_empty() {
        sleep(STEP).await;
        tale.check().await;
        world.must_live();
        let mut left = Vec::new();
        for (at, action) in std::mem::take(&mut actions) {
            let is_due = at <= began.elapsed();
            // What is not there yet is done later; a job that is deleted needs no more.
            if !is_due || world.act(&action, &mut tale.invariants).await.is_err() && began.elapsed() < STORM * 2 {
                left.push((at, action));
            }
        }
        actions = left;
        tale.check().await;
        // Somebody thinks better of what was just admitted.
        for name in tale.invariants.admitted() {
            if prng.below(8) == 0 && world.act(&Action::Suspend(name.clone()), &mut tale.invariants).await.is_ok() {
                let back = began.elapsed() + Duration::from_millis(prng.between(1_000, 30_000));
                actions.push((back, Action::Resume(name)));
            }
        }
        let mut dead = world.faults.take_crashed();
        if began.elapsed() < STORM && prng.below(150) == 0 {
            dead.insert(Process::ALL[usize::try_from(prng.below(4)).unwrap()].name());
        }
        for process in Process::ALL.into_iter().filter(|process| dead.contains(process.name())) {
            if world.running.contains_key(&process) {
                world.kill(process);
                let until = Instant::now() + Duration::from_millis(prng.below(5_000));
                if tale.told {
                    println!("the {} is dead for {:?}", process.name(), until - Instant::now());
                }
                down.push((until, process));
            }
        }
        down.retain(|(at, process)| {
            let back = *at <= Instant::now();
            if back {
                world.start(*process);
            }
            !back
        });
        stand_in.step(prng.below(200) == 0).await;
        if began.elapsed() >= STORM {
            world.faults.switch(false);
        }
    }
    world.faults.switch(false);
    for process in Process::ALL {
        if world.faults.take_crashed().contains(process.name()) {
            world.kill(process);
        }
        if !world.running.contains_key(&process) {
            world.start(process);
        }
    }
}

/// Nothing fails any more: everything comes to its end; then all quota is there for others, and then nothing is written.
async fn calm(world: &mut World, stand_in: &mut StandIn, tale: &mut Tale, mut story: Story) {
    at_rest(world, stand_in, tale, &story.finish).await;
    // Whoever kept quota of a job that is gone has none for these: together they need every core of `lab`.
    for (name, queue, cores) in [("last-vision", "vision", 5), ("last-speech", "speech", 5)] {
        let action = Action::Submit(job(name, queue, &[("t0".into(), cores, cores, 1)], 30, false));
        world.act(&action, &mut tale.invariants).await.unwrap();
        story.finish.insert(name.into());
    }
    at_rest(world, stand_in, tale, &story.finish).await;
    assert_eq!(tale.invariants.peaks.get("lab"), Some(&10), "all of lab was held at once: its quota came back");
    for name in &story.wait {
        assert_eq!(tale.invariants.stage(&format!("{name}-job")), Stage::Waiting, "{name} can not fit anywhere");
    }
    assert_eq!(tale.invariants.bindings().len(), tale.invariants.jobs().len(), "each job has its binding");
    for queue in tale.history.all("host", "Queue") {
        let allocated = queue["status"]["allocated"]["cpu"].as_str().unwrap_or("0");
        assert_eq!(allocated, "0", "nothing runs, and {} says: {}", queue["metadata"]["name"], queue["status"]);
    }
    let (writes, began) = (world.faults.writes(), Instant::now());
    while began.elapsed() < IDLE {
        sleep(Duration::from_secs(5)).await;
        tale.check().await;
        world.must_live();
        stand_in.step(false).await;
    }
    assert_eq!(world.faults.writes(), writes, "an idle system writes nothing");
}

/// Waits until these have ended and nothing was written for a while.
async fn at_rest(world: &World, stand_in: &mut StandIn, tale: &mut Tale, finish: &BTreeSet<String>) {
    let began = Instant::now();
    (tale.last_writes, tale.quiet_since) = (world.faults.writes(), began);
    let mut step = STEP;
    loop {
        sleep(step).await;
        tale.check().await;
        world.must_live();
        stand_in.step(false).await;
        let writes = world.faults.writes();
        if writes != tale.last_writes {
            (tale.last_writes, tale.quiet_since) = (writes, Instant::now());
        }
        let jobs = tale.invariants.jobs();
        let left: Vec<&String> = finish.iter().filter(|name| !jobs.get(*name).is_some_and(has_ended)).collect();
        step = if left.is_empty() { STEP * 10 } else { STEP };
        let quiet = tale.quiet_since.elapsed();
        if quiet > Duration::from_secs(15) && quiet <= Duration::from_secs(15) + step {
            ledger::must_be_what_the_objects_say(&tale.history, world.clock.now());
        }
        if left.is_empty() && tale.quiet_since.elapsed() > QUIET {
            return;
        }
        let is_left = |group: &&Value| {
            left.iter().any(|name| group["metadata"]["labels"]["caldera.dev/workload-name"] == name.as_str())
        };
        assert!(
            began.elapsed() < CALM,
            "not at rest after {} s: {left:#?} are not done, the last write was {} s ago; bindings {:#?}, groups {:#?}",
            CALM.as_secs(),
            tale.quiet_since.elapsed().as_secs(),
            left.iter().filter_map(|name| tale.invariants.bindings().get(&format!("{name}-job"))).collect::<Vec<_>>(),
            tale.history
                .all("host", "PodGroup")
                .iter()
                .filter(is_left)
                .map(|group| &group["status"])
                .collect::<Vec<_>>(),
        );
    }
}
