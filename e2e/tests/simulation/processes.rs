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
    clock::{Clock, SharedClock, format_time},
    lease::{self, HeldLease, LeaseCandidate, LeaseDuration},
    serve::{Ready, SharedRegistry},
    write::{self, Body, Failure},
};
use caldera_webhook as webhook;
use jiff::SignedDuration;
use kube::{Api, Client, api::ListParams, core::DynamicObject};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Duration, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    actors::{Actor, Actors},
    counted_clock::{CountedClock, SkewedClock},
    faults::{Faults, Life, Way},
    invariants::Invariants,
    setting::{GUEST, class, classes, clusters, queue, queues, ready, ready_since},
    stand_in::{self, NAMESPACE, write_to},
    story::{Action, actors::service_template},
    workloads::{deployments, is_service},
};

/// Its holder grants.
const LEASE: &str = "caldera-controller";
/// Its holder places.
const PLACER_LEASE: &str = "caldera-scheduler";

/// One of our processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    Controller,
    /// Another replica; only in worlds where they need a lease.
    Standby,
    Scheduler,
    Webhook,
    /// Another replica of the scheduler, where there are two.
    StandbyScheduler,
}

impl Process {
    pub const ALL: [Self; 5] =
        [Self::Controller, Self::Standby, Self::Scheduler, Self::Webhook, Self::StandbyScheduler];

    /// Those of a world.
    pub fn list(actors: &Actors) -> Vec<Self> {
        let is_there = |process: &Self| *process != Self::StandbyScheduler || actors.has(Actor::Schedulers);
        Self::ALL.into_iter().filter(is_there).collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Standby => "standby",
            Self::Scheduler => "scheduler",
            Self::Webhook => "webhook",
            Self::StandbyScheduler => "standby scheduler",
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
    pub actors: Actors,
    pub faults: Faults,
    pub way: Way,
    pub user: Client,
    pub clock: Arc<CountedClock>,
    /// By how many milliseconds each process' clock is wrong.
    pub skews: BTreeMap<Process, i64>,
    pub webhook: Answering,
    /// Two replicas of the controller, of which a lease lets one be active.
    pub replicated: bool,
    /// They go on for a while after they gave the lease up, as if they had not noticed.
    pub unfenced: bool,
    /// So do those of the scheduler.
    pub overlapping_schedulers: bool,
    pub running: BTreeMap<Process, Running>,
    /// What Karmada said last of each member, if it said anything.
    pub conditions: BTreeMap<&'static str, Value>,
    pub lives: u64,
    pub kills: u64,
}

impl World {
    /// Another life of a process, from nothing.
    pub fn start(&mut self, process: Process) {
        if process == Process::Standby && !self.replicated || !Process::list(&self.actors).contains(&process) {
            return;
        }
        self.lives += 1;
        let (stop, life) = (CancellationToken::new(), Life::default());
        let client = self.way.client(process.name(), life.clone());
        let by = SignedDuration::from_millis(self.skews.get(&process).copied().unwrap_or(0));
        let clock: SharedClock = Arc::new(SkewedClock { clock: self.clock.clone(), by });
        let identity = format!("{}-{}", process.name().replace(' ', "-"), self.lives);
        let overlaps = |yes: bool| yes.then(|| self.faults.clone());
        let task = match process {
            Process::Controller | Process::Standby if self.replicated => {
                let replica = Replica { lease: LEASE, identity, client, clock, stop: stop.clone() };
                Some(tokio::spawn(replica.run(overlaps(self.unfenced))))
            }
            Process::Scheduler | Process::StandbyScheduler if self.actors.has(Actor::Schedulers) => {
                let replica = Replica { lease: PLACER_LEASE, identity, client, clock, stop: stop.clone() };
                Some(tokio::spawn(replica.run(overlaps(self.overlapping_schedulers))))
            }
            Process::Controller | Process::Standby => {
                let config = controller::Config { clock, ..controller::Config::default() };
                let task = controller::run(config, client, stop.clone());
                Some(tokio::spawn(async move { task.await.expect("the controller stopped by itself") }))
            }
            Process::Scheduler | Process::StandbyScheduler => {
                let task = scheduler::run(placer_config(clock), client, stop.clone());
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

    /// What Karmada says of a member.
    fn say_of_cluster(&mut self, cluster: &'static str, condition: Value) -> write::Write {
        let body = Body::MergePatch(json!({"status": {"conditions": [condition]}}));
        self.conditions.insert(cluster, condition);
        write::Write { subresource: Some("status"), ..write_to(clusters(), "", cluster, body) }
    }

    /// As `caldera queue` makes it, for a queue that is there. One that must be open in the end needs none once it is,
    /// and each other one is carried out.
    async fn queue_command(&self, queue: &str, open: bool, must: bool) -> Result<Option<Value>, Failure> {
        let commands = Api::<DynamicObject>::namespaced_with(self.user.clone(), NAMESPACE, &stand_in::commands());
        let of_queues = Api::<DynamicObject>::all_with(self.user.clone(), &queues());
        let Ok(known) = of_queues.get(queue).await else {
            return if must { Err(Failure::Gone(queue.to_owned())) } else { Ok(None) };
        };
        let all = commands.list(&ListParams::default()).await.map_err(|error| Failure::Transient(error.to_string()))?;
        let waits = all.iter().any(|command| command.data["target"]["name"] == queue);
        if must && waits {
            return Err(Failure::Transient(format!("a Command for {queue} is not carried out yet")));
        }
        if must && known.data["status"]["state"] == "Open" {
            return Ok(None);
        }
        let action = if open { "OpenQueue" } else { "CloseQueue" };
        let name = format!("{queue}-{}-{}", action.to_lowercase(), self.clock.now().as_millisecond());
        Ok(Some(json!({
            "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "action": action, "metadata": {"name": name},
            "target": {
                "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": queue,
                "uid": known.metadata.uid, "controller": true,
            },
        })))
    }

    pub async fn act(&mut self, action: &Action, invariants: &mut Invariants) -> Result<(), Failure> {
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
                let of = if is_service(job) { deployments() } else { stand_in::jobs() };
                write_to(of, NAMESPACE, name, Body::Create(job.clone()))
            }
            Action::Delete(name) => {
                invariants.deleted.insert(name.clone());
                let is_deployed = invariants.jobs().get(name).is_some_and(is_service);
                let of = if is_deployed { deployments() } else { stand_in::jobs() };
                write_to(of, NAMESPACE, name, Body::Delete { uid: None })
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
            Action::Cut(member, yes) => {
                self.faults.cut(member, *yes);
                return Ok(());
            }
            Action::Lost(cluster, yes) => {
                let ready = ready_since(!yes, &format_time(self.clock.now()));
                self.say_of_cluster(cluster, ready)
            }
            Action::Ready(cluster, yes) => self.say_of_cluster(cluster, ready(*yes)),
            Action::Suspend(name) => binding(name, true),
            Action::Resume(name) => binding(name, false),
            Action::Scale(name, replicas) => {
                let patch = json!([{"op": "replace", "path": "/spec/tasks/0/replicas", "value": replicas}]);
                write_to(stand_in::jobs(), NAMESPACE, name, Body::JsonPatch(patch))
            }
            Action::Reshape(name, replicas, cores) => {
                let template = service_template(name, *cores);
                let patch = json!({"spec": {"replicas": replicas, "template": template}});
                write_to(deployments(), NAMESPACE, name, Body::MergePatch(patch))
            }
            Action::Duplicate(name) => {
                let scheduling = json!({"replicaSchedulingType": "Duplicated", "replicaDivisionPreference": null});
                let patch = json!({"spec": {"placement": {"replicaScheduling": scheduling}}});
                write_to(stand_in::bindings(), NAMESPACE, &format!("{name}-job"), Body::MergePatch(patch))
            }
            Action::Retune(queue, spec) => write_to(queues(), "", queue, Body::MergePatch(json!({"spec": spec}))),
            Action::Limit { queue, spec, .. } => write_to(queues(), "", queue, Body::MergePatch(json!({"spec": spec}))),
            Action::Branch(name, true) => write_to(queues(), "", name, Body::Create(queue(name, &self.actors))),
            Action::Branch(name, false) => write_to(queues(), "", name, Body::Delete { uid: None }),
            Action::Turn { queue, open, must } => match self.queue_command(queue, *open, *must).await? {
                Some(command) => {
                    let name = command["metadata"]["name"].as_str().unwrap().to_owned();
                    write_to(stand_in::commands(), NAMESPACE, &name, Body::Create(command))
                }
                None => return Ok(()),
            },
            // Its copies could not be looked at.
            Action::Restore if !self.faults.list_cut().is_empty() => {
                return Err(Failure::Transient("a member is cut off".to_owned()));
            }
            Action::BackUp | Action::Restore => return Ok(()),
            Action::Queue(name, true) => write_to(queues(), "", name, Body::Create(queue(name, &self.actors))),
            Action::Queue(name, false) => write_to(queues(), "", name, Body::Delete { uid: None }),
            Action::Class(name, true) => write_to(classes(), "", name, Body::Create(class(name))),
            Action::Class(name, false) => write_to(classes(), "", name, Body::Delete { uid: None }),
        };
        match write::execute_write(&self.user, &write).await {
            // It is not deleted yet, for it was not empty yet.
            Err(failure) if matches!(action, Action::Queue(GUEST, _)) => Err(failure),
            Err(Failure::Refused { .. } | Failure::Gone(_))
                if matches!(action, Action::Limit { must: false, .. } | Action::Branch(_, false)) =>
            {
                Ok(())
            }
            // Its parent is not there yet.
            Err(failure @ Failure::Refused { .. }) if matches!(action, Action::Branch(_, true)) => Err(failure),
            // It is looked at again.
            Ok(_) if matches!(action, Action::Turn { must: true, .. }) => {
                Err(Failure::Transient("the queue is not open yet".to_owned()))
            }
            Err(failure) if matches!(action, Action::Limit { must: true, .. }) => Err(failure),
            Err(Failure::Exists(_)) => Ok(()),
            Err(failure @ Failure::Refused { .. }) => panic!("{failure}"),
            Ok(object)
                if matches!(
                    action,
                    Action::Suspend(_)
                        | Action::Resume(_)
                        | Action::Edit(_)
                        | Action::Scale(..)
                        | Action::Reshape(..)
                        | Action::Duplicate(_)
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

fn placer_config(clock: SharedClock) -> scheduler::Config {
    let grants = Some((NAMESPACE.to_owned(), LEASE.to_owned()));
    scheduler::Config { clock, grants, ..scheduler::Config::default() }
}

/// One replica of the controller or of the scheduler.
#[derive(Clone)]
struct Replica {
    lease: &'static str,
    identity: String,
    client: Client,
    clock: SharedClock,
    stop: CancellationToken,
}

impl Replica {
    /// As `caldera` runs it: active while it holds the lease, begun anew when it is lost. Where it overlaps the next
    /// holder it has no lease that works: it gives it up now and then, so that another takes it, and goes on with what
    /// it has seen until it notices, under the lease that it had.
    async fn run(self, overlaps: Option<Faults>) {
        while let Some(held) = self.acquire().await {
            let active = self.stop.child_token();
            let work = self.clone().work(held.epoch.clone(), active.clone());
            if let Some(faults) = &overlaps {
                let running = tokio::spawn(work);
                overlap(held, faults).await;
                active.cancel();
                running.await.unwrap();
            } else {
                let lost = held.lost.clone();
                tokio::spawn(async move {
                    lost.cancelled().await;
                    active.cancel();
                });
                work.await;
            }
        }
    }

    async fn acquire(&self) -> Option<HeldLease> {
        let candidate = LeaseCandidate {
            namespace: NAMESPACE.into(),
            name: self.lease.into(),
            identity: self.identity.clone(),
            lasts: LeaseDuration::LONGEST,
            credentials: ComponentCredentials::default(),
        };
        lease::acquire_lease(self.client.clone(), candidate, self.clock.clone(), self.stop.clone()).await
    }

    async fn work(self, epoch: String, active: CancellationToken) {
        let Self { lease, client, clock, .. } = self;
        if lease == LEASE {
            let config = controller::Config { clock, epoch: Some(epoch), ..controller::Config::default() };
            controller::run(config, client, active).await.expect("the controller stopped by itself");
        } else {
            scheduler::run(placer_config(clock), client, active).await.expect("the scheduler stopped by itself");
        }
    }
}

/// Until it notices that it has no lease any more.
async fn overlap(held: HeldLease, faults: &Faults) {
    while faults.is_on() && !faults.between(0, 20).is_multiple_of(20) {
        sleep(Duration::from_secs(1)).await;
    }
    if faults.is_on() {
        drop(held);
        sleep(Duration::from_millis(faults.between(1_000, 40_000))).await;
    } else {
        held.lost.cancelled().await;
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
