//! When a preemption attempt is made, for which jobs, and when again after one that came to nothing.
//!
//! Rule: once nothing more can be released and something changed, at most once in [`Pace::pause`], for the first jobs
//! in line of each queue, the most important first; and never while an earlier attempt is open. An attempt is open from
//! its evictions until the preemptor is released or its hold window is over. A preemptor that held what came free and
//! did not start backs off ([`FailedAttempts`]). One for which nobody could be evicted is considered again when
//! something changed, or when time alone may help: its backoff ends, the eviction budget fills, or a protected job
//! loses its protection.
//!
//! The controller and the simulator run this same state machine. All times are handed in.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{AttemptRefusal, EvictionBudget, EvictionPlan, FailedAttempts, NoEvictions, PreemptionPolicy};
use crate::{
    gang::QueueName,
    queue::JobId,
    resources::Resources,
    time::{EpochSeconds, SubmitTime},
};

/// First jobs of each queue that are considered in one round.
pub const HEADS_PER_QUEUE: usize = 4;
/// Of all queues together.
const HEADS: usize = 8;

/// How often attempts are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Seconds between two rounds.
    pub pause: i64,
    /// Seconds until a job is considered again for which nobody could be evicted.
    pub retry: i64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { pause: 1, retry: 5 }
    }
}

/// A pending job that wants others evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingPreemptor {
    /// Which.
    pub id: JobId,
    /// Its queue.
    pub queue: QueueName,
    /// The queue's priority.
    pub queue_priority: i32,
    /// Its own.
    pub priority: i32,
    /// All of its pods are best effort.
    pub best_effort: bool,
    /// When it came.
    pub created: SubmitTime,
    /// What its minimum asks for.
    pub asks: Resources,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClosedAttempt {
    /// The preemptor was released, or is gone.
    Done(JobId),
    /// Its hold window passed, and how often that has happened.
    Failed(JobId, u32),
}

/// Why a preemptor is not considered now.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: EpochSeconds,
    /// Changes seen when it was refused, if another change is waited for too.
    changes: Option<u64>,
}

/// Attempts made, and when the next may be.
#[derive(Debug, Clone)]
pub struct AttemptSchedule {
    /// What the administrator chose.
    pub policy: PreemptionPolicy,
    pace: Pace,
    budget: Option<EvictionBudget>,
    /// The preemptor of the open attempt, and when its hold window ends.
    open: Option<(JobId, EpochSeconds)>,
    failed: BTreeMap<JobId, FailedAttempts>,
    paused: BTreeMap<JobId, Pause>,
    changes: u64,
    has_cause: bool,
    last_round: Option<EpochSeconds>,
    due: Option<EpochSeconds>,
}

impl Default for AttemptSchedule {
    fn default() -> Self {
        Self::new(PreemptionPolicy::default(), Pace::default())
    }
}

impl AttemptSchedule {
    /// Before any attempt.
    #[must_use]
    pub const fn new(policy: PreemptionPolicy, pace: Pace) -> Self {
        Self {
            policy,
            pace,
            budget: None,
            open: None,
            failed: BTreeMap::new(),
            paused: BTreeMap::new(),
            changes: 0,
            has_cause: false,
            last_round: None,
            due: None,
        }
    }

    /// Something changed that may let an attempt succeed.
    pub const fn record_change(&mut self) {
        self.changes += 1;
        self.has_cause = true;
    }

    /// Ends the open attempt if its preemptor is pending no more or its hold window is over.
    pub fn close_attempt_if_over(
        &mut self,
        is_pending: impl Fn(&JobId) -> bool,
        now: EpochSeconds,
    ) -> Option<ClosedAttempt> {
        let (preemptor, until) = self.open.clone()?;
        if !is_pending(&preemptor) {
            self.failed.remove(&preemptor);
            self.open = None;
            return Some(ClosedAttempt::Done(preemptor));
        }
        if until > now {
            return None;
        }
        let failed = self.failed.entry(preemptor.clone()).or_default();
        *failed = failed.with_failure_at(now);
        self.open = None;
        Some(ClosedAttempt::Failed(preemptor, failed.failed))
    }

    /// Takes up an attempt that was made before a restart.
    pub fn reopen_attempt(&mut self, preemptor: JobId, until: EpochSeconds) {
        self.open.get_or_insert((preemptor, until));
    }

    /// The evictions of the open attempt were not made: the next round decides anew.
    pub fn cancel_attempt(&mut self) {
        self.open = None;
        self.has_cause = true;
    }

    /// The preemptor of the open attempt.
    #[must_use]
    pub fn preemptor(&self) -> Option<&JobId> {
        self.open.as_ref().map(|(preemptor, _)| preemptor)
    }

    /// When a round may be due though nothing happens.
    #[must_use]
    pub const fn due(&self) -> Option<EpochSeconds> {
        self.due
    }

    /// Whether a round is made now; `is_settled` while nothing more can be released and no eviction is under way.
    pub fn begin_round(&mut self, is_settled: bool, now: EpochSeconds) -> bool {
        if let Some((_, until)) = self.open {
            self.due = Some(until);
            return false;
        }
        if self.due.is_some_and(|due| due <= now) {
            (self.has_cause, self.due) = (true, None);
        }
        if !is_settled || !self.has_cause {
            return false;
        }
        if let Some(next) = self.last_round.map(|last| last.saturating_add(self.pace.pause)).filter(|next| *next > now)
        {
            self.schedule_round_at(next);
            return false;
        }
        (self.last_round, self.has_cause, self.due) = (Some(now), false, None);
        true
    }

    /// Those that are considered in this round, the most important first. A job waits a while before others lose work
    /// for it ([`super::PreemptionBounds::patience`]).
    pub fn select_preemptors(&mut self, mut all: Vec<PendingPreemptor>, now: EpochSeconds) -> Vec<PendingPreemptor> {
        let patience = self.policy.bounds.patience;
        let young =
            |job: &PendingPreemptor| Some(job.created.as_time().saturating_add(patience)).filter(|since| *since > now);
        let first_due = all.iter().filter_map(young).min();
        first_due.into_iter().for_each(|at| self.schedule_round_at(at));
        all.retain(|job| young(job).is_none() && self.may_attempt(&job.id, now));
        all.sort_by(|a, b| {
            let rank = |job: &PendingPreemptor| (Reverse(job.queue_priority), Reverse(job.priority), job.created);
            rank(a).cmp(&rank(b)).then_with(|| a.id.cmp(&b.id))
        });
        all.truncate(HEADS);
        all
    }

    /// What is known of a preemptor's earlier attempts.
    #[must_use]
    pub fn failed_attempts(&self, id: &JobId) -> FailedAttempts {
        self.failed.get(id).copied().unwrap_or_default()
    }

    /// Evictions that may be made now.
    pub fn budget(&mut self, now: EpochSeconds) -> EvictionBudget {
        *self.budget.get_or_insert_with(|| EvictionBudget::start_empty(now))
    }

    /// What an attempt came to: a plan opens it and is charged to the budget, a refusal says when the preemptor is
    /// considered again.
    ///
    /// # Errors
    /// The refusal.
    pub fn record_outcome(
        &mut self,
        preemptor: &JobId,
        outcome: Result<EvictionPlan, Box<NoEvictions>>,
        now: EpochSeconds,
    ) -> Result<EvictionPlan, Box<NoEvictions>> {
        match &outcome {
            Ok(plan) => {
                let mut budget = self.budget(now);
                budget.take_evictions(self.policy.bounds.rate, plan.victims.len(), now);
                self.budget = Some(budget);
                self.open = Some((preemptor.clone(), plan.hold.until));
                self.due = Some(plan.hold.until);
            }
            Err(refusal) => self.pause_preemptor(preemptor, refusal, now),
        }
        outcome
    }

    /// Forgets jobs that are pending no more.
    pub fn forget_absent(&mut self, is_pending: impl Fn(&JobId) -> bool) {
        self.failed.retain(|id, _| is_pending(id));
        self.paused.retain(|id, _| is_pending(id));
    }

    fn pause_preemptor(&mut self, id: &JobId, refusal: &NoEvictions, now: EpochSeconds) {
        if refusal.refused == AttemptRefusal::Unneeded {
            return;
        }
        let retry = now.saturating_add(self.pace.retry);
        let again = refusal.again_at().filter(|again| *again > now);
        again.into_iter().for_each(|at| self.schedule_round_at(at));
        let pause = match (again, &refusal.refused) {
            // Until then next to nothing else helps, and to work it out for each change would cost more than it gives.
            (Some(again), AttemptRefusal::Backoff { .. } | AttemptRefusal::Rate { .. }) => {
                Pause { until: again, changes: None }
            }
            (Some(_), _) => Pause { until: retry, changes: None },
            // To find that it takes too many costs the most, and seldom changes soon.
            (None, AttemptRefusal::TooMany { .. }) => {
                let hold = now.saturating_add(self.policy.bounds.hold);
                Pause { until: retry.max(hold), changes: Some(self.changes) }
            }
            (None, _) => Pause { until: retry, changes: Some(self.changes) },
        };
        self.paused.insert(id.clone(), pause);
    }

    fn may_attempt(&mut self, id: &JobId, now: EpochSeconds) -> bool {
        match self.paused.get(id).copied() {
            Some(Pause { changes: Some(changes), .. }) if changes == self.changes => false,
            Some(Pause { until, .. }) if until > now => {
                self.schedule_round_at(until);
                false
            }
            _ => true,
        }
    }

    fn schedule_round_at(&mut self, at: EpochSeconds) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::preemption::HoldWindow;

    fn pending(id: &str, priority: i32, created: i64) -> PendingPreemptor {
        let (queue, asks) = ("q".into(), Resources::new());
        PendingPreemptor {
            id: id.into(),
            queue,
            queue_priority: 0,
            priority,
            best_effort: false,
            created: created.into(),
            asks,
        }
    }

    fn plan(until: EpochSeconds) -> EvictionPlan {
        let hold = HoldWindow {
            who: "a".into(),
            queue: "q".into(),
            what: Resources::new(),
            since: EpochSeconds::new(0),
            until,
        };
        EvictionPlan { victims: Vec::new(), frees: Resources::new(), lost_work: 0, hold }
    }

    fn refusal(refused: AttemptRefusal) -> Box<NoEvictions> {
        let (asks, exempt) = (Resources::new(), BTreeMap::new());
        Box::new(NoEvictions { refused, asks, entitled: Ok(()), exempt, free_at: None })
    }

    fn ids(selected: Vec<PendingPreemptor>) -> Vec<String> {
        selected.into_iter().map(|job| job.id.to_string()).collect()
    }

    #[test]
    fn a_round_needs_a_cause_and_a_pause_and_no_open_attempt() {
        let mut schedule = AttemptSchedule::default();
        assert!(!schedule.begin_round(true, EpochSeconds::new(100)), "nothing changed");
        schedule.record_change();
        assert!(!schedule.begin_round(false, EpochSeconds::new(100)), "something can be released");
        assert!(schedule.begin_round(true, EpochSeconds::new(100)));
        schedule.record_change();
        assert!(!schedule.begin_round(true, EpochSeconds::new(100)));
        assert_eq!(schedule.due(), Some(EpochSeconds::new(101)));
        assert!(schedule.begin_round(true, EpochSeconds::new(101)));
        assert!(schedule.record_outcome(&"a".into(), Ok(plan(EpochSeconds::new(400))), EpochSeconds::new(101)).is_ok());
        schedule.record_change();
        assert!(!schedule.begin_round(true, EpochSeconds::new(200)));
        assert_eq!((schedule.due(), schedule.preemptor()), (Some(EpochSeconds::new(400)), Some(&"a".into())));
    }

    #[test]
    fn an_attempt_ends_with_its_preemptor_or_its_hold_window() {
        let mut schedule = AttemptSchedule::default();
        schedule.reopen_attempt("a".into(), EpochSeconds::new(400));
        assert_eq!(schedule.close_attempt_if_over(|_| true, EpochSeconds::new(399)), None);
        assert_eq!(
            schedule.close_attempt_if_over(|_| true, EpochSeconds::new(400)),
            Some(ClosedAttempt::Failed("a".into(), 1))
        );
        assert_eq!(schedule.failed_attempts(&"a".into()).failed, 1);
        schedule.reopen_attempt("a".into(), EpochSeconds::new(800));
        assert_eq!(
            schedule.close_attempt_if_over(|_| false, EpochSeconds::new(500)),
            Some(ClosedAttempt::Done("a".into()))
        );
        assert_eq!(schedule.failed_attempts(&"a".into()).failed, 0);
    }

    #[test]
    fn who_was_refused_is_considered_again_after_a_change_and_a_while() {
        let mut schedule = AttemptSchedule::default();
        let all = || vec![pending("a", 0, 0), pending("b", 5, 0), pending("young", 9, 90)];
        assert_eq!(ids(schedule.select_preemptors(all(), EpochSeconds::new(100))), ["b", "a"]);
        assert_eq!(schedule.due(), Some(EpochSeconds::new(150)));
        assert!(
            schedule.record_outcome(&"b".into(), Err(refusal(AttemptRefusal::Nobody)), EpochSeconds::new(100)).is_err()
        );
        assert_eq!(ids(schedule.select_preemptors(all(), EpochSeconds::new(120))), ["a"], "nothing changed");
        schedule.record_change();
        assert_eq!(ids(schedule.select_preemptors(all(), EpochSeconds::new(104))), ["a"], "too soon");
        assert_eq!(ids(schedule.select_preemptors(all(), EpochSeconds::new(105))), ["b", "a"]);
        let backoff = AttemptRefusal::Backoff { failed: 1, until: EpochSeconds::new(130) };
        assert!(schedule.record_outcome(&"b".into(), Err(refusal(backoff)), EpochSeconds::new(105)).is_err());
        schedule.record_change();
        assert_eq!(ids(schedule.select_preemptors(all(), EpochSeconds::new(129))), ["a"]);
        assert_eq!(ids(schedule.select_preemptors(all(), EpochSeconds::new(130))), ["b", "a"]);
    }
}
