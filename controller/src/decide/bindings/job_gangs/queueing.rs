//! Who of a gang of jobs is in line: which are asked for together, which alone, and why the others wait.
//!
//! Rule: [`super`]. It is a function of what jobs there should be and of the state of each.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{gang::QueueName, queue::Job, reason::Reason, resources::Resources};

use super::{GangJob, GangJobState, JobGangSpec, MOST_JOBS};
use crate::observe::Key;

/// Jobs that are named in a sentence.
const MOST_NAMED: usize = 3;
/// Tasks of all that are asked for together.
pub(super) const MOST_TASKS: usize = 10_000;

/// What becomes of those that are in line, by their bindings.
#[derive(Debug, Default, PartialEq)]
pub(super) struct GangQueueing {
    /// They are asked for together.
    pub(super) together: Vec<Key>,
    /// Each is asked for by itself.
    pub(super) alone: Vec<Key>,
    /// They are not asked for yet.
    pub(super) held_back: Vec<(Key, Reason)>,
    /// They can not start together, whoever waits for how long.
    pub(super) is_refused: bool,
}

/// It is needed, and comes back.
pub(super) fn is_missing(state: &GangJobState) -> bool {
    matches!(state, GangJobState::Pending(_) | GangJobState::Requeued | GangJobState::Evicted)
}

/// Jobs that are still to be admitted before enough hold or have ended.
fn count_missing(spec: &JobGangSpec, members: &BTreeMap<Key, GangJob>) -> usize {
    let holding = members.values().filter(|member| member.state == GangJobState::Admitted);
    let holding: BTreeSet<&str> = holding.map(|member| &*member.name).collect();
    let is_done = |name: &&String| spec.ended.contains(*name) || holding.contains(name.as_str());
    spec.needed.saturating_sub(spec.names.iter().filter(is_done).count())
}

/// Some of it hold, and of the rest something waits that is needed.
pub(super) fn is_incomplete(spec: Option<&JobGangSpec>, members: &BTreeMap<Key, GangJob>) -> bool {
    let Some(spec) = spec.filter(|spec| count_missing(spec, members) > 0) else { return false };
    let names: BTreeSet<&str> = spec.names.iter().map(String::as_str).collect();
    let some = |wanted: fn(&GangJobState) -> bool| {
        let mut all = members.values().filter(|member| names.contains(&*member.name));
        all.any(|member| wanted(&member.state))
    };
    some(|it| *it == GangJobState::Admitted) && some(is_missing)
}

/// Who of a gang is in line, by what jobs there should be. `check_size` says why a queue takes no job of that size.
pub(super) fn decide_queueing(
    spec: Option<&JobGangSpec>,
    members: &BTreeMap<Key, GangJob>,
    check_size: impl Fn(&QueueName, &Resources) -> Option<Reason>,
) -> GangQueueing {
    let in_line = members.iter().filter(|(_, member)| matches!(member.state, GangJobState::Pending(_)));
    let Some(spec) = spec else {
        let why = Reason::JobsMissing { detail: "its HyperJob is not seen".to_owned() };
        return GangQueueing {
            held_back: in_line.map(|(key, _)| (key.clone(), why.clone())).collect(),
            ..GangQueueing::default()
        };
    };
    let order: BTreeMap<&str, usize> = spec.names.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    let place = |member: &GangJob| match &member.state {
        GangJobState::Pending(job) if job.ask.copies == 1 => order.get(&*member.name).copied(),
        _ => None,
    };
    let (mut waiting, mut alone) = (Vec::new(), Vec::new());
    for (key, member) in in_line {
        match place(member) {
            Some(at) => waiting.push((at, key)),
            None => alone.push(key.clone()),
        }
    }
    waiting.sort_unstable();
    let mut waiting: Vec<Key> = waiting.into_iter().map(|(_, key)| key.clone()).collect();
    let missing = count_missing(spec, members);
    // The last that is missing may be any of them: each makes it whole.
    if missing <= 1 {
        alone.extend(waiting);
        return GangQueueing { alone, ..GangQueueing::default() };
    }
    if waiting.len() < missing {
        let why = describe_missing(spec, members, waiting.len(), missing);
        return GangQueueing { alone, held_back: hold_back(waiting, why), ..GangQueueing::default() };
    }
    let job = |key: &Key| match members.get(key).map(|member| &member.state) {
        Some(GangJobState::Pending(job)) => Some(job),
        _ => None,
    };
    let jobs: Vec<&Job> = waiting.iter().take(missing).filter_map(job).collect();
    if let Some(why) = find_refusal(&jobs, check_size) {
        return GangQueueing { alone, held_back: hold_back(waiting, why), is_refused: true, together: Vec::new() };
    }
    let rest = waiting.split_off(missing);
    let held_back = hold_back(rest, describe_rest(spec));
    GangQueueing { together: waiting, alone, held_back, is_refused: false }
}

/// Why these can not be asked for as one job, if so.
fn find_refusal(jobs: &[&Job], check_size: impl Fn(&QueueName, &Resources) -> Option<Reason>) -> Option<Reason> {
    let queues: BTreeSet<&str> = jobs.iter().map(|job| job.queue.as_str()).collect();
    if queues.len() > 1 {
        let queues = queues.into_iter().collect::<Vec<_>>().join(", ");
        return Some(Reason::JobsInSeveralQueues { queues });
    }
    let first = jobs.first()?.ask.counted.tenants();
    if jobs.iter().any(|job| job.ask.counted.tenants() != first) {
        let detail = "those that are needed count for several users, and only jobs of one start together".to_owned();
        return Some(Reason::JobsMissing { detail });
    }
    let tasks: usize = jobs.iter().map(|job| job.ask.tasks.iter().filter(|task| task.most > 0).count()).sum();
    if tasks > MOST_TASKS {
        let problem = format!("jobs that start together have {tasks} tasks in all, {MOST_TASKS} at most");
        return Some(Reason::Invalid { problem });
    }
    let mut asked = Resources::new();
    jobs.iter().for_each(|job| asked.add(&job.ask.demand_of_all_pods()));
    check_size(&jobs.first()?.queue, &asked)
}

pub(super) fn describe_beyond() -> Reason {
    Reason::JobsMissing { detail: format!("{MOST_JOBS} of one gang are looked at, and there are more") }
}

pub(super) fn hold_back(keys: Vec<Key>, why: Reason) -> Vec<(Key, Reason)> {
    keys.into_iter().map(|key| (key, why.clone())).collect()
}

fn describe_rest(spec: &JobGangSpec) -> Reason {
    let detail = format!("{} are needed, and those that rank before it start first", spec.needed);
    Reason::JobsMissing { detail }
}

fn describe_missing(spec: &JobGangSpec, members: &BTreeMap<Key, GangJob>, waiting: usize, missing: usize) -> Reason {
    let counts = |member: &&GangJob| matches!(member.state, GangJobState::Pending(_) | GangJobState::Admitted);
    let there: BTreeSet<&str> = members.values().filter(counts).map(|member| &*member.name).collect();
    let is_there = |name: &&String| there.contains(name.as_str()) || spec.ended.contains(*name);
    let absent: Vec<&str> = spec.names.iter().filter(|name| !is_there(name)).map(String::as_str).collect();
    let of = format!("of {missing} that are still needed {waiting} are in line");
    if absent.is_empty() {
        return Reason::JobsMissing { detail: of };
    }
    let more = if absent.len() > MOST_NAMED { " and others" } else { "" };
    let named = absent.into_iter().take(MOST_NAMED).collect::<Vec<_>>().join(", ");
    Reason::JobsMissing { detail: format!("{of}; not in line: {named}{more}") }
}
