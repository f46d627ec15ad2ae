//! Random numbers that are the same in every run.

/// Pseudo-random numbers of a linear congruential generator, which begins with this seed.
pub struct SeededRandom(pub u64);

impl SeededRandom {
    /// A number from 0 to `limit - 1`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// An index of a list of `length` items.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}
