//! A node's name with all its labels, kept small.
//!
//! A [`super::NodeShape`] carries the labels that somebody selects on; whoever asks for another one looks at the nodes
//! one by one, and finds it here. So which labels shapes carry decides how long an answer takes, never what it is.
//!
//! Nodes of a member have most labels in common: those are one list for all of them. A label of which there are many
//! values (a serial number, a rack) is each node's own. Which are which is found out from the nodes and changes nothing
//! but what they take.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
    sync::Arc,
};

use super::Interner;
use crate::node_affinity::HOSTNAME;

/// A node: its name and its labels.
#[derive(Clone)]
pub struct NodeRef(Arc<Named>);

struct Named {
    name: Arc<str>,
    common: Arc<Labels>,
    own: Labels,
}

/// By key.
type Labels = Box<[Label]>;
type Label = (Arc<str>, Arc<str>);

impl NodeRef {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The value of a label; of `kubernetes.io/hostname` the name where it says nothing else.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let find = |labels: &'_ Labels| labels.binary_search_by(|(known, _)| (**known).cmp(key)).ok();
        let value = match (find(&self.0.own), find(&self.0.common)) {
            (Some(at), _) => Some(&*self.0.own[at].1),
            (None, Some(at)) => Some(&*self.0.common[at].1),
            (None, None) => None,
        };
        value.or_else(|| (key == HOSTNAME).then_some(&*self.0.name))
    }

    /// A node that no list of nodes has.
    pub(super) fn with_labels(name: String, labels: BTreeMap<String, String>) -> Self {
        let own = labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self(Arc::new(Named { name: name.into(), common: Arc::default(), own }))
    }

    /// Where those of its labels are kept that it shares with others, unless it has one of `keys` for itself.
    pub(super) fn shared_labels_address(&self, keys: &BTreeSet<String>) -> Option<usize> {
        let own = |key: &String| self.0.own.iter().any(|(known, _)| **known == **key);
        (!keys.iter().any(own)).then_some(Arc::as_ptr(&self.0.common) as usize)
    }

    /// By key.
    fn labels(&self) -> impl Iterator<Item = &Label> {
        let (mut common, mut own) = (self.0.common.iter().peekable(), self.0.own.iter().peekable());
        std::iter::from_fn(move || match (common.peek(), own.peek()) {
            (Some((key, _)), Some((other, _))) if other < key => own.next(),
            (Some(_), _) => common.next(),
            (None, _) => own.next(),
        })
    }
}

/// However the labels are kept.
impl PartialEq for NodeRef {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for NodeRef {}
impl PartialOrd for NodeRef {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for NodeRef {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        self.0.name.cmp(&other.0.name).then_with(|| self.labels().cmp(other.labels()))
    }
}
/// The name alone tells nodes of one member apart.
impl Deref for NodeRef {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.name
    }
}
impl fmt::Debug for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.name, f)
    }
}
impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}
impl From<Arc<str>> for NodeRef {
    fn from(name: Arc<str>) -> Self {
        Self(Arc::new(Named { name, common: Arc::default(), own: Labels::default() }))
    }
}
impl From<&str> for NodeRef {
    fn from(name: &str) -> Self {
        Self::from(Arc::<str>::from(name))
    }
}
impl From<String> for NodeRef {
    fn from(name: String) -> Self {
        Self::from(Arc::<str>::from(name))
    }
}

/// More different lists than this of what nodes have in common are looked at for labels that are each node's own.
const LISTS: usize = 32;
/// A label with more values is each node's own.
const MOST_SHARED_VALUES: usize = 8;

/// How a member's labels are kept.
#[derive(Debug, Clone)]
pub(super) struct LabelStore {
    words: BTreeSet<Arc<str>>,
    common: Interner<Labels>,
    own: BTreeSet<Arc<str>>,
    part_at: usize,
}

impl Default for LabelStore {
    fn default() -> Self {
        Self { words: BTreeSet::new(), common: Interner::default(), own: BTreeSet::new(), part_at: LISTS }
    }
}

impl LabelStore {
    /// A node with these labels.
    pub(super) fn make_node(&mut self, name: Arc<str>, labels: BTreeMap<String, String>) -> NodeRef {
        let reported = labels.into_iter().filter(|(key, value)| !(key == HOSTNAME && **value == *name));
        let labels: Vec<Label> = reported.map(|(key, value)| (key.into(), value.into())).collect();
        self.store_labels(name, labels)
    }

    fn store_labels(&mut self, name: Arc<str>, labels: Vec<Label>) -> NodeRef {
        let (mut own, mut common): (Vec<Label>, Vec<Label>) =
            labels.into_iter().partition(|(key, _)| self.own.contains(key));
        own.iter_mut().for_each(|(key, _)| self.intern_word(key));
        for (key, value) in &mut common {
            self.intern_word(key);
            self.intern_word(value);
        }
        NodeRef(Arc::new(Named { name, common: self.common.intern_value(common.into()), own: own.into() }))
    }

    fn intern_word(&mut self, word: &mut Arc<str>) {
        match self.words.get(word) {
            Some(known) => *word = Arc::clone(known),
            None => _ = self.words.insert(Arc::clone(word)),
        }
    }

    /// True if there are so many lists that [`Self::separate_own_labels`] is worth it.
    pub(super) fn needs_split(&self) -> bool {
        self.common.len() >= self.part_at
    }

    /// Finds out which labels are each node's own; what each of the nodes is from now on.
    pub(super) fn separate_own_labels<'a>(&mut self, nodes: impl Iterator<Item = &'a NodeRef> + Clone) -> Vec<NodeRef> {
        let mut values: BTreeMap<&Arc<str>, BTreeSet<&str>> = BTreeMap::new();
        for (key, value) in nodes.clone().flat_map(NodeRef::labels) {
            let of_key = values.entry(key).or_default();
            if of_key.len() <= MOST_SHARED_VALUES {
                of_key.insert(value);
            }
        }
        let many = values.into_iter().filter(|(_, values)| values.len() > MOST_SHARED_VALUES);
        *self = Self { own: many.map(|(key, _)| Arc::clone(key)).collect(), ..Self::default() };
        let parted: Vec<NodeRef> =
            nodes.map(|node| self.store_labels(Arc::clone(node.name()), node.labels().cloned().collect())).collect();
        self.part_at = LISTS.max(self.common.len() * 2);
        parted
    }
}
