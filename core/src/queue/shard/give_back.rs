//! Which of its nodes a shard gives back when it is asked for an amount.
//!
//! Rule: those first that nothing runs on, then those of which it loses the least work. A node is given back as a
//! whole, within what is asked. Last come nodes of jobs that may not be evicted: nothing more starts there, and they
//! are given back once these have ended.

use super::NodeName;
use crate::resources::Resources;

/// A node that a shard holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldNode {
    /// It.
    pub name: NodeName,
    /// What it has for pods.
    pub allocatable: Resources,
    /// The work that is lost if all that runs there is evicted, in whatever the shard measures it; `None` if some of it
    /// may not be evicted.
    pub loss: Option<u64>,
}

/// The nodes to give back, in the order in which they are chosen.
#[must_use]
pub fn choose_nodes_to_give_back<'a>(asked: &Resources, held: &'a [HeldNode]) -> Vec<&'a HeldNode> {
    let mut by_loss: Vec<&HeldNode> = held.iter().collect();
    by_loss.sort_by_key(|node| (node.loss.is_none(), node.loss, &node.name));
    let (mut chosen, mut left) = (Vec::new(), asked.clone());
    for node in by_loss {
        if node.allocatable.fits_in(&left) {
            left.saturating_sub(&node.allocatable);
            chosen.push(node);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Quantity;

    fn cpus(units: i64) -> Resources {
        [("cpu", Quantity::from_units(units))].into_iter().collect()
    }

    #[test]
    fn idle_nodes_go_first_then_the_least_loss_and_last_those_of_who_may_not_be_evicted() {
        let node = |name: &str, loss| HeldNode { name: name.into(), allocatable: cpus(16), loss };
        let held = [node("n1", Some(50)), node("n2", None), node("n3", Some(7)), node("n4", Some(0))];
        let chosen = |asked| {
            let chosen = choose_nodes_to_give_back(&cpus(asked), &held).into_iter();
            chosen.map(|node| node.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(chosen(16), ["n4"]);
        assert_eq!(chosen(40), ["n4", "n3"], "whole nodes, within what is asked");
        assert_eq!(chosen(64), ["n4", "n3", "n1", "n2"]);
        assert!(chosen(15).is_empty());
    }
}
