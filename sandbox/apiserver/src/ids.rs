//! The identifiers that the server makes up (UIDs, suffixes of generated names): a value given to it, so that a
//! simulation can repeat itself. Tokens of service accounts are made of them too, so those of a seeded source can be
//! guessed. The administrator's token, when none is given, is always random.

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// A source of identifiers that never come twice.
pub trait Ids: Send + Sync + 'static {
    /// An identifier that this source has not given before.
    fn next(&self) -> Uuid;
}

/// Random ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn next(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// The same ones for the same seed, in the order of asking; they look random (SplitMix64 over a counter). Whoever knows
/// one knows all that follow, and so the tokens of service accounts: for tests, and no server that others reach.
#[derive(Debug)]
pub struct SeededIds(AtomicU64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl SeededIds {
    /// The seed's sequence from its beginning. Two servers with one seed give their objects the same UIDs as long as
    /// they get the same requests in the same order.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(mix_bits(seed)))
    }
}

impl Ids for SeededIds {
    fn next(&self) -> Uuid {
        let at = self.0.fetch_add(STEP.wrapping_mul(2), Ordering::Relaxed);
        let (high, low) = (mix_bits(at.wrapping_add(STEP)), mix_bits(at.wrapping_add(STEP.wrapping_mul(2))));
        uuid::Builder::from_random_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes()).into_uuid()
    }
}

fn mix_bits(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_its_own_sequence_again_and_nothing_twice() {
        let take = |seed| {
            let ids = SeededIds::new(seed);
            (0..1000).map(|_| ids.next()).collect::<Vec<_>>()
        };
        assert_eq!(take(7), take(7));
        let all: BTreeSet<Uuid> = (0..5).flat_map(take).collect();
        assert_eq!(all.len(), 5000);
        assert!(all.iter().all(|id| id.get_version_num() == 4));
    }
}
