//! Our processes: how they start, die and start again, and what users and members do to the world around them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::Request, response::IntoResponse};
use caldera_controller as controller;
use caldera_global_scheduler as scheduler;
use caldera_runtime::{
    client::credentials::ComponentCredentials,
    clock::SharedClock,
    lease::{self, LeaseCandidate, LeaseDuration},
    serve::{Ready, SharedRegistry},
    write::{self, Body, Failure},
};
use caldera_webhook as webhook;
use kube::{Api, Client, core::DynamicObject};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Duration, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    faults::{Faults, Life, Way},
    invariants::Invariants,
    setting::{class, classes, clusters, queue, queues, ready},
    stand_in::{self, NAMESPACE, write_to},
    story::Action,
};

/// Its holder grants.
const LEASE: &str = "caldera-controller";

/// One of our processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    Controller,
    /// Another replica; only in worlds where they need a lease.
    Standby,
    Scheduler,
    Webhook,
}

impl Process {
    pub const ALL: [Self; 4] = [Self::Controller, Self::Standby, Self::Scheduler, Self::Webhook];

    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Standby => "standby",
            Self::Scheduler => "scheduler",
            Self::Webhook => "webhook",
        }
    }
}

/// One life of a process.
pub struct Running {
    pub life: Life,
    pub stop: CancellationToken,
    /// The webhook has none: it is called.
    pub task: Option<JoinHandle<()>>,
}

pub type Answering = Arc<Mutex<Option<(Router, Life)>>>;

pub struct World {
    pub faults: Faults,
    pub way: Way,
    pub user: Client,
    pub clock: SharedClock,
    pub webhook: Answering,
    /// Two replicas of the controller, of which a lease lets one be active.
    pub replicated: bool,
    /// They go on for a while after they gave the lease up, as if they had not noticed.
    pub unfenced: bool,
    pub running: BTreeMap<Process, Running>,
    pub lives: u64,
    pub kills: u64,
}

impl World {
    /// Another life of a process, from nothing.
    pub fn start(&mut self, process: Process) {
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
                let cache = webhook::SharedCache::new(client.clone(), &SharedRegistry::default()).with_clock(clock);
                webhook::fill_cache(&cache, &client, ready.clone(), &stop);
                *self.webhook.lock().unwrap() = Some((webhook::router(cache, ready), life.clone()));
                None
            }
        };
        self.running.insert(process, Running { life, stop, task });
    }

    /// The process dies where it stands.
    pub fn kill(&mut self, process: Process) {
        let Some(Running { life, stop, task }) = self.running.remove(&process) else { return };
        self.kills += 1;
        life.end();
        if let Some(task) = task {
            task.abort();
        }
        stop.cancel();
    }

    pub fn must_live(&self) {
        assert_eq!(self.faults.busy(), None, "requests without end at one instant");
        for (process, running) in &self.running {
            let ended = running.task.as_ref().is_some_and(JoinHandle::is_finished);
            assert!(!ended, "the {} stopped by itself", process.name());
        }
    }

    /// As `vcctl` makes it, for a job that is there.
    async fn restart_command(&self, job: &str, name: &str) -> Option<Value> {
        let jobs = Api::<DynamicObject>::namespaced_with(self.user.clone(), NAMESPACE, &stand_in::jobs());
        let uid = jobs.get(job).await.ok()?.metadata.uid?;
        Some(json!({
            "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "action": "RestartJob",
            "metadata": {"name": name},
            "target": {
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job, "uid": uid, "controller": true,
                "blockOwnerDeletion": true,
            },
        }))
    }

    pub async fn act(&self, action: &Action, invariants: &mut Invariants) -> Result<(), Failure> {
        if self.faults.is_traced {
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
            Action::Restart(job, name) => {
                let Some(command) = self.restart_command(job, name).await else { return Ok(()) };
                write_to(stand_in::commands(), NAMESPACE, name, Body::Create(command))
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
        match write::execute_write(&self.user, &write).await {
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

fn candidate_of(identity: String) -> LeaseCandidate {
    LeaseCandidate {
        namespace: NAMESPACE.into(),
        name: LEASE.into(),
        identity,
        lasts: LeaseDuration::LONGEST,
        credentials: ComponentCredentials::default(),
    }
}

/// A replica of the controller as `caldera controller` runs it: active while it holds the lease, begun anew when lost.
pub async fn while_active(identity: String, client: Client, clock: SharedClock, stop: CancellationToken) {
    let candidate = candidate_of(identity);
    while let Some(held) = lease::acquire_lease(client.clone(), candidate.clone(), clock.clone(), stop.clone()).await {
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

/// The same without a lease that works: it gives it up now and then, so that another takes it, and goes on granting
/// what it has seen until it notices, under the lease that it had.
pub async fn beyond_its_lease(
    identity: String,
    client: Client,
    clock: SharedClock,
    stop: CancellationToken,
    faults: Faults,
) {
    let candidate = candidate_of(identity);
    while let Some(held) = lease::acquire_lease(client.clone(), candidate.clone(), clock.clone(), stop.clone()).await {
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
pub fn switched(current: Answering) -> Router {
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
