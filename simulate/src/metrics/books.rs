//! What every queue really holds in clusters, kept apart from what any policy believes, and whether that is more than
//! it may.

use std::collections::{BTreeMap, BTreeSet};

use caldera_core::{
    gang::QueueName,
    queue::QueueSpec,
    resources::{Limits, ResourceName, Resources},
};

/// See the module.
#[derive(Debug, Clone)]
pub struct Books {
    queues: BTreeMap<QueueName, Account>,
    /// Queues that hold more than their own ceiling allows.
    over: BTreeSet<QueueName>,
}

#[derive(Debug, Clone)]
struct Account {
    /// The queue itself first.
    path: Vec<QueueName>,
    ceilings: Limits,
    used: Resources,
}

impl Books {
    pub(super) fn new(queues: &[QueueSpec]) -> Self {
        let parents: BTreeMap<&QueueName, Option<&QueueName>> =
            queues.iter().map(|queue| (&queue.name, queue.parent.as_ref())).collect();
        let path = |queue: &QueueSpec| {
            let mut path = vec![queue.name.clone()];
            while let Some(Some(parent)) = path.last().and_then(|last| parents.get(last)) {
                // A circle ends where it began.
                if path.contains(parent) {
                    break;
                }
                path.push((*parent).clone());
            }
            path
        };
        let account =
            |queue: &QueueSpec| Account { path: path(queue), ceilings: ceilings(queue), used: Resources::new() };
        Self {
            queues: queues.iter().map(|queue| (queue.name.clone(), account(queue))).collect(),
            over: BTreeSet::new(),
        }
    }

    pub(super) fn add(&mut self, queue: &QueueName, amount: &Resources) {
        self.change(queue, |used| used.add(amount));
    }

    pub(super) fn sub(&mut self, queue: &QueueName, amount: &Resources) {
        self.change(queue, |used| used.saturating_sub(amount));
    }

    fn change(&mut self, queue: &QueueName, change: impl Fn(&mut Resources)) {
        let path = self.queues.get(queue).map(|account| account.path.clone()).unwrap_or_default();
        for name in path {
            let Some(account) = self.queues.get_mut(&name) else { continue };
            change(&mut account.used);
            let over = account.ceilings.iter().any(|(name, limit)| account.used.get(name.as_str()) > limit);
            if over {
                self.over.insert(name);
            } else {
                self.over.remove(&name);
            }
        }
    }

    /// Queues that hold more than their ceiling.
    pub fn list_queues_over_ceiling(&self) -> impl Iterator<Item = &QueueName> {
        self.over.iter()
    }

    /// What a queue holds, with all queues below.
    #[must_use]
    pub fn used(&self, queue: &QueueName) -> Resources {
        self.queues.get(queue).map(|account| account.used.clone()).unwrap_or_default()
    }

    /// The lowest ceiling on the way up, of each resource that has one.
    pub(crate) fn ceilings(&self, queue: &QueueName) -> Limits {
        let mut lowest = Limits::unlimited();
        for account in self.queues.get(queue).into_iter().flat_map(|own| &own.path).filter_map(|at| self.queues.get(at))
        {
            for (name, limit) in account.ceilings.iter() {
                let least = lowest.get(name.as_str()).map_or(limit, |other| other.min(limit));
                lowest.set(name.clone(), least);
            }
        }
        lowest
    }
}

/// A queue's own ceilings: cpu and memory of zero are none, as Volcano reads them.
pub(crate) fn ceilings(queue: &QueueSpec) -> Limits {
    let plain = |name: &ResourceName| matches!(name.as_str(), ResourceName::CPU | ResourceName::MEMORY);
    let counts = |(name, limit): &(&ResourceName, caldera_core::quantity::Quantity)| {
        !(plain(name) && (limit.is_zero() || limit.is_negative()))
    };
    queue.capability.iter().filter(counts).map(|(name, limit)| (name.clone(), limit)).collect()
}

#[cfg(test)]
mod tests {
    use caldera_core::quantity::Quantity;

    use super::*;

    fn cpu(units: i64) -> Resources {
        [("cpu", Quantity::from_units(units))].into_iter().collect()
    }

    #[test]
    fn what_a_queue_holds_counts_on_every_queue_above() {
        let mut parent = QueueSpec::unlimited("p");
        parent.capability.set("cpu", Quantity::from_units(5));
        let child = QueueSpec { parent: Some("p".into()), ..QueueSpec::unlimited("c") };
        let mut books = Books::new(&[parent, child]);
        books.add(&"c".into(), &cpu(5));
        assert_eq!(books.list_queues_over_ceiling().count(), 0);
        books.add(&"c".into(), &cpu(1));
        assert_eq!(books.list_queues_over_ceiling().map(QueueName::as_str).collect::<Vec<_>>(), ["p"]);
        assert_eq!(books.used(&"p".into()), cpu(6));
        assert_eq!(books.ceilings(&"c".into()).get("cpu"), Some(Quantity::from_units(5)));
        books.sub(&"c".into(), &cpu(2));
        assert_eq!(books.list_queues_over_ceiling().count(), 0);
    }
}
