//! The jobs: what is offered, when it has ended, and that it is deleted then.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use caldera_crds::names::volcano::QUEUE;
use caldera_runtime::{
    watch::api_resource,
    write::{Body, Failure, Write, execute_write},
};
use kube::{Client, api::ApiResource};
use serde_json::{Value, json};

use super::witness::Witness;

/// How many queues there are, and what each may have.
pub const QUEUES: u64 = 50;
pub const CORES: u64 = 12;
/// A Deployment is there for so long.
const SERVES: Duration = Duration::from_secs(45);
/// A job that has not ended by then is lost.
const PATIENCE: Duration = Duration::from_secs(900);

/// Numbers that follow from a seed (splitmix64).
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[derive(Debug, Default)]
struct Counts {
    offered: BTreeMap<&'static str, u64>,
    ended: u64,
    waits: Vec<Duration>,
    faults: Vec<String>,
}

pub struct Load {
    client: Client,
    witness: Witness,
    dice: Dice,
    next: u64,
    counts: Arc<Mutex<Counts>>,
}

fn jobs() -> ApiResource {
    api_resource("batch.volcano.sh", "v1alpha1", "Job", "jobs")
}

fn deployments() -> ApiResource {
    api_resource("apps", "v1", "Deployment", "deployments")
}

fn write(resource: ApiResource, namespace: &str, name: &str, body: Body) -> Write {
    Write { resource, namespace: namespace.to_owned(), name: name.to_owned(), subresource: None, body }
}

/// Again and again: the webhook may be down.
async fn insist(client: &Client, write: &Write) {
    loop {
        match execute_write(client, write).await {
            Ok(_) => return,
            Err(Failure::Exists(_) | Failure::Gone(_)) => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

impl Load {
    pub async fn prepare(client: Client, witness: Witness, seed: u64) -> anyhow::Result<Self> {
        for index in 0..QUEUES {
            let queue = json!({
                "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": format!("q{index}")},
                "spec": {"weight": 1, "reclaimable": true, "capability": {"cpu": CORES.to_string(), "memory": "64Gi"}},
            });
            let resource = api_resource("scheduling.volcano.sh", "v1beta1", "Queue", "queues");
            insist(&client, &write(resource, "", &format!("q{index}"), Body::Create(queue))).await;
        }
        let policy = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "all", "namespace": "default"},
            "spec": {
                "resourceSelectors": [
                    {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}, {"apiVersion": "apps/v1", "kind": "Deployment"},
                ],
                "placement": {"replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
                }},
            },
        });
        let resource = api_resource("policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies");
        insist(&client, &write(resource, "default", "all", Body::Create(policy))).await;
        Ok(Self { client, witness, dice: Dice::new(seed), next: 0, counts: Arc::default() })
    }

    /// One more job, of a kind by chance.
    pub fn offer_job(&mut self) {
        self.next += 1;
        let (queue, run) = (format!("q{}", self.dice.below(QUEUES)), 2 + self.dice.below(20));
        let (kind, tasks): (&'static str, Vec<(&str, u64, u64)>) = match self.dice.below(20) {
            0 => ("service", vec![("web", 2 + self.dice.below(3), 1)]),
            1..=2 => ("wide gang", vec![("worker", 12, 1)]),
            3..=5 => ("launcher and workers", vec![("launcher", 1, 1), ("worker", 2 + self.dice.below(6), 1)]),
            6..=7 => ("fat", vec![("worker", 1 + self.dice.below(2), 5)]),
            _ => ("small", vec![("worker", 1 + self.dice.below(4), 1)]),
        };
        let name = format!("{}-{}", kind.split(' ').next().unwrap_or_default(), self.next);
        let object =
            if kind == "service" { deployment(&name, &queue, tasks[0].1) } else { job(&name, &queue, &tasks, run) };
        let resource = if kind == "service" { deployments() } else { jobs() };
        let pods = tasks.iter().map(|(_, pods, _)| pods).sum();
        *self.counts().offered.entry(kind).or_default() += 1;
        let (client, witness, counts) = (self.client.clone(), self.witness.clone(), Arc::clone(&self.counts));
        tokio::spawn(async move {
            insist(&client, &write(resource.clone(), "default", &name, Body::Create(object))).await;
            let since = Instant::now();
            let fault = if kind == "service" {
                tokio::time::sleep(SERVES).await;
                None
            } else {
                witness.wait_for_end(&name, since + PATIENCE).await.or_else(|| witness.find_second_run(&name, pods))
            };
            insist(&client, &write(resource, "default", &name, Body::Delete { uid: None })).await;
            witness.forget(&name);
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.ended += 1;
            counts.waits.push(since.elapsed());
            counts.faults.extend(fault.map(|fault| format!("{name}: {fault}")));
        });
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_done(&self) -> bool {
        self.counts().ended == self.next
    }

    pub fn faults(&self) -> Vec<String> {
        let counts = self.counts();
        let lost = self.next - counts.ended;
        let lost = (lost > 0).then(|| format!("{lost} jobs have not ended"));
        counts.faults.iter().cloned().chain(lost).collect()
    }

    pub fn summarize(&self) -> String {
        let mut counts = self.counts();
        counts.waits.sort_unstable();
        let at = |share: usize| counts.waits.get(counts.waits.len() * share / 100).map_or(0.0, Duration::as_secs_f64);
        let (half, most) = (at(50), at(99));
        format!("{} of {} jobs ended, {half:.0} s p50, {most:.0} s p99, {:?}", counts.ended, self.next, counts.offered)
    }
}

fn template(cores: u64, run: Option<u64>) -> Value {
    let resources = json!({"requests": {"cpu": cores.to_string(), "memory": "64Mi"}});
    let run = run.map_or_else(|| json!({}), |run| json!({"sim.caldera.dev/run-for": format!("{run}s")}));
    json!({
        "metadata": {"annotations": run, "labels": {"app": "soak"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": resources}],
        },
    })
}

fn job(name: &str, queue: &str, tasks: &[(&str, u64, u64)], run: u64) -> Value {
    let all: u64 = tasks.iter().map(|(_, pods, _)| pods).sum();
    let tasks = tasks.iter().map(|(task, pods, cores)| {
        json!({"name": task, "replicas": pods, "minAvailable": pods, "template": template(*cores, Some(run))})
    });
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "volcano", "queue": queue, "minAvailable": all, "tasks": tasks.collect::<Vec<_>>(),
        },
    })
}

fn deployment(name: &str, queue: &str, replicas: u64) -> Value {
    let mut template = template(1, None);
    template["spec"]["restartPolicy"] = "Always".into();
    template["metadata"]["labels"]["app"] = name.into();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "annotations": {QUEUE: queue}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    })
}
