//! Who watches: ends of jobs on the host, pods in the members, and what queues hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use caldera_crds::names::caldera::ADMISSION;
use caldera_runtime::{client::WriteCounts, watch::api_resource};
use caldera_sandbox::fleet::Fleet;
use futures::StreamExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    runtime::watcher::{self, Event},
};
use serde_json::Value;

use super::load::CORES;

#[derive(Debug, Default)]
struct Seen {
    /// Jobs by how they ended.
    ended: BTreeMap<String, String>,
    /// Pods of each job that ran, by their UIDs.
    ran: BTreeMap<String, BTreeSet<String>>,
    /// Pods of each job that have succeeded, as the host says.
    succeeded: BTreeMap<String, u64>,
    /// What placed bindings hold, by workload: queue, pods and millicores.
    placed: BTreeMap<String, (String, u64, u64)>,
    /// The most that a queue held.
    most: BTreeMap<String, u64>,
    faults: Vec<String>,
}

#[derive(Clone)]
pub struct Witness(Arc<Mutex<Seen>>);

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn bindings() -> ApiResource {
    api_resource("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings")
}

impl Witness {
    pub fn start(fleet: &Fleet, host: &Client) -> anyhow::Result<Self> {
        let witness = Self(Arc::default());
        witness.follow(host, api_resource("batch.volcano.sh", "v1alpha1", "Job", "jobs"), Seen::observe_job);
        witness.follow(host, bindings(), Seen::observe_binding);
        for member in &fleet.members {
            let client = member.client("soak", &WriteCounts::default())?;
            witness.follow(&client, api_resource("", "v1", "Pod", "pods"), Seen::observe_pod);
        }
        Ok(witness)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self, client: &Client, resource: ApiResource, observe: fn(&mut Seen, &str, &Value, bool)) {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
        let witness = self.clone();
        tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                let (object, is_gone) = match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => (object, false),
                    Ok(Event::Delete(object)) => (object, true),
                    Ok(_) => continue,
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        continue;
                    }
                };
                let name = object.metadata.name.clone().unwrap_or_default();
                let mut value = object.data;
                value["metadata"] = serde_json::to_value(&object.metadata).unwrap_or_default();
                observe(&mut witness.seen(), &name, &value, is_gone);
            }
        });
    }

    /// Waits for the end of a job; what is wrong with it otherwise.
    pub async fn wait_for_end(&self, name: &str, deadline: Instant) -> Option<String> {
        loop {
            if let Some(phase) = self.seen().ended.get(name) {
                return (phase != "Completed").then(|| format!("ended as {phase}"));
            }
            if Instant::now() > deadline {
                return Some("has not ended".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// More pods ran than a job has.
    pub fn find_second_run(&self, name: &str, pods: u64) -> Option<String> {
        let ran = self.seen().ran.get(name).map_or(0, BTreeSet::len) as u64;
        (ran > pods).then(|| format!("{ran} pods ran, and it has {pods}"))
    }

    pub fn forget(&self, name: &str) {
        let mut seen = self.seen();
        seen.ran.remove(name);
        seen.succeeded.remove(name);
    }

    pub fn faults(&self) -> Vec<String> {
        let seen = self.seen();
        let fullest = seen.most.values().max().copied().unwrap_or(0);
        println!("the fullest queue held {fullest} of {} millicores", CORES * 1000);
        seen.faults.clone()
    }
}

impl Seen {
    fn observe_job(&mut self, name: &str, job: &Value, is_gone: bool) {
        let phase = text(&job["status"]["state"]["phase"]);
        if !is_gone && ["Completed", "Failed", "Terminated", "Aborted"].contains(&phase) {
            self.ended.insert(name.to_owned(), phase.to_owned());
            self.placed.remove(name);
        }
        self.succeeded.insert(name.to_owned(), job["status"]["succeeded"].as_u64().unwrap_or(0));
    }

    fn observe_pod(&mut self, _: &str, pod: &Value, _: bool) {
        let job = text(&pod["metadata"]["annotations"]["volcano.sh/job-name"]);
        if !job.is_empty() && ["Running", "Succeeded"].contains(&text(&pod["status"]["phase"])) {
            self.ran.entry(job.to_owned()).or_default().insert(text(&pod["metadata"]["uid"]).to_owned());
        }
    }

    fn observe_binding(&mut self, _: &str, binding: &Value, is_gone: bool) {
        let record = binding["metadata"]["annotations"][ADMISSION].as_str();
        let record: Value = record.and_then(|record| serde_json::from_str(record).ok()).unwrap_or_default();
        let is_placed = binding["spec"]["clusters"].as_array().is_some_and(|clusters| !clusters.is_empty());
        let workload = text(&binding["spec"]["resource"]["name"]);
        if is_gone || !is_placed || self.ended.contains_key(workload) {
            self.placed.remove(workload);
            return;
        }
        let cores = text(&record["charged"]["cpu"]);
        let millis = match cores.strip_suffix('m') {
            Some(millis) => millis.parse().unwrap_or(0),
            None => cores.parse::<u64>().unwrap_or(0) * 1000,
        };
        let queue = text(&record["queue"]).to_owned();
        let pods = record["tasks"].as_object().into_iter().flatten().filter_map(|(_, pods)| pods.as_u64()).sum();
        self.placed.insert(workload.to_owned(), (queue.clone(), pods, millis));
        let held = self.count_held(&queue);
        let most = self.most.entry(queue.clone()).or_default();
        *most = held.max(*most);
        if held > CORES * 1000 {
            self.faults.push(format!("queue {queue} holds {held} of {} millicores: {workload}", CORES * 1000));
        }
    }

    /// What the pods of a queue hold that have not succeeded. All pods of a job are alike.
    fn count_held(&self, queue: &str) -> u64 {
        let of_queue = self.placed.iter().filter(|(_, (of, ..))| of == queue);
        let held = of_queue.map(|(workload, (_, pods, millis))| {
            let left = pods.saturating_sub(self.succeeded.get(workload).copied().unwrap_or(0));
            millis * left / (*pods).max(1)
        });
        held.sum()
    }
}

/// Waits until no binding, Work or PodGroup is left; what is, at the deadline.
pub async fn wait_until_empty(host: &Client, deadline: Instant) -> anyhow::Result<Vec<String>> {
    let kinds = [
        bindings(),
        api_resource("work.karmada.io", "v1alpha1", "Work", "works"),
        api_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    ];
    loop {
        let mut left = Vec::new();
        for kind in &kinds {
            let all: Api<DynamicObject> = Api::all_with(host.clone(), kind);
            let names = all.list(&ListParams::default()).await?.items.into_iter().filter_map(|one| one.metadata.name);
            // Queues and namespaces go to members too, and stay.
            let names = names
                .filter(|name| ["small-", "wide-", "launcher-", "fat-", "service-"].iter().any(|of| name.contains(of)));
            left.extend(names.map(|name| format!("{} {name} is left", kind.kind)));
        }
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
