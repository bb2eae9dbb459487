//! What the controller keeps of a PodGroup of its own: enough to compare it with what it should be. And which PodGroup
//! is that of a workload.
//!
//! A name that people can type: `<workload>-<kind>`, such as `train-vcjob`. Kinds have words without a dash, so no
//! other workload of the namespace has it. Where somebody else has an object of that name, the PodGroup has the name
//! that Volcano's job controller gives in a cluster (`pkg/controllers/job/job_controller_actions.go:796-968`), with the
//! workload's UID in it. The owner's UID says whose a PodGroup is, never its name alone: one that is there is kept,
//! under either name.

use std::{collections::BTreeMap, mem, sync::Arc};

use caldera_crds::{names::caldera::PLACED_CLUSTERS, volcano::scheduling::PodGroup, workload::WorkloadKind};

use super::{binding::Key, fingerprint::fingerprint, workload::Workload};

/// Characters that a name may have.
const LONGEST_NAME: usize = 253;

/// The PodGroups that have our label.
#[derive(Debug, Default)]
pub(crate) struct PodGroups(BTreeMap<Key, Box<PodGroupFacts>>);

impl PodGroups {
    pub(crate) fn get(&self, key: &Key) -> Option<&PodGroupFacts> {
        self.0.get(key).map(|group| &**group)
    }

    pub(crate) fn insert(&mut self, group: PodGroupFacts) {
        self.0.insert(group.key.clone(), Box::new(group));
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// All of them; none is left.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = PodGroupFacts> + use<> {
        mem::take(&mut self.0).into_values().map(|group| *group)
    }

    /// That of a workload.
    pub(crate) fn find(&self, workload: &Workload) -> Option<&PodGroupFacts> {
        self.list_owned(workload).next()
    }

    /// One too many: a workload got its second where the first was not seen yet.
    pub(crate) fn find_surplus(&self, workload: &Workload) -> Option<&PodGroupFacts> {
        self.list_owned(workload).nth(1)
    }

    /// All of a workload, the one with the name that people type first.
    pub(crate) fn list_owned(&self, workload: &Workload) -> impl Iterator<Item = &PodGroupFacts> {
        let named = list_names(workload).filter_map(|key| self.get(&key));
        named.filter(|group| group.owner == workload.uid)
    }

    /// Whatever has the name that a workload's should have.
    pub(crate) fn find_best_named(&self, workload: &Workload) -> Option<&PodGroupFacts> {
        list_names(workload).next().and_then(|key| self.get(&key))
    }

    /// The name for a PodGroup that is to be made, if one is free. `is_taken` says that somebody has an object of the
    /// first name that is not ours to see.
    pub(crate) fn find_free_name(&self, workload: &Workload, is_taken: bool) -> Option<Key> {
        list_names(workload).skip(usize::from(is_taken)).find(|key| self.get(key).is_none())
    }
}

/// The names that the PodGroup of a workload may have, the best first. One that would be too long is left out.
fn list_names(workload: &Workload) -> impl Iterator<Item = Key> + use<> {
    let (name, uid) = (&workload.reference.name, &workload.uid);
    let with_kind = format!("{name}-{}", workload.kind.word());
    let with_both = (workload.kind == WorkloadKind::VolcanoJob).then(|| format!("{name}-{uid}"));
    let fits = |name: &String| name.len() <= LONGEST_NAME;
    let with_uid = with_both.filter(fits).unwrap_or_else(|| format!("podgroup-{uid}"));
    let names = Some(with_kind).filter(fits).into_iter().chain([with_uid]);
    let namespace = workload.reference.namespace.clone();
    names.map(move |name| Key::new(&namespace, &name))
}

/// A PodGroup of ours, as far as we compare it with what it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct PodGroupFacts {
    /// Which.
    pub key: Key,
    /// UID.
    pub uid: Arc<str>,
    /// UID of its workload.
    pub owner: Arc<str>,
    /// Of its spec (see [`fingerprint`]).
    pub spec: u64,
    /// Its status.
    pub status: PodGroupStatus,
}

/// What a PodGroup's status says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodGroupStatus {
    /// `Pending`, `Inqueue`, `Running` or `Completed`.
    pub phase: String,
    /// `Unschedulable` or `Scheduled`.
    pub condition: String,
    /// Token.
    pub reason: String,
    /// Sentence.
    pub message: String,
    /// Since when.
    pub since: String,
    /// The clusters that it is placed in, in an annotation; empty for none.
    pub clusters: String,
    /// Pods.
    pub running: i32,
    /// Pods.
    pub succeeded: i32,
    /// The most pods that had failed at once so far.
    pub failed: i32,
}

impl PodGroupFacts {
    /// Reads one.
    #[must_use]
    pub fn read(object: &PodGroup) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let condition = status.conditions.first().cloned().unwrap_or_default();
        Self {
            key: Key::from_metadata(&object.metadata),
            uid: object.metadata.uid.as_deref().unwrap_or("").into(),
            owner: object
                .metadata
                .owner_references
                .iter()
                .flatten()
                .map(|owner| owner.uid.as_str().into())
                .next()
                .unwrap_or_default(),
            spec: fingerprint(&object.spec),
            status: PodGroupStatus {
                phase: status.phase.map(|phase| phase.as_str().to_owned()).unwrap_or_default(),
                condition: condition.type_.unwrap_or_default(),
                reason: condition.reason.unwrap_or_default(),
                message: condition.message.unwrap_or_default(),
                since: condition
                    .last_transition_time
                    .map(|time| caldera_runtime::clock::format_time(time.0))
                    .unwrap_or_default(),
                clusters: object
                    .metadata
                    .annotations
                    .as_ref()
                    .and_then(|all| all.get(PLACED_CLUSTERS))
                    .cloned()
                    .unwrap_or_default(),
                running: status.running.unwrap_or(0),
                succeeded: status.succeeded.unwrap_or(0),
                failed: status.failed.unwrap_or(0),
            },
        }
    }
}
