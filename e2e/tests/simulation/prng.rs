//! SplitMix64 (Steele, Lea, Flood 2014): small, seeded, the same on every machine.

#[derive(Debug, Clone)]
pub struct Prng(u64);

impl Prng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly from `0..n`, as far as it matters here.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Evenly from `from..to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }

    /// Another sequence of its own.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }
}
