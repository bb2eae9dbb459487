//! How much may be evicted, how often, and how long the preemptor holds what came free.
//!
//! Rule: instant fairness wastes work, so four bounds limit the damage. The whole fleet has an eviction budget, a
//! token bucket. Each job has a growing cooldown after an eviction and a largest number of evictions without progress.
//! Each attempt has a largest number of victims. Each preemptor backs off, longer each time, when its attempts fail.
//! All times are handed in: nothing here reads a clock.

use crate::{
    gang::QueueName,
    queue::{
        JobId,
        preemption::{Preemptor, RunningJob},
        reservation::RESERVATION_AFTER,
    },
    resources::Resources,
    time::EpochSeconds,
    token_bucket::{Refill, TokenBucket},
};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreemptionBounds {
    /// Nobody is evicted for a job before it has waited this many seconds: from then on it has a reservation, and for
    /// what comes free by itself meanwhile nobody loses work. The attempt schedule looks at this.
    pub patience: i64,
    /// Evictions of the whole fleet.
    pub rate: EvictionRate,
    /// After it was taken from, a job is left alone for this many seconds from its next start; twice as long after each
    /// further time.
    pub cooldown: i64,
    /// Times that a job may be taken from without progress; then it is left alone until it makes some.
    pub evictions: u32,
    /// A job that ran this many seconds at a stretch has made progress, as has one of which a pod succeeded.
    pub progress: i64,
    /// Victims of one attempt.
    pub victims: u32,
    /// Seconds that a preemptor holds what came free for it, unless it starts before.
    pub hold: i64,
    /// Seconds until a preemptor whose attempt failed may try again; twice as long after each further time.
    pub backoff: i64,
    /// Where the growing pauses end, in seconds.
    pub longest: i64,
}

impl Default for PreemptionBounds {
    fn default() -> Self {
        Self {
            patience: RESERVATION_AFTER,
            rate: EvictionRate { evictions: 32, seconds: 60 },
            cooldown: 60,
            evictions: 3,
            progress: 3600,
            victims: 64,
            hold: 300,
            backoff: 30,
            longest: 3600,
        }
    }
}

/// So many evictions in so many seconds; as many at once after a quiet time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictionRate {
    /// How many.
    pub evictions: u32,
    /// In which time.
    pub seconds: u32,
}

/// A [`TokenBucket`] of evictions. It starts empty, so that a controller that restarts over and over takes no more than
/// one that does not. An attempt that needs more than it holds is not made in parts, of which each would be lost work
/// until the last: it waits until the bucket is full, takes all at once, and leaves a debt that is refilled first. So
/// in any stretch of time no more goes than what is refilled, and one full bucket or one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictionBudget {
    /// In parts of an eviction, of which [`EvictionRate::seconds`] are one, and seconds.
    bucket: TokenBucket,
}

impl EvictionBudget {
    /// With nothing in it.
    #[must_use]
    pub const fn start_empty(now: EpochSeconds) -> Self {
        Self { bucket: TokenBucket::new(0, now.as_seconds()) }
    }

    /// With all that it holds.
    #[must_use]
    pub fn start_full(rate: EvictionRate, now: EpochSeconds) -> Self {
        Self { bucket: TokenBucket::new(rate.refill().most, now.as_seconds()) }
    }

    /// Evictions that may be made at this time.
    #[must_use]
    pub fn count_available_evictions(&self, rate: EvictionRate, now: EpochSeconds) -> u32 {
        u32::try_from((self.bucket.level_at(rate.refill(), now.as_seconds()) / rate.parts_of_one()).max(0))
            .unwrap_or(u32::MAX)
    }

    /// Whether one attempt may make this many at this time.
    #[must_use]
    pub fn can_afford(&self, rate: EvictionRate, evictions: u32, now: EpochSeconds) -> bool {
        self.missing_parts(rate, evictions, now) == 0 && (rate.evictions > 0 || evictions == 0)
    }

    /// When one attempt may make this many; `None` if never, for nothing is ever refilled.
    #[must_use]
    pub fn find_time_of_enough(&self, rate: EvictionRate, evictions: u32, now: EpochSeconds) -> Option<EpochSeconds> {
        let refill = i64::from(rate.evictions);
        let missing = self.missing_parts(rate, evictions, now);
        (refill > 0).then(|| now.saturating_add((missing + refill - 1) / refill))
    }

    fn missing_parts(&self, rate: EvictionRate, evictions: u32, now: EpochSeconds) -> i64 {
        let needed = i64::from(evictions).saturating_mul(rate.parts_of_one()).min(rate.refill().most);
        needed.saturating_sub(self.bucket.level_at(rate.refill(), now.as_seconds())).max(0)
    }

    /// Takes evictions that were made.
    pub fn take_evictions(&mut self, rate: EvictionRate, evictions: usize, now: EpochSeconds) {
        let cost = i64::try_from(evictions).unwrap_or(i64::MAX).saturating_mul(rate.parts_of_one());
        self.bucket.take_parts(rate.refill(), cost, now.as_seconds());
    }
}

impl EvictionRate {
    fn parts_of_one(self) -> i64 {
        i64::from(self.seconds.max(1))
    }

    fn refill(self) -> Refill {
        let each_tick = i64::from(self.evictions);
        Refill { each_tick, most: each_tick.saturating_mul(self.parts_of_one()) }
    }
}

/// What was taken from a job since it last made progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvictionHistory {
    /// How many times.
    pub count: u32,
    /// The last time.
    pub last: Option<EpochSeconds>,
}

impl EvictionHistory {
    /// As it is once `candidate` was evicted at `now`.
    #[must_use]
    pub fn after_eviction(candidate: &RunningJob, bounds: &PreemptionBounds, now: EpochSeconds) -> Self {
        let before = if bounds.has_progressed(candidate, now) { 0 } else { candidate.evictions.count };
        Self { count: before.saturating_add(1), last: Some(now) }
    }
}

/// Failed attempts of one job: it held what came free and did not start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailedAttempts {
    /// How many.
    pub failed: u32,
    /// When the last one ended.
    pub last: Option<EpochSeconds>,
}

impl FailedAttempts {
    /// With one more.
    #[must_use]
    pub const fn with_failure_at(self, now: EpochSeconds) -> Self {
        Self { failed: self.failed.saturating_add(1), last: Some(now) }
    }

    /// When it may try again.
    #[must_use]
    pub fn not_before(&self, bounds: &PreemptionBounds) -> Option<EpochSeconds> {
        let last = self.last?;
        Some(last.saturating_add(double_pause(bounds.backoff, self.failed, bounds.longest)))
    }
}

impl PreemptionBounds {
    /// True if the job has something to show since it was last placed.
    #[must_use]
    pub fn has_progressed(&self, candidate: &RunningJob, now: EpochSeconds) -> bool {
        let ran = candidate.started.map_or(0, |started| now.seconds_since(started));
        candidate.progressed || ran >= self.progress
    }

    /// Until when a job is left alone.
    pub(crate) fn cools_until(&self, candidate: &RunningJob) -> Option<EpochSeconds> {
        let EvictionHistory { count, last: Some(last) } = candidate.evictions else { return None };
        let since = candidate.started.unwrap_or(last).max(last);
        Some(since.saturating_add(double_pause(self.cooldown, count, self.longest)))
    }

    /// When a job that these bounds protect is not protected by them any more, if nothing else happens.
    pub(crate) fn protection_ends_at(&self, candidate: &RunningJob, now: EpochSeconds) -> Option<EpochSeconds> {
        let spent = self
            .is_evicted_too_often(candidate, now)
            .then(|| candidate.started.map(|started| started.saturating_add(self.progress)));
        match (self.cools_until(candidate).filter(|until| *until > now), spent) {
            (cools, None) => cools,
            (cools, Some(progress)) => progress.map(|progress| progress.max(cools.unwrap_or(progress))),
        }
    }

    /// True if it was taken from too often.
    pub(crate) fn is_evicted_too_often(&self, candidate: &RunningJob, now: EpochSeconds) -> bool {
        candidate.evictions.count >= self.evictions && !self.has_progressed(candidate, now)
    }
}

/// `first` seconds the first time, doubled each further time, up to `longest`.
fn double_pause(first: i64, times: u32, longest: i64) -> i64 {
    let doubled = times.saturating_sub(1).min(40);
    first.saturating_mul(1_i64 << doubled).min(longest.max(first))
}

/// What a preemptor holds: the engine keeps this much of its queue's way up, and the places of its victims, for nobody
/// else until then. Without it a job that came before, or a victim, would take what was just freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldWindow {
    /// For whom.
    pub who: JobId,
    /// In which queue.
    pub queue: QueueName,
    /// How much.
    pub what: Resources,
    /// From when.
    pub since: EpochSeconds,
    /// Until when, unless it starts before. It is over *at* this second.
    pub until: EpochSeconds,
}

impl HoldWindow {
    pub(crate) fn open_window(preemptor: &Preemptor, bounds: &PreemptionBounds, now: EpochSeconds) -> Self {
        Self {
            who: preemptor.id.clone(),
            queue: preemptor.queue.clone(),
            what: preemptor.asks.clone(),
            since: now,
            until: now.saturating_add(bounds.hold),
        }
    }
}
