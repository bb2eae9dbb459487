//! Decodes parts into nodes and pods.
//!
//! Decoded pods get names of our own: unique, stable while nothing changes, and ending in the pod's original number.
//! One pod stands for all pods of unknown owners on its node.

use caldera_core::{
    gang::TaskName,
    inventory::{Node, Owner, Pod},
    node_affinity::HOSTNAME,
    resources::Resources,
};

use super::{
    Bound, Closed, Contents, HyperNodes, Malformed, NodeShape, Nodes, NumaTopologies, Part, Pods, Workload,
    amount::decode_amount, domains, encode::hash_fnv1a, numa, queues, ranges, weight::check_decoded_size,
};
use crate::{placement::read_taint, wire::ResourceList};

/// Pods that a part may have at most.
const MOST_PODS: usize = 1_000_000;

/// Decodes one part.
///
/// # Errors
/// [`Malformed`]: then no content of the part may be used.
pub fn decode_part(part: &Part) -> Result<Contents, Malformed> {
    check_decoded_size([part])?;
    let reader = PartDecoder::new(part)?;
    let (hyper_nodes, queues) = (decode_hyper_nodes(part)?, queues::decode_queues(part)?);
    let (nodes, pods, numa) = (reader.decode_nodes()?, reader.decode_unowned_pods()?, reader.decode_numa()?);
    let mut contents = Contents { nodes, pods, hyper_nodes, queues, numa };
    for workload in &part.workloads {
        reader.decode_workload(workload, &mut contents.pods)?;
    }
    Ok(contents)
}

/// The domains of a part.
pub(super) fn decode_hyper_nodes(part: &Part) -> Result<HyperNodes, Malformed> {
    let read = |domain: &super::NetworkDomain| Ok((domain.name.clone(), domains::decode_domain(domain)?));
    part.domains.iter().map(read).collect()
}

/// A part whose nodes are numbered.
pub(super) struct PartDecoder<'a> {
    part: &'a Part,
    /// By number.
    pub(super) names: Vec<String>,
    /// By number.
    pub(super) requests: Vec<Resources>,
}

impl<'a> PartDecoder<'a> {
    pub(super) fn new(part: &'a Part) -> Result<Self, Malformed> {
        let mut names = Vec::new();
        for shape in &part.shapes {
            names.extend(ranges::unfold_names(&shape.names)?);
        }
        let requests = part.requests.iter().map(decode_resources).collect::<Result<_, _>>()?;
        Ok(Self { part, names, requests })
    }

    pub(super) fn decode_nodes(&self) -> Result<Nodes, Malformed> {
        let mut nodes = Nodes::new();
        for shape in &self.part.shapes {
            let own = ranges::unfold_names(&shape.names)?;
            if let Some((label, _)) = shape.own_labels.iter().find(|(_, values)| values.len() != own.len()) {
                return Err(Malformed::Labels(label.clone()));
            }
            if shape.closed.contains(&Closed::Gone) {
                continue;
            }
            let allocatable = decode_resources(&shape.allocatable)?;
            for (at, name) in own.iter().enumerate() {
                let node = decode_node(shape, at, name, &allocatable);
                if nodes.insert(name.clone(), node).is_some() {
                    return Err(Malformed::Twice(name.clone()));
                }
            }
        }
        Ok(nodes)
    }

    pub(super) fn decode_numa(&self) -> Result<NumaTopologies, Malformed> {
        numa::decode_numa_reports(&self.part.numa, &self.names)
    }

    /// For each node, one pod that stands for all pods of unknown owners.
    pub(super) fn decode_unowned_pods(&self) -> Result<Pods, Malformed> {
        let mut pods = Pods::new();
        for held in &self.part.held {
            let request = decode_resources(&held.amounts)?;
            for number in ranges::parse_ranges(&held.nodes)? {
                let node = ranges::node_name(&self.names, number)?;
                let (name, node) = (format!("~{node}~"), Some(node.to_owned()));
                add_pod(&mut pods, Pod { name, node, request: request.clone(), ..Pod::default() })?;
            }
        }
        Ok(pods)
    }

    /// Adds a workload's pods.
    pub(super) fn decode_workload(&self, workload: &Workload, pods: &mut Pods) -> Result<(), Malformed> {
        for (at, bound) in workload.bound.iter().enumerate() {
            self.decode_bound_pods(workload, at, bound, pods)?;
        }
        for finished in &workload.finished {
            let ended = PodOf::new(workload, finished.task.as_deref());
            for count in 0..finished.pods {
                // Another part may have finished pods of the same task.
                let pod = ended.make_pod(&["ended", &self.part.index.to_string()], &format!("{count}~"), String::new());
                add_pod(pods, Pod { finished: true, ..pod })?;
            }
        }
        Ok(())
    }

    fn decode_bound_pods(
        &self,
        workload: &Workload,
        at: usize,
        bound: &Bound,
        pods: &mut Pods,
    ) -> Result<(), Malformed> {
        let malformed = || Malformed::Range(bound.on.clone());
        let request = self.requests.get(bound.request as usize).ok_or(Malformed::NoRequest(bound.request))?;
        let of = PodOf::new(workload, bound.task.as_deref());
        for place in bound.on.split(' ').filter(|place| !place.is_empty()) {
            let split = place.find([':', '*']).ok_or_else(malformed)?;
            let node = ranges::node_name(&self.names, place[..split].parse().map_err(|_| malformed())?)?;
            let (is_numbered, rest) = (place.as_bytes()[split] == b':', &place[split + 1..]);
            // A task whose pods have different requests is listed more than once, possibly with the same numbers.
            let at = at.to_string();
            if is_numbered {
                for number in ranges::parse_ranges(rest)? {
                    let pod = of.make_pod(&[node, &at], &format!("-{number}"), node.to_owned());
                    add_pod(pods, Pod { request: request.clone(), ..pod })?;
                }
            } else {
                for count in 0..rest.parse::<u32>().map_err(|_| malformed())? {
                    let pod = of.make_pod(&[node, &at], &format!("{count}~"), node.to_owned());
                    add_pod(pods, Pod { request: request.clone(), ..pod })?;
                }
            }
        }
        Ok(())
    }
}

fn decode_node(shape: &NodeShape, at: usize, name: &str, allocatable: &Resources) -> Node {
    let mut labels = shape.labels.clone();
    labels.extend(shape.own_labels.iter().map(|(key, values)| (key.clone(), values[at].clone())));
    labels.entry(HOSTNAME.to_owned()).or_insert_with(|| name.to_owned());
    Node {
        name: name.to_owned(),
        labels,
        taints: shape.taints.iter().map(read_taint).collect(),
        allocatable: allocatable.clone(),
        ready: !shape.closed.contains(&Closed::NotReady),
        unschedulable: shape.closed.contains(&Closed::Cordoned),
        // The heartbeat says what of them counts.
        images: Vec::new(),
    }
}

fn add_pod(pods: &mut Pods, pod: Pod) -> Result<(), Malformed> {
    if pods.len() >= MOST_PODS {
        return Err(Malformed::Pods(MOST_PODS));
    }
    match pods.insert((pod.namespace.clone(), pod.name.clone()), pod) {
        None => Ok(()),
        Some(twice) => Err(Malformed::Twice(twice.name)),
    }
}

/// What pods of a task have in common.
struct PodOf<'a> {
    namespace: &'a str,
    owner: Owner,
}

impl<'a> PodOf<'a> {
    fn new(workload: &'a Workload, task: Option<&str>) -> Self {
        let Workload { group, kind, namespace, name, .. } = workload;
        let task = task.map(TaskName::from);
        Self { namespace, owner: Owner { group: group.clone(), kind: kind.clone(), name: name.clone(), task } }
    }

    /// A pod's name is a hash of its owner and its node, which is shorter than both: names are kept for every pod.
    fn make_pod(&self, place: &[&str], last: &str, node: String) -> Pod {
        let Owner { group, kind, name, task } = &self.owner;
        let task = task.as_ref().map_or("", |task| task.as_str());
        let all = [group, kind, name, task].into_iter().chain(place.iter().copied());
        // A separator, so that different lists of words have different bytes.
        let bytes = all.flat_map(|word: &str| word.bytes().chain([0]));
        Pod {
            namespace: self.namespace.to_owned(),
            name: format!("{:x}~{last}", hash_fnv1a(bytes)),
            node: Some(node),
            owner: Some(self.owner.clone()),
            ..Pod::default()
        }
    }
}

fn decode_resources(list: &ResourceList) -> Result<Resources, Malformed> {
    list.iter().map(|(name, amount)| Ok((name.as_str(), decode_amount(name, amount)?))).collect()
}
