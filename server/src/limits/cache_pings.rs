//! Limits the calls that wait to keep a provider's cache warm, and the contexts that they hold.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most calls that wait.
const MAX_WAITING: usize = 256;
/// Most bytes that the contexts of all of them have together, in KiB.
const MAX_CONTEXTS_KIB: usize = 64 * 1024;

/// The limit of one process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CachePings {
    calls: Arc<Semaphore>,
    kib: Arc<Semaphore>,
}

/// Counts one call until it is dropped.
pub(crate) struct PingPermit {
    _call: OwnedSemaphorePermit,
    _kib: OwnedSemaphorePermit,
}

impl Default for CachePings {
    fn default() -> Self {
        Self {
            calls: Arc::new(Semaphore::new(MAX_WAITING)),
            kib: Arc::new(Semaphore::new(MAX_CONTEXTS_KIB)),
        }
    }
}

impl CachePings {
    /// Counts a call with a context of so many bytes; None: the limit is reached.
    pub(crate) fn try_acquire(&self, context_bytes: usize) -> Option<PingPermit> {
        let kib = u32::try_from(context_bytes.div_ceil(1_024)).ok()?;
        Some(PingPermit {
            _call: Arc::clone(&self.calls).try_acquire_owned().ok()?,
            _kib: Arc::clone(&self.kib).try_acquire_many_owned(kib).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_their_bytes_are_limited_until_they_are_dropped() {
        let pings = CachePings::default();
        let half = MAX_CONTEXTS_KIB / 2 * 1_024;
        let first = pings.try_acquire(half).expect("there is room");
        let _second = pings.try_acquire(half).expect("there is room");
        assert!(pings.try_acquire(1).is_none(), "the bytes are used up");
        drop(first);
        let _many: Vec<_> = (1..MAX_WAITING)
            .map(|_| pings.try_acquire(1).expect("there is room"))
            .collect();
        assert!(pings.try_acquire(1).is_none(), "the calls are used up");
    }
}
