//! The labels of nodes that gangs select on or prefer, waiting or placed.
//!
//! Those of the card models that a job chooses from are among them. Each label is counted by who selects on it and is
//! kept until nobody does. [`Fleet`](super::Fleet) has the members' shapes carry these labels, so that such gangs are
//! answered by shape and not node by node.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    card_model::label_of_model,
    gang::{Gang, NodeClaim, Requirement},
    resources::ResourceName,
};

#[derive(Debug, Clone, Default)]
pub(super) struct SelectedLabels {
    /// By who asks; those who select on none are left out.
    by: BTreeMap<String, BTreeSet<String>>,
    /// How many ask for each.
    counts: BTreeMap<String, usize>,
    labels: Arc<BTreeSet<String>>,
}

impl SelectedLabels {
    /// All of them.
    pub(super) const fn labels(&self) -> &Arc<BTreeSet<String>> {
        &self.labels
    }

    /// Who asks selects as this gang does, on these nodes alone; as none, without one.
    pub(super) fn set_labels_of(&mut self, asks: &str, gang: Option<&Gang>, nodes: &[Requirement]) {
        let tasks = gang.into_iter().flat_map(|gang| &gang.tasks);
        let nodes = nodes.iter().filter(|_| gang.is_some()).map(|label| label.key.as_str());
        let cards = tasks.clone().flat_map(|task| &task.node.cards).filter_map(ResourceName::as_card);
        let cards = cards.map(|(resource, _)| label_of_model(resource));
        let keys = |node: &'_ NodeClaim| -> Vec<String> {
            node.selected_label_keys().chain(node.preferred_label_keys()).map(ToOwned::to_owned).collect()
        };
        let labels = tasks.flat_map(|task| keys(&task.node)).chain(nodes.map(ToOwned::to_owned));
        let now: BTreeSet<String> = labels.chain(cards).collect();
        if self.by.get(asks).map_or(now.is_empty(), |before| *before == now) {
            return;
        }
        for label in &now {
            *self.counts.entry(label.clone()).or_default() += 1;
        }
        let before = if now.is_empty() { self.by.remove(asks) } else { self.by.insert(asks.to_owned(), now) };
        for label in before.into_iter().flatten() {
            if let Some(count) = self.counts.get_mut(&label) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&label);
                }
            }
        }
        if !self.counts.keys().eq(self.labels.iter()) {
            self.labels = Arc::new(self.counts.keys().cloned().collect());
        }
    }
}
