//! What a member's schedulers do: Volcano's `enqueue` and gang `allocate` for its own pods, kube-scheduler for the rest.
//!
//! Rule: `pkg/scheduler/actions/{enqueue,allocate,backfill}` with the default plugins (priority, gang, overcommit,
//! proportion's capability), as far as a federation can see them: a PodGroup enters its open queue while its minimum
//! fits below the capability of the queue and its ancestors and below 1.2 times the nodes; pods are bound only if the
//! whole minimum of the gang (and of each task) gets a node; queue priority, job priority, then age decide. Left out:
//! shares between queues of one priority, preemption, topology.

mod enqueue;
mod gang;
mod ledger;
mod nodes;
mod normal;
mod report;

use std::collections::BTreeMap;

use caldera_core::{quantity::Quantity, resources::Resources};
use caldera_runtime::write::{Body, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    facts::{Phase, PodFacts},
    object::{Key, deleting, list, number, text, uid},
    world::{Kind, Want, World},
};
use ledger::Ledger;
use nodes::Nodes;

/// The scheduler whose pods are Volcano's.
pub const VOLCANO: &str = "volcano";

/// What the schedulers want now, and when to look again without any news.
#[derive(Debug, Default)]
pub struct Cycle {
    /// Writes.
    pub wants: Vec<Want>,
    /// `status.allocated` of the queues, where it has changed.
    pub reports: Vec<Want>,
    /// The next time something is due.
    pub at: Option<Timestamp>,
}

/// All that the schedulers do now.
#[must_use]
pub fn cycle(world: &World, now: Timestamp) -> Cycle {
    let mut nodes = Nodes::of(world);
    let mut cycle = Cycle::default();
    cycle.wants.extend(normal::groups(world));
    let groups = groups(world);
    let mut ledger = Ledger::of(world, nodes.total(), &groups);
    enqueue::enqueue(world, &groups, &mut ledger, &nodes, now, &mut cycle);
    gang::allocate(world, &groups, &mut ledger, &mut nodes, now, &mut cycle);
    cycle.reports = report::queues(world, &ledger);
    for (key, pod) in world.pods().filter(|(_, pod)| pod.waits() && is_kubernetes(&pod.scheduler)) {
        match nodes.place(&pod.claim) {
            Some(node) => cycle.wants.push(bind(key, node)),
            None => report::waiting_pod(world, key, &nodes.refusal(&pod.claim, "available"), now, &mut cycle),
        }
    }
    cycle
}

/// The value of a PriorityClass; of the default class where there is no such class, 0 without one.
#[must_use]
pub fn priority_of(world: &World, class: &str) -> i32 {
    let value = |class: &Value| i32::try_from(number(class, "/value")).unwrap_or_default();
    if let Some(class) = world.named(Kind::PriorityClass, class) {
        return value(class);
    }
    let is_default = |class: &&Value| class.get("globalDefault").and_then(Value::as_bool) == Some(true);
    world.of(Kind::PriorityClass).find(is_default).map_or(0, value)
}

fn is_kubernetes(scheduler: &str) -> bool {
    matches!(scheduler, "" | "default-scheduler")
}

/// A PodGroup with its pods.
struct Group<'a> {
    object: &'a Value,
    queue: &'a str,
    phase: &'a str,
    pods: Vec<(&'a Key, &'a PodFacts)>,
    priority: i32,
    queue_priority: i64,
    /// `minResources`; none asks for nothing to be enqueued.
    minimum: Option<Resources>,
    min_member: i64,
    min_tasks: BTreeMap<&'a str, i64>,
}

impl<'a> Group<'a> {
    fn read(world: &World, object: &'a Value, pods: Vec<(&'a Key, &'a PodFacts)>) -> Self {
        let queue = match text(object, "/spec/queue") {
            "" => "default",
            queue => queue,
        };
        let tasks = object.pointer("/spec/minTaskMember").and_then(Value::as_object).into_iter().flatten();
        let min_tasks = tasks.map(|(task, least)| (task.as_str(), least.as_i64().unwrap_or_default()));
        let mut group = Self {
            object,
            queue,
            phase: text(object, "/status/phase"),
            pods,
            priority: priority_of(world, text(object, "/spec/priorityClassName")),
            queue_priority: world.named(Kind::Queue, queue).map_or(0, |queue| number(queue, "/spec/priority")),
            minimum: min_resources(object),
            min_member: number(object, "/spec/minMember"),
            min_tasks: min_tasks.collect(),
        };
        // Below the sum of the tasks' minimums the job's minimum alone counts.
        if group.min_member < group.min_tasks.values().sum() {
            group.min_tasks.clear();
        }
        group
    }

    fn is_pending(&self) -> bool {
        matches!(self.phase, "" | "Pending")
    }

    /// Pods with a node that neither ended nor are being deleted.
    fn allocated(&self) -> impl Iterator<Item = &'a PodFacts> {
        self.pods.iter().map(|(_, pod)| *pod).filter(|pod| pod.holds() && !pod.deleting)
    }

    /// Pods that count for the gang: allocated ones, and those that succeeded.
    fn ready(&self) -> impl Iterator<Item = &'a PodFacts> {
        let succeeded = |pod: &&'a PodFacts| pod.phase == Phase::Succeeded && !pod.deleting;
        self.allocated().chain(self.pods.iter().map(|(_, pod)| *pod).filter(succeeded))
    }

    fn is_ready(&self) -> bool {
        i64::try_from(self.ready().count()).is_ok_and(|ready| ready >= self.min_member)
    }
}

fn groups(world: &World) -> Vec<Group<'_>> {
    let mut pods: BTreeMap<(&str, &str), Vec<(&Key, &PodFacts)>> = BTreeMap::new();
    for (key, pod) in world.pods().filter(|(_, pod)| !pod.group.is_empty() && !is_kubernetes(&pod.scheduler)) {
        pods.entry((&key.0, &pod.group)).or_default().push((key, pod));
    }
    let mut groups: Vec<(bool, Group<'_>)> = world
        .of(Kind::PodGroup)
        .filter(|group| !deleting(group))
        .map(|object| {
            let at = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
            let group = Group::read(world, object, pods.remove(&at).unwrap_or_default());
            (group.is_ready(), group)
        })
        .collect();
    groups.sort_by(|(a_ready, a), (b_ready, b)| {
        let age = |group: &Group<'_>| text(group.object, "/metadata/creationTimestamp").to_owned();
        b.queue_priority
            .cmp(&a.queue_priority)
            .then_with(|| b.priority.cmp(&a.priority))
            .then_with(|| a_ready.cmp(b_ready))
            .then_with(|| age(a).cmp(&age(b)))
            .then_with(|| uid(a.object).cmp(uid(b.object)))
    });
    groups.into_iter().map(|(_, group)| group).collect()
}

/// `minResources` as the scheduler reads it: without `requests.*`, `limits.*` and `count/*`.
fn min_resources(group: &Value) -> Option<Resources> {
    let read = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
    let entries = group.pointer("/spec/minResources")?.as_object()?;
    let dropped = |name: &str| ["requests.", "limits.", "count/"].iter().any(|start| name.starts_with(start));
    Some(
        entries
            .iter()
            .filter(|(name, _)| !dropped(name))
            .filter_map(|(name, amount)| Some((name.as_str(), read(amount)?)))
            .collect(),
    )
}

fn bind((namespace, name): &Key, node: &str) -> Want {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let write = Write {
        resource: Kind::Pod.resource(),
        namespace: namespace.clone(),
        name: name.clone(),
        subresource: Some("binding"),
        body: Body::Create(body),
    };
    Want { about: (Kind::Pod, (namespace.clone(), name.clone())), write }
}

fn sooner(known: &mut Option<Timestamp>, at: Timestamp) {
    *known = Some(known.map_or(at, |known| known.min(at)));
}

/// Conditions of `object` with `new` in the place of the one of its type.
fn with_condition(object: &Value, new: Value) -> Value {
    let mut conditions = list(object, "/status/conditions").to_vec();
    conditions.retain(|condition| text(condition, "/type") != text(&new, "/type"));
    conditions.push(new);
    conditions.into()
}
