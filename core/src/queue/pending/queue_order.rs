//! Which queue goes first among all that have a pending job: a tournament over the tree, replayed along one path.
//!
//! Rule: Volcano's hierarchical `QueueOrder` (`capacity.go:1365-1398`). First the priority of the queue downwards,
//! over every leaf that has a job to start. Then the shares of the two ancestors just below the lowest common one,
//! upwards, where a queue that deserves something goes before one that does not. Then the jobs themselves.
//!
//! One difference on purpose: where those two shares are the same, the next ones down are compared (a leaf stands for
//! whatever would be below it), and only then the jobs. With jobs compared right away three queues can beat each other
//! in a circle, and the first would depend on which was looked at before.
//!
//! Every inner queue holds a knock-out of its children. A head or a charge that changes is replayed on the way up:
//! O(depth log children), without a copy of any key.

use std::cmp::Ordering;

use crate::queue::{
    pending::job_order::{DominantShare, JobKey},
    quota::slot::QueueIndex,
    quota::tenant_share::TenantShare,
};

/// What a leaf enters with: its next job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Of the queue; larger goes first.
    pub(crate) priority: i32,
    /// What its tenant has, where tenants take turns.
    pub(crate) share: TenantShare,
    pub(crate) job: JobKey,
}

impl Head {
    /// The order within one queue.
    fn compare_jobs(&self, other: &Self) -> Ordering {
        let by_share = || self.share.cmp(&other.share);
        self.job.priority.cmp(&other.job.priority).then_with(by_share).then_with(|| self.job.cmp(&other.job))
    }
}

/// All queues of the tree that has been worked out last.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueOrder {
    entries: Vec<QueueEntry>,
    /// Queues to be entered again.
    touched: Vec<QueueIndex>,
}

#[derive(Debug, Clone, Default)]
struct QueueEntry {
    /// The queue above, and the place among its children; `None` outside the tree.
    place: Option<(QueueIndex, usize)>,
    share: DominantShare,
    head: Option<Head>,
    /// The leaf at or below this one whose job is next.
    best: Option<QueueIndex>,
    /// Winners: those of matches from 1, the children themselves from the middle.
    winners: Box<[Option<QueueIndex>]>,
    touched: Option<Touch>,
}

/// What may have changed about a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touch {
    /// Its next job.
    Head,
    /// Its share too, and those of all above.
    Share,
}

impl QueueOrder {
    /// Starts anew with `queues` places and these children of each; `enter` gives every queue's next job and share.
    pub(crate) fn rebuild_order<'a>(
        &mut self,
        queues: usize,
        children: impl Fn(QueueIndex) -> &'a [QueueIndex],
        mut enter: impl FnMut(QueueIndex) -> (Option<Head>, DominantShare),
    ) {
        self.touched.clear();
        self.entries.clear();
        self.entries.resize_with(queues, QueueEntry::default);
        let mut order = vec![QueueIndex::ROOT];
        for i in 0.. {
            let Some(node) = order.get(i).copied() else { break };
            let below = children(node);
            order.extend(below);
            let (head, share) = enter(node);
            let best = head.is_some().then_some(node);
            let winners = vec![None; below.len() * 2].into();
            let place = self.entries[node.index()].place;
            self.entries[node.index()] = QueueEntry { place, share, head, best, winners, touched: None };
            for (place, child) in below.iter().enumerate() {
                self.entries[child.index()].place = Some((node, place));
            }
        }
        for parent in order.into_iter().rev() {
            let below = children(parent);
            for (i, child) in below.iter().enumerate() {
                self.entries[parent.index()].winners[below.len() + i] = self.enter_if_pending(*child);
            }
            for i in (1..below.len()).rev() {
                self.play_match(parent, i);
            }
            self.update_best(parent);
        }
    }

    /// Remembers that something about a queue may have changed.
    pub(crate) fn mark_touched(&mut self, queue: QueueIndex, what: Touch) {
        let Some(entry) = self.entries.get_mut(queue.index()) else { return };
        if entry.touched.is_none() {
            self.touched.push(queue);
        }
        entry.touched = entry.touched.max(Some(what));
    }

    /// A queue that was touched, to be entered again.
    pub(crate) fn take_touched(&mut self) -> Option<(QueueIndex, Touch)> {
        let queue = self.touched.pop()?;
        Some((queue, self.entries[queue.index()].touched.take()?))
    }

    /// Enters a queue again, at the beginning of its path, and plays what that changes.
    pub(crate) fn reenter_queue(
        &mut self,
        path: &[QueueIndex],
        head: Option<Head>,
        what: Touch,
        share: impl Fn(QueueIndex) -> DominantShare,
    ) {
        let Some(queue) = path.first() else { return };
        let entry = &mut self.entries[queue.index()];
        let mut changed = entry.head != head;
        // A queue that got queues below it has jobs that run, but none that is next.
        if entry.winners.is_empty() {
            entry.best = head.is_some().then_some(*queue);
            entry.head = head;
        }
        for (i, node) in path.iter().enumerate() {
            if what == Touch::Share {
                let share = share(*node);
                let entry = &mut self.entries[node.index()];
                changed |= entry.share != share;
                entry.share = share;
            }
            let above = self.entries[node.index()].place.filter(|(parent, _)| path.get(i + 1) == Some(parent));
            changed = match above {
                Some((parent, place)) if changed => self.replay_matches(parent, place, *node),
                Some(_) => false,
                // What it holds counts there, but it is not one of those that may be next.
                None if i + 1 < path.len() => false,
                None => return,
            };
            if !changed && what == Touch::Head {
                return;
            }
        }
    }

    /// Which of two jobs goes first, whether or not their queues entered with them: each with the path of its queue.
    pub(crate) fn compare_jobs(&self, a: (&[QueueIndex], &Head), b: (&[QueueIndex], &Head)) -> Ordering {
        // From the top down; a leaf stands for whatever would be below it.
        let share =
            |path: &[QueueIndex], depth| self.entries[path[(path.len() - 1).saturating_sub(depth)].index()].share;
        let by_share = || {
            let mut orders = (1..a.0.len().max(b.0.len())).map(|depth| share(a.0, depth).cmp(&share(b.0, depth)));
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        b.1.priority.cmp(&a.1.priority).then_with(by_share).then_with(|| a.1.compare_jobs(b.1))
    }

    /// The leaf whose job is next.
    pub(crate) fn find_next_leaf(&self) -> Option<QueueIndex> {
        self.entries.first()?.best
    }

    /// Compares one child with its siblings again; true if the queue above may have another place after that.
    fn replay_matches(&mut self, parent: QueueIndex, place: usize, child: QueueIndex) -> bool {
        let mut i = self.entries[parent.index()].winners.len() / 2 + place;
        let contender = self.enter_if_pending(child);
        let mut involved = std::mem::replace(&mut self.entries[parent.index()].winners[i], contender).is_some();
        involved |= contender.is_some();
        while i > 1 && involved {
            i /= 2;
            let was = self.entries[parent.index()].winners[i];
            let won = self.play_match(parent, i);
            involved = [was, won].contains(&Some(child));
        }
        if involved {
            self.update_best(parent);
        }
        involved
    }

    fn enter_if_pending(&self, child: QueueIndex) -> Option<QueueIndex> {
        self.entries[child.index()].best.map(|_| child)
    }

    fn play_match(&mut self, parent: QueueIndex, at: usize) -> Option<QueueIndex> {
        let winners = &self.entries[parent.index()].winners;
        let won = match (winners[2 * at], winners[2 * at + 1]) {
            (Some(a), Some(b)) => Some(if self.compare_siblings(a, b) == Ordering::Greater { b } else { a }),
            (one, other) => one.or(other),
        };
        self.entries[parent.index()].winners[at] = won;
        won
    }

    fn update_best(&mut self, parent: QueueIndex) {
        let Some(winner) = self.entries[parent.index()].winners.get(1) else { return };
        self.entries[parent.index()].best = winner.and_then(|winner| self.entries[winner.index()].best);
    }

    pub(crate) fn find_best_head_below(&self, node: QueueIndex) -> Option<&Head> {
        self.entries[self.entries[node.index()].best?.index()].head.as_ref()
    }

    /// Compares two children of one queue that both have a job below.
    fn compare_siblings(&self, a: QueueIndex, b: QueueIndex) -> Ordering {
        let (head_a, head_b) = (self.find_best_head_below(a), self.find_best_head_below(b));
        let priority = |head: Option<&Head>| head.map(|head| head.priority);
        priority(head_b)
            .cmp(&priority(head_a))
            .then_with(|| self.compare_by_share(a, b))
            .then_with(|| head_a.zip(head_b).map_or(Ordering::Equal, |(a, b)| a.compare_jobs(b)))
    }

    /// From the top down, along those who win below.
    fn compare_by_share(&self, mut a: QueueIndex, mut b: QueueIndex) -> Ordering {
        loop {
            let (entry_a, entry_b) = (&self.entries[a.index()], &self.entries[b.index()]);
            let order = entry_a.share.cmp(&entry_b.share);
            let below = |entry: &QueueEntry| entry.winners.get(1).copied().flatten();
            match (below(entry_a), below(entry_b)) {
                (None, None) => return order,
                _ if order.is_ne() => return order,
                (below_a, below_b) => (a, b) = (below_a.unwrap_or(a), below_b.unwrap_or(b)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        quantity::Quantity,
        queue::quota::amounts::{DimAmounts, Dims},
        resources::Resources,
    };

    /// `parents[i]` is above the queue `i + 1`; whoever is above nobody is a leaf.
    struct World {
        parents: Vec<usize>,
        heads: Vec<Option<(i32, i32, i64)>>,
        shares: Vec<DominantShare>,
    }

    fn share(percent: i64) -> DominantShare {
        let mut dims = Dims::default();
        let amount = |units| -> Resources { [("cpu", Quantity::from_units(units))].into_iter().collect() };
        let mut used = DimAmounts::default();
        used.add(&dims.intern_amounts(&amount(percent)));
        DominantShare::of_usage(
            &used,
            if percent > 100 { Box::default() } else { dims.intern_amounts(&amount(100)) }.as_ref(),
        )
    }

    impl World {
        fn path(&self, queue: usize) -> Vec<QueueIndex> {
            let up = std::iter::successors(Some(queue), |at| at.checked_sub(1).map(|i| self.parents[i]));
            up.map(|i| QueueIndex(i as u32)).collect()
        }

        fn children(&self) -> Vec<Vec<QueueIndex>> {
            let mut children = vec![Vec::new(); self.heads.len()];
            for (i, parent) in self.parents.iter().enumerate() {
                children[*parent].push(QueueIndex(i as u32 + 1));
            }
            children
        }

        fn head(&self, queue: usize) -> Option<Head> {
            let leaf = queue > 0 && !self.parents.contains(&queue);
            let (priority, job, created) = self.heads[queue].filter(|_| leaf)?;
            let job = JobKey {
                priority: Reverse(job),
                deadline: JobKey::NO_DEADLINE,
                created: created.into(),
                id: format!("{queue}").into(),
            };
            Some(Head { priority, share: TenantShare::NOTHING, job })
        }

        /// The first of all, by looking at all.
        fn best(&self) -> Option<QueueIndex> {
            let waiting = (0..self.heads.len()).filter_map(|queue| Some((queue, self.head(queue)?)));
            let first = waiting.min_by_key(|(queue, head)| {
                let mut shares: Vec<DominantShare> =
                    self.path(*queue).iter().rev().map(|at| self.shares[at.index()]).collect();
                shares.resize(self.heads.len() + 1, self.shares[*queue]);
                // The root's is the same for all.
                (Reverse(head.priority), shares.split_off(1), head.job.clone())
            });
            first.map(|(queue, _)| QueueIndex(queue as u32))
        }
    }

    fn parents() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(any::<prop::sample::Index>(), 0..12)
            .prop_map(|above| above.iter().enumerate().map(|(i, above)| above.index(i + 1)).collect())
    }

    fn head() -> impl Strategy<Value = Option<(i32, i32, i64)>> {
        prop::option::weighted(0.7, (0..2, 0..2, 0i64..3))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn the_best_is_the_first_of_all_after_every_change(
            parents in parents(),
            heads in prop::collection::vec(head(), 13),
            changes in prop::collection::vec((0usize..13, head(), prop::option::of(0i64..5)), 0..40),
        ) {
            let n = parents.len() + 1;
            let mut world = World { parents, heads: heads[..n].to_vec(), shares: vec![share(0); n] };
            let mut tournament = QueueOrder::default();
            let children = world.children();
            let below = |node: QueueIndex| children[node.index()].as_slice();
            tournament.rebuild_order(n, below, |node| (world.head(node.index()), share(0)));
            prop_assert_eq!(tournament.find_next_leaf(), world.best());
            for (i, (queue, head, percent)) in changes.into_iter().enumerate() {
                let queue = queue % n;
                world.heads[queue] = head;
                let path = world.path(queue);
                let what = if percent.is_some() { Touch::Share } else { Touch::Head };
                for at in percent.and(Some(&path)).into_iter().flatten() {
                    world.shares[at.index()] = share((percent.unwrap_or(0) + i64::from(at.0)) % 4 * 34);
                }
                tournament.mark_touched(QueueIndex(queue as u32), what);
                // Several touches, then one look.
                if i % 3 == 0 {
                    while let Some((node, what)) = tournament.take_touched() {
                        let path = world.path(node.index());
                        tournament.reenter_queue(&path, world.head(node.index()), what, |at| world.shares[at.index()]);
                    }
                    prop_assert_eq!(tournament.find_next_leaf(), world.best());
                    let waiting: Vec<_> =
                        (0..n).filter_map(|queue| Some((world.path(queue), world.head(queue)?))).collect();
                    let first =
                        waiting.iter().min_by(|a, b| tournament.compare_jobs((&a.0, &a.1), (&b.0, &b.1)));
                    prop_assert_eq!(first.map(|(path, _)| path[0]), world.best());
                }
            }
        }
    }
}
