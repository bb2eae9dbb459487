//! What a member's schedulers do: Volcano's `enqueue` and gang `allocate`, and kube-scheduler for pods without a group.
//!
//! Rule: `pkg/scheduler/actions/{enqueue,allocate}` with the default plugins as far as a federation can see them: a
//! PodGroup enters its open queue while minimum resources fit below the capability and below 1.2 times the nodes; pods
//! are bound only if the whole minimum of the gang (and of each task) gets a node; priority, then age decides.

use std::collections::BTreeMap;

use caldera_core::{
    quantity::Quantity,
    resources::{ResourceName, Resources},
};
use caldera_runtime::{
    clock::rfc3339,
    write::{Body, Write},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    object::{Key, annotation, deleting, key, label, list, name, namespace, number, text, uid},
    world::{Kind, Want, World, merge},
};

const GROUP: &str = "scheduling.k8s.io/group-name";

/// All that the schedulers want now.
#[must_use]
pub fn cycle(world: &World, now: Timestamp) -> Vec<Want> {
    let mut nodes = Nodes::of(world);
    let mut wants = Vec::new();
    let groups = groups(world);
    enqueue(world, &groups, &nodes, now, &mut wants);
    for group in &groups {
        allocate(world, group, &mut nodes, now, &mut wants);
    }
    for pod in world.of(Kind::Pod).filter(|pod| waits(pod) && annotation(pod, GROUP).is_empty()) {
        if let Some(node) = nodes.place(pod) {
            wants.push(bind(pod, &node));
        }
    }
    wants
}

/// A PodGroup with its pods.
struct Group<'a> {
    object: &'a Value,
    pods: Vec<&'a Value>,
    priority: i64,
}

fn groups(world: &World) -> Vec<Group<'_>> {
    let mut pods: BTreeMap<(&str, &str), Vec<&Value>> = BTreeMap::new();
    for pod in world.of(Kind::Pod) {
        let group = annotation(pod, GROUP);
        if !group.is_empty() {
            pods.entry((namespace(pod), group)).or_default().push(pod);
        }
    }
    let mut groups: Vec<Group<'_>> = world
        .of(Kind::PodGroup)
        .filter(|group| !deleting(group))
        .map(|object| {
            let class = text(object, "/spec/priorityClassName");
            let class = world.get(Kind::PriorityClass, &(String::new(), class.to_owned()));
            let pods = pods.remove(&(namespace(object), name(object))).unwrap_or_default();
            Group { object, pods, priority: class.map_or(0, |class| number(class, "/value")) }
        })
        .collect();
    groups.sort_by(|a, b| {
        let age = |group: &Group<'_>| text(group.object, "/metadata/creationTimestamp").to_owned();
        b.priority.cmp(&a.priority).then_with(|| age(a).cmp(&age(b))).then_with(|| uid(a.object).cmp(uid(b.object)))
    });
    groups
}

/// Pending PodGroups whose minimum may enter their queue become Inqueue.
fn enqueue(world: &World, groups: &[Group<'_>], nodes: &Nodes, now: Timestamp, wants: &mut Vec<Want>) {
    let mut taken: BTreeMap<&str, Resources> = BTreeMap::new();
    let mut all_taken = Resources::new();
    for group in
        groups.iter().filter(|group| !matches!(text(group.object, "/status/phase"), "" | "Pending" | "Completed"))
    {
        let held = held(group);
        taken.entry(text(group.object, "/spec/queue")).or_default().add(&held);
        all_taken.add(&held);
    }
    let room: Resources = nodes.total.iter().map(|(name, amount)| (name.clone(), amount.times(12))).collect();
    for group in groups.iter().filter(|group| matches!(text(group.object, "/status/phase"), "" | "Pending")) {
        let queue_name = text(group.object, "/spec/queue");
        let queue = world.get(Kind::Queue, &(String::new(), queue_name.to_owned()));
        let minimum = minimum(group.object);
        let refusal = match queue {
            None => Some(format!("queue {queue_name} does not exist")),
            Some(queue) if !matches!(text(queue, "/status/state"), "Open" | "") => {
                Some(format!("queue {queue_name} is {}", text(queue, "/status/state")))
            }
            Some(queue) => over_capability(queue, taken.get(queue_name), &minimum)
                .or_else(|| over_nodes(&room, &all_taken, &minimum)),
        };
        if let Some(refusal) = refusal {
            wants.extend(unschedulable(group.object, &refusal, now));
            continue;
        }
        taken.entry(queue_name).or_default().add(&minimum);
        all_taken.add(&minimum);
        wants.push(merge(Kind::PodGroup, group.object, None, json!({"status": {"phase": "Inqueue"}})));
    }
}

fn over_capability(queue: &Value, taken: Option<&Resources>, minimum: &Resources) -> Option<String> {
    let capability = queue.pointer("/spec/capability")?.as_object()?;
    minimum.iter().find_map(|(resource, asked)| {
        let limit: Quantity = serde_json::from_value(capability.get(resource.as_str())?.clone()).ok()?;
        let used = taken.map_or(Quantity::ZERO, |taken| taken.get(resource.as_str()));
        (used.saturating_add(asked) > limit).then(|| {
            format!(
                "queue {} resource quota insufficient: {resource} asked {asked}, used {used}, capability {limit}",
                name(queue)
            )
        })
    })
}

/// `room` is ten times the bound, so that the factor 1.2 stays a whole number.
fn over_nodes(room: &Resources, taken: &Resources, minimum: &Resources) -> Option<String> {
    minimum.iter().find_map(|(resource, asked)| {
        let used = taken.get(resource.as_str());
        let after = used.saturating_add(asked).times(10);
        (after > room.get(resource.as_str()))
            .then(|| format!("resource in cluster is overused: {resource} asked {asked}, taken {used}"))
    })
}

/// What a PodGroup holds: its pods that have a node, at least its minimum.
fn held(group: &Group<'_>) -> Resources {
    let mut bound = Resources::new();
    for pod in group.pods.iter().filter(|pod| holds(pod)) {
        bound.add(&request(pod));
    }
    bound.max(&minimum(group.object))
}

fn minimum(group: &Value) -> Resources {
    let read = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
    group
        .pointer("/spec/minResources")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(name, _)| !name.contains("requests.") && !name.contains("limits.") && !name.starts_with("count/"))
        .filter_map(|(name, amount)| Some((ResourceName::from(name.as_str()), read(amount)?)))
        .collect()
}

/// Binds the pods of a gang, all of its minimum or nothing, and tells how it stands.
fn allocate(world: &World, group: &Group<'_>, nodes: &mut Nodes, now: Timestamp, wants: &mut Vec<Want>) {
    let object = group.object;
    if !matches!(text(object, "/status/phase"), "Inqueue" | "Running" | "Unknown") {
        return;
    }
    let placed: Vec<&&Value> = group.pods.iter().filter(|pod| holds(pod) || finished(pod)).collect();
    let waiting: Vec<&&Value> = group.pods.iter().filter(|pod| waits(pod)).collect();
    let minimum = number(object, "/spec/minMember");
    let mut count = i64::try_from(placed.len()).unwrap_or(i64::MAX);
    let mut by_task: BTreeMap<&str, i64> = BTreeMap::new();
    for pod in &placed {
        *by_task.entry(label(pod, "volcano.sh/task-spec")).or_default() += 1;
    }
    let mut trial = nodes.clone();
    let mut bindings = Vec::new();
    for pod in &waiting {
        if let Some(node) = trial.place(pod) {
            count += 1;
            *by_task.entry(label(pod, "volcano.sh/task-spec")).or_default() += 1;
            bindings.push(bind(pod, &node));
        }
    }
    let minimums: BTreeMap<&str, i64> = object
        .pointer("/spec/minTaskMember")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(task, minimum)| (task.as_str(), minimum.as_i64().unwrap_or_default()))
        .collect();
    let tasks_bind = minimum >= minimums.values().sum::<i64>();
    let tasks_met = minimums.iter().all(|(task, minimum)| by_task.get(task).copied().unwrap_or_default() >= *minimum);
    let ready = count >= minimum && (!tasks_bind || tasks_met);
    if ready {
        *nodes = trial;
        wants.extend(bindings);
    } else if !waiting.is_empty() {
        let message = format!(
            "{}/{minimum} tasks in gang unschedulable: pod group is not ready, {count} of {minimum} fit",
            waiting.len()
        );
        wants.extend(unschedulable(object, &message, now));
    }
    wants.extend(phase(world, group, now));
}

/// `framework/session.go`: Completed if all that was scheduled is done, Running if the minimum is placed.
fn phase(world: &World, group: &Group<'_>, now: Timestamp) -> Option<Want> {
    let _ = world;
    let counted = |phase: &str| group.pods.iter().filter(|pod| text(pod, "/status/phase") == phase).count();
    let (running, succeeded, failed) = (counted("Running"), counted("Succeeded"), counted("Failed"));
    let scheduled = group.pods.iter().filter(|pod| holds(pod) || finished(pod)).count();
    let minimum = usize::try_from(number(group.object, "/spec/minMember")).unwrap_or_default();
    if scheduled == 0 || scheduled < minimum {
        return None;
    }
    let phase = if running == 0 && succeeded + failed == scheduled { "Completed" } else { "Running" };
    let wanted = json!({"phase": phase, "running": running, "succeeded": succeeded, "failed": failed});
    let current = json!({
        "phase": text(group.object, "/status/phase"), "running": number(group.object, "/status/running"),
        "succeeded": number(group.object, "/status/succeeded"), "failed": number(group.object, "/status/failed"),
    });
    if wanted == current {
        return None;
    }
    let mut status = wanted;
    if text(group.object, "/status/phase") == "Inqueue" {
        status["conditions"] = json!([{
            "type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled",
            "transitionID": uid(group.object), "lastTransitionTime": rfc3339(now),
        }]);
    }
    Some(merge(Kind::PodGroup, group.object, None, json!({"status": status})))
}

fn unschedulable(group: &Value, message: &str, now: Timestamp) -> Option<Want> {
    let known = list(group, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == "Unschedulable" && text(condition, "/message") == message);
    (!known).then(|| {
        let condition = json!([{
            "type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": message,
            "transitionID": uid(group), "lastTransitionTime": rfc3339(now),
        }]);
        let phase = match text(group, "/status/phase") {
            "" => "Pending",
            phase => phase,
        };
        merge(Kind::PodGroup, group, None, json!({"status": {"phase": phase, "conditions": condition}}))
    })
}

fn waits(pod: &Value) -> bool {
    text(pod, "/spec/nodeName").is_empty()
        && !deleting(pod)
        && !finished(pod)
        && list(pod, "/spec/schedulingGates").is_empty()
}

fn holds(pod: &Value) -> bool {
    !text(pod, "/spec/nodeName").is_empty() && !finished(pod)
}

fn finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

fn bind(pod: &Value, node: &str) -> Want {
    let (namespace, name) = key(pod);
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
    Want { about: (Kind::Pod, (namespace, name)), write }
}

fn request(pod: &Value) -> Resources {
    caldera_crds::workload::gang(pod)
        .ok()
        .and_then(|gang| gang.tasks.into_iter().next())
        .map(|task| task.request)
        .unwrap_or_default()
}

/// The nodes' free capacity during one cycle.
#[derive(Debug, Clone)]
struct Nodes {
    free: BTreeMap<Key, (Resources, Value)>,
    total: Resources,
}

impl Nodes {
    fn of(world: &World) -> Self {
        let mut total = Resources::new();
        let mut free: BTreeMap<Key, (Resources, Value)> = BTreeMap::new();
        for node in world.of(Kind::Node).filter(|node| usable(node)) {
            let allocatable = allocatable(node);
            total.add(&allocatable);
            free.insert(key(node), (allocatable, node.clone()));
        }
        for pod in world.of(Kind::Pod).filter(|pod| holds(pod)) {
            if let Some((free, _)) = free.get_mut(&(String::new(), text(pod, "/spec/nodeName").to_owned())) {
                free.saturating_sub(&request(pod));
            }
        }
        Self { free, total }
    }

    /// Takes room for `pod` on the first node that suits it.
    fn place(&mut self, pod: &Value) -> Option<String> {
        let gang = caldera_crds::workload::gang(pod).ok()?;
        let task = gang.tasks.first()?;
        let suits = |node: &Value, free: &Resources| {
            task.request.fits_in(free) && task.node.admits(name(node), &labels(node), &taints(node))
        };
        let (key, (free, _)) = self.free.iter_mut().find(|(_, (free, node))| suits(node, free))?;
        free.saturating_sub(&task.request);
        Some(key.1.clone())
    }
}

fn usable(node: &Value) -> bool {
    let ready = list(node, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True");
    ready && node.pointer("/spec/unschedulable").and_then(Value::as_bool) != Some(true) && !deleting(node)
}

fn allocatable(node: &Value) -> Resources {
    node.pointer("/status/allocatable").and_then(|all| serde_json::from_value(all.clone()).ok()).unwrap_or_default()
}

fn labels(node: &Value) -> BTreeMap<String, String> {
    node.pointer("/metadata/labels").and_then(|all| serde_json::from_value(all.clone()).ok()).unwrap_or_default()
}

fn taints(node: &Value) -> Vec<caldera_core::gang::Taint> {
    list(node, "/spec/taints")
        .iter()
        .map(|taint| caldera_core::gang::Taint {
            key: text(taint, "/key").to_owned(),
            value: text(taint, "/value").to_owned(),
            effect: text(taint, "/effect").to_owned(),
        })
        .collect()
}
