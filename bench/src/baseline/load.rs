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

/// One job.
#[derive(Clone)]
struct Offer {
    index: usize,
    name: String,
    queue: String,
    size: &'static Size,
}

/// Jobs that are submitted one after the other.
struct Line {
    offers: Vec<Offer>,
    apart: Duration,
    /// The next one comes so long after the API server has accepted the last one, and not so long after that came.
    waits_for_answer: bool,
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

/// Users, Karmada's detector and the members.
#[derive(Clone)]
struct Actors {
    client: Client,
    witness: Witness,
    outcome: Arc<Outcome>,
}

pub struct Load {
    actors: Actors,
    lines: Vec<Arc<Line>>,
}

impl Load {
    /// As Kueue's generator, `generateWlSet` of `test/performance/scheduler/runner/generator`: each class of each queue
    /// by itself. With `apart` all in one line, those that would come first there first.
    pub fn new(client: Client, witness: Witness, schedule: &Schedule) -> Self {
        let queues = (0..COHORTS).flat_map(|cohort| (0..QUEUES_OF_ONE).map(move |queue| name_queue(cohort, queue)));
        let of_one = |(queue, size): (String, &'static Size)| {
            let name = |at| format!("{}-{queue}-{at}", size.name);
            let offer = |at| Offer { index: 0, name: name(at), queue: queue.clone(), size };
            let offers = (0..size.count / schedule.scale).map(offer).collect();
            Line { offers, apart: size.apart, waits_for_answer: true }
        };
        let mut lines: Vec<Line> =
            queues.flat_map(|queue| SIZES.iter().map(move |size| (queue.clone(), size))).map(of_one).collect();
        if let Some(apart) = schedule.apart {
            let timed = |line: Line| (1..).zip(line.offers).map(move |(at, offer)| (line.apart * at, offer));
            let mut offers: Vec<(Duration, Offer)> = lines.drain(..).flat_map(timed).collect();
            offers.sort_by_key(|(at, _)| *at);
            let offers = offers.into_iter().map(|(_, offer)| offer).collect();
            lines.push(Line { offers, apart, waits_for_answer: false });
        }
        let all = lines.iter_mut().flat_map(|line| &mut line.offers);
        all.zip(0..).for_each(|(offer, index)| offer.index = index);
        let actors = Actors { client, witness, outcome: Arc::default() };
        Self { actors, lines: lines.into_iter().map(Arc::new).collect() }
    }

    pub fn count(&self) -> usize {
        self.lines.iter().map(|line| line.offers.len()).sum()
    }

    /// Submits them; each goes on by itself until it has ended.
    pub fn offer_all(&self) {
        for line in &self.lines {
            let (line, actors) = (Arc::clone(line), self.actors.clone());
            tokio::spawn(async move {
                let mut ticks = tokio::time::interval(line.apart);
                for offer in &line.offers {
                    match line.waits_for_answer {
                        true => tokio::time::sleep(line.apart).await,
                        false => drop(ticks.tick().await),
                    }
                    let submitting = actors.clone().run_job(offer.clone());
                    if line.waits_for_answer {
                        submitting.await;
                    } else {
                        tokio::spawn(submitting);
                    }
                }
            });
        }
    }

    /// Until all have ended; an error if none does for so long.
    pub async fn wait_for_all(&self, patience: Duration) -> anyhow::Result<()> {
        let (mut last, mut since) = (0, Instant::now());
        while last < self.count() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if let Some(error) = self.actors.outcome.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Err(error);
            }
            let now = self.actors.outcome.ended.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            anyhow::ensure!(since.elapsed() < patience, "{last} of {} jobs have ended", self.count());
        }
        Ok(())
    }

    pub fn print_times(&self) {
        println!("  offered again: {}", self.actors.outcome.offered_again.load(Ordering::Relaxed));
        let waited = self.actors.outcome.waited.lock().unwrap_or_else(PoisonError::into_inner);
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

impl Actors {
    /// Submits it; returns once that is accepted.
    async fn run_job(self, offer: Offer) {
        let submitted = Instant::now();
        let job = make_job(&offer.name, &offer.queue, offer.size);
        let job = create_at_last(&self.client, JOBS, &job, &self.outcome).await;
        tokio::spawn(async move {
            let ran = async { self.end_job(&offer, &job?, submitted).await };
            match ran.await {
                Ok(waited) => self.outcome.waited.lock().unwrap_or_else(PoisonError::into_inner).push(waited),
                Err(error) => *self.outcome.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
            }
            self.outcome.ended.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Makes the binding of a job, and tells its end when it has run.
    async fn end_job(&self, offer: &Offer, job: &Value, submitted: Instant) -> anyhow::Result<Waited> {
        let Offer { name, size, .. } = offer;
        let binding = make_binding(name, offer.index, size, world::read_text(job, "/metadata/uid"));
        create_at_last(&self.client, BINDINGS, &binding, &self.outcome).await?;
        // Who is evicted while it runs runs anew.
        let (cluster, _) = loop {
            let place = self.witness.wait_for_place(name).await;
            tokio::time::sleep_until((place.1 + size.runs).into()).await;
            if self.witness.job(name).place.as_ref() == Some(&place) {
                break place;
            }
        };
        let ended = json!({"state": {"phase": "Completed"}, "minAvailable": 1, "succeeded": 1});
        let told = json!([{"clusterName": cluster, "status": ended, "applied": true, "health": "Healthy"}]);
        let (binding, job) = (format!("{BINDINGS}/{name}-job/status"), format!("{JOBS}/{name}/status"));
        let told = json!({"status": {"aggregatedStatus": told}});
        world::patch_object(&self.client, &binding, "merge", &told).await?;
        world::patch_object(&self.client, &job, "merge", &json!({"status": ended})).await?;
        let seen = self.witness.job(name);
        let since = |at: Option<Instant>| at.map(|at| at.duration_since(submitted));
        Ok(Waited {
            size: size.name,
            released: since(seen.released).context("it ended and was not released")?,
            placed: since(seen.placed).context("it ended and was not placed")?,
        })
    }
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
