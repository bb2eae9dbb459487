//! Which shard may start pods on which nodes of one cluster, and until when.
//!
//! Rule: the leases of a cluster are one object, and whoever changes it names the version that it read; a change is
//! made as a whole or not at all (optimistic concurrency, as Omega's shared state: Schwarzkopf et al., EuroSys'13).
//! The allocator grants and asks back, the shard renews and gives back. A grant is refused while another lease holds,
//! whoever asks.

use std::collections::BTreeMap;

use super::NodeName;
use crate::{gang::QueueName, resources::Resources, time::EpochSeconds};

/// In the last seconds of a lease nothing is started by it: clocks differ, and writes take time.
pub const LEASE_MARGIN: i64 = 10;

/// One node's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLease {
    /// Who holds it.
    pub shard: QueueName,
    /// It holds before this time.
    pub until: EpochSeconds,
}

/// The leases of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterLeases {
    version: u64,
    nodes: BTreeMap<NodeName, NodeLease>,
    /// What each shard is to give back here.
    asked_back: BTreeMap<QueueName, Resources>,
}

/// A change of one cluster's leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseChange {
    /// The allocator leases a node out that nobody holds.
    Grant(NodeName, NodeLease),
    /// The allocator asks a shard to give so much back, instead of what it asked before.
    AskBack(QueueName, Resources),
    /// A shard keeps what it holds until then. A lease that is over is not renewed.
    Renew(QueueName, EpochSeconds),
    /// A shard gives a node back, on which nothing of it runs: so much of what it was asked for.
    GiveBack(QueueName, NodeName, Resources),
}

/// Why leases stay as they were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Somebody else was first: read them again.
    #[error("the leases are of version {newest}, not {read}")]
    Outdated {
        /// What there is.
        newest: u64,
        /// What the change was made of.
        read: u64,
    },
    /// Two shards on one node.
    #[error("node {node} is leased to {shard} until second {}", .until.as_seconds())]
    Leased {
        /// The node.
        node: NodeName,
        /// Who has it.
        shard: QueueName,
        /// Until when.
        until: EpochSeconds,
    },
    /// It is not the shard's to give back.
    #[error("node {node} is not leased to {shard}")]
    NotHeld {
        /// The node.
        node: NodeName,
        /// Who would give it back.
        shard: QueueName,
    },
}

/// What holds.
impl ClusterLeases {
    /// To be named by the next change.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Who holds a node now.
    #[must_use]
    pub fn find_holder(&self, node: &NodeName, now: EpochSeconds) -> Option<&QueueName> {
        self.nodes.get(node).filter(|lease| now < lease.until).map(|lease| &lease.shard)
    }

    /// The nodes that a shard holds, by name.
    pub fn list_held<'a>(&'a self, shard: &'a QueueName, now: EpochSeconds) -> impl Iterator<Item = &'a NodeName> {
        let holds = move |lease: &NodeLease| lease.shard == *shard && now < lease.until;
        self.nodes.iter().filter(move |(_, lease)| holds(lease)).map(|(node, _)| node)
    }

    /// Whether a shard may start pods on a node now.
    #[must_use]
    pub fn may_start(&self, shard: &QueueName, node: &NodeName, now: EpochSeconds) -> bool {
        let in_time = now.saturating_add(LEASE_MARGIN);
        self.nodes.get(node).is_some_and(|lease| lease.shard == *shard && in_time < lease.until)
    }

    /// What a shard is to give back.
    #[must_use]
    pub fn asked_back(&self, shard: &QueueName) -> Option<&Resources> {
        self.asked_back.get(shard)
    }
}

/// Changes.
impl ClusterLeases {
    /// Makes all of these changes, or none.
    ///
    /// # Errors
    /// [`LeaseError`]: they are made of another version, or one of them is not to be had.
    pub fn apply(&mut self, version: u64, now: EpochSeconds, changes: &[LeaseChange]) -> Result<(), LeaseError> {
        if version != self.version {
            return Err(LeaseError::Outdated { newest: self.version, read: version });
        }
        let mut changed = self.clone();
        for change in changes {
            changed.apply_one(now, change)?;
        }
        changed.version += 1;
        *self = changed;
        Ok(())
    }

    fn apply_one(&mut self, now: EpochSeconds, change: &LeaseChange) -> Result<(), LeaseError> {
        match change {
            LeaseChange::Grant(node, lease) => {
                if let Some(held) = self.nodes.get(node).filter(|held| now < held.until) {
                    let (node, shard) = (node.clone(), held.shard.clone());
                    return Err(LeaseError::Leased { node, shard, until: held.until });
                }
                self.nodes.insert(node.clone(), lease.clone());
            }
            LeaseChange::AskBack(shard, amount) if amount.is_empty() => drop(self.asked_back.remove(shard)),
            LeaseChange::AskBack(shard, amount) => drop(self.asked_back.insert(shard.clone(), amount.clone())),
            LeaseChange::Renew(shard, until) => {
                let held = self.nodes.values_mut().filter(|lease| lease.shard == *shard && now < lease.until);
                held.for_each(|lease| lease.until = lease.until.max(*until));
            }
            LeaseChange::GiveBack(shard, node, amount) => {
                if self.find_holder(node, now) != Some(shard) {
                    return Err(LeaseError::NotHeld { node: node.clone(), shard: shard.clone() });
                }
                self.nodes.remove(node);
                if let Some(asked) = self.asked_back.get_mut(shard) {
                    asked.saturating_sub(amount);
                    if asked.iter().all(|(_, left)| left.is_zero()) {
                        self.asked_back.remove(shard);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Quantity;

    const NOW: EpochSeconds = EpochSeconds::new(1_000);

    fn at(seconds: i64) -> EpochSeconds {
        EpochSeconds::new(seconds)
    }

    fn grant(node: &str, shard: &str, until: i64) -> LeaseChange {
        LeaseChange::Grant(node.into(), NodeLease { shard: shard.into(), until: at(until) })
    }

    fn leases(changes: &[LeaseChange]) -> ClusterLeases {
        let mut leases = ClusterLeases::default();
        leases.apply(0, NOW, changes).unwrap();
        leases
    }

    #[test]
    fn a_node_is_leased_to_one_shard_at_most() {
        let mut leases = leases(&[grant("n1", "a", 1_060)]);
        let refused = leases.apply(1, at(1_059), &[grant("n2", "b", 1_200), grant("n1", "b", 1_200)]);
        assert_eq!(refused.unwrap_err().to_string(), "node n1 is leased to a until second 1060");
        assert_eq!(leases.find_holder(&"n2".into(), NOW), None, "all changes or none");
        leases.apply(1, at(1_060), &[grant("n1", "b", 1_200)]).unwrap();
        assert_eq!(leases.find_holder(&"n1".into(), at(1_060)), Some(&"b".into()));
    }

    #[test]
    fn a_change_that_was_made_of_an_older_version_is_refused() {
        let mut leases = leases(&[grant("n1", "a", 1_060)]);
        let refused = leases.apply(0, NOW, &[grant("n2", "b", 1_060)]);
        assert_eq!(refused, Err(LeaseError::Outdated { newest: 1, read: 0 }));
    }

    #[test]
    fn a_shard_starts_nothing_in_the_last_seconds_of_a_lease() {
        let leases = leases(&[grant("n1", "a", 1_060)]);
        let may = |shard: &str, now| leases.may_start(&shard.into(), &"n1".into(), at(now));
        assert!(may("a", 1_049) && !may("a", 1_050) && !may("b", 1_000));
    }

    #[test]
    fn a_lease_that_is_over_is_not_renewed() {
        let mut leases = leases(&[grant("n1", "a", 1_060), grant("n2", "a", 1_030)]);
        leases.apply(1, at(1_040), &[LeaseChange::Renew("a".into(), at(1_100))]).unwrap();
        let a = "a".into();
        assert_eq!(leases.list_held(&a, at(1_099)).collect::<Vec<_>>(), [&NodeName::from("n1")]);
    }

    #[test]
    fn what_is_given_back_is_no_longer_asked_for() {
        let cpus = |units| [("cpu", Quantity::from_units(units))].into_iter().collect::<Resources>();
        let (a, give) = (QueueName::from("a"), |node: &str| LeaseChange::GiveBack("a".into(), node.into(), cpus(8)));
        let mut leases = leases(&[grant("n1", "a", 1_060), grant("n2", "a", 1_060)]);
        leases.apply(1, NOW, &[LeaseChange::AskBack(a.clone(), cpus(16)), give("n1")]).unwrap();
        assert_eq!(leases.asked_back(&a), Some(&cpus(8)));
        assert_eq!(leases.apply(2, NOW, &[give("n1")]).unwrap_err().to_string(), "node n1 is not leased to a");
        leases.apply(2, NOW, &[give("n2")]).unwrap();
        assert!(leases.asked_back(&a).is_none() && leases.list_held(&a, NOW).next().is_none());
    }
}
