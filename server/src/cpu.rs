//! Long work of the processor leaves the threads that answer calls: whoever computes on one of them keeps all other calls
//! waiting. It runs on a few blocking threads, of which a tenant takes its share at most.

use std::{num::NonZero, thread::available_parallelism};

use anneal_core::caller::TenantId;
use tracing::Span;

use crate::{
    room::{Room, Sharing},
    status::Failure,
};

/// Bytes of text from which on work leaves the async thread. Parsing, digests and estimates read 50 to 200 MB a second,
/// counting tokens 1 to 20: 64 KiB of the worst text are counted in about 50 ms, ordinary text in 5.
const LONG_BYTES: usize = 64 * 1024;
/// Messages (or entries of an answer) from which on it does so: building a context takes 2 to 5 µs for each, 20 in an
/// unoptimised build.
const LONG_ITEMS: usize = 1_000;

/// Whether work on so many bytes, in so many messages, is long.
pub(crate) const fn is_long(bytes: usize, items: usize) -> bool {
    bytes >= LONG_BYTES || items >= LONG_ITEMS
}

/// The threads on which long work runs: at most as many at once as there are cores (and two, so that no tenant ever has all).
/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct CpuPool(Room);

impl CpuPool {
    /// A pool whose threads tenants share so.
    pub(crate) fn new(sharing: Sharing) -> Self {
        Self(Room::new(available_parallelism().map_or(1, NonZero::get).max(2), sharing))
    }

    /// Runs work away from the async threads, once there is a thread for this tenant. Work that was begun ends, also when
    /// its call has: it keeps its thread's place until then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tenant: TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let place = self.0.wait(tenant, 1).await?;
        let span = Span::current();
        let working = tokio::task::spawn_blocking(move || {
            let _place = place;
            span.in_scope(work)
        });
        working.await.map_err(|_| Failure::Panicked)
    }

    /// The same where the work is long; else it runs here.
    pub(crate) async fn run_if<T: Send + 'static>(
        &self,
        is_long: bool,
        tenant: TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        if is_long { self.run(tenant, work).await } else { Ok(work()) }
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
        let pool = CpuPool::new(Sharing::Percent(50));
        let (end, ends) = mpsc::channel::<()>();
        let ends = std::sync::Arc::new(std::sync::Mutex::new(ends));
        let eves: Vec<_> = (0..100)
            .map(|_| {
                let (pool, ends) = (pool.clone(), std::sync::Arc::clone(&ends));
                tokio::spawn(async move { pool.run(EVE, move || ends.lock().map(|ends| ends.recv())).await.is_ok() })
            })
            .collect();
        for n in 0..100 {
            assert_eq!(pool.run(ANNA, move || n).await.expect("works"), n);
        }
        drop(end);
        for eve in eves {
            assert!(eve.await.expect("ends"));
        }
    }

    #[tokio::test]
    async fn work_that_panics_fails_its_call_alone() {
        let pool = CpuPool::new(Sharing::Percent(50));
        assert!(matches!(pool.run(EVE, || panic!("a bug")).await, Err::<(), _>(Failure::Panicked)));
        assert!(pool.run(EVE, || ()).await.is_ok());
    }
}
