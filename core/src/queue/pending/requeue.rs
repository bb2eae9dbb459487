//! Who sleeps on one ceiling, and who of them is looked at first when something comes free under it.
//!
//! What comes free wakes nobody by itself: of all that it would satisfy only the first in order is looked at, and what it
//! leaves decides who is next. The first is found by a knock-out over the queues below the ceiling, in the order of
//! [`super::tournament`]. It holds everybody who sleeps there, and for every match the least that anybody in it needs, so
//! that those who need more than there is are passed over together. Usually who is first of all is also first of those
//! that fit, and a search is one path down; at worst it is a step for each queue, and once [`STEPS`] were taken for one
//! decision all that it satisfies are woken after all. The verdicts are those of doing so at once: who is not looked at would
//! have come after whoever took it, and found nothing left.

use std::{
    cell::Cell,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use crate::queue::{
    pending::{
        job_order::{JobKey, OrderPolicy},
        line::ShapeId,
        queue_order::Tournament,
    },
    quota::tree::{Node, Slot},
    spec::{Dequeue, QueueSpec},
};

/// Steps of searches in one decision; then it is cheaper to look at everybody. So few in tests that they do both.
pub(crate) const STEPS: usize = if cfg!(test) { 24 } else { 4096 };

/// Everybody who sleeps on one ceiling.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sleepers {
    bunks: BTreeMap<Node, Bunk>,
    /// Of each queue above one with sleepers, below the ceiling: the matches from 1, the children from the middle.
    brackets: BTreeMap<Node, Box<[Match]>>,
    /// Queues to be entered again.
    touched: BTreeSet<Node>,
    /// Who was found last, for how much, if nothing was touched since.
    found: Option<(i128, Option<Sleeper>)>,
}

/// A shape that sleeps: its queue, its first job there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sleeper {
    pub(crate) node: Node,
    pub(crate) key: JobKey,
    pub(crate) shape: ShapeId,
}

/// The sleepers of one queue.
#[derive(Debug, Clone, Default)]
struct Bunk {
    /// What must be free for each, in the order of the line.
    by_key: BTreeMap<(JobKey, ShapeId), i128>,
    needs: BTreeSet<(i128, ShapeId)>,
}

/// The queue whose first sleeper goes before all others of a match, and the least that anybody there needs.
#[derive(Debug, Clone, Copy, Default)]
struct Match {
    best: Option<Node>,
    least: i128,
}

/// What of the engine decides whose turn it is.
#[derive(Clone, Copy)]
pub(crate) struct Turns<'a> {
    pub(crate) policy: OrderPolicy,
    pub(crate) slots: &'a [Slot],
    pub(crate) heads: &'a Tournament,
    /// Taken for this decision.
    pub(crate) steps: &'a Cell<usize>,
}

/// One job among those of its queue.
type Entrant<'a> = (Node, &'a JobKey);

impl<'a> Turns<'a> {
    fn slot(self, node: Node) -> &'a Slot {
        &self.slots[node.index()]
    }

    /// The queue, if its jobs may start.
    fn open(self, node: Node) -> Option<&'a QueueSpec> {
        let slot = self.slot(node);
        slot.spec.as_ref().filter(|_| slot.problem.is_none())
    }

    /// Which of two jobs goes first: the order of [`super::tournament`], for any two.
    pub(crate) fn order(self, a: Entrant<'_>, b: Entrant<'_>) -> Ordering {
        let priority = |node| match self.policy {
            OrderPolicy::Fifo => 0,
            OrderPolicy::Share | OrderPolicy::Strict => self.open(node).map_or(0, |spec| spec.priority),
        };
        let by_share = || if a.0 == b.0 { Ordering::Equal } else { self.order_by_share(a.0, b.0) };
        priority(b.0).cmp(&priority(a.0)).then_with(by_share).then_with(|| a.1.cmp(b.1))
    }

    /// From the top down; a leaf stands for whatever would be below it.
    fn order_by_share(self, a: Node, b: Node) -> Ordering {
        if self.policy != OrderPolicy::Share {
            return Ordering::Equal;
        }
        let (up_a, up_b) = (&self.slot(a).path, &self.slot(b).path);
        for depth in 1..up_a.len().max(up_b.len()) {
            let at = |path: &[Node]| path[(path.len() - 1).saturating_sub(depth)];
            let (at_a, at_b) = (at(up_a), at(up_b));
            if at_a != at_b {
                let order = self.heads.share(at_a).cmp(&self.heads.share(at_b));
                if order.is_ne() {
                    return order;
                }
            }
        }
        Ordering::Equal
    }
}

impl Sleepers {
    pub(crate) fn is_empty(&self) -> bool {
        self.bunks.is_empty()
    }

    /// Who sleeps here, in no order that matters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Node, ShapeId)> {
        self.bunks.iter().flat_map(|(node, bunk)| bunk.needs.iter().map(|(_, shape)| (*node, *shape)))
    }

    /// A shape whose first job in line is this one goes to sleep until this much is free.
    pub(crate) fn insert(&mut self, sleeper: Sleeper, needs: i128) {
        let Sleeper { node, key, shape } = sleeper;
        let bunk = self.bunks.entry(node).or_default();
        bunk.needs.insert((needs, shape));
        bunk.by_key.insert((key, shape), needs);
        self.touch(node);
    }

    /// It does not sleep here any more; what it needed.
    pub(crate) fn remove(&mut self, sleeper: Sleeper) -> Option<i128> {
        let Sleeper { node, key, shape } = sleeper;
        let bunk = self.bunks.get_mut(&node)?;
        let needs = bunk.by_key.remove(&(key, shape))?;
        bunk.needs.remove(&(needs, shape));
        if bunk.needs.is_empty() {
            self.bunks.remove(&node);
        }
        self.touch(node);
        Some(needs)
    }

    /// The least that anybody of one queue needs.
    pub(crate) fn least_of(&self, node: Node) -> Option<i128> {
        self.bunks.get(&node)?.needs.first().map(|(needs, _)| *needs)
    }

    /// The line or the share of a queue below the ceiling changed.
    pub(crate) fn touch(&mut self, node: Node) {
        self.touched.insert(node);
        self.found = None;
    }

    /// The tree is another one.
    pub(crate) fn restart(&mut self) {
        self.brackets.clear();
        self.touched = self.bunks.keys().copied().collect();
        self.found = None;
    }

    /// All that `room` satisfies.
    pub(crate) fn enough(&self, room: i128) -> impl Iterator<Item = (Node, ShapeId)> {
        let up_to = (room, ShapeId(u32::MAX));
        self.bunks.iter().flat_map(move |(node, bunk)| bunk.needs.range(..=up_to).map(|(_, shape)| (*node, *shape)))
    }

    /// The first in order of those that `room` satisfies, at the ceiling of `at`.
    pub(crate) fn first(&mut self, at: Node, turns: Turns<'_>, room: i128) -> Option<&Sleeper> {
        for node in std::mem::take(&mut self.touched) {
            self.replay(at, node, turns);
        }
        if self.found.as_ref().is_none_or(|(known, _)| *known != room) {
            let mut best = None;
            if turns.slot(at).children.is_empty() {
                self.search_queue(turns, at, room, &mut best);
            } else {
                self.search(turns, at, 1, room, &mut best);
            }
            let found = best.map(|(node, key, shape)| Sleeper { node, key: key.clone(), shape });
            self.found = Some((room, found));
        }
        self.found.as_ref()?.1.as_ref()
    }

    /// Plays the matches of a queue again, up to the ceiling.
    fn replay(&mut self, at: Node, queue: Node, turns: Turns<'_>) {
        let path = &turns.slot(queue).path;
        let Some(top) = path.iter().position(|node| *node == at) else { return };
        for step in path[..=top].windows(2) {
            let [child, parent] = [step[0], step[1]];
            let Some(place) = turns.heads.place(child, parent) else { return };
            let entry = self.entry(child, turns);
            let n = turns.slot(parent).children.len();
            let bracket = match self.brackets.get_mut(&parent) {
                Some(bracket) => bracket,
                None if entry.best.is_none() => continue,
                None => self.brackets.entry(parent).or_insert_with(|| vec![Match::default(); n * 2].into()),
            };
            let mut i = n + place;
            bracket[i] = entry;
            while i > 1 {
                i /= 2;
                bracket[i] = play(&self.bunks, turns, bracket[2 * i], bracket[2 * i + 1]);
            }
        }
    }

    /// With what a queue enters the matches of the one above it.
    fn entry(&self, child: Node, turns: Turns<'_>) -> Match {
        if !turns.slot(child).children.is_empty() {
            return self.brackets.get(&child).map_or(Match::default(), |bracket| bracket[1]);
        }
        let Some((_, _, head)) = head(&self.bunks, turns, child) else { return Match::default() };
        let fifo = turns.open(child).is_some_and(|spec| spec.dequeue == Dequeue::Fifo);
        let least = self.bunks.get(&child).and_then(|bunk| bunk.needs.first()).map_or(head, |(least, _)| *least);
        Match { best: Some(child), least: if fifo { head } else { least } }
    }

    /// The best of a match of which nobody is better than those in it that `room` satisfies.
    fn search<'a>(&'a self, turns: Turns<'_>, at: Node, i: usize, room: i128, best: &mut Option<Found<'a>>) {
        turns.steps.set(turns.steps.get() + 1);
        let Some(bracket) = self.brackets.get(&at) else { return };
        let Match { best: Some(first), least } = bracket[i] else { return };
        if least > room {
            return;
        }
        let n = bracket.len() / 2;
        if i >= n {
            let child = turns.slot(at).children[i - n];
            if turns.slot(child).children.is_empty() {
                self.search_queue(turns, child, room, best);
            } else {
                self.search(turns, child, 1, room, best);
            }
            return;
        }
        // Nobody here goes before the first: if that one comes too late, or fits, the rest need not be looked at.
        if let Some((key, _, needs)) = head(&self.bunks, turns, first) {
            let late = best.as_ref().is_some_and(|(node, known, _)| turns.order((*node, known), (first, key)).is_le());
            if late {
                return;
            }
            if needs <= room {
                return self.search_queue(turns, first, room, best);
            }
        }
        let left = if bracket[2 * i].best == Some(first) { 2 * i } else { 2 * i + 1 };
        self.search(turns, at, left, room, best);
        self.search(turns, at, left ^ 1, room, best);
    }

    fn search_queue<'a>(&'a self, turns: Turns<'_>, queue: Node, room: i128, best: &mut Option<Found<'a>>) {
        let Some((key, shape, needs)) = head(&self.bunks, turns, queue) else { return };
        let traverse = turns.open(queue).is_some_and(|spec| spec.dequeue == Dequeue::Traverse);
        let rest = || {
            let line = self.bunks.get(&queue).filter(|_| traverse)?.by_key.iter();
            line.map(|((key, shape), needs)| (key, *shape, *needs)).find(|(.., needs)| *needs <= room)
        };
        let fits = if needs <= room { Some((key, shape, needs)) } else { rest() };
        let Some((key, shape, _)) = fits else { return };
        if best.as_ref().is_none_or(|(node, known, _)| turns.order((queue, key), (*node, known)).is_lt()) {
            *best = Some((queue, key, shape));
        }
    }
}

type Found<'a> = (Node, &'a JobKey, ShapeId);

/// The first who sleeps of a queue, if it may be next, and what it needs.
fn head<'a>(bunks: &'a BTreeMap<Node, Bunk>, turns: Turns<'_>, queue: Node) -> Option<(&'a JobKey, ShapeId, i128)> {
    let spec = turns.open(queue)?;
    let bunk = bunks.get(&queue)?;
    let ((key, shape), needs) = match spec.dequeue {
        Dequeue::Traverse => bunk.by_key.first_key_value()?,
        Dequeue::Fifo => {
            let (front, shape) = turns.slot(queue).line.first_satisfiable()?;
            bunk.by_key.get_key_value(&(front.clone(), shape))?
        }
    };
    Some((key, *shape, *needs))
}

fn play(bunks: &BTreeMap<Node, Bunk>, turns: Turns<'_>, a: Match, b: Match) -> Match {
    let (Some(best_a), Some(best_b)) = (a.best, b.best) else { return if a.best.is_some() { a } else { b } };
    let least = a.least.min(b.least);
    let entrants = head(bunks, turns, best_a).zip(head(bunks, turns, best_b));
    let second = entrants.is_some_and(|((a, ..), (b, ..))| turns.order((best_a, a), (best_b, b)).is_gt());
    Match { best: Some(if second { best_b } else { best_a }), least }
}
