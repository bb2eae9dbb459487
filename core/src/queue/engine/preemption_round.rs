//! One round of preemption attempts: for the first pending jobs of each queue, one after the other, until one succeeds.
//!
//! The controller and the simulator run this loop. What they know of their worlds they say as [`PreemptionWorld`]; when
//! a round is made, and for which jobs, is [`AttemptSchedule`]'s to decide, and whom to evict `plan_evictions`'.

use super::{Engine, PreemptionCandidate};
use crate::{
    queue::{
        JobId,
        preemption::{
            AttemptSchedule, EvictionPlan, HEADS_PER_QUEUE, NoEvictions, PendingPreemptor, PreemptionInput,
            PreemptionPolicy, Preemptor, RunningJob, Victim, plan_evictions,
        },
    },
    resources::Resources,
    time::EpochSeconds,
};

/// What a round looks at beside the queues.
pub trait PreemptionWorld {
    /// Those candidates that may evict somebody at all, by a right of the policy and by their own words.
    fn list_preemptors(&self, candidates: Vec<PreemptionCandidate>, policy: &PreemptionPolicy)
    -> Vec<PendingPreemptor>;
    /// Every job that holds quota.
    fn list_charged_jobs(&self) -> Vec<RunningJob>;
    /// What the clusters that take jobs have, to weigh lost work by.
    fn sum_ready_fleet(&mut self) -> Resources;
    /// What is free in all clusters together.
    fn sum_free(&mut self) -> Resources;
    /// Whether clusters have a place for the preemptor's whole minimum once these victims' pods are gone; `None` where
    /// the preemptor is gone.
    fn find_fit_without(&mut self, preemptor: &Preemptor) -> Option<impl FnMut(&[&Victim]) -> bool>;
}

/// What a round came to.
#[derive(Debug, Default)]
pub struct PreemptionRound {
    /// Who is evicted, and for whom. The attempt is open.
    pub evictions: Option<(Preemptor, EvictionPlan)>,
    /// Every job that held quota; none if nobody was considered.
    pub running: Vec<RunningJob>,
    /// For whom nobody is evicted, and why.
    pub refused: Vec<(JobId, Box<NoEvictions>)>,
}

impl Engine {
    /// Makes attempts for those that are considered at `now`.
    pub fn run_preemption_round(
        &self,
        schedule: &mut AttemptSchedule,
        world: &mut impl PreemptionWorld,
        now: EpochSeconds,
    ) -> PreemptionRound {
        let mut round = PreemptionRound::default();
        schedule.forget_absent(|id| self.is_pending(id.as_str()));
        let policy = schedule.policy.clone();
        let budget = schedule.budget(now);
        let all = world.list_preemptors(self.list_preemption_candidates(HEADS_PER_QUEUE), &policy);
        let selected = schedule.select_preemptors(all, now);
        if selected.is_empty() {
            return round;
        }
        round.running = world.list_charged_jobs();
        let (queues, fleet) = (self.queue_accounts(), world.sum_ready_fleet());
        let input = PreemptionInput {
            queues: &queues,
            running: &round.running,
            fleet: &fleet,
            policy: &policy,
            budget: &budget,
            now,
        };
        for head in selected {
            let preemptor = Preemptor {
                lacks: self.list_missing_resources(&head.queue, &head.asks, &world.sum_free()),
                attempts: schedule.failed_attempts(&head.id),
                id: head.id,
                queue: head.queue,
                priority: head.priority,
                best_effort: head.best_effort,
                // Else it would not be listed.
                never_preempts: false,
                asks: head.asks,
            };
            let quota = self.compute_quota_after_evictions(&preemptor.queue, preemptor.asks.clone());
            let outcome = {
                let Some(mut fits) = world.find_fit_without(&preemptor) else { continue };
                plan_evictions(&input, &preemptor, |victims| quota.is_enough(victims) && fits(victims))
            };
            match schedule.record_outcome(&preemptor.id, outcome, now) {
                Ok(plan) => {
                    round.evictions = Some((preemptor, plan));
                    break;
                }
                Err(why) => round.refused.push((preemptor.id, why)),
            }
        }
        round
    }
}
