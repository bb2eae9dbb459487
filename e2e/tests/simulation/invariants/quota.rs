//! No queue holds more than its limit, and all of them together no more than the fleet has.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Invariants, LATE, has_ended, json, number, record, targets, text};
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
    pub(super) fn follow_limit(&mut self, now: u128, name: &str, queue: Option<&Value>) {
        let Some(limit) = self.limits.get(name) else { return };
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

    pub(super) fn no_queue_is_over(&mut self, now: u128) {
        let (mut used, mut fleet) = (BTreeMap::<String, Amount>::new(), Amount::default());
        let mut granted = BTreeMap::<String, Amount>::new();
        for (name, binding) in &self.bindings {
            let mut held = self.held(name, binding);
            if self.placed_only && targets(binding).is_empty() {
                if let Some(record) = record(binding) {
                    workloads::add(granted.entry(text(&record["queue"]).to_owned()).or_default(), held);
                }
                held = Amount::default();
            }
            workloads::add(&mut fleet, held);
            self.path_of(binding).for_each(|queue| workloads::add(used.entry(queue).or_default(), held));
        }
        assert!(fits(fleet, self.fleet), "{fleet:?} of {RESOURCES:?} are held, and the fleet has {:?}", self.fleet);
        for (queue, granted) in granted {
            let mut sum = used.get(&queue).copied().unwrap_or_default();
            workloads::add(&mut sum, granted);
            self.over_granted += u64::from(!is_within(sum, self.limit_of(&queue, now)));
        }
        for (queue, used) in used {
            let peak = self.peaks.entry(queue.clone()).or_default();
            *peak = used[0].max(*peak);
            let before = self.used.insert(queue.clone(), used).unwrap_or_default();
            let limit = self.limit_of(&queue, now);
            // What it had before its limit was lowered stays.
            let is_lowered = self.said_limits.get(&queue).is_some_and(|said| said.len() > 1);
            let most: Ceiling =
                std::array::from_fn(|at| limit[at].map(|limit| if is_lowered { limit.max(before[at]) } else { limit }));
            assert!(is_within(used, most), "queue {queue} holds {used:?} of {RESOURCES:?}, and may have {limit:?}");
        }
    }
}
