//! How far queues are from the share that is theirs, while somebody wants more than there is.
//!
//! A queue's fair share of the main resource is its part by weighted max-min filling, from the root down: siblings that
//! say what they deserve are weighted by it, others by `weight`; nobody gets more than it asks for (running and
//! waiting) or than its ceiling, and what it leaves goes to the others. Guarantees, which keep capacity idle, are not
//! counted.

use std::collections::BTreeMap;

use caldera_core::{
    gang::QueueName,
    queue::QueueSpec,
    resources::{ResourceName, Resources},
};

use crate::time::Millis;

/// Millionths.
pub const MILLION: u128 = 1_000_000;

#[derive(Debug, Clone, Default)]
struct Node {
    children: Vec<usize>,
    /// Zero: only what others leave.
    weight: u128,
    ceiling: Option<u128>,
    used: u128,
    waiting: u128,
}

/// Sums over the time in which some queue wanted more than it had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// That time.
    pub contended: Millis,
    /// The largest distance of a queue from its fair share, in millionths of the capacity, times milliseconds.
    pub deviation: u128,
    /// The largest distance ever, in millionths of the capacity.
    pub worst: u128,
    /// Jain's index of used by fair share, in millionths, times milliseconds.
    pub jain: u128,
    /// Time in which some queue was short of its share by more than the largest job.
    pub beyond_one_job: Millis,
    /// The longest such stretch.
    pub longest: Millis,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Fairness {
    /// The root is the first.
    nodes: Vec<Node>,
    leaves: BTreeMap<QueueName, usize>,
    capacity: u128,
    largest_job: u128,
    pub(super) sums: Sums,
    /// What held since the last look; `None` while nothing is contended.
    now: Option<Look>,
    stretch: Millis,
    changed: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Look {
    deviation: u128,
    jain: u128,
    beyond: bool,
}

impl Fairness {
    pub(super) fn new(queues: &[QueueSpec], main: &ResourceName, total: &Resources, largest_job: u128) -> Self {
        let mut nodes = vec![Node::default()];
        let mut leaves = BTreeMap::new();
        for (i, queue) in queues.iter().enumerate() {
            leaves.insert(queue.name.clone(), i + 1);
            nodes.push(Node::default());
        }
        for (i, queue) in queues.iter().enumerate() {
            let parent = queue.parent.as_ref().and_then(|parent| leaves.get(parent)).copied().unwrap_or(0);
            let limit = queue.capability.get(main.as_str()).map(|limit| u128::try_from(limit.as_nano()).unwrap_or(0));
            nodes[i + 1].ceiling = limit;
            // A queue above itself has no share to give.
            if parent != i + 1 {
                nodes[parent].children.push(i + 1);
            }
        }
        let deserved = |i: usize| {
            let deserved = queues[i - 1].deserved.get(main.as_str());
            deserved.and_then(|deserved| u128::try_from(deserved.as_nano()).ok()).filter(|deserved| *deserved > 0)
        };
        for parent in 0..nodes.len() {
            let children = nodes[parent].children.clone();
            let by_deserved = children.iter().any(|child| deserved(*child).is_some());
            for child in children {
                let weight = u128::from(queues[child - 1].weight);
                nodes[child].weight = if by_deserved { deserved(child).unwrap_or(0) } else { weight };
            }
        }
        let capacity = u128::try_from(total.get(main.as_str()).as_nano()).unwrap_or(0);
        let (sums, now, stretch) = (Sums::default(), None, Millis::ZERO);
        Self { nodes, leaves, capacity, largest_job, sums, now, stretch, changed: false }
    }

    pub(super) fn change_waiting(&mut self, queue: &QueueName, more: i128) {
        if let Some(leaf) = self.leaves.get(queue) {
            let node = &mut self.nodes[*leaf];
            node.waiting = node.waiting.saturating_add_signed(more);
            self.changed |= more != 0;
        }
    }

    pub(super) fn change_used(&mut self, queue: &QueueName, more: i128) {
        if let Some(leaf) = self.leaves.get(queue) {
            let node = &mut self.nodes[*leaf];
            node.used = node.used.saturating_add_signed(more);
            self.changed |= more != 0;
        }
    }

    /// Adds up what held for `time`.
    pub(super) fn add_elapsed(&mut self, time: Millis) {
        let Some(look) = self.now else {
            self.stretch = Millis::ZERO;
            return;
        };
        let millis = u128::from(time.0);
        self.sums.contended = self.sums.contended.plus(time);
        self.sums.deviation += look.deviation * millis;
        self.sums.jain += look.jain * millis;
        if look.beyond {
            self.sums.beyond_one_job = self.sums.beyond_one_job.plus(time);
            self.stretch = self.stretch.plus(time);
            self.sums.longest = self.sums.longest.max(self.stretch);
        } else {
            self.stretch = Millis::ZERO;
        }
        if time > Millis::ZERO {
            self.sums.worst = self.sums.worst.max(look.deviation);
        }
    }

    /// Looks at the shares as they are now.
    pub(super) fn measure_shares(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        self.now = None;
        if self.capacity == 0 || self.nodes.iter().all(|node| node.waiting == 0) {
            return;
        }
        let mut fair = vec![0; self.nodes.len()];
        self.divide_among_children(0, self.capacity, &mut fair);
        let mut look = Look::default();
        let (mut count, mut sum, mut squares) = (0_u128, 0_u128, 0_u128);
        for leaf in self.leaves.values() {
            let (used, fair) = (self.nodes[*leaf].used, fair[*leaf]);
            look.deviation = look.deviation.max(used.abs_diff(fair) * MILLION / self.capacity);
            look.beyond |= fair.saturating_sub(used) > self.largest_job;
            if let Some(ratio) = (used * MILLION).checked_div(fair) {
                let ratio = ratio.min(1_000 * MILLION);
                (count, sum, squares) = (count + 1, sum + ratio, squares + ratio * ratio);
            }
        }
        // Nobody has anything: all alike.
        look.jain = if squares == 0 { MILLION } else { sum * sum * MILLION / (count * squares) };
        self.now = Some(look);
    }

    fn demand(&self, node: usize) -> u128 {
        let of = &self.nodes[node];
        let below: u128 = of.children.iter().map(|child| self.demand(*child)).sum();
        let all = below + of.used + of.waiting;
        of.ceiling.map_or(all, |ceiling| all.min(ceiling))
    }

    fn divide_among_children(&self, node: usize, amount: u128, fair: &mut Vec<u128>) {
        fair[node] = amount;
        let children = &self.nodes[node].children;
        let claims: Vec<(u128, u128)> =
            children.iter().map(|child| (self.nodes[*child].weight, self.demand(*child))).collect();
        for (child, amount) in children.iter().zip(divide_max_min(amount, &claims)) {
            self.divide_among_children(*child, amount, fair);
        }
    }
}

/// Weighted max-min: `amount` over claims of (weight, most), rounded down. Those without weight share what is left.
fn divide_max_min(amount: u128, claims: &[(u128, u128)]) -> Vec<u128> {
    let mut given = vec![0; claims.len()];
    let weighted: Vec<usize> = (0..claims.len()).filter(|i| claims[*i].0 > 0).collect();
    let rest: Vec<usize> = (0..claims.len()).filter(|i| claims[*i].0 == 0).collect();
    let mut left = amount;
    for (mut group, equal) in [(weighted, false), (rest, true)] {
        let weight = |i: usize| if equal { 1 } else { claims[i].0 };
        // Who is satisfied with least for its weight is satisfied first.
        group.sort_by(|a, b| {
            let ratio = |i: usize, other: usize| claims[i].1.saturating_mul(weight(other));
            ratio(*a, *b).cmp(&ratio(*b, *a)).then(a.cmp(b))
        });
        let mut weights: u128 = group.iter().map(|i| weight(*i)).sum();
        for i in group {
            let part = left.saturating_mul(weight(i)) / weights.max(1);
            given[i] = part.min(claims[i].1);
            left -= given[i];
            weights -= weight(i);
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use caldera_core::quantity::Quantity;

    use super::*;

    #[test]
    fn filling_is_by_weight_and_nobody_gets_more_than_it_asks() {
        assert_eq!(divide_max_min(100, &[(1, 1_000), (3, 1_000)]), [25, 75]);
        assert_eq!(divide_max_min(100, &[(1, 10), (1, 1_000), (2, 1_000)]), [10, 30, 60]);
        assert_eq!(divide_max_min(100, &[(1, 10), (1, 20)]), [10, 20]);
        assert_eq!(divide_max_min(100, &[(0, 1_000), (1, 60)]), [40, 60]);
        assert_eq!(divide_max_min(100, &[]), Vec::<u128>::new());
    }

    fn fairness(deserved: [i64; 2], largest: u128) -> Fairness {
        let queue = |(name, deserved): (&str, i64)| {
            let mut queue = QueueSpec::unlimited(name);
            queue.deserved.set("cpu", Quantity::from_units(deserved));
            queue
        };
        let queues: Vec<QueueSpec> = ["a", "b"].into_iter().zip(deserved).map(queue).collect();
        let total = [("cpu", Quantity::from_nano(100))].into_iter().collect();
        Fairness::new(&queues, &"cpu".into(), &total, largest)
    }

    #[test]
    fn deviation_and_jain_are_those_worked_out_by_hand() {
        let mut fairness = fairness([3, 1], 10);
        let (a, b) = (QueueName::from("a"), QueueName::from("b"));
        // a has 50 of the 75 that are fair and wants more; b has 50 of 25.
        fairness.change_used(&a, 50);
        fairness.change_used(&b, 50);
        fairness.change_waiting(&a, 100);
        fairness.change_waiting(&b, 100);
        fairness.measure_shares();
        fairness.add_elapsed(Millis(10));
        let sums = fairness.sums;
        assert_eq!((sums.contended, sums.deviation, sums.worst), (Millis(10), 2_500_000, 250_000));
        // Ratios 2/3 and 2: (8/3)^2 / (2 * (4/9 + 4)) = 0.8.
        assert_eq!(sums.jain / 10, 799_999);
        assert_eq!((sums.beyond_one_job, sums.longest), (Millis(10), Millis(10)));
        // Within one job of the fair share, then nobody waits.
        fairness.change_used(&a, 20);
        fairness.change_used(&b, -20);
        fairness.measure_shares();
        fairness.add_elapsed(Millis(10));
        fairness.change_waiting(&a, -100);
        fairness.change_waiting(&b, -100);
        fairness.measure_shares();
        fairness.add_elapsed(Millis(1_000));
        assert_eq!((fairness.sums.contended, fairness.sums.longest), (Millis(20), Millis(10)));
        assert_eq!(fairness.sums.deviation, 3_000_000);
    }

    #[test]
    fn what_a_queue_does_not_ask_for_is_the_others() {
        let mut fairness = fairness([1, 1], 0);
        fairness.change_used(&"a".into(), 10);
        fairness.change_used(&"b".into(), 90);
        fairness.change_waiting(&"b".into(), 50);
        fairness.measure_shares();
        fairness.add_elapsed(Millis(10));
        assert_eq!((fairness.sums.deviation, fairness.sums.jain), (0, 10 * MILLION));
    }
}
