//! What Volcano's job controller does with one Job: its PodGroup, its pods, what its plugins make, and its status.
//!
//! Rule: `pkg/controllers/job` (`job_controller_actions.go`, `state/*.go`). Where Volcano acts on events, this acts on
//! what is there: a failed pod stays an event until it is killed, an evicted one until it has a successor, a command
//! until the status shows it. So nothing is lost with a restart, and everything can be decided again.

mod plugins;
mod podgroup;
mod pods;
mod policy;
mod status;
mod volumes;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    facts::Phase,
    object::{deleting, list, namespace, number, text, uid},
    world::{Kind, Want, World, want_delete},
};
pub use podgroup::{pod_usage, podgroup_name};
use policy::Act;
use status::{Change, Counts};
pub use volumes::scramble_text;

/// What to do for a job now, and when to look again without any news.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Writes.
    pub wants: Vec<Want>,
    /// The next time something is due.
    pub at: Option<Timestamp>,
}

/// A job with its pods.
struct View<'a> {
    world: &'a World,
    job: &'a Value,
    pods: Vec<&'a Value>,
    counts: Counts,
    now: Timestamp,
}

/// What to write for `job` now: nothing where the job controller has forgotten it ([`job_cache`](super::job_cache)).
#[must_use]
pub fn sync_job(world: &World, job: &Value, now: Timestamp) -> Plan {
    if deleting(job) || !world.is_job_cached(job) {
        return Plan::default();
    }
    let pods: Vec<&Value> = world.pods_of(uid(job)).collect();
    let counts = Counts::of(world, &pods);
    let view = View { world, job, pods, counts, now };
    let mut plan = match view.phase() {
        "Completed" | "Failed" | "Terminated" => view.finished(),
        "Aborted" => view.aborted(),
        "Aborting" => view.winding_down("Aborted"),
        "Completing" => view.winding_down("Completed"),
        "Terminating" => view.winding_down("Terminated"),
        "Restarting" => view.restarting(),
        _ => view.live(),
    };
    plan.wants.extend(view.unlanded_kills());
    plan
}

/// Whether a Command of this action means anything to a job in this phase (`state/*.go`).
#[must_use]
pub fn accepts_action(phase: &str, action: &str) -> bool {
    match phase {
        "" | "Pending" | "Running" => Act::of_command(action).is_some_and(|act| act != Act::Resume),
        "Aborting" | "Aborted" => action == "ResumeJob",
        _ => false,
    }
}

impl<'a> View<'a> {
    fn phase(&self) -> &'a str {
        match text(self.job, "/status/state/phase") {
            "" => "Pending",
            phase => phase,
        }
    }

    /// `syncJob` in the states Pending and Running.
    fn live(&self) -> Plan {
        let commanded = self.world.action(Kind::VolcanoJob, self.job).and_then(|action| Act::of_command(&action.name));
        if let Some(act) = commanded {
            return Plan { wants: self.leave(&act), at: None };
        }
        let event = policy::due_action(self.world, self.job, &self.pods, self.now);
        if let Some(act) = event.act {
            return Plan { wants: self.leave(&act), at: None };
        }
        Plan { wants: self.sync_job(), at: event.at }
    }

    fn sync_job(&self) -> Vec<Want> {
        // Volcano's job controller does nothing for a job whose queue is not there.
        if self.world.named(Kind::Queue, queue_of(self.job)).is_none() {
            return Vec::new();
        }
        if text(self.job, "/status/state/phase").is_empty() {
            return self.status(&Change::to("Pending")).into_iter().collect();
        }
        let mut wants = Vec::new();
        if self.phase() == "Pending" {
            wants.extend(plugins::missing_objects(self.world, self.job));
            let volumes = volumes::volume_changes(self.world, self.job);
            wants.extend(volumes.wants);
            if volumes.blocked {
                return wants;
            }
        }
        wants.extend(plugins::outdated_objects(self.world, self.job));
        let (group, change) = podgroup::ensure_podgroup(self.world, self.job);
        wants.extend(change);
        let enqueued = group.is_some_and(|group| !matches!(text(group, "/status/phase"), "" | "Pending"));
        if !enqueued {
            wants.extend(
                self.status(&Change { recount: false, ..Change::to(self.next_phase(&Counts::told(self.job))) }),
            );
            return wants;
        }
        // A plugin that fails (ray without its head) fails the whole sync: no pods, no status.
        let Ok(changes) = pods::pod_changes(self.world, self.job, &self.pods) else { return wants };
        wants.extend(changes);
        wants.extend(self.status(&Change::to(self.next_phase(&self.counts))));
        wants
    }

    /// `state/pending.go` and `state/running.go`.
    fn next_phase(&self, counts: &Counts) -> &'static str {
        let job = self.job;
        let minimum = number(job, "/spec/minAvailable");
        if self.phase() == "Pending" {
            let started = counts.running + counts.succeeded + counts.failed;
            return if started >= minimum { "Running" } else { "Pending" };
        }
        let total = total_replicas(job);
        if total == 0 {
            return "Running";
        }
        let min_success = job.pointer("/spec/minSuccess").and_then(Value::as_i64);
        if min_success.is_some_and(|wanted| counts.succeeded >= wanted) {
            return "Completed";
        }
        if counts.succeeded + counts.failed == total {
            let tasks = list(job, "/spec/tasks");
            let minimums: i64 = tasks.iter().map(task_minimum).sum();
            let short = |task: &Value| {
                let own = task.pointer("/minAvailable").and_then(Value::as_i64);
                own.is_some_and(|own| counts.in_task(text(task, "/name"), Phase::Succeeded).is_some_and(|n| n < own))
            };
            let failed =
                (minimum >= minimums && tasks.iter().any(short)) || min_success.is_some() || counts.succeeded < minimum;
            return if failed { "Failed" } else { "Completed" };
        }
        if counts.pending > total - minimum { "Pending" } else { "Running" }
    }

    /// `state/restarting.go`: out of retries it has failed; otherwise a PodGroup of its own, pods again, then Pending.
    fn restarting(&self) -> Plan {
        let most = match number(self.job, "/spec/maxRetry") {
            0 => 3,
            most => most,
        };
        if number(self.job, "/status/retryCount") >= most {
            return Plan { wants: self.status(&Change::to("Failed")).into_iter().collect(), at: None };
        }
        if self.world.named(Kind::Queue, queue_of(self.job)).is_none() {
            return Plan::default();
        }
        let event = policy::due_action(self.world, self.job, &self.pods, self.now);
        if let Some(Act::Target(targets)) = &event.act {
            // The status is written, the pods are not killed yet.
            let wants = self.kill(|pod| targets.contains(&super::object::key(pod)));
            if !wants.is_empty() {
                return Plan { wants, at: None };
            }
        }
        let (group, change) = podgroup::ensure_podgroup(self.world, self.job);
        let mut wants: Vec<Want> = change.into_iter().collect();
        let least = number(self.job, "/status/minAvailable");
        let back = |terminating: i64| total_replicas(self.job) - terminating >= least;
        // An evicted pod is an event until it has a successor: not to count it twice, the job is not Pending before.
        let replaced = self.world.evicted(uid(self.job)).next().is_none();
        let enqueued = group.is_some_and(|group| !matches!(text(group, "/status/phase"), "" | "Pending"));
        if !enqueued {
            if replaced && back(number(self.job, "/status/terminating")) && self.counts.terminating == 0 {
                wants.extend(self.status(&Change { recount: false, ..Change::to("Pending") }));
            }
            return Plan { wants, at: event.at };
        }
        let Ok(changes) = pods::pod_changes(self.world, self.job, &self.pods) else {
            return Plan { wants, at: event.at };
        };
        wants.extend(changes);
        let phase = if back(self.counts.terminating) && replaced { "Pending" } else { "Restarting" };
        wants.extend(self.status(&Change::to(phase)));
        Plan { wants, at: event.at }
    }

    /// `killJob` until no pod is left that could still do something.
    fn winding_down(&self, end: &'static str) -> Plan {
        if let Some(plan) = self.resumed() {
            return plan;
        }
        let mut wants = self.kill(is_unfinished);
        wants.extend(podgroup::delete_podgroup(self.world, self.job));
        if wants.is_empty() && self.counts.pending + self.counts.running + self.counts.terminating == 0 {
            wants.extend(self.status(&Change { killed: true, bump: true, ..Change::to(end) }));
        } else if wants.is_empty() {
            wants.extend(self.status(&Change { killed: true, ..Change::to(self.phase()) }));
        }
        Plan { wants, at: None }
    }

    fn aborted(&self) -> Plan {
        self.resumed().unwrap_or_else(|| {
            let mut wants = self.kill(is_unfinished);
            wants.extend(podgroup::delete_podgroup(self.world, self.job));
            Plan { wants, at: None }
        })
    }

    fn resumed(&self) -> Option<Plan> {
        self.world.action(Kind::VolcanoJob, self.job)?;
        Some(Plan { wants: self.leave(&Act::Resume), at: None })
    }

    /// `state/finished.go`: everything but the finished pods goes; the garbage collector takes the job after its TTL.
    fn finished(&self) -> Plan {
        let mut wants = self.kill(is_unfinished);
        wants.extend(podgroup::delete_podgroup(self.world, self.job));
        if self.job.pointer("/status/runningDuration").is_none() {
            wants.extend(plugins::unwanted_objects(self.job));
            wants.extend(self.status(&Change { killed: true, bump: true, ..Change::to(self.phase()) }));
        } else if wants.is_empty() {
            wants.extend(self.status(&Change { killed: true, ..Change::to(self.phase()) }));
        }
        let at = self.expiry();
        if wants.is_empty() && at.is_some_and(|at| at <= self.now) {
            return Plan { wants: vec![want_delete(Kind::VolcanoJob, self.job)], at: None };
        }
        Plan { wants, at }
    }

    fn expiry(&self) -> Option<Timestamp> {
        let ttl = self.job.pointer("/spec/ttlSecondsAfterFinished").and_then(Value::as_i64)?;
        let ended: Timestamp = text(self.job, "/status/state/lastTransitionTime").parse().ok()?;
        ended.checked_add(SignedDuration::from_secs(ttl)).ok()
    }

    /// `killJob` and `killTarget`: leaves the live phases.
    fn leave(&self, act: &Act) -> Vec<Want> {
        let (phase, retries) = match act {
            Act::Restart | Act::Target(_) | Act::Resume => ("Restarting", true),
            Act::Abort => ("Aborting", false),
            Act::Complete => ("Completing", false),
            Act::Terminate => ("Terminating", false),
        };
        let mut wants = match act {
            Act::Target(targets) => self.kill(|pod| targets.contains(&super::object::key(pod))),
            // What has ended is kept to be looked at, unless the job will run again.
            Act::Restart if !self.is_last_retry() => self.kill(|_| true),
            _ => self.kill(is_unfinished),
        };
        wants.extend(plugins::unwanted_objects(self.job));
        let whole = !matches!(act, Act::Target(_));
        if whole {
            wants.extend(podgroup::delete_podgroup(self.world, self.job));
        }
        let killing = i64::try_from(wants.iter().filter(|want| want.about.0 == Kind::Pod).count()).unwrap_or(i64::MAX);
        let change = Change { killed: true, bump: whole, retries, killing, ..Change::to(phase) };
        wants.extend(self.status(&change));
        wants
    }

    fn is_last_retry(&self) -> bool {
        number(self.job, "/status/retryCount") >= number(self.job, "/spec/maxRetry") - 1
    }

    fn kill(&self, which: impl Fn(&Value) -> bool) -> Vec<Want> {
        let pods = self.pods.iter().filter(|pod| !deleting(pod) && which(pod));
        pods.map(|pod| want_delete(Kind::Pod, pod)).collect()
    }

    /// Kills that did not reach the server.
    fn unlanded_kills(&self) -> Vec<Want> {
        self.kill(|pod| self.world.is_killed(pod) && !self.world.is_in_flight(&(Kind::Pod, super::object::key(pod))))
    }

    fn status(&self, change: &Change) -> Option<Want> {
        status::want_status(self.world, self.job, &self.counts, change, self.now)
    }
}

fn is_unfinished(pod: &Value) -> bool {
    !Phase::of(pod).is_finished()
}

fn queue_of(job: &Value) -> &str {
    match text(job, "/spec/queue") {
        "" => "default",
        queue => queue,
    }
}

fn total_replicas(job: &Value) -> i64 {
    list(job, "/spec/tasks").iter().map(|task| number(task, "/replicas")).sum()
}

fn task_minimum(task: &Value) -> i64 {
    task.pointer("/minAvailable").and_then(Value::as_i64).unwrap_or_else(|| number(task, "/replicas"))
}

fn task_named<'a>(job: &'a Value, name: &str) -> Option<&'a Value> {
    list(job, "/spec/tasks").iter().find(|task| text(task, "/name") == name)
}

fn pod_name(job: &Value, task: &Value, index: i64) -> String {
    format!("{}-{}-{index}", super::object::name(job), text(task, "/name"))
}

fn key_of(job: &Value, name: impl Into<String>) -> super::object::Key {
    (namespace(job).to_owned(), name.into())
}
