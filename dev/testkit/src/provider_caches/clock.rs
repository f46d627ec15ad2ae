//! The clock of a scripted provider.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A clock that stands still until the test moves it. All clones are one clock.
#[derive(Debug, Clone, Default)]
pub struct ProviderClock(Arc<AtomicU64>);

impl ProviderClock {
    /// Moves the clock on by this time, of which whole seconds count.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_secs(), Ordering::SeqCst);
    }

    /// Seconds since the provider's start.
    pub(super) fn seconds(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
