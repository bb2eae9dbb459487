//! What queues used lately: the mean of what each was charged, in which what is longer ago counts less.
//!
//! Rule: after [`half_life`](Decay::half_life) a mean is halfway between what it was and what has been used since
//! (Slurm's `PriorityDecayHalfLife`, `src/plugins/priority/multifactor/priority_multifactor.c`; Kueue's
//! `usageHalfLifeTime` of admission fair sharing, KEP-4136). Means are brought up to date at full [`TICK`]s of the
//! clock, all at once, so that who goes first depends on what happened when, and not on how often anybody asked.

use crate::{queue::quota::amount::Amount, time::EpochSeconds};

/// Seconds between two updates of the means.
pub(crate) const TICK: i64 = 10;
/// Seconds after which what was used counts half, unless somebody says otherwise: Slurm's default, a week.
pub const HISTORY_HALF_LIFE: i64 = 7 * 24 * 3600;

/// One, as fractions are written here.
const ONE_FRACTION: i128 = 1 << 32;
/// The natural logarithm of 2.
const LN_2: i128 = 2_977_044_472;
/// Terms of the series: the next is below one part in 2^32.
const TERMS: i128 = 12;

/// How fast the past is forgotten, and up to when it has been.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decay {
    half_life: i64,
    /// The last full tick.
    tick: Option<i64>,
}

impl Default for Decay {
    fn default() -> Self {
        Self::new(HISTORY_HALF_LIFE)
    }
}

impl Decay {
    /// Nothing is forgotten in less than a tick.
    pub(crate) fn new(half_life: i64) -> Self {
        Self { half_life: half_life.max(TICK), tick: None }
    }

    pub(crate) const fn half_life(self) -> i64 {
        self.half_life
    }

    /// The part of the past that still counts after the ticks up to `now`; `None` if there was none.
    pub(crate) fn advance_to(&mut self, now: EpochSeconds) -> Option<KeptFraction> {
        let tick = now.as_seconds().div_euclid(TICK);
        let ticks = tick.saturating_sub(*self.tick.get_or_insert(tick));
        if ticks <= 0 {
            return None;
        }
        self.tick = Some(tick);
        Some(self.keep_after(ticks.saturating_mul(TICK)))
    }

    /// The part of the past that still counts after so many seconds.
    pub(crate) fn keep_after(self, seconds: i64) -> KeptFraction {
        KeptFraction(compute_decay_factor(seconds.max(0), self.half_life))
    }
}

/// A part between 0 and [`ONE_FRACTION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptFraction(i128);

/// `2^(-elapsed / half_life)`, by the series of the exponential function, without floating point: the same everywhere.
fn compute_decay_factor(elapsed: i64, half_life: i64) -> i128 {
    let halves = elapsed / half_life;
    let power = i128::from(elapsed % half_life) * LN_2 / i128::from(half_life);
    let mut term = ONE_FRACTION;
    let mut sum = ONE_FRACTION;
    for k in 1..=TERMS {
        term = -(term * power / ONE_FRACTION) / k;
        sum += term;
    }
    u32::try_from(halves).map_or(0, |halves| sum.checked_shr(halves).unwrap_or(0))
}

impl KeptFraction {
    /// A mean brought up to date: `was`, and then `now` all the time.
    pub(crate) fn age_mean(self, was: Amount, now: Amount) -> Amount {
        now + Amount((was - now).0.saturating_mul(self.0) >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_left_after_a_half_life_and_all_but_nothing_is_lost_in_a_tick_of_a_week() {
        for (elapsed, half_life, left) in
            [(60, 60, ONE_FRACTION / 2), (180, 60, ONE_FRACTION / 8), (0, 60, ONE_FRACTION), (60 * 40, 60, 0)]
        {
            assert_eq!(compute_decay_factor(elapsed, half_life), left, "{elapsed} of {half_life}");
        }
        for (elapsed, half_life) in [(10, HISTORY_HALF_LIFE), (50, 60), (59, 60), (3600, 86400), (100_000, 86400)] {
            let wanted = (-(elapsed as f64) / half_life as f64).exp2() * ONE_FRACTION as f64;
            let left = compute_decay_factor(elapsed, half_life) as f64;
            assert!((left - wanted).abs() < 32.0, "{elapsed} of {half_life}: {left} of {wanted}");
        }
    }

    #[test]
    fn a_mean_moves_at_full_ticks_alone_and_by_the_time_that_passed() {
        let mut often = Decay::new(60);
        assert_eq!(often.advance_to(1_000_003.into()), None, "there is no past yet");
        assert_eq!(often.advance_to(1_000_009.into()), None);
        let mut seldom = often;
        let was = Amount(1 << 40);
        let of = |decay: &mut Decay, now| {
            decay.advance_to(EpochSeconds::new(now)).map_or(was, |kept| kept.age_mean(was, Amount::ZERO))
        };
        let (mut mean, mut now) = (was, 1_000_009);
        while now < 1_000_060 {
            now += 7;
            mean = often.advance_to(EpochSeconds::new(now)).map_or(mean, |kept| kept.age_mean(mean, Amount::ZERO));
        }
        let at_once = of(&mut seldom, now);
        assert!((mean - at_once).0.abs() < 1 << 12, "{mean:?} {at_once:?}");
        assert_eq!(at_once, was / 2);
        assert_eq!(seldom.advance_to(EpochSeconds::new(now - 30)), None, "time does not go back");
    }
}
