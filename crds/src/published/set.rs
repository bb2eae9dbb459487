//! The objects of one member together, and what changed between two states of them.

use std::{collections::BTreeMap, sync::Arc};

use caldera_core::inventory::Change;

use super::{ClusterInventory, Contents, Heartbeat, Malformed, Part, decode};

/// The objects of one member, as they arrive.
#[derive(Debug, Clone, Default)]
pub struct Set {
    heartbeat: Option<Heartbeat>,
    parts: BTreeMap<u32, Arc<Part>>,
}

/// What was published of a member: a heartbeat and all parts of one division.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// When and how the member was seen.
    pub heartbeat: Heartbeat,
    /// In order.
    pub parts: Vec<Arc<Part>>,
}

/// The cluster, and which part, that an object of this name is about.
#[must_use]
pub fn about(name: &str) -> (&str, Option<u32>) {
    match name.rsplit_once('.') {
        Some((cluster, index)) => (cluster, index.parse().ok()),
        None => (name, None),
    }
}

impl ClusterInventory {
    /// The member that this object is about; `None` if its name and its content disagree.
    #[must_use]
    pub fn cluster(&self) -> Option<&str> {
        let (cluster, index) = about(self.metadata.name.as_deref()?);
        let spec = &self.spec;
        let agrees = cluster == spec.cluster && index == spec.part.as_ref().map(|part| part.index);
        (agrees && spec.part.is_some() != spec.heartbeat.is_some()).then_some(cluster)
    }
}

impl Set {
    /// Takes in an object that is there.
    pub fn apply(&mut self, object: ClusterInventory) {
        let spec = object.spec;
        if spec.heartbeat.is_some() {
            self.heartbeat = spec.heartbeat;
        }
        if let Some(part) = spec.part {
            self.parts.insert(part.index, Arc::new(part));
        }
    }

    /// Takes in that an object is gone.
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

    /// How many parts there are to be.
    #[must_use]
    pub fn parts_wanted(&self) -> u32 {
        self.heartbeat.as_ref().map_or(0, |heartbeat| heartbeat.parts)
    }

    /// All of it; `None` while a part is missing or of another division.
    #[must_use]
    pub fn complete(&self) -> Option<Published> {
        let heartbeat = self.heartbeat.clone()?;
        let parts: Vec<Arc<Part>> = (0..heartbeat.parts)
            .map(|index| self.parts.get(&index).filter(|part| part.of == heartbeat.parts).cloned())
            .collect::<Option<_>>()?;
        (!parts.is_empty()).then_some(Published { heartbeat, parts })
    }
}

impl Published {
    /// What a watch would have told since `before`; all there is without one. What takes comes before what gives.
    ///
    /// # Errors
    /// [`Malformed`] if it is no inventory.
    pub fn since(&self, before: Option<&Self>) -> Result<Vec<Change>, Malformed> {
        let before = before.filter(|before| before.parts.len() == self.parts.len());
        let Some(before) = before else {
            let mut all = Contents::default();
            for part in &self.parts {
                let more = decode(part)?;
                if let Some(twice) = more.nodes.keys().find(|name| all.nodes.contains_key(*name)) {
                    return Err(Malformed::Twice(twice.clone()));
                }
                all.nodes.extend(more.nodes);
                all.pods.extend(more.pods);
                all.hyper_nodes.extend(more.hyper_nodes);
            }
            return Ok(vec![
                Change::HyperNodes(all.hyper_nodes.into_values().collect()),
                Change::Nodes(all.nodes.into_values().collect()),
                Change::Pods(all.pods.into_values().collect()),
            ]);
        };
        let mut changes = Vec::new();
        for (now, then) in self.parts.iter().zip(&before.parts) {
            if !Arc::ptr_eq(now, then) && now != then {
                let (now, then) = (decode(now)?, decode(then)?);
                differences(now, &then, &mut changes);
            }
        }
        Ok(changes)
    }
}

fn differences(now: Contents, then: &Contents, changes: &mut Vec<Change>) {
    if now.hyper_nodes != then.hyper_nodes {
        changes.push(Change::HyperNodes(now.hyper_nodes.into_values().collect()));
    }
    let gone_nodes: Vec<Change> =
        then.nodes.keys().filter(|name| !now.nodes.contains_key(*name)).cloned().map(Change::NodeGone).collect();
    let gone_pods: Vec<Change> = then
        .pods
        .keys()
        .filter(|key| !now.pods.contains_key(*key))
        .map(|(namespace, name)| Change::PodGone(namespace.clone(), name.clone()))
        .collect();
    let nodes = now.nodes.into_iter().filter(|(name, node)| then.nodes.get(name) != Some(node));
    changes.extend(nodes.map(|(_, node)| Change::Node(node)));
    let pods = now.pods.into_iter().filter(|(key, pod)| then.pods.get(key) != Some(pod));
    changes.extend(pods.map(|(_, pod)| Change::Pod(pod)));
    changes.extend(gone_pods);
    changes.extend(gone_nodes);
}
