//! Random numbers that spread timers.

use std::hash::{BuildHasher as _, Hasher as _};

/// A random number from 0 to 1, which spreads timers that would otherwise fire together.
pub(crate) fn jitter() -> f64 {
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    random as f64 / u64::MAX as f64
}
