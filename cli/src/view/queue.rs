//! A queue, from its object and from the jobs that name it.
//!
//! Rule: what is used is in its status and what it deserves in its spec, or in our annotation where that counts instead
//! (`caldera_controller::decide`). Jobs are counted in their queue and in all above.

use std::collections::{BTreeMap, BTreeSet};

use caldera_controller::observe::QueueFacts;
use caldera_core::{
    quantity::Quantity,
    resources::{ResourceName, Resources},
};
use caldera_crds::{names::volcano::ROOT_QUEUE, volcano::scheduling::Queue};
use serde::Serialize;
use serde_json::Value;

use super::{job::JobView, state::State};

/// What is kept of a Queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueObject {
    facts: Box<QueueFacts>,
    deserved: Resources,
    faults: Vec<String>,
}

impl QueueObject {
    /// Reads one.
    #[must_use]
    pub fn read(queue: &Queue) -> (String, Self) {
        let facts = QueueFacts::read(queue);
        let said: Value =
            facts.annotation.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let deserved = match said["deserved"].as_object() {
            Some(amounts) => amounts
                .iter()
                .filter_map(|(name, amount)| Some((ResourceName::from(name.as_str()), amount.as_str()?.parse().ok()?)))
                .collect(),
            None => facts.spec.deserved.iter().map(|(name, amount)| (name.clone(), amount)).collect(),
        };
        let faults = said["faults"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let faults = faults.collect();
        (facts.spec.name.to_string(), Self { facts: Box::new(facts), deserved, faults })
    }
}

impl QueueObject {
    /// Why an admin has nothing released, if this is where he says so.
    pub(super) fn pause_reason(&self) -> Option<&str> {
        self.facts.paused.as_deref()
    }
}

/// One resource of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Amount {
    /// Of what.
    pub resource: String,
    /// Charged, with all queues below.
    pub used: Quantity,
    /// What it may take back up to.
    pub deserved: Quantity,
    /// The most that it may have, where its object says so.
    pub capability: Option<Quantity>,
    /// Used beyond what it deserves.
    pub borrowed: Quantity,
}

/// One queue, with its place in the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueLine {
    /// Name.
    pub name: String,
    /// Steps from the root.
    pub depth: usize,
    /// `Open`, `Closing` or `Closed`.
    pub state: String,
    /// By resource.
    pub amounts: Vec<Amount>,
    /// Jobs whose gate is closed.
    pub waiting: usize,
    /// Jobs that are released, and whose minimum does not run yet.
    pub starting: usize,
    /// Jobs that run.
    pub running: usize,
    /// What is wrong with it.
    pub faults: Vec<String>,
}

/// The root first, parents before their children, siblings by name; those whose parents lead nowhere at the end.
pub(super) fn list_lines<'a>(
    queues: &BTreeMap<String, QueueObject>,
    jobs: impl Iterator<Item = JobView<'a>>,
) -> Vec<QueueLine> {
    let parent_of = |name: &str| {
        let named = queues.get(name).and_then(|queue| queue.facts.spec.parent.as_ref());
        (name != ROOT_QUEUE).then(|| named.map_or(ROOT_QUEUE, |parent| parent.as_str()))
    };
    let mut counts: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for job in jobs {
        let which = match job.state {
            state if state.is_gate_closed() => 0,
            State::Admitted | State::Starting => 1,
            State::Running => 2,
            _ => continue,
        };
        counts.entry(job.queue()).or_default()[which] += 1;
    }
    let mut sums: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for (queue, count) in counts {
        let (mut at, mut passed) = (Some(queue), BTreeSet::new());
        while let Some(name) = at.filter(|name| passed.insert(*name)) {
            let sum = sums.entry(name).or_default();
            (0..3).for_each(|which| sum[which] += count[which]);
            at = parent_of(name);
        }
    }
    let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in queues.keys().filter(|name| *name != ROOT_QUEUE) {
        children.entry(parent_of(name).unwrap_or(ROOT_QUEUE)).or_default().push(name);
    }
    let mut lines = Vec::new();
    let mut stack = vec![(ROOT_QUEUE, 0)];
    while let Some((name, depth)) = stack.pop() {
        lines.push(make_line(name, depth, queues.get(name), sums.get(name)));
        stack.extend(children.remove(name).into_iter().flatten().rev().map(|child| (child, depth + 1)));
    }
    for lost in children.into_values().flatten() {
        lines.push(make_line(lost, 1, queues.get(lost), sums.get(lost)));
    }
    lines
}

fn make_line(name: &str, depth: usize, queue: Option<&QueueObject>, counts: Option<&[usize; 3]>) -> QueueLine {
    let [waiting, starting, running] = counts.copied().unwrap_or_default();
    QueueLine {
        name: name.to_owned(),
        depth,
        state: queue.map_or("Open", |queue| queue.facts.spec.state.as_str()).to_owned(),
        amounts: queue.map(list_amounts).unwrap_or_default(),
        waiting,
        starting,
        running,
        faults: queue.map(|queue| queue.faults.clone()).unwrap_or_default(),
    }
}

fn list_amounts(queue: &QueueObject) -> Vec<Amount> {
    let (used, capability) = (&queue.facts.status.allocated, &queue.facts.spec.capability);
    let names = used.iter().chain(queue.deserved.iter()).map(|(name, _)| name);
    let names: BTreeSet<&ResourceName> = names.chain(capability.iter().map(|(name, _)| name)).collect();
    let one = |name: &ResourceName| {
        let (used, deserved) = (used.get(name.as_str()), queue.deserved.get(name.as_str()));
        let borrowed = used.saturating_sub(deserved);
        Amount { resource: name.to_string(), used, deserved, capability: capability.get(name.as_str()), borrowed }
    };
    names.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::{Change, Seen};
    use caldera_runtime::watch::Event;

    fn queue(name: &str, parent: Option<&str>, annotation: Value) -> Queue {
        serde_json::from_value(json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
            "metadata": {"name": name, "annotations": {"caldera.dev/queue-status": annotation.to_string()}},
            "spec": {"parent": parent, "capability": {"cpu": "20"}, "deserved": {"cpu": "8"}},
            "status": {"state": "Open", "allocated": {"cpu": "12"}},
        }))
        .unwrap()
    }

    #[test]
    fn queues_are_a_tree_in_which_jobs_count_in_all_above() {
        let job = |name: &str, queue: &str| {
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                "metadata": {"namespace": "ns", "name": name}, "spec": {"queue": queue}})
        };
        let binding = |name: &str| {
            json!({"metadata": {"namespace": "ns", "annotations": {"caldera.dev/gate": "closed"}}, "spec": {"resource": {
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "ns", "name": name}}})
        };
        let mut seen = Seen::default();
        let nothing = || json!({});
        let listed = [
            queue("b", None, nothing()),
            queue("a", None, json!({"deserved": {"cpu": "5"}, "faults": ["f"]})),
            queue("a1", Some("a"), nothing()),
            queue("lost", Some("lost"), nothing()),
        ];
        seen.observe(Change::Queues(Event::Reset(listed.iter().map(QueueObject::read).collect())));
        let changes = Change::of_lists(&[job("j", "a1"), job("k", "lost")], &[binding("j"), binding("k")], &[]);
        changes.into_iter().for_each(|change| seen.observe(change));
        let lines = seen.queues();
        let tree: Vec<(&str, usize, usize)> =
            lines.iter().map(|line| (line.name.as_str(), line.depth, line.waiting)).collect();
        assert_eq!(tree, [("root", 0, 1), ("a", 1, 1), ("a1", 2, 1), ("b", 1, 0), ("lost", 1, 1)]);
        let of = |line: &QueueLine| {
            let cpu = &line.amounts[0];
            [cpu.used, cpu.deserved, cpu.borrowed, cpu.capability.unwrap()].map(|amount| amount.to_string())
        };
        assert_eq!(of(&lines[1]), ["12", "5", "7", "20"], "what the annotation says counts");
        assert_eq!(of(&lines[3]), ["12", "8", "4", "20"]);
        assert_eq!(lines[1].faults, ["f"]);
    }
}
