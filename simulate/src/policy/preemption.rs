//! Preemption in a simulation: the state machine of `caldera_core::queue::preemption`, by the policy of the world's
//! rules.
//!
//! Only whole jobs are evicted: what is left of a gang that shrinks runs on in ways that a simulation knows nothing of.
//! A victim is not pending until the attempt that it was evicted for is over, then waits again with its age and starts
//! from the beginning. Its pods are gone at once. Where jobs arrive over more than a day, attempts are made less often,
//! in proportion: one takes as long as ever, and there would be hundreds of thousands.

use std::collections::HashMap;

use caldera_core::{
    queue::{
        Engine, JobId, PreemptionCandidate, PreemptionWorld,
        preemption::{
            AttemptSchedule, EvictionHistory, Pace, PendingPreemptor, PreemptionPolicy, Preemptor, RunningJob, Victim,
        },
    },
    resources::Resources,
    time::EpochSeconds,
};

use super::caldera::{id, index};
use crate::{
    site::{JobState, Site},
    time::Millis,
    world::JobTerms,
};

/// A preemptor that was refused is considered again no more often than the time of all arrivals has of these parts.
const PARTS: i64 = 20_000;

/// The attempts of a simulation, and what was evicted for them.
#[derive(Debug)]
pub(super) struct Preemption {
    schedule: AttemptSchedule,
    /// Victims that are not pending yet.
    out: Vec<usize>,
    evictions: HashMap<usize, EvictionHistory>,
}

impl Preemption {
    /// By this policy, as after a start at `now`, for jobs that arrive over `span` seconds.
    pub(super) fn new(policy: &PreemptionPolicy, now: EpochSeconds, span: i64) -> Self {
        let normal = Pace::default();
        let retry = normal.retry.max(span / PARTS);
        let pace = Pace { pause: normal.pause.max(retry / normal.retry), retry };
        let mut schedule = AttemptSchedule::new(policy.clone(), pace);
        // The budget begins to fill.
        schedule.budget(now);
        Self { schedule, out: Vec::new(), evictions: HashMap::new() }
    }

    /// Something changed.
    pub(super) const fn record_change(&mut self) {
        self.schedule.record_change();
    }

    /// When to consider an attempt if nothing happens.
    pub(super) fn due(&self) -> Option<Millis> {
        self.schedule.due().and_then(Millis::of_epoch)
    }

    /// Ends the open attempt if it is over; its victims may be pending again.
    pub(super) fn close_attempt(&mut self, engine: &Engine, now: EpochSeconds) -> Vec<usize> {
        if self.schedule.close_attempt_if_over(|id| engine.is_pending(id.as_str()), now).is_none() {
            return Vec::new();
        }
        self.record_change();
        std::mem::take(&mut self.out)
    }

    /// The preemptor of the open attempt.
    pub(super) fn preemptor(&self) -> Option<JobId> {
        self.schedule.preemptor().cloned()
    }

    /// A job was evicted for another reason than an attempt.
    pub(super) fn record_eviction(&mut self, job: &RunningJob, now: EpochSeconds) {
        let history = EvictionHistory::after_eviction(job, &self.schedule.policy.bounds, now);
        self.evictions.insert(index(&job.id), history);
    }

    /// Jobs that run, as whoever evicts looks at them.
    pub(super) fn list_running_jobs(&self, site: &Site<'_>, engine: &Engine) -> Vec<RunningJob> {
        list_running_jobs(site, engine, &self.evictions)
    }

    /// Makes an attempt if there is cause; the victims.
    pub(super) fn attempt(&mut self, site: &mut Site<'_>, engine: &Engine, now: EpochSeconds) -> Vec<usize> {
        if !self.schedule.begin_round(true, now) {
            return Vec::new();
        }
        let mut world = SimulatedWorld { site, engine, evictions: &self.evictions };
        let round = engine.run_preemption_round(&mut self.schedule, &mut world, now);
        let Some((_, plan)) = round.evictions else { return Vec::new() };
        self.out = plan.victims.iter().map(|victim| index(&victim.id)).collect();
        let bounds = &self.schedule.policy.bounds;
        let evicted = round.running.iter().filter(|job| plan.victims.iter().any(|victim| victim.id == job.id));
        let history = |job: &RunningJob| (index(&job.id), EvictionHistory::after_eviction(job, bounds, now));
        self.evictions.extend(evicted.map(history));
        self.out.clone()
    }
}

/// What a round of attempts looks at.
struct SimulatedWorld<'a, 'b> {
    site: &'a mut Site<'b>,
    engine: &'a Engine,
    evictions: &'a HashMap<usize, EvictionHistory>,
}

impl PreemptionWorld for SimulatedWorld<'_, '_> {
    fn list_preemptors(
        &self,
        candidates: Vec<PreemptionCandidate>,
        policy: &PreemptionPolicy,
    ) -> Vec<PendingPreemptor> {
        let lowest = lowest_preemptable(self.site, policy);
        let may_evict = |job: &PreemptionCandidate| {
            let id = index(&job.id);
            let above = lowest.is_some_and(|lowest| lowest < self.site.job(id).priority);
            !terms(self.site, id).never_preempts && (policy.reclaim && job.may_reclaim || above)
        };
        let all = candidates.into_iter().filter(may_evict);
        all.map(|job| pending_preemptor(self.site, self.engine, job)).collect()
    }

    fn list_charged_jobs(&self) -> Vec<RunningJob> {
        list_running_jobs(self.site, self.engine, self.evictions)
    }

    fn sum_ready_fleet(&mut self) -> Resources {
        self.site.members().total().ready
    }

    fn sum_free(&mut self) -> Resources {
        self.site.members().free()
    }

    fn find_fit_without(&mut self, preemptor: &Preemptor) -> Option<impl FnMut(&[&Victim]) -> bool> {
        let (job, card) = (index(&preemptor.id), self.engine.pending_card(preemptor.id.as_str()));
        Some(move |victims: &[&Victim]| {
            let gone: Vec<usize> = victims.iter().map(|victim| index(&victim.id)).collect();
            self.site.fits_after(job, card, &gone)
        })
    }
}

fn list_running_jobs(site: &Site<'_>, engine: &Engine, evictions: &HashMap<usize, EvictionHistory>) -> Vec<RunningJob> {
    let running = |(job, state): (usize, &JobState)| {
        let JobState::Running { since, .. } = state else { return None };
        let (id, of, terms) = (id(job), site.job(job), terms(site, job));
        Some(RunningJob {
            charge: engine.charge_of(id.as_str())?,
            name: id.as_str().into(),
            id,
            queue: of.queue.clone(),
            namespace: terms.namespace,
            priority: of.priority,
            preemptable: terms.preemptable,
            best_effort: terms.best_effort,
            ours: true,
            created: of.arrival.as_epoch().into(),
            started: Some(since.as_epoch()),
            checkpoint_interval: terms.checkpoint_interval,
            elastic: None,
            evictions: evictions.get(&job).copied().unwrap_or_default(),
            progressed: false,
        })
    };
    site.charged_jobs().filter_map(running).collect()
}

/// What a job says of evictions.
fn terms(site: &Site<'_>, job: usize) -> JobTerms {
    site.world().terms.get(&site.job(job).name).cloned().unwrap_or_default()
}

/// The lowest priority that runs and may be preempted by some rule.
fn lowest_preemptable(site: &Site<'_>, policy: &PreemptionPolicy) -> Option<i32> {
    if policy.preempt.is_empty() || (!policy.unset.preempt && site.world().terms.is_empty()) {
        return None;
    }
    let may = |job: &usize| terms(site, *job).preemptable.unwrap_or(policy.unset.preempt);
    site.charged_jobs().map(|(job, _)| job).filter(may).map(|job| site.job(job).priority).min()
}

fn pending_preemptor(site: &Site<'_>, engine: &Engine, job: PreemptionCandidate) -> PendingPreemptor {
    let of = site.job(index(&job.id));
    let queue_priority = engine.queue_spec(&job.queue).map_or(0, |queue| queue.priority);
    let (priority, created) = (of.priority, of.arrival.as_epoch().into());
    let best_effort = terms(site, index(&job.id)).best_effort;
    PendingPreemptor { id: job.id, queue: job.queue, queue_priority, priority, best_effort, created, asks: job.asks }
}
