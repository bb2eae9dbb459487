//! Seeded randomness for generated workloads: the same seed gives the same numbers on every machine.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA'14), and von Neumann's way
//! to draw exponential times with comparisons alone, so that no platform's `ln` has a say.

use crate::time::Millis;

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Uniform over all 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform over `0..bound` (0 for a bound of 0); the bias is below one in 2^32 for the small bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.number()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// An exponential time with this mean, at least a millisecond.
    pub fn exponential(&mut self, mean: Millis) -> Millis {
        let mut whole: u128 = 0;
        loop {
            let first = self.number();
            let (mut last, mut falling) = (first, 1);
            loop {
                let next = self.number();
                if next >= last {
                    break;
                }
                (last, falling) = (next, falling + 1);
            }
            if falling % 2 == 1 {
                let units = (whole << 64) | u128::from(first);
                // Scaled in two steps: the whole part may be large.
                let millis = ((units >> 32) * u128::from(mean.0)) >> 32;
                return Millis(u64::try_from(millis).unwrap_or(u64::MAX).max(1));
            }
            whole += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // The first outputs of the reference implementation for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!([random.number(), random.number()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn exponential_times_have_the_mean_and_the_tail() {
        let mut random = Random::new(7);
        let times: Vec<u64> = (0..20_000).map(|_| random.exponential(Millis(60_000)).0).collect();
        let mean = times.iter().sum::<u64>() / 20_000;
        assert!((58_500..61_500).contains(&mean), "{mean}");
        // P(X > 3 mean) is 4.98 %.
        let tail = times.iter().filter(|time| **time > 180_000).count();
        assert!((900..1_100).contains(&tail), "{tail}");
    }

    #[test]
    fn below_stays_below() {
        let mut random = Random::new(1);
        let mut seen = [0; 3];
        (0..300).for_each(|_| seen[usize::try_from(random.below(3)).unwrap()] += 1);
        assert!(seen.iter().all(|count| *count > 60), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
