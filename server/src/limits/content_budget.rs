//! Limits the bytes of stored content that calls hold at the same time. A read reserves bytes
//! before it queries the database, and holds the reservation until its answer has been sent.
//! Blocking work and statements that outlive their call keep the reservation, too.
//!
//! The budget counts bytes of the stored JSON text. Parsing, building and encoding take two to
//! three times as much memory at a time (docs/decisions/0025-content-held-is-reserved.md).

use std::{
    any::Any,
    future::{Future, pending},
    panic::resume_unwind,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use anneal_core::caller::TenantId;
use anneal_store::{ContentRead, ReadBudget, StoreError, WaitCount};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::{
    failure::Failure,
    limits::{
        concurrency::{ConcurrencyLimit, Permit, TenantShare},
        cpu_pool::CpuPool,
    },
};

/// Bytes of one permit.
const UNIT_BYTES: u64 = 1024;
/// Bytes that a read reserves before its size is known: more than most contexts and pages have. A
/// larger read returns its size, and is repeated with a larger reservation.
pub(crate) const FIRST_BYTES: u64 = 1024 * 1024;
/// Queries that may transfer at least this many bytes run on a blocking thread. The driver copies
/// the bytes several times in one poll: 64 MiB take 100 ms, 24 MiB take less than 40 ms.
pub(crate) const LONG_QUERY_BYTES: u64 = 24 * 1024 * 1024;
/// Most attempts of a read whose result grows between attempts.
const READ_ATTEMPTS: usize = 4;
/// How long a call waits for a reservation: half of the default deadline.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A budget of bytes and the share of each tenant. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ContentBudget {
    limit: ConcurrencyLimit,
    /// Bytes that one tenant may reserve.
    share: u64,
    /// At most one reservation may be larger than a tenant's share. It holds this slot, and counts
    /// as one whole share.
    large_slot: Arc<Semaphore>,
    /// Number of calls that wait for the large slot.
    large_waiters: Arc<AtomicUsize>,
}

/// Reserved bytes, released when the last clone of the [`Arc`] is dropped.
#[derive(Debug)]
pub(crate) struct Reservation(Mutex<Reserved>);

#[derive(Debug)]
struct Reserved {
    permit: Permit,
    /// The permit for the large slot, and the number of calls that wait for the slot. None: the
    /// reservation does not hold the slot.
    large_slot: Option<(OwnedSemaphorePermit, Arc<AtomicUsize>)>,
}

/// An answer, and the reservation for the content that it was made from.
pub(crate) struct WithReservation<T> {
    pub(crate) answer: T,
    pub(crate) reservation: Arc<Reservation>,
}

impl ContentBudget {
    /// A budget of this many bytes.
    pub(crate) fn new(bytes: u64, tenant_share: TenantShare) -> Self {
        let share = match tenant_share {
            TenantShare::Whole => bytes,
            TenantShare::Percent(percent) => bytes.saturating_mul(percent.into()) / 100,
        };
        let permits = usize::try_from(bytes.div_ceil(UNIT_BYTES))
            .unwrap_or(usize::MAX)
            .clamp(1, Semaphore::MAX_PERMITS);
        Self {
            limit: ConcurrencyLimit::new(permits, tenant_share),
            share,
            large_slot: Arc::new(Semaphore::new(1)),
            large_waiters: Arc::default(),
        }
    }

    /// Another budget that shares the large slot with this one. A large reservation takes most of
    /// the process's memory, so only one is granted at a time, in one of the budgets.
    pub(crate) fn with_shared_large_slot(&self, bytes: u64, tenant_share: TenantShare) -> Self {
        let (large_slot, large_waiters) = (
            Arc::clone(&self.large_slot),
            Arc::clone(&self.large_waiters),
        );
        Self {
            large_slot,
            large_waiters,
            ..Self::new(bytes, tenant_share)
        }
    }

    /// Waits for a reservation of this many bytes. Calls of a tenant are served in order. A
    /// reservation larger than the tenant's share waits until the tenant holds no other reservation
    /// and no other large reservation is held. Fails with [`Failure::Overloaded`] after 5 s.
    pub(crate) async fn reserve(
        &self,
        tenant: TenantId,
        bytes: u64,
    ) -> Result<Arc<Reservation>, Failure> {
        let units = u32::try_from(bytes.min(self.share).div_ceil(UNIT_BYTES))
            .unwrap_or(u32::MAX)
            .max(1);
        let large_slot_permit = async {
            if bytes <= self.share {
                return None;
            }
            let _waits = WaitCount::new(&self.large_waiters);
            let permit = Arc::clone(&self.large_slot)
                .acquire_owned()
                .await
                .expect("the semaphore is never closed");
            Some((permit, Arc::clone(&self.large_waiters)))
        };
        let mut reserving = pin!(self.limit.acquire_after(tenant, units, large_slot_permit));
        let reserved = match futures::poll!(&mut reserving) {
            Poll::Ready(reserved) => Ok(reserved),
            Poll::Pending => {
                metrics::counter!("anneal_content_waits_total").increment(1);
                timeout(RESERVE_TIMEOUT, reserving).await
            }
        };
        let Ok(reserved) = reserved else {
            metrics::counter!("anneal_content_refused_total").increment(1);
            return Err(Failure::Overloaded);
        };
        let (permit, large_slot) = reserved?;
        metrics::gauge!("anneal_content_bytes_held")
            .increment((permit.count() as u64 * UNIT_BYTES) as f64);
        Ok(Arc::new(Reservation(Mutex::new(Reserved {
            permit,
            large_slot,
        }))))
    }

    /// Reads content within a reservation of its size. `read` returns the content, or its size if
    /// the reservation is too small.
    pub(crate) async fn read<T, F>(
        &self,
        tenant: TenantId,
        read: impl Fn(ReadBudget) -> F,
    ) -> Result<WithReservation<T>, Failure>
    where
        F: Future<Output = Result<ContentRead<T>, StoreError>> + Send + 'static,
        T: Send + 'static,
    {
        self.read_expecting(tenant, 0, read).await
    }

    /// Like [`read`](Self::read), for content that will probably take `expected` bytes. At first at
    /// most the tenant's share is reserved, so that a wrong expectation never waits for the large
    /// slot.
    pub(crate) async fn read_expecting<T, F>(
        &self,
        tenant: TenantId,
        expected: u64,
        read: impl Fn(ReadBudget) -> F,
    ) -> Result<WithReservation<T>, Failure>
    where
        F: Future<Output = Result<ContentRead<T>, StoreError>> + Send + 'static,
        T: Send + 'static,
    {
        let mut wanted = FIRST_BYTES.max(expected).min(self.share.max(UNIT_BYTES));
        for _ in 0..READ_ATTEMPTS {
            let reservation = self.reserve(tenant, wanted).await?;
            let held: Arc<dyn Any + Send + Sync> = Arc::<Reservation>::clone(&reservation);
            let reading = read(ReadBudget::new(wanted, held));
            let outcome = if wanted < LONG_QUERY_BYTES {
                reading.await?
            } else {
                run_on_blocking_thread(reading).await?
            };
            match outcome {
                ContentRead::Read { value, bytes } => {
                    reservation.shrink(bytes);
                    return Ok(WithReservation {
                        answer: value,
                        reservation,
                    });
                }
                // An eighth more: the content may grow before the next attempt.
                ContentRead::TooLarge { bytes } => wanted = bytes + bytes / 8,
            }
        }
        metrics::counter!("anneal_content_refused_total").increment(1);
        Err(Failure::Overloaded)
    }
}

/// Runs a long query on a blocking thread while the call waits for it. Callers must bound the
/// number of these queries. Panics if the query does.
pub(crate) async fn run_on_blocking_thread<T: Send + 'static>(
    query: impl Future<Output = T> + Send + 'static,
) -> T {
    let (runtime, span, call_ended) =
        (Handle::current(), Span::current(), CancellationToken::new());
    let _call = call_ended.clone().drop_guard();
    let running = tokio::task::spawn_blocking(move || {
        span.in_scope(|| runtime.block_on(call_ended.run_until_cancelled_owned(query)))
    });
    match running.await {
        Ok(Some(outcome)) => outcome,
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        // The call has ended or the runtime shuts down, so nothing awaits the result.
        Ok(None) | Err(_) => pending().await,
    }
}

impl Reservation {
    /// Reduces the reservation to this many bytes. A reservation that gets smaller also releases
    /// the large slot.
    pub(crate) fn shrink(&self, bytes: u64) {
        let mut reserved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let units = bytes.div_ceil(UNIT_BYTES).max(1);
        let excess = (reserved.permit.count() as u64).saturating_sub(units);
        if excess > 0 {
            drop(reserved.permit.split(excess as usize));
            reserved.large_slot = None;
            metrics::gauge!("anneal_content_bytes_held").decrement((excess * UNIT_BYTES) as f64);
        }
    }

    /// Releases the large slot: the content takes less memory now than while it was built.
    pub(crate) fn release_large_slot(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .large_slot = None;
    }

    /// Whether this reservation holds the large slot.
    pub(crate) fn is_large(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .large_slot
            .is_some()
    }

    /// Whether another call waits for the large slot that this reservation holds.
    pub(crate) fn large_slot_is_awaited(&self) -> bool {
        let reserved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reserved
            .large_slot
            .as_ref()
            .is_some_and(|(_, waiters)| waiters.load(Ordering::Relaxed) > 0)
    }

    /// The reserved bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .permit
            .count() as u64
            * UNIT_BYTES
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        metrics::gauge!("anneal_content_bytes_held").decrement(self.bytes() as f64);
    }
}

impl<T> WithReservation<T> {
    /// Maps the answer on the CPU pool if the work is long. The work keeps the reservation if the
    /// call ends first.
    pub(crate) async fn map_long<U>(
        self,
        cpu: &CpuPool,
        tenant: TenantId,
        is_long: bool,
        work: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<WithReservation<U>, Failure>
    where
        T: Send + 'static,
        U: Send + 'static,
    {
        cpu.run_if(is_long, tenant, move || self.map(work)).await
    }

    /// Maps the answer.
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> WithReservation<U> {
        WithReservation {
            answer: map(self.answer),
            reservation: self.reservation,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const EVE: TenantId = TenantId(Uuid::from_u128(1));
    const ANNA: TenantId = TenantId(Uuid::from_u128(2));
    const MIB: u64 = 1024 * 1024;

    async fn reserve(budget: &ContentBudget, tenant: TenantId, bytes: u64) -> Arc<Reservation> {
        budget
            .reserve(tenant, bytes)
            .await
            .expect("the bytes are free")
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_holds_its_share_and_leaves_the_rest_to_others() {
        let budget = ContentBudget::new(8 * MIB, TenantShare::Percent(50));
        let held = [
            reserve(&budget, EVE, 3 * MIB).await,
            reserve(&budget, EVE, MIB).await,
        ];
        assert!(
            matches!(budget.reserve(EVE, 1).await, Err(Failure::Overloaded)),
            "no bytes of eve's share become free in time"
        );
        reserve(&budget, ANNA, 4 * MIB).await;
        held[0].shrink(MIB);
        assert_eq!(held[0].bytes(), MIB);
        reserve(&budget, EVE, 2 * MIB).await;
        assert!(
            budget.reserve(EVE, 2 * MIB + 1).await.is_err(),
            "eve holds 2 of her 4 MiB"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn reservations_larger_than_a_share_are_granted_one_at_a_time() {
        let budget = ContentBudget::new(8 * MIB, TenantShare::Percent(50));
        let eves = reserve(&budget, EVE, 100 * MIB).await;
        assert!(matches!(
            budget.reserve(ANNA, 100 * MIB).await,
            Err(Failure::Overloaded)
        ));
        reserve(&budget, ANNA, 4 * MIB).await;
        let mut annas = std::pin::pin!(budget.reserve(ANNA, 100 * MIB));
        assert!(futures::poll!(&mut annas).is_pending());
        drop(eves);
        let annas = annas.await.expect("the bytes are free");
        assert_eq!(annas.bytes(), 4 * MIB, "it counts as one share");
        reserve(&budget, EVE, 4 * MIB).await;
    }

    #[tokio::test]
    async fn a_read_that_is_too_large_is_repeated_with_a_larger_reservation() {
        let budget = ContentBudget::new(8 * MIB, TenantShare::Whole);
        let free_bytes = Mutex::new(Vec::new());
        let reading = budget.read(EVE, |read_budget| {
            free_bytes
                .lock()
                .expect("no holder panicked")
                .push(budget.limit.available() as u64 * UNIT_BYTES);
            let bytes = 3 * MIB;
            let read = if free_bytes.lock().expect("no holder panicked").len() == 1 {
                ContentRead::TooLarge { bytes }
            } else {
                ContentRead::Read { value: (), bytes }
            };
            async move {
                drop(read_budget);
                Ok(read)
            }
        });
        let content = reading.await.expect("reads");
        assert_eq!(
            *free_bytes.lock().expect("no holder panicked"),
            [7 * MIB, 8 * MIB - 3 * MIB - 3 * MIB / 8],
            "1 MiB is reserved at first, then an eighth more than the read takes"
        );
        assert_eq!(content.reservation.bytes(), 3 * MIB);
        drop(content);
        assert_eq!(budget.limit.available() as u64 * UNIT_BYTES, 8 * MIB);
    }
}
