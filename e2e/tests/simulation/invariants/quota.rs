//! No queue holds more than its limit, and all of them together no more than the fleet has.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Invariants, LATE, Tree, has_ended, json, number, record, targets, text};
use crate::workloads::{self, Amount, Ceiling, RESOURCES, fits, is_service, list_tasks, name_workload, times};

/// What one pod of each task asks for.
fn list_requests(job: &Value) -> BTreeMap<String, Amount> {
    list_tasks(job).into_iter().map(|task| (task.name, task.each)).collect()
}

fn is_within(held: Amount, most: Ceiling) -> bool {
    held.iter().zip(most).all(|(held, most)| most.is_none_or(|most| *held <= most))
}

impl Invariants {
    /// What a binding holds: what was admitted until it is placed, then what is placed; nothing once it ended.
    pub(super) fn held(&self, name: &str, binding: &Value) -> Amount {
        let Some(record) = record(binding) else { return Amount::default() };
        let Some(job) = self.jobs.get(name_workload(name)) else { return Amount::default() };
        if has_ended(job) {
            return Amount::default();
        }
        if is_service(job) {
            return self.compute_held_by_service(name, binding, &record);
        }
        let each = list_requests(job);
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
        // Pods that are done gave back what they had.
        let done = |task: &str| job["status"]["taskStatusCount"][task]["phase"]["Succeeded"].as_u64().unwrap_or(0);
        let mut held = Amount::default();
        for (task, pods) in &pods {
            workloads::add(&mut held, times(each[task], pods.saturating_sub(done(task))));
        }
        held
    }

    /// The cores that the honest may be charged at most, in each queue and in all above it: all that their records
    /// grant.
    pub fn granted_by_queue(&self) -> BTreeMap<String, u64> {
        let mut granted = BTreeMap::new();
        for (name, binding) in &self.bindings {
            let job = self.jobs.get(name_workload(name)).filter(|job| !has_ended(job));
            let (Some(record), Some(job)) = (record(binding), job) else { continue };
            let each = list_requests(job);
            let tasks = record["tasks"].as_object().unwrap().iter();
            let all: u64 = tasks.map(|(task, pods)| each[task][0] * number(pods)).sum();
            let charged = workloads::read_amount(&record["charged"])[0];
            let all = self.held(name, binding)[0].max(all * number(&record["copies"]).max(1)).max(charged);
            self.path_of(binding).into_iter().for_each(|queue| *granted.entry(queue).or_default() += all);
        }
        granted
    }

    /// The queue of a record, and those above it.
    fn path_of(&self, binding: &Value) -> Vec<String> {
        let queue = record(binding).map(|record| text(&record["queue"]).to_owned());
        queue.map(|queue| list_path(&queue, self.newest_tree())).unwrap_or_default()
    }

    fn newest_tree(&self) -> &Tree {
        &self.trees.last().unwrap().1
    }

    /// A queue that is closed lets nobody start, and nor does one below it.
    pub(super) fn no_closed_queue_admits(&self, now: u128, name: &str, old: Option<&Value>, new: &Value) {
        let is_known = self.trees.last().is_some_and(|(from, _)| from + LATE < now || *from == 0);
        if !is_known || record(new).is_none() || old.is_some_and(|old| record(old).is_some()) {
            return;
        }
        let closed = self.path_of(new).into_iter().find(|at| self.closed.get(at).is_some_and(|from| from + LATE < now));
        assert!(closed.is_none(), "{name} is admitted, and queue {closed:?} is closed: {new}");
    }

    /// A queue admin may change a limit, move a queue, and close it. One that is gone is where it was.
    pub(super) fn follow_queue(&mut self, now: u128, name: &str, queue: Option<&Value>) {
        let Some(limit) = self.limits.get(name) else { return };
        if queue.is_some_and(|queue| matches!(text(&queue["status"]["state"]), "Closed" | "Closing")) {
            self.closed.entry(name.to_owned()).or_insert(now);
        } else {
            self.closed.remove(name);
        }
        if let Some(queue) = queue {
            let mut tree = self.newest_tree().clone();
            match text(&queue["spec"]["parent"]) {
                "" | "root" => drop(tree.remove(name)),
                parent => drop(tree.insert(name.to_owned(), parent.to_owned())),
            }
            if tree != *self.newest_tree() {
                self.trees.push((now, tree));
            }
        }
        let capability = queue.map(|queue| &queue["spec"]["capability"]);
        let said = RESOURCES.map(|resource| text(capability?.get(resource)?).parse().ok());
        let all = self.said_limits.entry(name.to_owned()).or_insert_with(|| vec![(0, limit.most)]);
        if all.last().is_some_and(|(_, last)| *last != said) {
            all.push((now, said));
        }
    }

    /// The most that a queue may have: of all that its object said within [`LATE`].
    fn limit_of(&self, name: &str, now: u128) -> Ceiling {
        let Some(said) = self.said_limits.get(name) else {
            return self.limits.get(name).map_or_else(Ceiling::default, |limit| limit.most);
        };
        let ends = said.iter().skip(1).map(|(from, _)| *from).chain([now]);
        let counts: Vec<Ceiling> =
            said.iter().zip(ends).filter(|(_, end)| end + LATE >= now).map(|((_, limit), _)| *limit).collect();
        std::array::from_fn(|at| counts.iter().map(|limit| limit[at]).collect::<Option<Vec<u64>>>()?.into_iter().max())
    }

    /// Trees of queues that may count: each that was there within [`LATE`], the newest last.
    fn list_trees(&self, now: u128) -> impl Iterator<Item = &Tree> {
        let ends = self.trees.iter().skip(1).map(|(from, _)| *from).chain([now]);
        self.trees.iter().zip(ends).filter(move |(_, end)| end + LATE >= now).map(|((_, tree), _)| tree)
    }

    pub(super) fn no_queue_is_over(&mut self, now: u128) {
        let (mut held, mut granted) = (BTreeMap::<String, Amount>::new(), BTreeMap::<String, Amount>::new());
        let mut fleet = Amount::default();
        for (name, binding) in &self.bindings {
            let Some(record) = record(binding) else { continue };
            let (queue, amount) = (text(&record["queue"]).to_owned(), self.held(name, binding));
            if self.placed_only && targets(binding).is_empty() {
                workloads::add(granted.entry(queue).or_default(), amount);
            } else {
                workloads::add(&mut fleet, amount);
                workloads::add(held.entry(queue).or_default(), amount);
            }
        }
        assert!(fits(fleet, self.fleet), "{fleet:?} of {RESOURCES:?} are held, and the fleet has {:?}", self.fleet);
        let used = sum_up(&held, self.newest_tree());
        for (queue, granted) in granted {
            let mut sum = used.get(&queue).copied().unwrap_or_default();
            workloads::add(&mut sum, granted);
            self.over_granted += u64::from(!is_within(sum, self.limit_of(&queue, now)));
        }
        for (queue, used) in used {
            let peak = self.peaks.entry(queue).or_default();
            *peak = used[0].max(*peak);
        }
        // Whoever grants may not have seen yet that a queue was moved.
        let over: Option<Vec<String>> = self.list_trees(now).map(|tree| self.find_excess(now, &held, tree)).collect();
        assert!(over.is_none(), "{}", over.iter().flatten().last().unwrap());
        self.held = held;
    }

    /// A queue that holds more than it may, if a tree of queues counts.
    fn find_excess(&self, now: u128, held: &BTreeMap<String, Amount>, tree: &Tree) -> Option<String> {
        let before = sum_up(&self.held, tree);
        sum_up(held, tree).into_iter().find_map(|(queue, used)| {
            let (limit, before) = (self.limit_of(&queue, now), before.get(&queue).copied().unwrap_or_default());
            // What it had before its limit was lowered stays, and so does what came with a queue that was moved.
            let is_lowered = self.trees.len() > 1 || self.said_limits.get(&queue).is_some_and(|said| said.len() > 1);
            let most: Ceiling =
                std::array::from_fn(|at| limit[at].map(|limit| if is_lowered { limit.max(before[at]) } else { limit }));
            let says = || format!("queue {queue} holds {used:?} of {RESOURCES:?}, and may have {limit:?}");
            (!is_within(used, most)).then(says)
        })
    }
}

/// A queue and those above it.
fn list_path(queue: &str, tree: &Tree) -> Vec<String> {
    // No tree is that deep, unless it is a circle.
    let above = std::iter::successors(Some(queue), |at| tree.get(*at).map(String::as_str)).take(tree.len() + 1);
    above.map(ToOwned::to_owned).collect()
}

/// What each queue holds with those below it.
fn sum_up(held: &BTreeMap<String, Amount>, tree: &Tree) -> BTreeMap<String, Amount> {
    let mut sums = BTreeMap::new();
    for (queue, amount) in held {
        for at in list_path(queue, tree) {
            workloads::add(sums.entry(at).or_default(), *amount);
        }
    }
    sums
}
