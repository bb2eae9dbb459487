//! The jobs: when they come, how long they run, and how long they waited.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use caldera_crds::names::caldera::SCHEDULER_NAME;
use kube::Client;
use serde_json::{Value, json};

use super::{
    host::{COHORTS, QUEUES_OF_ONE, name_queue},
    witness::Witness,
};
use crate::{
    figures::Sample,
    world::{self, BINDINGS, JOBS},
};

/// A class of jobs, with its numbers in one queue.
pub struct Size {
    pub name: &'static str,
    pub priority: i32,
    count: u32,
    apart: Duration,
    cores: u32,
    runs: Duration,
}

pub const SIZES: [Size; 3] = [
    Size {
        name: "small",
        priority: 50,
        count: 350,
        apart: Duration::from_millis(100),
        cores: 1,
        runs: Duration::from_millis(200),
    },
    Size {
        name: "medium",
        priority: 100,
        count: 100,
        apart: Duration::from_millis(500),
        cores: 5,
        runs: Duration::from_millis(500),
    },
    Size {
        name: "large",
        priority: 200,
        count: 50,
        apart: Duration::from_millis(1200),
        cores: 20,
        runs: Duration::from_millis(1000),
    },
];

/// How many, and how far apart.
pub struct Schedule {
    pub scale: u32,
    /// Between any two jobs; `None` for Kueue's times.
    pub apart: Option<Duration>,
}

/// One job and when it comes.
struct Offer {
    name: String,
    queue: String,
    size: &'static Size,
    at: Duration,
}

struct Waited {
    size: &'static str,
    released: Duration,
    placed: Duration,
}

#[derive(Default)]
struct Outcome {
    waited: Mutex<Vec<Waited>>,
    ended: AtomicUsize,
    offered_again: AtomicUsize,
    failed: Mutex<Option<anyhow::Error>>,
}

pub struct Load {
    client: Client,
    witness: Witness,
    offers: Vec<Offer>,
    outcome: Arc<Outcome>,
}

impl Load {
    pub fn new(client: Client, witness: Witness, schedule: &Schedule) -> Self {
        let mut offers = Vec::new();
        for size in &SIZES {
            for (cohort, queue) in (0..COHORTS).flat_map(|cohort| (0..QUEUES_OF_ONE).map(move |queue| (cohort, queue)))
            {
                let queue = name_queue(cohort, queue);
                offers.extend((0..size.count / schedule.scale).map(|at| Offer {
                    name: format!("{}-{queue}-{at}", size.name),
                    queue: queue.clone(),
                    size,
                    at: size.apart * at,
                }));
            }
        }
        offers.sort_by_key(|offer| offer.at);
        if let Some(apart) = schedule.apart {
            offers.iter_mut().zip(0..).for_each(|(offer, index)| offer.at = apart * index);
        }
        Self { client, witness, offers, outcome: Arc::default() }
    }

    pub fn count(&self) -> usize {
        self.offers.len()
    }

    /// Submits them at their times; each goes on by itself until it has ended.
    pub async fn offer_all(&self) -> anyhow::Result<()> {
        let began = tokio::time::Instant::now();
        for (index, offer) in self.offers.iter().enumerate() {
            tokio::time::sleep_until(began + offer.at).await;
            let (client, witness, outcome) = (self.client.clone(), self.witness.clone(), Arc::clone(&self.outcome));
            let Offer { name, queue, size, .. } = offer;
            let (job, name, size) = (make_job(name, queue, size), name.clone(), *size);
            tokio::spawn(async move {
                match run_job(&client, &witness, &outcome, index, &name, &job, size).await {
                    Ok(waited) => outcome.waited.lock().unwrap_or_else(PoisonError::into_inner).push(waited),
                    Err(error) => *outcome.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
                }
                outcome.ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        Ok(())
    }

    /// Until all have ended; an error if none does for so long.
    pub async fn wait_for_all(&self, patience: Duration) -> anyhow::Result<()> {
        let (mut last, mut since) = (0, Instant::now());
        while last < self.offers.len() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if let Some(error) = self.outcome.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Err(error);
            }
            let now = self.outcome.ended.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            anyhow::ensure!(since.elapsed() < patience, "{last} of {} jobs have ended", self.offers.len());
        }
        Ok(())
    }

    pub fn print_times(&self) {
        println!("  offered again: {}", self.outcome.offered_again.load(Ordering::Relaxed));
        let waited = self.outcome.waited.lock().unwrap_or_else(PoisonError::into_inner);
        for size in ["all", "small", "medium", "large"] {
            let of: Vec<&Waited> = waited.iter().filter(|waited| size == "all" || waited.size == size).collect();
            println!("  {size:<7} released {}", Sample::new(of.iter().map(|waited| waited.released).collect()));
            println!("  {size:<7} placed   {}", Sample::new(of.iter().map(|waited| waited.placed).collect()));
        }
    }
}

/// Tries again where the API server had no answer of a webhook in time, as Karmada and users do. Its time counts.
async fn create_at_last(client: &Client, path: &str, object: &Value, outcome: &Outcome) -> anyhow::Result<Value> {
    loop {
        match world::create_object(client, path, object).await {
            Err(error) if format!("{error:#}").contains("context deadline exceeded") => {
                outcome.offered_again.fetch_add(1, Ordering::Relaxed);
            }
            answer => return answer,
        }
    }
}

async fn run_job(
    client: &Client,
    witness: &Witness,
    outcome: &Outcome,
    index: usize,
    name: &str,
    job: &Value,
    size: &Size,
) -> anyhow::Result<Waited> {
    let submitted = Instant::now();
    let job = create_at_last(client, JOBS, job, outcome).await?;
    let binding = make_binding(name, index, size, world::read_text(&job, "/metadata/uid"));
    create_at_last(client, BINDINGS, &binding, outcome).await?;
    // Who is evicted while it runs runs anew.
    let (cluster, _) = loop {
        let place = witness.wait_for_place(name).await;
        tokio::time::sleep_until((place.1 + size.runs).into()).await;
        if witness.job(name).place.as_ref() == Some(&place) {
            break place;
        }
    };
    let ended = json!({"state": {"phase": "Completed"}, "minAvailable": 1, "succeeded": 1});
    let told = json!([{"clusterName": cluster, "status": ended, "applied": true, "health": "Healthy"}]);
    let path = format!("{BINDINGS}/{name}-job/status");
    world::patch_object(client, &path, "merge", &json!({"status": {"aggregatedStatus": told}})).await?;
    world::patch_object(client, &format!("{JOBS}/{name}/status"), "merge", &json!({"status": ended})).await?;
    let seen = witness.job(name);
    let since = |at: Option<Instant>| at.map(|at| at.duration_since(submitted));
    Ok(Waited {
        size: size.name,
        released: since(seen.released).context("it ended and was not released")?,
        placed: since(seen.placed).context("it ended and was not placed")?,
    })
}

/// One pod.
fn make_job(name: &str, queue: &str, size: &Size) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "queue": queue, "minAvailable": 1, "schedulerName": "volcano", "priorityClassName": size.name,
            "tasks": [{"name": "main", "replicas": 1, "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main", "image": "busybox:1.36",
                    "resources": {"requests": {"cpu": size.cores.to_string()}},
                }],
            }}}],
        },
    })
}

/// As Karmada's detector makes it.
fn make_binding(name: &str, index: usize, size: &Size, uid: &str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "name": format!("{name}-job"), "namespace": "default",
            "annotations": {
                "propagationpolicy.karmada.io/name": "all", "propagationpolicy.karmada.io/namespace": "default",
            },
            "labels": {"resourcebinding.karmada.io/permanent-id": format!("{index:08}-3333-4000-8000-000000000000")},
        },
        "spec": {
            "resource": {
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                "namespace": "default", "name": name, "uid": uid,
            },
            "schedulerName": SCHEDULER_NAME,
            "conflictResolution": "Abort",
            "placement": {
                "clusterAffinity": {"clusterNames": ["m1", "m2", "m3"]},
                "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
            },
            "replicas": 1,
            "replicaRequirements": {"resourceRequest": {"cpu": size.cores.to_string()}},
        },
    })
}
