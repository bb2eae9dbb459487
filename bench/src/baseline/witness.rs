//! Who watches the bindings: when a job was released and placed, and what its queue and cohort hold then. The changes
//! of one resource come in the order of their resourceVersions, so what is added up here was so on the server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use caldera_crds::names::caldera::ADMISSION;
use caldera_runtime::watch::api_resource;
use futures::StreamExt;
use kube::{
    Api, Client,
    api::DynamicObject,
    runtime::watcher::{self, Event},
};
use serde_json::Value;
use tokio::sync::Notify;

use super::host::COHORT;

/// What was seen of one job.
#[derive(Debug, Default, Clone)]
pub struct Job {
    pub released: Option<Instant>,
    pub placed: Option<Instant>,
    /// The clusters that it is in now, and since when.
    pub place: Option<(String, Instant)>,
    /// It got a place. Of its own: what wakes all who wait costs more than all that is measured.
    placed_now: Arc<Notify>,
    /// Cohort and cores that it holds.
    holds: Option<(String, u64)>,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Seen {
    jobs: BTreeMap<String, Job>,
    cohorts: BTreeMap<String, u64>,
    broken: Vec<String>,
    evictions: usize,
}

#[derive(Clone, Default)]
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
}

impl Witness {
    pub fn start(admin: &Client) -> Self {
        let witness = Self::default();
        let resource = api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings");
        let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), "default", &resource);
        let told = witness.clone();
        tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(binding) | Event::InitApply(binding)) => told.seen().observe_binding(&binding),
                    Ok(_) => continue,
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        });
        witness
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn job(&self, workload: &str) -> Job {
        self.seen().jobs.get(workload).cloned().unwrap_or_default()
    }

    /// Waits until it is placed: where, and since when.
    pub async fn wait_for_place(&self, workload: &str) -> (String, Instant) {
        let placed = Arc::clone(&self.seen().jobs.entry(workload.to_owned()).or_default().placed_now);
        loop {
            if let Some(place) = self.job(workload).place {
                return place;
            }
            placed.notified().await;
        }
    }

    pub fn list_broken_limits(&self) -> Vec<String> {
        self.seen().broken.clone()
    }

    pub fn count_evictions(&self) -> usize {
        self.seen().evictions
    }
}

impl Seen {
    fn observe_binding(&mut self, binding: &DynamicObject) {
        let (name, now) = (binding.data["spec"]["resource"]["name"].as_str().unwrap_or_default(), Instant::now());
        let record = binding.metadata.annotations.as_ref().and_then(|all| all.get(ADMISSION));
        let record = record.and_then(|record| serde_json::from_str::<Value>(record).ok());
        let job = self.jobs.entry(name.to_owned()).or_default();
        job.has_ended |= binding.data["status"]["aggregatedStatus"].is_array();
        let holds = record.filter(|_| !job.has_ended).map(|record| {
            let queue = record["queue"].as_str().unwrap_or_default();
            let cores = record["charged"]["cpu"].as_str().and_then(|cores| cores.parse().ok()).unwrap_or(0);
            (queue.split("-queue-").next().unwrap_or_default().to_owned(), cores)
        });
        let cluster = binding.data["spec"]["clusters"][0]["name"].as_str();
        match (cluster, &job.place) {
            (Some(cluster), None) => {
                job.place = Some((cluster.to_owned(), now));
                job.placed_now.notify_one();
            }
            (None, Some(_)) => {
                job.place = None;
                self.evictions += 1;
            }
            _ => {}
        }
        job.placed = job.placed.or(job.place.as_ref().map(|(_, since)| *since));
        job.released = job.released.or(holds.is_some().then_some(now));
        let before = std::mem::replace(&mut job.holds, holds.clone());
        if let Some((cohort, cores)) = before {
            *self.cohorts.entry(cohort).or_default() -= cores;
        }
        if let Some((cohort, cores)) = holds {
            let held = self.cohorts.entry(cohort.clone()).or_default();
            *held += cores;
            if *held > COHORT {
                self.broken.push(format!("{cohort} holds {held} of {COHORT} cores"));
            }
        }
    }
}
