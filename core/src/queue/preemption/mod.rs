//! Preemption: which running jobs are evicted so that a pending job fits, and which never are.
//!
//! Rule: Volcano's `gangreclaim` and `gangpreempt` (`pkg/scheduler/actions`, with `plugins/capacity`) over the whole
//! fleet. *Reclaim*: a queue that stays within what it deserves takes from queues that borrow. *Preempt*: a job takes
//! from jobs of lower priority, in its own queue unless the policy allows more. Surplus pods of elastic gangs go
//! before whole gangs, and the least lost work before more. Nobody is evicted unless the function that places jobs
//! says that the preemptor then fits, and a victim that is not needed for that stays.
//!
//! One difference on purpose. A job within what its queue deserves, counting the queue's jobs by priority and then by
//! start, is never taken from outside, whatever else the queue borrows. Volcano may take any job of a queue that
//! borrows, and the two queues then evict each other for ever. Here each attempt makes the fleet strictly better in an
//! order that [`eligibility`] defines, so between two changes from outside there is a last attempt.
//!
//! Two bounds keep preemption patient. Nobody is evicted for a job before it has waited as long as it takes to get a
//! reservation ([`PreemptionBounds::patience`]): much comes free by itself. And a job that alone holds more than its
//! queue deserves, and waited for it, is left alone until it has had what its queue did without.
//!
//! The parts: [`attempts`] (when, and for which job), [`within_deserved`] (which use is the queue's by right),
//! [`eligibility`] (who may be evicted for whom), [`surplus`] (pods that a gang can spare), [`victim_order`] (who goes
//! first), [`victims`] (how few), [`budget`] (how much at most), [`reasons`] (why, and why not).

mod attempts;
mod budget;
mod eligibility;
mod policy;
mod reasons;
mod record;
mod rule_syntax;
mod surplus;
#[cfg(test)]
pub(crate) mod tests;
mod victim_order;
mod victims;
mod within_deserved;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use self::victim_order::VictimRank;
pub(crate) use self::victim_order::compute_lost_work;
pub use self::{
    attempts::{AttemptSchedule, ClosedAttempt, HEADS_PER_QUEUE, Pace, PendingPreemptor},
    budget::{EvictionBudget, EvictionHistory, EvictionRate, FailedAttempts, HoldWindow, PreemptionBounds},
    policy::{JobSelector, PreemptionPolicy, PreemptionRule, RuleScope, UnmarkedJobs},
    reasons::{AttemptRefusal, EvictionReason, Exemption, NoEvictions, NotEntitled},
    record::{EvictionRecord, LastMove},
    surplus::{ElasticGang, PlacedTask, RemovedSurplus},
};

use crate::{
    gang::QueueName,
    queue::JobId,
    resources::{Limits, ResourceName, Resources},
    time::{EpochSeconds, SubmitTime},
};

/// What a queue may have and has; inner queues too, the root not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueAccount {
    /// The queue above; `None` is the root.
    pub parent: Option<QueueName>,
    /// Kept free for it: nothing is taken below this.
    pub guarantee: Resources,
    /// What it is entitled to; names that are absent are not stated. An inner queue that states nothing of a resource
    /// deserves what its children do together.
    pub deserved: Limits,
    /// Charged, with all queues below.
    pub used: Resources,
    /// Whether others may take back what it, or a queue below, borrowed.
    pub reclaimable: bool,
    /// Of lower ones is taken first.
    pub priority: i32,
}

/// A job that holds a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningJob {
    /// Who.
    pub id: JobId,
    /// Whose charge.
    pub queue: QueueName,
    /// Where its objects are.
    pub namespace: Arc<str>,
    /// What its objects are called.
    pub name: Arc<str>,
    /// The job's priority.
    pub priority: i32,
    /// `volcano.sh/preemptable`, where the job says so.
    pub preemptable: Option<bool>,
    /// All of its pods are of QoS level `BE`.
    pub best_effort: bool,
    /// We admitted it, so that we can requeue it.
    pub ours: bool,
    /// When it came.
    pub created: SubmitTime,
    /// Since when it is placed; `None` while it is only admitted, and has nothing to lose.
    pub started: Option<EpochSeconds>,
    /// It saves its work at least each so many seconds, if it says so.
    pub checkpoint_interval: Option<i64>,
    /// What it is charged now.
    pub charge: Resources,
    /// Pods that it can spare, if it is a gang that is placed once.
    pub elastic: Option<ElasticGang>,
    /// What was taken from it before.
    pub evictions: EvictionHistory,
    /// Pods of it succeeded since it was last placed.
    pub progressed: bool,
}

impl RunningJob {
    /// Seconds of its run that an eviction loses at most: all of it, or what was not saved yet.
    pub(crate) fn count_lost_seconds(&self, now: EpochSeconds) -> i64 {
        let ran = self.started.map_or(0, |started| now.seconds_since(started).max(0));
        self.checkpoint_interval.map_or(ran, |interval| ran.min(interval.max(0)))
    }

    /// Who started before whom. Kubernetes' times are whole seconds: of jobs that started in the same one, the older
    /// goes first, and then the names decide. So the answer is one that a user can work out, which UIDs would not be. A
    /// job that is only admitted starts last.
    pub(crate) fn start_order(&self) -> impl Ord {
        (self.started.unwrap_or(EpochSeconds::MAX), self.created, &self.namespace, &self.name, &self.id)
    }
}

/// A pending job that wants others evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemptor {
    /// Who.
    pub id: JobId,
    /// Where.
    pub queue: QueueName,
    /// The job's priority.
    pub priority: i32,
    /// All of its pods are best effort: by its priority it takes others that are.
    pub best_effort: bool,
    /// `preemptionPolicy: Never`: nobody is evicted for it, by neither right (Volcano's `reclaim` honours it too).
    pub never_preempts: bool,
    /// What all of its minimum asks for, whole: not what one pod does.
    pub asks: Resources,
    /// Of which resources there is too little now; none given is all that it asks for.
    pub lacks: BTreeSet<ResourceName>,
    /// Its earlier attempts that failed.
    pub attempts: FailedAttempts,
}

/// Everything that an attempt is decided on.
#[derive(Debug, Clone, Copy)]
pub struct PreemptionInput<'a> {
    /// All queues but the root.
    pub queues: &'a BTreeMap<QueueName, QueueAccount>,
    /// All jobs that hold something; their order does not matter.
    pub running: &'a [RunningJob],
    /// What the fleet has, to weigh lost work by.
    pub fleet: &'a Resources,
    /// The rules that the admin chose.
    pub policy: &'a PreemptionPolicy,
    /// How much may be taken now.
    pub budget: &'a EvictionBudget,
    /// The time.
    pub now: EpochSeconds,
}

/// How much of a job is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictedPart {
    /// Pods beyond its minimum: it shrinks and goes on.
    Surplus(RemovedSurplus),
    /// All of it, in all clusters: it is pending again and keeps its age.
    Whole,
}

/// A job that is evicted, or loses surplus pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// Who.
    pub id: JobId,
    /// Whose charge.
    pub queue: QueueName,
    /// How much of it.
    pub taken: EvictedPart,
    /// By which right.
    pub why: EvictionReason,
    /// What comes free.
    pub frees: Resources,
    /// Billionths of the fleet, summed over resources, times seconds run.
    pub lost_work: i128,
}

/// Whom to evict, and what that frees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionPlan {
    /// In the order to take them in. No one of them can be left out.
    pub victims: Vec<Victim>,
    /// What comes free, in all.
    pub frees: Resources,
    /// The sum of [`Victim::lost_work`].
    pub lost_work: i128,
    /// What the preemptor holds from now on.
    pub hold: HoldWindow,
}

/// Whom to take so that the preemptor fits.
///
/// `fits` answers for the preemptor's whole minimum with these victims' pods gone: quota on the way up, then node by
/// node in the clusters. Where more victims never make it fit less, there is a plan whenever taking all who may be
/// taken is enough, and no part of a plan is enough. Smallest of all plans it need not be.
///
/// # Errors
/// [`NoEvictions`], with numbers, if nobody may be taken, or all who may be are not enough, or a bound holds.
pub fn plan_evictions(
    input: &PreemptionInput<'_>,
    preemptor: &Preemptor,
    mut fits: impl FnMut(&[&Victim]) -> bool,
) -> Result<EvictionPlan, Box<NoEvictions>> {
    let bounds = &input.policy.bounds;
    let refuse = |refused| {
        let (asks, exempt) = (preemptor.asks.clone(), BTreeMap::new());
        Box::new(NoEvictions { refused, asks, entitled: Ok(()), exempt, free_at: None })
    };
    if let Some(until) = preemptor.attempts.not_before(bounds).filter(|until| *until > input.now) {
        return Err(refuse(AttemptRefusal::Backoff { failed: preemptor.attempts.failed, until }));
    }
    if preemptor.never_preempts {
        return Err(refuse(AttemptRefusal::Never));
    }
    if fits(&[]) {
        return Err(refuse(AttemptRefusal::Unneeded));
    }
    let count = |victims: &[Victim]| u32::try_from(victims.len()).unwrap_or(u32::MAX);
    let mut victims = victims::choose_victims(input, preemptor, VictimRank::BestEffortFirst, &mut fits)?;
    if count(&victims) > bounds.victims && input.running.iter().any(|job| job.best_effort) {
        // Many small best-effort jobs shield nobody who is large.
        victims = victims::choose_victims(input, preemptor, VictimRank::AllAlike, &mut fits)?;
    }
    let needs = count(&victims);
    if needs > bounds.victims {
        return Err(refuse(AttemptRefusal::TooMany { needs, most: bounds.victims }));
    }
    if !input.budget.can_afford(bounds.rate, needs, input.now) {
        let has = input.budget.count_available_evictions(bounds.rate, input.now);
        let enough_at = input.budget.find_time_of_enough(bounds.rate, needs, input.now);
        return Err(refuse(AttemptRefusal::Rate { needs, has, most: bounds.rate.evictions, enough_at }));
    }
    let mut frees = Resources::new();
    victims.iter().for_each(|victim| frees.add(&victim.frees));
    let lost_work = victims.iter().fold(0_i128, |sum, victim| sum.saturating_add(victim.lost_work));
    Ok(EvictionPlan { victims, frees, lost_work, hold: HoldWindow::open_window(preemptor, bounds, input.now) })
}
