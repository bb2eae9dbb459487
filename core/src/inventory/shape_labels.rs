//! Which labels a member's shapes carry: those that somebody selects on.
//!
//! A label that tells most nodes apart would make a shape of each of them. It is left out, and whoever selects on it
//! looks at the nodes one by one, as for their names.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::NodeRef;
use crate::node_affinity::HOSTNAME;

/// A label with more values is not carried.
const MOST_CARRIED_VALUES: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct ShapeLabels {
    asked: Arc<BTreeSet<String>>,
    /// Nodes by the value of each label that is asked for.
    values: BTreeMap<String, BTreeMap<Arc<str>, u32>>,
    keys: Arc<BTreeSet<String>>,
}

impl ShapeLabels {
    /// What shapes carry.
    pub(super) const fn keys(&self) -> &Arc<BTreeSet<String>> {
        &self.keys
    }

    /// From now on these are asked for; true if shapes carry others than before.
    pub(super) fn set_selected<'a>(
        &mut self,
        asked: &Arc<BTreeSet<String>>,
        nodes: impl Iterator<Item = &'a NodeRef> + Clone,
    ) -> bool {
        if Arc::ptr_eq(asked, &self.asked) {
            return false;
        }
        self.asked = Arc::clone(asked);
        self.values.retain(|key, _| asked.contains(key));
        for key in asked.iter().filter(|key| *key != HOSTNAME) {
            if !self.values.contains_key(key) {
                let of_key = self.values.entry(key.clone()).or_default();
                nodes.clone().filter_map(|node| node.label(key)).for_each(|value| count_value(of_key, value));
            }
        }
        self.update_keys()
    }

    /// A node comes.
    pub(super) fn add_node(&mut self, node: &NodeRef) {
        for (key, values) in &mut self.values {
            node.label(key).into_iter().for_each(|value| count_value(values, value));
        }
    }

    /// A node goes.
    pub(super) fn remove_node(&mut self, node: &NodeRef) {
        for (key, values) in &mut self.values {
            let Some(value) = node.label(key) else { continue };
            if let Some(nodes) = values.get_mut(value) {
                *nodes -= 1;
                if *nodes == 0 {
                    values.remove(value);
                }
            }
        }
    }

    /// Works out anew what shapes carry; true if it changed.
    pub(super) fn update_keys(&mut self) -> bool {
        let few = |(_, values): &(&String, &BTreeMap<Arc<str>, u32>)| values.len() <= MOST_CARRIED_VALUES;
        if self.values.iter().filter(few).map(|(key, _)| key).eq(self.keys.iter()) {
            return false;
        }
        self.keys = Arc::new(self.values.iter().filter(few).map(|(key, _)| key.clone()).collect());
        true
    }

    /// The labels of a node that shapes carry.
    pub(super) fn labels_of(&self, node: &NodeRef) -> BTreeMap<String, String> {
        self.keys.iter().filter_map(|key| Some((key.clone(), node.label(key)?.to_owned()))).collect()
    }
}

fn count_value(values: &mut BTreeMap<Arc<str>, u32>, value: &str) {
    match values.get_mut(value) {
        Some(nodes) => *nodes += 1,
        None => _ = values.insert(value.into(), 1),
    }
}
