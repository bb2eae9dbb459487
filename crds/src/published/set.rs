//! Collects the objects of one member, and compares two published states of it.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::{fleet::Queues, inventory::Change};

use super::{
    ClusterInventory, Contents, Heartbeat, Malformed, Nodes, NumaTopologies, Part, Pods, Workload,
    decode::{PartDecoder, decode_hyper_nodes},
    decode_part, queues,
    weight::check_decoded_size,
};

/// The objects of one member, as they arrive.
#[derive(Debug, Clone, Default)]
pub struct MemberObjects {
    heartbeat: Option<Heartbeat>,
    parts: BTreeMap<u32, Arc<Part>>,
}

/// The complete inventory of a member: a heartbeat and all its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// When and how the member was seen.
    pub heartbeat: Heartbeat,
    /// In order.
    pub parts: Vec<Arc<Part>>,
}

/// The cluster and the part's index that an object's name stands for.
#[must_use]
pub fn parse_object_name(name: &str) -> (&str, Option<u32>) {
    match name.rsplit_once('.') {
        Some((cluster, index)) => (cluster, index.parse().ok()),
        None => (name, None),
    }
}

impl ClusterInventory {
    /// The member that this object is about; `None` if its name and its content disagree.
    #[must_use]
    pub fn cluster(&self) -> Option<&str> {
        let (cluster, index) = parse_object_name(self.metadata.name.as_deref()?);
        let spec = &self.spec;
        let agrees = cluster == spec.cluster && index == spec.part.as_ref().map(|part| part.index);
        (agrees && spec.part.is_some() != spec.heartbeat.is_some()).then_some(cluster)
    }
}

impl MemberObjects {
    /// Adds or replaces an object.
    pub fn apply(&mut self, object: ClusterInventory) {
        let spec = object.spec;
        if spec.heartbeat.is_some() {
            self.heartbeat = spec.heartbeat;
        }
        if let Some(part) = spec.part {
            self.parts.insert(part.index, Arc::new(part));
        }
    }

    /// Removes an object that was deleted.
    pub fn remove(&mut self, object: &ClusterInventory) {
        if object.spec.heartbeat.is_some() {
            self.heartbeat = None;
        }
        if let Some(part) = &object.spec.part {
            self.parts.remove(&part.index);
        }
    }

    /// True without a heartbeat: then nothing is published.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.heartbeat.is_none()
    }

    /// The number of parts that the heartbeat announces.
    #[must_use]
    pub fn parts_wanted(&self) -> u32 {
        self.heartbeat.as_ref().map_or(0, |heartbeat| heartbeat.parts)
    }

    /// The complete inventory; `None` while a part is missing or belongs to another division.
    #[must_use]
    pub fn assemble_if_complete(&self) -> Option<Published> {
        let heartbeat = self.heartbeat.clone()?;
        let parts: Vec<Arc<Part>> = (0..heartbeat.parts)
            .map(|index| self.parts.get(&index).filter(|part| part.of == heartbeat.parts).cloned())
            .collect::<Option<_>>()?;
        (!parts.is_empty()).then_some(Published { heartbeat, parts })
    }
}

impl Published {
    /// The member's own queues that bound something.
    ///
    /// # Errors
    /// [`Malformed`] if they can not be decoded.
    pub fn decode_queues(&self) -> Result<Queues, Malformed> {
        let mut all = Queues::new();
        for part in &self.parts {
            all.extend(queues::decode_queues(part)?);
        }
        Ok(all)
    }

    /// The changes that a watch would have reported since `before`; without it, everything. Changes that take capacity
    /// come before changes that free some.
    ///
    /// # Errors
    /// [`Malformed`] if a part can not be decoded.
    pub fn changes_since(&self, before: Option<&Self>) -> Result<Vec<Change>, Malformed> {
        check_decoded_size(self.parts.iter().map(Arc::as_ref))?;
        let before = before.filter(|before| before.parts.len() == self.parts.len());
        let Some(before) = before else {
            let mut all = Contents::default();
            for part in &self.parts {
                let more = decode_part(part)?;
                if let Some(twice) = more.nodes.keys().find(|name| all.nodes.contains_key(*name)) {
                    return Err(Malformed::Twice(twice.clone()));
                }
                all.nodes.extend(more.nodes);
                all.pods.extend(more.pods);
                all.hyper_nodes.extend(more.hyper_nodes);
                all.numa.extend(more.numa);
            }
            return Ok(vec![
                Change::HyperNodes(all.hyper_nodes.into_values().collect()),
                Change::NumaTopologies(all.numa.into_iter().collect()),
                // Nodes have theirs in what they have in all.
                Change::AllDevices(Vec::new()),
                Change::Nodes(all.nodes.into_values().collect()),
                Change::Pods(all.pods.into_values().collect()),
            ]);
        };
        let mut changes = Vec::new();
        for (now, then) in self.parts.iter().zip(&before.parts) {
            if !Arc::ptr_eq(now, then) && now != then {
                compare_parts(now, then, &mut changes)?;
            }
        }
        Ok(changes)
    }
}

/// Decodes only what differs: a part has thousands of pods, and few of them change.
fn compare_parts(now: &Part, then: &Part, changes: &mut Vec<Change>) -> Result<(), Malformed> {
    if now.domains != then.domains {
        changes.push(Change::HyperNodes(decode_hyper_nodes(now)?.into_values().collect()));
    }
    let (new, old) = (PartDecoder::new(now)?, PartDecoder::new(then)?);
    let same_nodes = new.names == old.names;
    let same_numbers = same_nodes && new.requests == old.requests;
    if !same_nodes || now.numa != then.numa {
        compare_numa(new.decode_numa()?, old.decode_numa()?, changes);
    }
    let (mut nodes, mut old_nodes) = (Nodes::new(), Nodes::new());
    if now.shapes != then.shapes {
        (nodes, old_nodes) = (new.decode_nodes()?, old.decode_nodes()?);
    }
    let (mut pods, mut old_pods) = (Pods::new(), Pods::new());
    if !same_nodes || now.held != then.held {
        (pods, old_pods) = (new.decode_unowned_pods()?, old.decode_unowned_pods()?);
    }
    let id = |workload: &Workload| {
        let Workload { group, kind, namespace, name, .. } = workload.clone();
        (group, kind, namespace, name)
    };
    let mut known: BTreeMap<_, &Workload> = then.workloads.iter().map(|workload| (id(workload), workload)).collect();
    for workload in &now.workloads {
        let before = known.remove(&id(workload));
        if !(same_numbers && before == Some(workload)) {
            new.decode_workload(workload, &mut pods)?;
            before.map_or(Ok(()), |before| old.decode_workload(before, &mut old_pods))?;
        }
    }
    for gone in known.into_values() {
        old.decode_workload(gone, &mut old_pods)?;
    }
    let gone_pods = old_pods.keys().filter(|key| !pods.contains_key(*key)).cloned();
    let gone_pods: Vec<Change> = gone_pods.map(|(namespace, name)| Change::PodGone(namespace, name)).collect();
    let gone_nodes = old_nodes.keys().filter(|name| !nodes.contains_key(*name)).cloned();
    let gone_nodes: Vec<Change> = gone_nodes.map(Change::NodeGone).collect();
    let nodes = nodes.into_iter().filter(|(name, node)| old_nodes.get(name) != Some(node));
    changes.extend(nodes.map(|(_, node)| Change::Node(node)));
    let pods = pods.into_iter().filter(|(key, pod)| old_pods.get(key) != Some(pod));
    changes.extend(pods.map(|(_, pod)| Change::Pod(pod)));
    changes.extend(gone_pods);
    changes.extend(gone_nodes);
    Ok(())
}

fn compare_numa(now: NumaTopologies, then: NumaTopologies, changes: &mut Vec<Change>) {
    let gone = then.keys().filter(|name| !now.contains_key(*name)).cloned();
    changes.extend(gone.map(Change::NumaTopologyGone));
    let new = now.into_iter().filter(|(name, topology)| then.get(name) != Some(topology));
    changes.extend(new.map(|(name, topology)| Change::NumaTopology(name, topology)));
}
