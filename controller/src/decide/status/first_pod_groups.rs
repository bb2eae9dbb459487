//! Whose PodGroup is made next, of jobs that just wait, where writes are slow.
//!
//! Rule: in turn, in the order of the line, as many as a budget has ([`FIRST_PER_SECOND`]). A sweep goes along the
//! line; for whom there is nothing left gets a turn, and is looked at again when that comes. So each is looked at
//! twice, and not with all others every time that some are made.

use std::collections::{BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::refresh_budget::RefreshBudget;
use crate::{decide::deadlines::add_wait, observe::Key};

/// PodGroups made in a second for jobs that just wait, where a write takes a twentieth of a second; in proportion fewer
/// where it takes longer, and any number where it is quicker.
const FIRST_PER_SECOND: i64 = 40;
/// Between two times that some have their turn.
const INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct FirstPodGroups {
    budget: RefreshBudget,
    /// Those with a turn, the next one first; one that is not among `with_turn` is gone.
    turns: VecDeque<Key>,
    with_turn: BTreeSet<Key>,
    /// Somebody has no turn yet: a sweep finds its place in the line.
    lacks_turn: bool,
    due: Option<Timestamp>,
}

impl Default for FirstPodGroups {
    fn default() -> Self {
        let budget = RefreshBudget::of(FIRST_PER_SECOND);
        Self { budget, turns: VecDeque::new(), with_turn: BTreeSet::new(), lacks_turn: false, due: None }
    }
}

impl FirstPodGroups {
    /// Whether the PodGroup of a job is made now; `in_line` where it is looked at in the order of the line.
    pub(crate) fn take_one(&mut self, key: &Key, in_line: bool, texts: &RefreshBudget, now: Timestamp) -> bool {
        if texts.is_server_quick() {
            return true;
        }
        self.budget.set_latency_from(texts);
        if !in_line {
            self.lacks_turn |= !self.with_turn.contains(key);
            return false;
        }
        if self.budget.take_one(now).is_ok() {
            return true;
        }
        if self.with_turn.insert(key.clone()) {
            self.turns.push_back(key.clone());
            self.due.get_or_insert(add_wait(now, INTERVAL));
        }
        false
    }

    /// A sweep over those that wait begins: it gives turns anew.
    pub(crate) fn begin_sweep(&mut self) {
        self.turns.clear();
        self.with_turn.clear();
        (self.lacks_turn, self.due) = (false, None);
    }

    /// Whether only a sweep gives somebody a turn.
    pub(crate) const fn lacks_turn(&self) -> bool {
        self.lacks_turn
    }

    /// Takes those whose turn it is, `most` of them at most.
    pub(crate) fn take_turns(&mut self, most: usize, texts: &RefreshBudget, now: Timestamp) -> Vec<Key> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.budget.set_latency_from(texts);
        let left = usize::try_from(self.budget.count_left(now)).unwrap_or(0);
        let most = if texts.is_server_quick() { most } else { left.min(most) };
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some(key) = self.turns.pop_front() else { break };
            if self.with_turn.remove(&key) {
                taken.push(key);
            }
        }
        self.due = (!self.turns.is_empty()).then(|| add_wait(now, INTERVAL));
        taken
    }

    pub(crate) const fn next_due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Its binding is gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.with_turn.remove(key);
    }
}
