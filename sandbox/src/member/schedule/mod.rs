//! What a member's schedulers do: Volcano's `enqueue` and gang `allocate` for its own pods, kube-scheduler for the
//! rest.
//!
//! Rule: `pkg/scheduler/actions/{enqueue,allocate,backfill}` with the default plugins (priority, gang, overcommit,
//! proportion's capability), as far as a federation can see them: a PodGroup enters its open queue while its minimum
//! fits below the capability of the queue and its ancestors and below 1.2 times the nodes; pods are bound only if the
//! whole minimum of the gang (and of each task) gets a node; queue priority, job priority, then age decide. A gang with
//! hard topology is bound within one HyperNode that is low enough, or not at all. Left out: shares between queues of
//! one priority, preemption, soft topology and that of partitions.

mod enqueue;
mod gang;
mod ledger;
mod nodes;
mod normal;
mod report;
mod topology;

use std::collections::BTreeMap;

use caldera_runtime::write::{Body, Write};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    facts::{GroupFacts, Phase, PodFacts},
    object::{Key, list, name, number, text, uid},
    world::{Kind, Want, World},
};
use ledger::Ledger;
use nodes::Nodes;
use topology::HyperNodes;

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
pub fn run_cycle(world: &World, now: Timestamp) -> Cycle {
    let mut nodes = Nodes::of(world);
    let mut cycle = Cycle::default();
    cycle.wants.extend(normal::missing_groups(world));
    let groups = pending_groups(world);
    let hyper_nodes = HyperNodes::of(world);
    let mut ledger = Ledger::of(world, nodes.total(), &groups);
    enqueue::enqueue_groups(world, &groups, &mut ledger, &nodes, now, &mut cycle);
    gang::allocate_gangs(world, &hyper_nodes, &groups, &mut ledger, &mut nodes, now, &mut cycle);
    cycle.reports = report::report_queues(world, &ledger);
    for (key, pod) in world.pods().filter(|(_, pod)| pod.waits() && is_kubernetes(&pod.scheduler)) {
        match nodes.place(&pod.claim) {
            Some(node) => cycle.wants.push(bind_pod(key, node)),
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
    facts: &'a GroupFacts,
    pods: Vec<(&'a Key, &'a PodFacts)>,
    priority: i32,
    queue_priority: i64,
}

impl<'a> Group<'a> {
    fn is_pending(&self) -> bool {
        matches!(self.facts.phase.as_str(), "" | "Pending")
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
        i64::try_from(self.ready().count()).is_ok_and(|ready| ready >= self.facts.min_member)
    }
}

fn pending_groups(world: &World) -> Vec<Group<'_>> {
    let mut pods: BTreeMap<(&str, &str), Vec<(&Key, &PodFacts)>> = BTreeMap::new();
    for (key, pod) in world.pods().filter(|(_, pod)| !pod.group.is_empty() && !is_kubernetes(&pod.scheduler)) {
        pods.entry((&key.0, &pod.group)).or_default().push((key, pod));
    }
    let queues: BTreeMap<&str, i64> =
        world.of(Kind::Queue).map(|queue| (name(queue), number(queue, "/spec/priority"))).collect();
    let mut groups: Vec<(bool, &str, Group<'_>)> = world
        .groups()
        .filter(|(_, facts, _)| !facts.deleting)
        .map(|(key, facts, object)| {
            let group = Group {
                object,
                facts,
                pods: pods.remove(&(key.0.as_str(), key.1.as_str())).unwrap_or_default(),
                priority: priority_of(world, &facts.class),
                queue_priority: queues.get(facts.queue.as_str()).copied().unwrap_or_default(),
            };
            (group.is_ready(), text(object, "/metadata/creationTimestamp"), group)
        })
        .collect();
    groups.sort_by(|(a_ready, a_age, a), (b_ready, b_age, b)| {
        b.queue_priority
            .cmp(&a.queue_priority)
            .then_with(|| b.priority.cmp(&a.priority))
            .then_with(|| a_ready.cmp(b_ready))
            .then_with(|| a_age.cmp(b_age))
            .then_with(|| uid(a.object).cmp(uid(b.object)))
    });
    groups.into_iter().map(|(.., group)| group).collect()
}

fn bind_pod((namespace, pod): &Key, node: &str) -> Want {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let write = Write {
        resource: Kind::Pod.resource(),
        namespace: namespace.clone(),
        name: pod.clone(),
        subresource: Some("binding"),
        body: Body::Create(body),
    };
    Want { about: (Kind::Pod, (namespace.clone(), pod.clone())), write }
}

fn set_sooner(known: &mut Option<Timestamp>, at: Timestamp) {
    *known = Some(known.map_or(at, |known| known.min(at)));
}

/// Conditions of `object` with `new` in the place of the one of its type.
fn with_condition(object: &Value, new: Value) -> Value {
    let mut conditions = list(object, "/status/conditions").to_vec();
    conditions.retain(|condition| text(condition, "/type") != text(&new, "/type"));
    conditions.push(new);
    conditions.into()
}
