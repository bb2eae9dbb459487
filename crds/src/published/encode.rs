//! Encodes nodes and pods into parts, as few as stay below [`MOST_OBJECT_BYTES`].

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    gang::{Taint, TaskName, WorkloadRef},
    inventory::{Node, Pod, round_up_request},
    node_affinity::HOSTNAME,
    numa::NumaTopology,
    quantity::Quantity,
    resources::{ResourceName, Resources},
};
use k8s_openapi::{api::core::v1 as k8s, apimachinery::pkg::api::resource};

use super::{Bound, Closed, Contents, Finished, Held, NodeShape, Part, Workload, domains, numa, queues, ranges};
use crate::{wire::ResourceList, workload::WorkloadKind};

/// The size of a part in bytes of JSON, at most. An API server accepts objects of about 3 MiB, etcd of 1.5 MiB.
pub const MOST_OBJECT_BYTES: usize = 512 * 1024;
/// Parts of a member at most, enough for millions of nodes.
pub const MOST_PARTS: u32 = 1024;
/// A label with more values than this is listed by node, and does not make shapes of its own.
const MOST_SHAPE_VALUES: usize = 16;
/// Workloads of which every pod has finished that a part lists at most. Readers learn of the others a little later,
/// from the workloads' status.
const MOST_FINISHED: usize = 256;

/// Divides a member into as few parts as stay below [`MOST_OBJECT_BYTES`]. The current number of `parts` is kept while
/// it suffices, and halved when a quarter would suffice. Domains and queues are in the first part, whatever the number:
/// they count as half a part at most, since more parts would not make them smaller.
#[must_use]
pub fn divide_contents(contents: &Contents, parts: u32) -> Vec<Part> {
    let mut count = parts.clamp(1, MOST_PARTS);
    let uncounted = measure_part(&encode_undivided(contents)).saturating_sub(MOST_OBJECT_BYTES / 2);
    let mut has_grown = false;
    loop {
        let all = encode_parts(contents, count);
        let mut sizes: Vec<usize> = all.iter().map(measure_part).collect();
        if let Some(first) = sizes.first_mut() {
            *first -= uncounted.min(*first);
        }
        let (largest, sum) = (sizes.iter().max().copied().unwrap_or(0), sizes.iter().sum::<usize>());
        if largest > MOST_OBJECT_BYTES && count < MOST_PARTS {
            count = (count * 2).min(MOST_PARTS);
            has_grown = true;
        } else if !has_grown && count > 1 && sum < MOST_OBJECT_BYTES / 4 * count as usize / 2 {
            count /= 2;
        } else {
            return all;
        }
    }
}

/// In bytes of JSON.
fn measure_part(part: &Part) -> usize {
    serde_json::to_vec(part).map_or(0, |json| json.len())
}

/// What the first part has beside nodes and pods.
fn encode_undivided(contents: &Contents) -> Part {
    let domains = contents.hyper_nodes.values().map(domains::encode_domain).collect();
    Part { domains, queues: queues::encode_queues(&contents.queues), ..Part::default() }
}

/// Encodes a member as this many parts.
pub(super) fn encode_parts(contents: &Contents, parts: u32) -> Vec<Part> {
    let mut views: Vec<PartContents<'_>> = (0..parts).map(|_| PartContents::default()).collect();
    let index = |name: &str| (hash_fnv1a(name.bytes()) % u64::from(parts)) as usize;
    for (name, node) in &contents.nodes {
        views[index(name)].nodes.insert(name, Some(node));
    }
    for (name, topology) in &contents.numa {
        views[index(name)].numa.insert(name, topology);
    }
    for ((_, name), pod) in &contents.pods {
        let Some(node) = pod.node.as_deref() else { continue };
        let view = &mut views[index(node)];
        if pod.finished {
            view.record_finished_pod(pod);
        } else {
            view.nodes.entry(node).or_insert(None);
            view.add_bound_pod(node, name, pod);
        }
    }
    let mut all: Vec<Part> =
        views.into_iter().zip(0..).map(|(view, index)| Part { index, of: parts, ..view.encode_part() }).collect();
    if let Some(first) = all.first_mut() {
        let Part { domains, queues, .. } = encode_undivided(contents);
        (first.domains, first.queues) = (domains, queues);
    }
    all
}

/// A hash that never changes: which part a node belongs to must not depend on the collector's version.
pub(crate) fn hash_fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

type SortedAmounts = BTreeMap<ResourceName, Quantity>;

/// The nodes and pods of one part.
#[derive(Default)]
struct PartContents<'a> {
    /// `None` where only pods name the node.
    nodes: BTreeMap<&'a str, Option<&'a Node>>,
    held: BTreeMap<&'a str, Resources>,
    workloads: BTreeMap<WorkloadRef, Tasks<'a>>,
    /// Of nodes that are there, and of others.
    numa: BTreeMap<&'a str, &'a NumaTopology>,
}

#[derive(Default)]
struct Tasks<'a> {
    bound: BTreeMap<(Option<TaskName>, SortedAmounts), BTreeMap<&'a str, PodsOnNode>>,
    finished: BTreeMap<Option<TaskName>, u32>,
}

/// Pods of a task on a node: the numbers at the end of their names, and how many have none of their own.
#[derive(Default)]
struct PodsOnNode {
    numbers: BTreeSet<u32>,
    others: u32,
}

impl<'a> PartContents<'a> {
    fn record_finished_pod(&mut self, pod: &Pod) {
        if let Some((workload, task)) = owning_workload(pod) {
            *self.workloads.entry(workload).or_default().finished.entry(task).or_default() += 1;
        }
    }

    fn add_bound_pod(&mut self, node: &'a str, name: &str, pod: &Pod) {
        let request = round_up_request(&pod.request);
        let Some((workload, task)) = owning_workload(pod) else {
            self.held.entry(node).or_default().add(&request);
            return;
        };
        let tasks = self.workloads.entry(workload).or_default();
        let place = tasks.bound.entry((task, sorted_amounts(&request))).or_default().entry(node).or_default();
        // Controllers remove the pod with the highest number first, so the numbers are kept.
        match name.rsplit('-').next().and_then(|last| last.parse().ok()) {
            Some(number) if place.numbers.insert(number) => {}
            _ => place.others += 1,
        }
    }

    fn encode_part(&self) -> Part {
        let (shapes, numbers) = group_nodes_by_shape(&self.nodes);
        let mut held: BTreeMap<SortedAmounts, BTreeSet<u32>> = BTreeMap::new();
        for (node, resources) in &self.held {
            held.entry(sorted_amounts(resources)).or_default().extend(numbers.get(*node));
        }
        let held = held
            .into_iter()
            .map(|(amounts, on)| Held { nodes: ranges::format_ranges(on), amounts: encode_amounts(&amounts) });
        let requests: BTreeSet<&SortedAmounts> =
            self.workloads.values().flat_map(|tasks| tasks.bound.keys().map(|(_, request)| request)).collect();
        let requests: BTreeMap<&SortedAmounts, u32> = requests.into_iter().zip(0..).collect();
        let mut over = 0;
        let workloads = self.workloads.iter().filter(|(_, tasks)| {
            over += usize::from(tasks.bound.is_empty());
            !tasks.bound.is_empty() || over <= MOST_FINISHED
        });
        Part {
            shapes,
            held: held.collect(),
            workloads: workloads
                .map(|(workload, tasks)| tasks.encode_workload(workload, &numbers, &requests))
                .collect(),
            requests: requests.keys().map(|request| encode_amounts(request)).collect(),
            numa: numa::encode_numa_reports(&self.numa, &numbers),
            ..Part::default()
        }
    }
}

impl Tasks<'_> {
    fn encode_workload(
        &self,
        reference: &WorkloadRef,
        numbers: &BTreeMap<String, u32>,
        requests: &BTreeMap<&SortedAmounts, u32>,
    ) -> Workload {
        let bound = self.bound.iter().map(|((task, request), on)| {
            let mut places: Vec<(u32, &PodsOnNode)> =
                on.iter().filter_map(|(node, place)| Some((*numbers.get(*node)?, place))).collect();
            places.sort_unstable_by_key(|(number, _)| *number);
            let texts = places.into_iter().flat_map(|(node, place)| {
                let numbered = (!place.numbers.is_empty())
                    .then(|| format!("{node}:{}", ranges::format_ranges(place.numbers.iter().copied())));
                let others = (place.others > 0).then(|| format!("{node}*{}", place.others));
                [numbered, others].into_iter().flatten()
            });
            Bound {
                task: task.as_ref().map(ToString::to_string),
                request: requests.get(request).copied().unwrap_or(u32::MAX),
                on: texts.collect::<Vec<_>>().join(" "),
            }
        });
        let finished = self
            .finished
            .iter()
            .map(|(task, pods)| Finished { task: task.as_ref().map(ToString::to_string), pods: *pods });
        let WorkloadRef { group, kind, namespace, name } = reference.clone();
        Workload { group, kind, namespace, name, bound: bound.collect(), finished: finished.collect() }
    }
}

/// The workload and task of a pod, if its kind is one that Karmada may have propagated.
fn owning_workload(pod: &Pod) -> Option<(WorkloadRef, Option<TaskName>)> {
    let owner = pod.owner.as_ref()?;
    WorkloadKind::from_group_and_kind(&owner.group, &owner.kind)?;
    Some((owner.workload(&pod.namespace), owner.task.clone()))
}

/// What nodes of a shape have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ShapeKey<'a> {
    labels: BTreeMap<&'a str, &'a str>,
    own: BTreeSet<&'a str>,
    taints: Vec<&'a Taint>,
    allocatable: SortedAmounts,
    closed: (bool, bool, bool),
}

/// The shapes, and the number of each node.
fn group_nodes_by_shape(nodes: &BTreeMap<&str, Option<&Node>>) -> (Vec<NodeShape>, BTreeMap<String, u32>) {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, value) in nodes.values().flatten().flat_map(|node| list_labels_without_hostname(node)) {
        let of_key = values.entry(key).or_default();
        if of_key.len() <= MOST_SHAPE_VALUES {
            of_key.insert(value);
        }
    }
    let is_own = |key: &str| values.get(key).is_some_and(|values| values.len() > MOST_SHAPE_VALUES);
    let mut alike: BTreeMap<ShapeKey<'_>, Vec<&str>> = BTreeMap::new();
    for (name, node) in nodes {
        let key = match node {
            None => ShapeKey {
                labels: BTreeMap::new(),
                own: BTreeSet::new(),
                taints: Vec::new(),
                allocatable: SortedAmounts::new(),
                closed: (false, false, true),
            },
            Some(node) => {
                let mut taints: Vec<&Taint> = node.taints.iter().collect();
                taints.sort();
                ShapeKey {
                    labels: list_labels_without_hostname(node).filter(|(key, _)| !is_own(key)).collect(),
                    own: list_labels_without_hostname(node).map(|(key, _)| key).filter(|key| is_own(key)).collect(),
                    taints,
                    allocatable: sorted_amounts(&node.allocatable),
                    closed: (!node.ready, node.unschedulable, false),
                }
            }
        };
        alike.entry(key).or_default().push(name);
    }
    let mut numbers = BTreeMap::new();
    let shapes = alike.into_iter().map(|(alike, names)| alike.encode_shape(&names, nodes, &mut numbers)).collect();
    (shapes, numbers)
}

/// A node's labels without the hostname label that repeats its name.
fn list_labels_without_hostname(node: &Node) -> impl Iterator<Item = (&str, &str)> {
    let all = node.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    all.filter(|(key, value)| (*key, *value) != (HOSTNAME, node.name.as_str()))
}

impl ShapeKey<'_> {
    fn encode_shape(
        &self,
        names: &[&str],
        nodes: &BTreeMap<&str, Option<&Node>>,
        numbers: &mut BTreeMap<String, u32>,
    ) -> NodeShape {
        let folded = ranges::fold_names(names);
        // Names that were folded here can always be unfolded.
        let names = ranges::unfold_names(&folded).unwrap_or_default();
        let value = |name: &String, key: &str| {
            let node = nodes.get(name.as_str()).copied().flatten();
            node.and_then(|node| node.labels.get(key)).cloned().unwrap_or_default()
        };
        let own = |key: &&str| ((*key).to_owned(), names.iter().map(|name| value(name, key)).collect());
        let own_labels = self.own.iter().map(own).collect();
        for name in names {
            let number = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            numbers.insert(name, number);
        }
        let (not_ready, cordoned, gone) = self.closed;
        let closed = [(not_ready, Closed::NotReady), (cordoned, Closed::Cordoned), (gone, Closed::Gone)];
        NodeShape {
            names: folded,
            labels: self.labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            own_labels,
            taints: self.taints.iter().map(|taint| encode_taint(taint)).collect(),
            allocatable: encode_amounts(&self.allocatable),
            closed: closed.into_iter().filter(|(is, _)| *is).map(|(_, why)| why).collect(),
        }
    }
}

fn encode_taint(taint: &Taint) -> k8s::Taint {
    let value = (!taint.value.is_empty()).then(|| taint.value.clone());
    k8s::Taint { key: taint.key.clone(), value, effect: taint.effect.clone(), time_added: None }
}

fn sorted_amounts(resources: &Resources) -> SortedAmounts {
    resources.iter().map(|(name, amount)| (name.clone(), amount)).collect()
}

fn encode_amounts(amounts: &SortedAmounts) -> ResourceList {
    amounts.iter().map(|(name, amount)| (name.to_string(), resource::Quantity(amount.to_string()))).collect()
}
