//! What calls may hold of stored content at once, in bytes. A read reserves room before it asks the database, and holds it
//! until its answer has gone out: in blocking work and in a statement that was given up too.
//!
//! The bytes are those of the stored JSON text. What is parsed, built and encoded of it takes two to three times as much memory
//! at a time (docs/decisions/0025-content-held-is-reserved.md).

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
use anneal_store::{ContentRead, ContentRoom, StoreError, WaitCount};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::{
    cpu::CpuPool,
    room::{Places, Room, Sharing},
    status::Failure,
};

/// Room is counted in units of so many bytes.
const UNIT: u64 = 1024;
/// What a read reserves while its size is not known: more than most contexts and pages have. A larger one comes back with its
/// size, and asks again with room for it.
const FIRST_BYTES: u64 = 1024 * 1024;
/// An exchange with the database of at least so many bytes runs on a blocking thread: the driver copies them several times in
/// one go, 64 MiB for 100 ms. Fewer take less than 40 ms.
pub(crate) const LONG_EXCHANGE: u64 = 24 * 1024 * 1024;
/// Reads of something that grows each time it is asked for, before the call is refused.
const TRIES: usize = 4;
/// How long a call waits for room; half of the deadline of calls that do not say one.
const WAIT: Duration = Duration::from_secs(5);

/// Room for content, of all tenants and of each. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ContentBudget {
    room: Room,
    /// Bytes that one tenant may reserve.
    share: u64,
    /// For the one reservation at a time that is larger than a tenant's share. It counts as the whole share.
    large: Arc<Semaphore>,
    /// Calls that wait for it.
    large_waits: Arc<AtomicUsize>,
}

/// Room that was reserved; given back when the last clone of its [`Arc`] is dropped.
#[derive(Debug)]
pub(crate) struct Reservation(Mutex<Reserved>);

#[derive(Debug)]
struct Reserved {
    places: Places,
    /// With the calls that wait for it.
    large: Option<(OwnedSemaphorePermit, Arc<AtomicUsize>)>,
}

/// An answer, and the room for what it was made of.
pub(crate) struct Holding<T> {
    pub(crate) answer: T,
    pub(crate) reservation: Arc<Reservation>,
}

impl ContentBudget {
    /// Room for so many bytes, shared by tenants so.
    pub(crate) fn new(bytes: u64, sharing: Sharing) -> Self {
        let share = match sharing {
            Sharing::Whole => bytes,
            Sharing::Percent(percent) => bytes.saturating_mul(percent.into()) / 100,
        };
        let places = usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            room: Room::new(places, sharing),
            share,
            large: Arc::new(Semaphore::new(1)),
            large_waits: Arc::default(),
        }
    }

    /// Another budget. What is larger than a share of either is let in one at a time, for it takes most of the
    /// process's memory.
    pub(crate) fn beside(&self, bytes: u64, sharing: Sharing) -> Self {
        let (large, large_waits) = (Arc::clone(&self.large), Arc::clone(&self.large_waits));
        Self { large, large_waits, ..Self::new(bytes, sharing) }
    }

    /// Reserves room for so many bytes, once there is some for this tenant. Its calls get theirs in the order in which they
    /// ask. One that wants more than the tenant's share waits until the tenant holds nothing and no other call of this kind
    /// is under way.
    pub(crate) async fn reserve(&self, tenant: TenantId, bytes: u64) -> Result<Arc<Reservation>, Failure> {
        let units = u32::try_from(bytes.min(self.share).div_ceil(UNIT)).unwrap_or(u32::MAX).max(1);
        let alone = async {
            if bytes <= self.share {
                return None;
            }
            let _waits = WaitCount::new(&self.large_waits);
            let permit = Arc::clone(&self.large).acquire_owned().await.expect("nobody closes it");
            Some((permit, Arc::clone(&self.large_waits)))
        };
        let mut reserving = pin!(self.room.wait_in_turn(tenant, units, alone));
        let reserved = match futures::poll!(&mut reserving) {
            Poll::Ready(reserved) => Ok(reserved),
            Poll::Pending => {
                metrics::counter!("content_waits_total").increment(1);
                timeout(WAIT, reserving).await
            }
        };
        let Ok(reserved) = reserved else {
            metrics::counter!("content_refused_total").increment(1);
            return Err(Failure::Overloaded);
        };
        let (places, large) = reserved?;
        metrics::gauge!("content_bytes_held").increment((places.count() as u64 * UNIT) as f64);
        Ok(Arc::new(Reservation(Mutex::new(Reserved { places, large }))))
    }

    /// Reads content within a reservation of its size. `read` says what it has read, or how much room that takes.
    pub(crate) async fn read<T, F>(
        &self,
        tenant: TenantId,
        read: impl Fn(ContentRoom) -> F,
    ) -> Result<Holding<T>, Failure>
    where
        F: Future<Output = Result<ContentRead<T>, StoreError>> + Send + 'static,
        T: Send + 'static,
    {
        let mut wanted = FIRST_BYTES.min(self.share.max(UNIT));
        for _ in 0..TRIES {
            let reservation = self.reserve(tenant, wanted).await?;
            let held: Arc<dyn Any + Send + Sync> = Arc::<Reservation>::clone(&reservation);
            let reading = read(ContentRoom::new(wanted, held));
            let read = if wanted < LONG_EXCHANGE { reading.await? } else { run_apart(reading).await? };
            match read {
                ContentRead::Read { value, bytes } => {
                    reservation.shrink(bytes);
                    return Ok(Holding { answer: value, reservation });
                }
                // It may grow until it is asked for again.
                ContentRead::TooLarge { bytes } => wanted = bytes + bytes / 8,
            }
        }
        metrics::counter!("content_refused_total").increment(1);
        Err(Failure::Overloaded)
    }
}

/// Runs a long exchange with the database on a blocking thread, for as long as the call waits for it. Callers bound how many
/// there are. Panics where the exchange does.
pub(crate) async fn run_apart<T: Send + 'static>(exchange: impl Future<Output = T> + Send + 'static) -> T {
    let (runtime, span, call_ended) = (Handle::current(), Span::current(), CancellationToken::new());
    let _call = call_ended.clone().drop_guard();
    let running = tokio::task::spawn_blocking(move || {
        span.in_scope(|| runtime.block_on(call_ended.run_until_cancelled_owned(exchange)))
    });
    match running.await {
        Ok(Some(outcome)) => outcome,
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        // The call has ended, or the process does.
        Ok(None) | Err(_) => pending().await,
    }
}

impl Reservation {
    /// Gives back what so many bytes do not take.
    pub(crate) fn shrink(&self, bytes: u64) {
        let mut reserved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let units = bytes.div_ceil(UNIT).max(1);
        let excess = (reserved.places.count() as u64).saturating_sub(units);
        if excess > 0 {
            drop(reserved.places.split(excess as usize));
            reserved.large = None;
            metrics::gauge!("content_bytes_held").decrement((excess * UNIT) as f64);
        }
    }

    /// Lets the next one in that is larger than a tenant's share: what this one holds from now on is less than what it took to
    /// make it.
    pub(crate) fn let_next_large_in(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).large = None;
    }

    /// Whether it is larger than a tenant's share, so that others of this kind wait for it.
    pub(crate) fn is_large(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).large.is_some()
    }

    /// Whether somebody waits for it now.
    pub(crate) fn is_waited_for(&self) -> bool {
        let reserved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.large.as_ref().is_some_and(|(_, waits)| waits.load(Ordering::Relaxed) > 0)
    }

    /// The bytes that it counts as.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).places.count() as u64 * UNIT
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        metrics::gauge!("content_bytes_held").decrement(self.bytes() as f64);
    }
}

impl<T> Holding<T> {
    /// The same room, for what long work makes of the answer. The work keeps the room when its call has ended.
    pub(crate) async fn map_long<U>(
        self,
        cpu: &CpuPool,
        tenant: TenantId,
        is_long: bool,
        work: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<Holding<U>, Failure>
    where
        T: Send + 'static,
        U: Send + 'static,
    {
        cpu.run_if(is_long, tenant, move || self.map(work)).await
    }

    /// The same room, for another answer.
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Holding<U> {
        Holding { answer: map(self.answer), reservation: self.reservation }
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
        budget.reserve(tenant, bytes).await.expect("there is room")
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_holds_its_share_and_leaves_the_rest_to_others() {
        let budget = ContentBudget::new(8 * MIB, Sharing::Percent(50));
        let held = [reserve(&budget, EVE, 3 * MIB).await, reserve(&budget, EVE, MIB).await];
        assert!(matches!(budget.reserve(EVE, 1).await, Err(Failure::Overloaded)), "after a while");
        reserve(&budget, ANNA, 4 * MIB).await;
        held[0].shrink(MIB);
        assert_eq!(held[0].bytes(), MIB);
        reserve(&budget, EVE, 2 * MIB).await;
        assert!(budget.reserve(EVE, 2 * MIB + 1).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_larger_than_a_share_is_let_in_one_at_a_time() {
        let budget = ContentBudget::new(8 * MIB, Sharing::Percent(50));
        let eves = reserve(&budget, EVE, 100 * MIB).await;
        assert!(matches!(budget.reserve(ANNA, 100 * MIB).await, Err(Failure::Overloaded)));
        reserve(&budget, ANNA, 4 * MIB).await;
        let mut annas = std::pin::pin!(budget.reserve(ANNA, 100 * MIB));
        assert!(futures::poll!(&mut annas).is_pending());
        drop(eves);
        let annas = annas.await.expect("there is room");
        assert_eq!(annas.bytes(), 4 * MIB, "it counts as a share");
        reserve(&budget, EVE, 4 * MIB).await;
    }

    #[tokio::test]
    async fn a_read_asks_again_with_room_for_what_it_takes() {
        let budget = ContentBudget::new(8 * MIB, Sharing::Whole);
        let asked = Mutex::new(Vec::new());
        let holding = budget.read(EVE, |room| {
            asked.lock().expect("nobody panicked").push(budget.room.left() as u64 * UNIT);
            let bytes = 3 * MIB;
            let read = if asked.lock().expect("nobody panicked").len() == 1 {
                ContentRead::TooLarge { bytes }
            } else {
                ContentRead::Read { value: (), bytes }
            };
            async move {
                drop(room);
                Ok(read)
            }
        });
        let holding = holding.await.expect("reads");
        assert_eq!(*asked.lock().expect("nobody panicked"), [7 * MIB, 8 * MIB - 3 * MIB - 3 * MIB / 8]);
        assert_eq!(holding.reservation.bytes(), 3 * MIB);
        drop(holding);
        assert_eq!(budget.room.left() as u64 * UNIT, 8 * MIB);
    }
}
