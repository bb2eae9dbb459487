//! What must hold after every commit, computed from the objects alone and as naively as possible.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    history::Commit,
    hostile::is_hostile,
    workloads::{self, Amount, Ceiling, is_service, list_tasks, name_workload, read_binding},
};

mod quota;
mod services;

/// What changed is known to everybody by then, in milliseconds: a limit, or what was granted.
const LATE: u128 = 120_000;

/// A queue of the simulation: its parent and its capability.
#[derive(Debug, Clone)]
pub struct Limit {
    pub parent: Option<&'static str>,
    pub most: Ceiling,
}

/// The parent of each queue that has one.
type Tree = BTreeMap<String, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Waiting,
    Held,
    Admitted,
    Placed,
}

#[derive(Debug, Clone, Default)]
pub struct Invariants {
    limits: BTreeMap<String, Limit>,
    /// What all members have together: the root's limit.
    fleet: Amount,
    /// Deployments too.
    jobs: BTreeMap<String, Value>,
    bindings: BTreeMap<String, Value>,
    /// Versions of bindings that a user wrote.
    pub by_users: BTreeSet<u64>,
    /// Jobs that a user deleted.
    pub deleted: BTreeSet<String>,
    /// What each cluster's share of a binding was, ever: by binding and cluster.
    shares: BTreeMap<(String, String), Vec<Value>>,
    /// Pods in each Work, by its name and namespace.
    works: BTreeMap<(String, String), u64>,
    pub checked: u64,
    /// Two replicas may grant at once: only what is placed is held against limits.
    placed_only: bool,
    /// Works say whether they were applied: one that never was and is deleted comes to nothing.
    pub says_applied: bool,
    /// Commits at which more was granted than a limit.
    pub over_granted: u64,
    /// The most cores that each queue ever held.
    pub peaks: BTreeMap<String, u64>,
    /// What jobs of each queue hold.
    held: BTreeMap<String, Amount>,
    /// Each tree of queues that there was, and since when.
    trees: Vec<(u128, Tree)>,
    /// Queues that are not open, and since when.
    closed: BTreeMap<String, u128>,
    /// Each limit that a queue's object said, and since when.
    said_limits: BTreeMap<String, Vec<(u128, Ceiling)>>,
    /// What the Works of each Deployment ask for, by their names and namespaces.
    sent: BTreeMap<(String, String), Amount>,
    /// What each Deployment was charged, since when.
    charges: BTreeMap<String, Vec<(u128, Amount)>>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn json(text: &Value) -> Option<Value> {
    serde_json::from_str(text.as_str()?).ok()
}

fn is_suspended(binding: &Value) -> bool {
    binding["spec"]["suspension"]["scheduling"] == true
}

fn gate(binding: &Value) -> &str {
    text(&binding["metadata"]["annotations"]["caldera.dev/gate"])
}

pub fn record(binding: &Value) -> Option<Value> {
    json(&binding["metadata"]["annotations"]["caldera.dev/admission"])
}

fn plan(binding: &Value) -> Option<Value> {
    json(&binding["metadata"]["annotations"]["caldera.dev/plan"])
}

/// All of a binding that none of our parts (nor the stand-in's policy) may touch.
fn not_ours(binding: &Value) -> Value {
    let mut rest = binding.clone();
    rest.as_object_mut().unwrap().remove("status");
    let metadata = rest["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        let ours = |name: &str| name.starts_with("caldera.dev/") || name == "policy.karmada.io/applied-placement";
        annotations.retain(|name, _| !ours(name));
    }
    metadata.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    let spec = rest["spec"].as_object_mut().unwrap();
    for field in ["clusters", "schedulerName", "schedulePriority", "gracefulEvictionTasks"] {
        spec.remove(field);
    }
    if let Some(suspension) = spec.get_mut("suspension").and_then(Value::as_object_mut) {
        suspension.remove("scheduling");
        // So that Karmada looks again.
        suspension.remove("dispatching");
    }
    // Karmada's detector follows the job.
    spec.remove("replicas");
    spec.remove("replicaRequirements");
    // So that Karmada aggregates.
    spec["resource"].as_object_mut().unwrap().remove("resourceVersion");
    spec.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    rest
}

fn targets(binding: &Value) -> BTreeMap<String, u64> {
    let targets = binding["spec"]["clusters"].as_array().into_iter().flatten();
    targets.map(|target| (text(&target["name"]).to_owned(), target["replicas"].as_u64().unwrap_or(0))).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn is_duplicated(binding: &Value) -> bool {
    binding["spec"]["placement"]["replicaScheduling"]["replicaSchedulingType"] == "Duplicated"
}

pub fn has_ended(job: &Value) -> bool {
    let state = &job["status"]["state"];
    // One that its user suspended goes on once it is resumed.
    matches!(text(&state["phase"]), "Completed" | "Failed" | "Terminated" | "Aborted")
        && state["reason"] != "SuspendedByUser"
}

impl Invariants {
    pub fn new(limits: BTreeMap<String, Limit>, fleet: Amount, placed_only: bool) -> Self {
        let parent_of = |(name, limit): (&String, &Limit)| Some((name.clone(), limit.parent?.to_owned()));
        let trees = vec![(0, limits.iter().filter_map(parent_of).collect())];
        Self { limits, fleet, placed_only, trees, ..Self::default() }
    }

    /// All that there was is there again, and what came since is gone.
    pub fn go_back(&mut self, past: Self) {
        let (checked, over_granted) = (self.checked, self.over_granted);
        *self = Self { checked, over_granted, ..past };
    }

    /// Takes in one commit and checks what it may have broken.
    pub fn observe(&mut self, commit: &Commit) {
        let (server, kind, namespace, name) = &commit.name;
        if server != "host" {
            return;
        }
        self.checked += 1;
        if let ("Queue", queue) = (kind.as_str(), &commit.object) {
            self.follow_queue(commit.millis, name, queue.as_ref());
        }
        if is_hostile(name) {
            return;
        }
        match (kind.as_str(), &commit.object) {
            ("Job" | "Deployment", Some(job)) => {
                if let Some(old) = self.jobs.insert(name.clone(), job.clone())
                    && old["metadata"]["uid"] == job["metadata"]["uid"]
                {
                    // A copy in one more cluster is another run, which its user asked for.
                    let copies = self.bindings.get(&workloads::name_binding(job)).is_some_and(is_duplicated);
                    assert!(copies || !has_ended(&old) || has_ended(job), "{name} ended and runs again: {job}");
                    let by_user = self.by_users.contains(&commit.version);
                    assert!(by_user || old["spec"] == job["spec"], "somebody changed {name}: {job}");
                }
            }
            ("Job" | "Deployment", None) => {
                assert!(self.deleted.contains(name), "{name} is lost");
                self.jobs.remove(name);
            }
            ("ResourceBinding", Some(binding)) => {
                let old = self.bindings.insert(name.clone(), binding.clone());
                if let Some(old) = &old {
                    self.no_foreign_suspension_is_lifted(commit, old, binding);
                    let job = self.jobs.get(name_workload(name));
                    never_placed_twice(name, job, old, binding);
                    no_run_gains_time(name, old, binding);
                    let placed = targets(old).is_empty() && !targets(binding).is_empty();
                    assert!(!placed || !is_suspended(old), "{name} was placed while it was held: {binding}");
                    if !self.by_users.contains(&commit.version) && old["metadata"]["uid"] == binding["metadata"]["uid"]
                    {
                        let version = |of: &Value| of["spec"]["resource"]["resourceVersion"].clone();
                        let (was, is) = (version(old), version(binding));
                        assert!(was == is || is.is_null() || is == "0", "{name}: its workload's version is {is}");
                        let (old, new) = (not_ours(old), not_ours(binding));
                        assert_eq!(old, new, "{name}: something that is not ours was changed");
                    }
                }
                for (cluster, share) in plan(binding).iter().flat_map(|plan| plan["clusters"].as_object().unwrap()) {
                    self.shares.entry((name.clone(), cluster.clone())).or_default().push(share.clone());
                }
                self.stage(name);
                self.no_closed_queue_admits(commit.millis, name, old.as_ref(), binding);
                if name.ends_with("-deployment") {
                    self.service_is_within_its_record(commit.millis, name, old.as_ref(), binding);
                } else {
                    self.gang_is_whole(name, old.as_ref(), binding);
                }
            }
            ("ResourceBinding", None) => {
                let job = name_workload(name);
                assert!(!self.jobs.contains_key(job), "{name} is lost, and {job} is there");
                self.bindings.remove(name);
            }
            ("Work", Some(work)) if is_service(&work["spec"]["workload"]["manifests"][0]) => {
                self.copy_was_charged(commit.millis, name, namespace, work);
            }
            ("Work", Some(work)) => self.work_is_a_share(name, namespace, work),
            ("Work", None) => {
                self.works.remove(&(name.clone(), namespace.clone()));
                self.sent.remove(&(name.clone(), namespace.clone()));
            }
            _ => return,
        }
        self.no_queue_is_over(commit.millis);
    }

    /// Each is waiting, held by a user, admitted, or placed: nothing else, nothing in between.
    pub fn stage(&self, name: &str) -> Stage {
        let binding = &self.bindings[name];
        let placed = !targets(binding).is_empty();
        match (record(binding).is_some(), placed, is_suspended(binding), gate(binding)) {
            (false, false, true, "closed") => Stage::Waiting,
            (_, false, true, _) => Stage::Held,
            (true, false, false, "open") => Stage::Admitted,
            (true, true, _, "open") => Stage::Placed,
            _ => panic!("{name} is neither waiting, held, admitted nor placed: {binding}"),
        }
    }

    /// Jobs that are admitted and not placed.
    pub fn admitted(&self) -> Vec<String> {
        let admitted = self.bindings.keys().filter(|name| self.stage(name) == Stage::Admitted);
        admitted.map(|name| name_workload(name).to_owned()).collect()
    }

    fn no_foreign_suspension_is_lifted(&self, commit: &Commit, old: &Value, new: &Value) {
        let by_user = self.by_users.contains(&commit.version);
        if is_suspended(old) && gate(old) != "closed" && !by_user {
            assert!(is_suspended(new), "a user's suspension was lifted: {old} became {new}");
        }
    }

    fn gang_is_whole(&self, name: &str, old: Option<&Value>, binding: &Value) {
        let targets = targets(binding);
        if targets.is_empty() {
            return;
        }
        // Of a job that was deleted, nothing is left to hold the plan against; its binding follows it.
        let Some(job) = self.jobs.get(name_workload(name)) else { return };
        let annotations = &binding["metadata"]["annotations"];
        let plan = json(&annotations["caldera.dev/plan"]).unwrap_or_else(|| panic!("{name} has no plan: {binding}"));
        let record = record(binding).unwrap();
        let shares = plan["clusters"].as_object().unwrap();
        // Of a duplicated job each copy is a gang of its own.
        let copies = if is_duplicated(binding) { u64::try_from(shares.len()).unwrap() } else { 1 };
        if copies > 1 {
            // Who asks for copies of what was divided changes nothing of what is placed.
            if old.and_then(self::plan).as_ref() == Some(&plan) {
                return;
            }
            assert!(copies <= number(&record["copies"]), "{name}: more copies than granted: {plan}, {record}");
            return;
        }
        let of_share =
            |share: &Value| share["tasks"].as_object().unwrap().values().map(|t| number(&t["replicas"])).sum();
        let by_plan: BTreeMap<String, u64> =
            shares.iter().map(|(name, share)| (name.clone(), of_share(share))).collect();
        assert_eq!(by_plan, targets, "{name}: the plan and the clusters differ");
        let mut all = 0;
        for task in job["spec"]["tasks"].as_array().unwrap() {
            let task_name = text(&task["name"]);
            let sum = |field: &str| shares.values().map(|share| number(&share["tasks"][task_name][field])).sum::<u64>();
            let (replicas, minimum) = (sum("replicas"), sum("minAvailable"));
            assert!(replicas >= number(&task["minAvailable"]), "{name}: task {task_name} is below its minimum: {plan}");
            // A record that was cut is there before the scheduler cuts what is placed.
            let before = old.and_then(self::plan).map_or(0, |plan| {
                let shares = plan["clusters"].as_object().unwrap().values();
                shares.map(|share| number(&share["tasks"][task_name]["replicas"])).sum()
            });
            let most = number(&record["tasks"][task_name]).max(before);
            assert!(replicas <= most, "{name} is over its record: {plan}, {record}");
            assert_eq!(minimum, number(&task["minAvailable"]), "{name}: minimum of task {task_name}: {plan}");
            all += replicas;
        }
        let needed = number(&job["spec"]["minAvailable"]);
        assert!(all >= needed, "{name}: {all} of a gang of {needed} are placed: {plan}");
        let minimum: u64 = shares.values().map(|share| number(&share["minAvailable"])).sum();
        // A part's minimum is at least one, since Volcano takes zero for "all".
        let all = needed..needed + u64::try_from(shares.len()).unwrap();
        assert!(all.contains(&minimum), "{name}: the minimums do not add up to {needed}: {plan}");
    }

    /// A member gets what the plan says, and all members together no more than the job.
    fn work_is_a_share(&mut self, name: &str, namespace: &str, work: &Value) {
        let cluster = namespace.trim_start_matches("karmada-es-").to_owned();
        let copy = &work["spec"]["workload"]["manifests"][0];
        let tasks = copy["spec"]["tasks"].as_array().unwrap();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let binding = read_binding(work);
        let is_it = |share: &Value| {
            let is_task = |task: &Value| {
                let share = &share["tasks"][text(&task["name"])];
                let is = |field: &str| number(&share[field]) == number(&task[field]);
                is("replicas") && is("minAvailable")
            };
            tasks.iter().all(is_task) && share["minAvailable"] == copy["spec"]["minAvailable"]
        };
        let shares = self.shares.get(&(binding.to_owned(), cluster.clone())).map(Vec::as_slice).unwrap_or_default();
        assert!(shares.iter().any(is_it), "{cluster} gets of {name} {copy}, and its shares were {shares:?}");
        let is_applied = work["status"]["conditions"].is_array() || !self.says_applied;
        let pods = if is_applied { tasks.iter().map(|task| number(&task["replicas"])).sum() } else { 0 };
        self.works.insert((name.to_owned(), namespace.to_owned()), pods);
        let Some(job) = self.jobs.get(name_workload(binding)) else { return };
        if job["metadata"]["uid"] != work["metadata"]["annotations"]["simulation/uid"] {
            return;
        }
        let all: u64 = job["spec"]["tasks"].as_array().unwrap().iter().map(|task| number(&task["replicas"])).sum();
        let copies = self.bindings.get(binding).map_or(1, |binding| if is_duplicated(binding) { 2 } else { 1 });
        let all = all * copies;
        let sent: u64 = self.works.iter().filter(|((of, _), _)| of == name).map(|(_, pods)| pods).sum();
        assert!(sent <= all, "{sent} pods of the {all} of {name} are in the members");
    }

    pub fn jobs(&self) -> &BTreeMap<String, Value> {
        &self.jobs
    }

    pub fn bindings(&self) -> &BTreeMap<String, Value> {
        &self.bindings
    }
}

/// What is in clusters keeps the limit of its run, is ended by that not before, and does not start again.
fn no_run_gains_time(name: &str, old: &Value, new: &Value) {
    if old["metadata"]["uid"] != new["metadata"]["uid"] {
        return;
    }
    let run = |binding: &Value| record(binding).map(|record| record["run"].clone());
    if let (Some(before), Some(after), false) = (run(old), run(new), targets(old).is_empty()) {
        assert_eq!(before, after, "{name}: its run has another limit: {old} became {new}");
    }
    let eviction = |binding: &Value| json(&binding["metadata"]["annotations"]["caldera.dev/eviction"]);
    let Some(ended) = eviction(new).filter(|record| record["reason"] == "RunTimeExceeded") else { return };
    if eviction(old).as_ref() != Some(&ended) {
        let run = run(old).unwrap_or_default();
        let end = run["from"].as_i64().unwrap() + run["seconds"].as_i64().unwrap();
        assert!(ended["at"].as_i64().unwrap() >= end, "{name} was ended before its time: {old} became {new}");
    }
    let is_out = targets(new).is_empty() && record(new).is_none() && gate(new) == "closed";
    assert!(is_out || ended["preemptor"] != new["spec"]["resource"]["uid"], "{name} starts again: {new}");
}

/// No member is left here, so that what was placed only ever grows, unless all of it is taken away for somebody else.
fn never_placed_twice(name: &str, job: Option<&Value>, old: &Value, new: &Value) {
    if old["metadata"]["uid"] != new["metadata"]["uid"] {
        return;
    }
    let (before, after) = (targets(old), targets(new));
    let eviction = |binding: &Value| binding["metadata"]["annotations"]["caldera.dev/eviction"].clone();
    if !eviction(new).is_null() && eviction(old) != eviction(new) && after.is_empty() {
        let kept = (record(new), plan(new), is_suspended(new), gate(new));
        assert_eq!(kept, (None, None, true, "closed"), "{name} gave way and keeps something: {new}");
        return;
    }
    let granted = |binding: &Value| -> Option<u64> {
        Some(record(binding)?["tasks"].as_object()?.values().filter_map(Value::as_u64).sum())
    };
    // Surplus was taken, or its user wants less: what is placed beyond the smaller of both is cut.
    let (held, kept) = (before.values().sum::<u64>(), after.values().sum::<u64>());
    // The scheduler sees the job as soon as Karmada does.
    let of_job = job.map(|job| list_tasks(job).iter().map(|task| task.replicas).sum());
    let wanted = new["spec"]["replicas"].as_u64().into_iter().chain(of_job).min().filter(|_| !is_duplicated(new));
    let wanted = wanted.unwrap_or(u64::MAX);
    let most = granted(new).unwrap_or(u64::MAX).min(wanted);
    // Its user asks for whole copies of what was split: it can not stay as it was.
    let was_split = before.len() > 1 && new["spec"]["replicas"].as_u64().is_some_and(|replicas| held <= replicas);
    if is_duplicated(new) && was_split {
        return;
    }
    if held > most {
        assert!(kept >= most, "{name} was placed on {before:?}, of which {most} stay its own, and has {after:?}");
        return;
    }
    for (cluster, replicas) in &before {
        let now = after.get(cluster).copied().unwrap_or(0);
        assert!(now >= *replicas, "{name} was placed on {before:?} and is placed anew on {after:?}");
    }
    assert!(record(old).is_none() || record(new).is_some(), "{name} lost its admission: {old} became {new}");
}
