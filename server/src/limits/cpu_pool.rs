//! Runs long computations on blocking threads. On an async thread, a long computation would delay
//! the other calls that the thread serves. The number of threads that compute at the same time is
//! limited, and each tenant may use its share of them.

use std::{num::NonZero, thread::available_parallelism};

use anneal_core::{caller::TenantId, tokens::Encoding};
use tracing::Span;

use crate::{
    failure::Failure,
    limits::concurrency::{ConcurrencyLimit, Permit, TenantShare},
};

/// Work on at least this many bytes of text is long. Parsing, digests and estimates process 50 to
/// 200 MB a second, counting tokens 1 to 20 MB: 64 KiB take about 50 ms to count in the worst case,
/// 5 ms for ordinary text.
const LONG_WORK_BYTES: usize = 64 * 1024;
/// Work on at least this many messages or entries is long. Building a context takes 2 to 5 µs for
/// each, 20 µs in an unoptimized build.
const LONG_WORK_ITEMS: usize = 1_000;

/// Whether work on this many bytes of text, or on this many messages or entries, is long.
pub(crate) const fn is_long(bytes: usize, items: usize) -> bool {
    bytes >= LONG_WORK_BYTES || items >= LONG_WORK_ITEMS
}

/// Whether counting tokens of this text is long. The first count builds the vocabulary, which takes
/// about 100 ms.
pub(crate) fn is_long_count(encoding: Encoding, bytes: usize, items: usize) -> bool {
    is_long(bytes, items) || !encoding.is_loaded()
}

/// The threads that may run long work at the same time: as many as the machine has cores, and at
/// least two, so that no tenant can take all. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CpuPool(ConcurrencyLimit);

/// A thread of the pool that one call may use.
pub(crate) struct ReservedThread(Permit);

impl CpuPool {
    pub(crate) fn new(tenant_share: TenantShare) -> Self {
        Self(ConcurrencyLimit::new(
            available_parallelism().map_or(1, NonZero::get).max(2),
            tenant_share,
        ))
    }

    /// Waits until a thread is free for this tenant. A call that reserves its thread before it
    /// reads the input of its work holds no input in memory while it waits.
    pub(crate) async fn reserve(&self, tenant: TenantId) -> Result<ReservedThread, Failure> {
        Ok(ReservedThread(self.0.acquire(tenant, 1).await?))
    }

    /// Runs work on a blocking thread once one is free for this tenant.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tenant: TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.reserve(tenant).await?.run(work).await
    }

    /// Runs work on the pool if it is long, else on this thread.
    pub(crate) async fn run_if<T: Send + 'static>(
        &self,
        is_long: bool,
        tenant: TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        if is_long {
            self.run(tenant, work).await
        } else {
            Ok(work())
        }
    }
}

impl ReservedThread {
    /// Runs the work. Work that has started is not cancelled with its call, and keeps its permit
    /// until it ends.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let Self(permit) = self;
        let span = Span::current();
        let working = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            span.in_scope(work)
        });
        working.await.map_err(|_| Failure::Panicked)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use uuid::Uuid;

    use super::*;

    const EVE: TenantId = TenantId(Uuid::from_u128(1));
    const ANNA: TenantId = TenantId(Uuid::from_u128(2));

    #[tokio::test]
    async fn a_tenant_whose_work_waits_leaves_threads_to_the_others() {
        let pool = CpuPool::new(TenantShare::Percent(50));
        // Eve's work waits until `release` is dropped.
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Arc::new(std::sync::Mutex::new(released));
        let eves: Vec<_> = (0..100)
            .map(|_| {
                let (pool, released) = (pool.clone(), std::sync::Arc::clone(&released));
                tokio::spawn(async move {
                    pool.run(EVE, move || {
                        released
                            .lock()
                            .is_ok_and(|released| released.recv().is_ok())
                    })
                    .await
                    .is_ok()
                })
            })
            .collect();
        for n in 0..100 {
            assert_eq!(pool.run(ANNA, move || n).await.expect("works"), n);
        }
        drop(release);
        for eve in eves {
            assert!(eve.await.expect("ends"));
        }
    }

    #[tokio::test]
    async fn work_that_panics_fails_its_call_alone() {
        let pool = CpuPool::new(TenantShare::Percent(50));
        assert!(matches!(
            pool.run(EVE, || panic!("a bug")).await,
            Err::<(), _>(Failure::Panicked)
        ));
        assert!(pool.run(EVE, || ()).await.is_ok());
    }
}
