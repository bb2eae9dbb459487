//! Which data a catalogue is asked for, and when: that of claims without a source, one question at a time.
//!
//! Rule: namespaces take turns, so that a thousand claims of one delay another's by one question each. What is not
//! found, or is not answered, is asked for again after a wait that doubles. Nothing is asked for that nobody claims any
//! more, or that has a source by then.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use caldera_core::data_source::{ClaimKey, DataIdentity, DataIndex};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{
    catalogue::name_source,
    decide::deadlines::{add_wait, compute_backoff},
    write::{
        Decision,
        data_claim::{DataTarget, DataWrite, DataWriteKind},
    },
};

/// After the first question in vain.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// Doublings of it at most: ten minutes and a bit.
const DOUBLINGS: u32 = 8;

/// What claims of one namespace wait for.
#[derive(Debug, Default)]
struct Line {
    due: BTreeSet<(Timestamp, Arc<DataIdentity>)>,
    /// How often each was asked for in vain.
    known: BTreeMap<Arc<DataIdentity>, u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DataCatalogue {
    /// There is one.
    pub(crate) is_there: bool,
    lines: BTreeMap<Arc<str>, Line>,
    /// The namespace that had the last turn.
    last: Option<Arc<str>>,
    under_way: Option<(Arc<str>, Arc<DataIdentity>)>,
}

impl DataCatalogue {
    /// Takes in that these claims may be bound to another source, or to none.
    pub(crate) fn observe_claims(&mut self, index: &DataIndex, claims: &BTreeSet<ClaimKey>) {
        if !self.is_there {
            return;
        }
        for claim in claims.iter().filter_map(|key| index.find_claim(key)) {
            if index.has_claims_waiting_for(&claim.data, &claim.key.namespace) {
                let line = self.lines.entry(Arc::clone(&claim.key.namespace)).or_default();
                if !line.known.contains_key(&claim.data) {
                    line.known.insert(Arc::clone(&claim.data), 0);
                    line.due.insert((Timestamp::MIN, Arc::clone(&claim.data)));
                }
            }
        }
    }

    /// When there may be something to ask.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        if self.under_way.is_some() {
            return None;
        }
        self.lines.values().filter_map(|line| line.due.first()).map(|(at, _)| *at).min()
    }

    /// What to ask for now, if nothing is asked for yet.
    pub(crate) fn take_question(&mut self, index: &DataIndex, now: Timestamp) -> Option<Arc<DataIdentity>> {
        if self.under_way.is_some() {
            return None;
        }
        let from = self.last.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let after_last = self.lines.range((from, Bound::Unbounded)).map(|(namespace, _)| Arc::clone(namespace));
        let turns: Vec<Arc<str>> = after_last.chain(self.lines.keys().cloned()).collect();
        for namespace in turns {
            let Some(line) = self.lines.get_mut(&namespace) else { continue };
            while let Some((_, data)) = line.due.first().filter(|(at, _)| *at <= now).cloned() {
                line.due.pop_first();
                if index.has_claims_waiting_for(&data, &namespace) {
                    self.last = Some(Arc::clone(&namespace));
                    self.under_way = Some((namespace, Arc::clone(&data)));
                    return Some(data);
                }
                line.known.remove(&data);
            }
            if line.known.is_empty() {
                self.lines.remove(&namespace);
            }
        }
        None
    }

    /// Takes in the answer: the source that is to be made, if it names clusters.
    pub(crate) fn apply_catalogue_answer(
        &mut self,
        answer: Result<BTreeSet<String>, String>,
        now: Timestamp,
    ) -> Option<Decision> {
        let (namespace, data) = self.under_way.take()?;
        let line = self.lines.get_mut(&namespace)?;
        let failures = line.known.get_mut(&data)?;
        *failures = failures.saturating_add(1);
        // Also of what is found: its source may not be made.
        let again = add_wait(now, compute_backoff(FIRST_RETRY, (*failures).min(DOUBLINGS)));
        line.due.insert((again, Arc::clone(&data)));
        match answer {
            Ok(clusters) if !clusters.is_empty() => Some(create_source(&data, &clusters)),
            Ok(_) => None,
            Err(why) => {
                let DataIdentity { system, category, name, .. } = &*data;
                tracing::warn!(system, category, name, why, "the catalogue did not say where data is");
                None
            }
        }
    }
}

/// It goes with its last claim, so that who claims it later learns where it is then.
fn create_source(data: &DataIdentity, clusters: &BTreeSet<String>) -> Decision {
    let name = name_source(data);
    let object = json!({
        "apiVersion": "datadependency.volcano.sh/v1alpha1", "kind": "DataSource", "metadata": {"name": name},
        "spec": {
            "system": data.system, "type": data.category, "name": data.name, "attributes": data.attributes,
            "reclaimPolicy": "Delete", "locality": {"clusterNames": clusters},
        },
    });
    tracing::info!(source = name, "the catalogue said where data is");
    let change = DataWriteKind::Create(object);
    Decision::Data(DataWrite { target: DataTarget::Source(name), resource_version: Arc::default(), change })
}
