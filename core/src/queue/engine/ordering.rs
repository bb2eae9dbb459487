//! Whose turn it is: what enters the knock-out under each policy, and when.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::queue::{
    engine::{Engine, Rank, Standing},
    pending::{
        job_order::{JobId, JobKey, OrderPolicy, Share},
        line::Inadmissible,
        queue_order::{Head, Touch},
        requeue::{STEPS, Sleeper, Sleepers, Turns},
    },
    quota::{
        admission,
        amounts::Dim,
        tree::{Node, Slot},
    },
    reservation::ReservationId,
};

impl Engine {
    /// Who goes first from now on; those that wait are put in order anew.
    pub fn set_order_policy(&mut self, policy: OrderPolicy) {
        if self.policy == policy {
            return;
        }
        let asleep: Vec<_> = self.short.values().flat_map(Sleepers::iter).collect();
        asleep.into_iter().for_each(|(node, shape)| self.requeue_shape(node, shape));
        self.policy = policy;
        (self.stale, self.replanted) = (true, true);
        let mut jobs = std::mem::take(&mut self.jobs);
        for standing in jobs.values_mut() {
            if let Standing::Aside { key, rank, .. } = standing {
                *key = self.job_key(key.id.clone(), key.created, *rank);
            }
            let Standing::Waiting { node, key, shape, rank } = standing else { continue };
            self.remove_pending(*node, key);
            *key = self.job_key(key.id.clone(), key.created, *rank);
            self.slots[node.index()].line.insert(key.clone(), *shape);
        }
        self.jobs = jobs;
    }

    /// Who goes first.
    #[must_use]
    pub fn order_policy(&self) -> OrderPolicy {
        self.policy
    }

    pub(crate) fn job_key(&self, id: JobId, created: i64, rank: Rank) -> JobKey {
        match self.policy {
            OrderPolicy::Fifo => JobKey { priority: Reverse(0), deadline: JobKey::NO_DEADLINE, created, id },
            OrderPolicy::Share | OrderPolicy::Strict => JobKey {
                priority: Reverse(rank.priority),
                deadline: rank.deadline.unwrap_or(JobKey::NO_DEADLINE),
                created,
                id,
            },
        }
    }

    /// The tree was worked out anew.
    pub(crate) fn restart_order(&mut self) {
        let slots = &self.slots;
        let enter = |node: Node| (head(self.policy, &slots[node.index()]), share(self.policy, &slots[node.index()]));
        self.heads.restart(slots.len(), |node| &slots[node.index()].children, enter);
    }

    /// The queue whose next job goes first.
    pub(crate) fn first_queue(&mut self) -> Option<Node> {
        while let Some((node, what)) = self.heads.touched() {
            let slot = &self.slots[node.index()];
            let share = |node: Node| share(self.policy, &self.slots[node.index()]);
            self.heads.enter(&slot.path, head(self.policy, slot), what, share);
        }
        self.heads.best()
    }

    /// The next job of a queue may have changed.
    pub(crate) fn refresh_head(&mut self, node: Node) {
        self.heads.touch(node, Touch::Head);
        let slot = &self.slots[node.index()];
        // Of such a queue only the first in line counts, wherever it sleeps.
        if slot.is_fifo() {
            let bed = slot.line.first_satisfiable().and_then(|(_, shape)| slot.line.inadmissible_cause(shape));
            self.touch_sleepers(node);
            if let Some(Inadmissible::Quota(at, dim, _) | Inadmissible::Reserved(at, dim, _)) = bed {
                self.ease(at, dim);
            }
            let front = bed.and_then(Inadmissible::cause).map(|cause| ReservationId { cause, queue: node });
            self.fences.dirty.extend(front);
            self.fences.dirty.extend(self.fences.of_queue(node));
        }
    }

    /// Somebody who sleeps on this ceiling may have enough now.
    pub(crate) fn ease(&mut self, at: Node, dim: Dim) {
        let own = self.slots[at.index()].children.is_empty();
        if own { &mut self.eased_own } else { &mut self.eased }.insert((at, dim));
    }

    /// The same for all ceilings of the queue itself: whoever was looked at last left room, or did not need it.
    pub(crate) fn ease_own(&mut self, node: Node) {
        let slot = &self.slots[node.index()];
        let ceilings = self.short.range((node, Dim::FIRST)..=(node, Dim::LAST));
        let eased = ceilings.filter(|((_, dim), sleepers)| {
            let least = sleepers.least_of(node);
            least.is_some_and(|least| admission::free_quota(slot, *dim).is_none_or(|room| least <= room))
        });
        self.eased_own.extend(eased.map(|(ceiling, _)| *ceiling));
    }

    /// Wakes the first of those who have enough now where they sleep, if its turn is before that of all who are awake.
    pub(crate) fn rouse(&mut self) {
        if self.steps.get() > STEPS {
            return self.rouse_all();
        }
        self.rouse_own();
        if self.eased.is_empty() {
            return;
        }
        let awake = self.first_queue().and_then(|node| Some((node, self.next_candidate(node)?.0)));
        let turns = Turns { policy: self.policy, slots: &self.slots, heads: &self.heads, steps: &self.steps };
        let short = &mut self.short;
        let mut first: Option<Sleeper> = None;
        self.eased.retain(|ceiling| {
            let Some(sleeper) = first_eased(short, turns, *ceiling) else { return false };
            let before = |known: &Sleeper| turns.order((sleeper.node, &sleeper.key), (known.node, &known.key)).is_lt();
            if first.as_ref().is_none_or(before) {
                first = Some(sleeper.clone());
            }
            true
        });
        let Some(Sleeper { node, key, shape }) = first else { return };
        if awake.is_none_or(|(leaf, head)| turns.order((node, &key), (leaf, &head)).is_lt()) {
            self.requeue_shape(node, shape);
        }
    }

    /// Wakes all who have enough where they sleep.
    fn rouse_all(&mut self) {
        for (at, dim) in std::mem::take(&mut self.eased).into_iter().chain(std::mem::take(&mut self.eased_own)) {
            let room = admission::free_quota(&self.slots[at.index()], dim).unwrap_or(i128::MAX);
            let enough: Vec<_> = self.short.get(&(at, dim)).into_iter().flat_map(|all| all.enough(room)).collect();
            enough.into_iter().for_each(|(node, shape)| self.requeue_shape(node, shape));
        }
    }

    /// In one queue those before it in line stay before it whatever starts elsewhere: the first can be up already.
    fn rouse_own(&mut self) {
        if self.eased_own.is_empty() {
            return;
        }
        self.first_queue();
        while let Some(ceiling) = self.eased_own.pop_first() {
            let turns = Turns { policy: self.policy, slots: &self.slots, heads: &self.heads, steps: &self.steps };
            if let Some((node, shape)) =
                first_eased(&mut self.short, turns, ceiling).map(|sleeper| (sleeper.node, sleeper.shape))
            {
                self.requeue_shape(node, shape);
            }
        }
    }
}

/// The first of those who have enough at a ceiling.
fn first_eased<'a>(
    short: &'a mut BTreeMap<(Node, Dim), Sleepers>,
    turns: Turns<'_>,
    (at, dim): (Node, Dim),
) -> Option<&'a Sleeper> {
    let room = admission::free_quota(&turns.slots[at.index()], dim).unwrap_or(i128::MAX);
    short.get_mut(&(at, dim))?.first(at, turns, room)
}

fn head(policy: OrderPolicy, slot: &Slot) -> Option<Head> {
    let spec = slot.spec.as_ref().filter(|_| slot.problem.is_none())?;
    let (job, _) = slot.line.next_candidate(spec.dequeue)?;
    let priority = if policy == OrderPolicy::Fifo { 0 } else { spec.priority };
    Some(Head { priority, job: job.clone() })
}

fn share(policy: OrderPolicy, slot: &Slot) -> Share {
    match policy {
        OrderPolicy::Share => Share::of(&slot.used, &slot.deserved),
        OrderPolicy::Strict | OrderPolicy::Fifo => Share::default(),
    }
}
