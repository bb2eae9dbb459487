//! What must hold after every commit, computed from the objects alone and as naively as possible.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{history::Commit, hostile::is_hostile};

/// Cores of all members together: the root's limit.
const FLEET: u64 = 16;

/// A changed limit is known to everybody by then, in milliseconds.
const LATE: u128 = 120_000;

/// A queue of the simulation: its parent and its capability in cores.
#[derive(Debug, Clone)]
pub struct Limit {
    pub parent: Option<&'static str>,
    pub cores: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Waiting,
    Held,
    Admitted,
    Placed,
}

#[derive(Debug, Default)]
pub struct Invariants {
    limits: BTreeMap<String, Limit>,
    jobs: BTreeMap<String, Value>,
    bindings: BTreeMap<String, Value>,
    /// Versions of bindings that a user wrote.
    pub by_users: BTreeSet<u64>,
    /// Jobs that a user deleted.
    pub deleted: BTreeSet<String>,
    /// What each cluster's share of a binding was, ever: by binding and cluster.
    shares: BTreeMap<(String, String), Vec<Value>>,
    /// Pods in the Works of each binding, by cluster.
    works: BTreeMap<(String, String), u64>,
    pub checked: u64,
    /// Two replicas may grant at once: only what is placed is held against limits.
    placed_only: bool,
    /// Commits at which more was granted than a limit.
    pub over_granted: u64,
    /// The most that each queue ever held.
    pub peaks: BTreeMap<String, u64>,
    /// What each queue holds.
    used: BTreeMap<String, u64>,
    /// Each limit that a queue's object said, and since when.
    said_limits: BTreeMap<String, Vec<(u128, Option<u64>)>>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn json(text: &Value) -> Option<Value> {
    serde_json::from_str(text.as_str()?).ok()
}

fn cores_per_pod(job: &Value) -> BTreeMap<String, u64> {
    let tasks = job["spec"]["tasks"].as_array().unwrap();
    let cores = |task: &Value| {
        text(&task["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]).parse().unwrap()
    };
    tasks.iter().map(|task| (text(&task["name"]).to_owned(), cores(task))).collect()
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
    for field in ["clusters", "schedulerName", "schedulePriority"] {
        spec.remove(field);
    }
    if let Some(suspension) = spec.get_mut("suspension").and_then(Value::as_object_mut) {
        suspension.remove("scheduling");
    }
    // Karmada's detector follows the job.
    spec.remove("replicas");
    spec.remove("replicaRequirements");
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
    pub fn new(limits: BTreeMap<String, Limit>, placed_only: bool) -> Self {
        Self { limits, placed_only, ..Self::default() }
    }

    /// Takes in one commit and checks what it may have broken.
    pub fn observe(&mut self, commit: &Commit) {
        let (server, kind, namespace, name) = &commit.name;
        if server != "host" {
            return;
        }
        self.checked += 1;
        if let ("Queue", queue) = (kind.as_str(), &commit.object) {
            self.follow_limit(commit.millis, name, queue.as_ref());
        }
        if is_hostile(name) {
            return;
        }
        match (kind.as_str(), &commit.object) {
            ("Job", Some(job)) => {
                if let Some(old) = self.jobs.insert(name.clone(), job.clone())
                    && old["metadata"]["uid"] == job["metadata"]["uid"]
                {
                    // A copy in one more cluster is another run, which its user asked for.
                    let copies = self.bindings.get(&format!("{name}-job")).is_some_and(is_duplicated);
                    assert!(copies || !has_ended(&old) || has_ended(job), "{name} ended and runs again: {job}");
                    let by_user = self.by_users.contains(&commit.version);
                    assert!(by_user || old["spec"] == job["spec"], "somebody changed {name}: {job}");
                }
            }
            ("Job", None) => {
                assert!(self.deleted.contains(name), "{name} is lost");
                self.jobs.remove(name);
            }
            ("ResourceBinding", Some(binding)) => {
                let old = self.bindings.insert(name.clone(), binding.clone());
                if let Some(old) = &old {
                    self.no_foreign_suspension_is_lifted(commit, old, binding);
                    let job = self.jobs.get(name.trim_end_matches("-job"));
                    never_placed_twice(name, job, old, binding);
                    no_run_gains_time(name, old, binding);
                    let placed = targets(old).is_empty() && !targets(binding).is_empty();
                    assert!(!placed || !is_suspended(old), "{name} was placed while it was held: {binding}");
                    if !self.by_users.contains(&commit.version) && old["metadata"]["uid"] == binding["metadata"]["uid"]
                    {
                        let (old, new) = (not_ours(old), not_ours(binding));
                        assert_eq!(old, new, "{name}: something that is not ours was changed");
                    }
                }
                for (cluster, share) in plan(binding).iter().flat_map(|plan| plan["clusters"].as_object().unwrap()) {
                    self.shares.entry((name.clone(), cluster.clone())).or_default().push(share.clone());
                }
                self.stage(name);
                self.gang_is_whole(name, old.as_ref(), binding);
            }
            ("ResourceBinding", None) => {
                let job = name.trim_end_matches("-job");
                assert!(!self.jobs.contains_key(job), "{name} is lost, and {job} is there");
                self.bindings.remove(name);
            }
            ("Work", Some(work)) => self.work_is_a_share(name, namespace, work),
            ("Work", None) => drop(self.works.remove(&(name.clone(), namespace.clone()))),
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
        admitted.map(|name| name.trim_end_matches("-job").to_owned()).collect()
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
        let job = &self.jobs[name.trim_end_matches("-job")];
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
        let is_it = |share: &Value| {
            let is_task = |task: &Value| {
                let share = &share["tasks"][text(&task["name"])];
                let is = |field: &str| number(&share[field]) == number(&task[field]);
                is("replicas") && is("minAvailable")
            };
            tasks.iter().all(is_task) && share["minAvailable"] == copy["spec"]["minAvailable"]
        };
        let shares = self.shares.get(&(name.to_owned(), cluster.clone())).map(Vec::as_slice).unwrap_or_default();
        assert!(shares.iter().any(is_it), "{cluster} gets of {name} {copy}, and its shares were {shares:?}");
        let pods = tasks.iter().map(|task| number(&task["replicas"])).sum();
        self.works.insert((name.to_owned(), namespace.to_owned()), pods);
        let Some(job) = self.jobs.get(name.trim_end_matches("-job")) else { return };
        if job["metadata"]["uid"] != work["metadata"]["annotations"]["simulation/uid"] {
            return;
        }
        let all: u64 = job["spec"]["tasks"].as_array().unwrap().iter().map(|task| number(&task["replicas"])).sum();
        let copies = self.bindings.get(name).map_or(1, |binding| if is_duplicated(binding) { 2 } else { 1 });
        let all = all * copies;
        let sent: u64 = self.works.iter().filter(|((of, _), _)| of == name).map(|(_, pods)| pods).sum();
        assert!(sent <= all, "{sent} pods of the {all} of {name} are in the members");
    }

    /// What a binding holds: what was admitted until it is placed, then what is placed; nothing once it ended.
    fn held(&self, name: &str, binding: &Value) -> u64 {
        let Some(record) = record(binding) else { return 0 };
        let Some(job) = self.jobs.get(name.trim_end_matches("-job")) else { return 0 };
        if has_ended(job) {
            return 0;
        }
        let cores = cores_per_pod(job);
        let pods = match json(&binding["metadata"]["annotations"]["caldera.dev/plan"]) {
            Some(plan) if !targets(binding).is_empty() => {
                let mut pods: BTreeMap<String, u64> = BTreeMap::new();
                for share in plan["clusters"].as_object().unwrap().values() {
                    for (task, share) in share["tasks"].as_object().unwrap() {
                        *pods.entry(task.clone()).or_default() += share["replicas"].as_u64().unwrap_or(0);
                    }
                }
                pods
            }
            _ => {
                let tasks = record["tasks"].as_object().unwrap().iter();
                let copies = number(&record["copies"]).max(1);
                tasks.map(|(task, pods)| (task.clone(), copies * pods.as_u64().unwrap())).collect()
            }
        };
        // Pods that are done gave their cores back.
        let done = |task: &str| job["status"]["taskStatusCount"][task]["phase"]["Succeeded"].as_u64().unwrap_or(0);
        pods.iter().map(|(task, pods)| cores[task] * pods.saturating_sub(done(task))).sum()
    }

    /// What the honest may be charged at most, in each queue and in all above it: all that their records grant.
    pub fn granted_by_queue(&self) -> BTreeMap<String, u64> {
        let mut granted = BTreeMap::new();
        for (name, binding) in &self.bindings {
            let job = self.jobs.get(name.trim_end_matches("-job")).filter(|job| !has_ended(job));
            let (Some(record), Some(job)) = (record(binding), job) else { continue };
            let cores = cores_per_pod(job);
            let tasks = record["tasks"].as_object().unwrap().iter();
            let all: u64 = tasks.map(|(task, pods)| cores[task] * number(pods)).sum();
            let all = self.held(name, binding).max(all * number(&record["copies"]).max(1));
            self.path_of(binding).for_each(|queue| *granted.entry(queue).or_default() += all);
        }
        granted
    }

    /// The queue of a record, and those above it.
    fn path_of(&self, binding: &Value) -> impl Iterator<Item = String> {
        let queue = record(binding).map(|record| text(&record["queue"]).to_owned());
        std::iter::successors(queue, |at| self.limits.get(at)?.parent.map(ToOwned::to_owned))
    }

    /// A queue admin may change a limit.
    fn follow_limit(&mut self, now: u128, name: &str, queue: Option<&Value>) {
        let Some(limit) = self.limits.get(name) else { return };
        let said = queue.and_then(|queue| text(&queue["spec"]["capability"]["cpu"]).parse().ok());
        let all = self.said_limits.entry(name.to_owned()).or_insert_with(|| vec![(0, limit.cores)]);
        if all.last().is_some_and(|(_, last)| *last != said) {
            all.push((now, said));
        }
    }

    /// The most that a queue may have: of all that its object said within [`LATE`].
    fn limit_of(&self, name: &str, now: u128) -> Option<u64> {
        let Some(said) = self.said_limits.get(name) else { return self.limits.get(name)?.cores };
        let ends = said.iter().skip(1).map(|(from, _)| *from).chain([now]);
        let counts = said.iter().zip(ends).filter(|(_, end)| end + LATE >= now).map(|((_, limit), _)| *limit);
        counts.collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    fn no_queue_is_over(&mut self, now: u128) {
        let (mut used, mut fleet) = (BTreeMap::<String, u64>::new(), 0);
        let mut granted = BTreeMap::<String, u64>::new();
        for (name, binding) in &self.bindings {
            let mut held = self.held(name, binding);
            if self.placed_only && targets(binding).is_empty() {
                if let Some(record) = record(binding) {
                    *granted.entry(text(&record["queue"]).to_owned()).or_default() += held;
                }
                held = 0;
            }
            fleet += held;
            self.path_of(binding).for_each(|queue| *used.entry(queue).or_default() += held);
        }
        assert!(fleet <= FLEET, "{fleet} cores are held, and the fleet has {FLEET}");
        for (queue, granted) in granted {
            let sum = granted + used.get(&queue).copied().unwrap_or(0);
            let limit = self.limit_of(&queue, now);
            self.over_granted += u64::from(limit.is_some_and(|limit| sum > limit));
        }
        for (queue, used) in used {
            let peak = self.peaks.entry(queue.clone()).or_default();
            *peak = used.max(*peak);
            let before = self.used.insert(queue.clone(), used).unwrap_or(0);
            if let Some(limit) = self.limit_of(&queue, now) {
                // What it had before its limit was lowered stays.
                let is_lowered = self.said_limits.get(&queue).is_some_and(|said| said.len() > 1);
                let most = if is_lowered { limit.max(before) } else { limit };
                assert!(used <= most, "queue {queue} holds {used} of {limit} cores");
            }
        }
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
    let of_job =
        job.map(|job| job["spec"]["tasks"].as_array().unwrap().iter().map(|task| number(&task["replicas"])).sum());
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
