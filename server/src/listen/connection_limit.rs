//! The limit of open connections, in slots. Both listeners share it. A connection takes one slot,
//! and more for many streams or large frames. Above the limit another connection is closed;
//! `connection_table.rs` decides which.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anneal_core::caller::TenantId;
use tokio_util::sync::CancellationToken;

use super::{
    connection_table::{Activity, Bounds, ConnectionTable, Owner},
    frames::FrameCounts,
};

/// How often answers are checked for readers that have stalled.
const STALL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Streams that one slot covers. A connection that has had more open at the same time takes one
/// more slot for each further eight, because it keeps their memory: about 1 KiB a stream, and 27
/// KiB for the connection itself.
const STREAMS_PER_SLOT: u32 = 8;
/// Further slots of a connection whose buffer has grown for a large frame. It keeps 34 KiB more
/// from then on.
const LARGE_BUFFER_SLOTS: u32 = 2;

/// The limit of open connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ConnectionLimit(Arc<Shared>);

struct Shared {
    started: Instant,
    table: Mutex<ConnectionTable<Arc<SlotState>>>,
}

struct SlotState {
    /// Whose calls the connection carries.
    owner: Mutex<Owner>,
    /// Calls in flight, without the unauthenticated ones. The connection is busy unless it is 0.
    calls: AtomicUsize,
    /// Calls in flight that need no credential.
    unauthenticated_calls: AtomicU32,
    /// Watches in flight that need no credential. They are among `unauthenticated_calls`.
    unauthenticated_watches: AtomicU32,
    /// Streams that the client has opened and whose call has not begun yet.
    pending_streams: AtomicU32,
    /// Streams whose call has begun and has not ended.
    active_streams: AtomicU32,
    /// Whether a call has begun since a read last found nothing more to read.
    has_begun_since_drain: AtomicBool,
    /// Whether the client has sent something for which the connection's buffer had to grow.
    has_large_buffer: AtomicBool,
    /// Slots that the connection takes: for the most streams that it ever had open, and for its
    /// buffer.
    slots: AtomicU32,
    /// When something was last read or written, in milliseconds since the limit was created.
    last_active_ms: AtomicU64,
    close: CancellationToken,
    /// For each write that the client has not read yet, by its id: when it was handed to the
    /// connection, in milliseconds since the limit was created.
    pending_writes: Mutex<HashMap<u64, u64>>,
    next_write_id: AtomicU64,
}

/// The slots of one connection. They are free once this is dropped.
pub(crate) struct ConnectionSlot {
    reference: SlotRef,
}

/// A call in flight on a connection, until this is dropped.
pub(crate) struct InFlight(Arc<SlotState>);

/// Bytes of an answer that the client has not read yet. Dropped once the client has read them.
pub(crate) struct PendingWrite {
    state: Arc<SlotState>,
    id: u64,
}

/// Counts a stream, an unauthenticated call or an unauthenticated watch of a connection, until this
/// is dropped.
pub(crate) struct CountGuard {
    state: Arc<SlotState>,
    counter: fn(&SlotState) -> &AtomicU32,
}

/// A reference to the slots of a connection, for its calls. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SlotRef {
    id: u64,
    shared: Arc<Shared>,
    state: Arc<SlotState>,
}

impl ConnectionLimit {
    /// A limit of `max` slots, of which one tenant may take `share_percent`.
    pub(crate) fn new(max: NonZeroU32, share_percent: u32) -> Self {
        let table = Mutex::new(ConnectionTable::new(Bounds::new(max, share_percent)));
        Self(Arc::new(Shared {
            started: Instant::now(),
            table,
        }))
    }

    /// Takes a slot for a new connection. If all are taken, closes the connection that has been
    /// without a credential for longest.
    pub(crate) fn acquire(&self) -> ConnectionSlot {
        let state = Arc::new(SlotState {
            owner: Mutex::new(Owner::Unauthenticated),
            calls: AtomicUsize::new(0),
            unauthenticated_calls: AtomicU32::new(0),
            unauthenticated_watches: AtomicU32::new(0),
            pending_streams: AtomicU32::new(0),
            active_streams: AtomicU32::new(0),
            has_begun_since_drain: AtomicBool::new(false),
            has_large_buffer: AtomicBool::new(false),
            slots: AtomicU32::new(1),
            last_active_ms: AtomicU64::new(self.0.now()),
            close: CancellationToken::new(),
            pending_writes: Mutex::default(),
            next_write_id: AtomicU64::new(0),
        });
        let mut table = self.0.table();
        let (id, evicted) = table.insert(Arc::clone(&state));
        metrics::gauge!("anneal_connections_open").set(table.len() as f64);
        drop(table);
        close_evicted(evicted);
        ConnectionSlot {
            reference: SlotRef {
                id,
                shared: Arc::clone(&self.0),
                state,
            },
        }
    }

    /// Closes connections on which no answer was read for `stall`, until the future is dropped. If
    /// some answers are read and others are not, the connection belongs to a proxy that carries
    /// calls of many clients, and stays open.
    pub(crate) async fn close_stalled_readers(self, stall: Duration) {
        let stall_ms = u64::try_from(stall.as_millis()).unwrap_or(u64::MAX);
        let mut checks = tokio::time::interval(
            (stall / 4).clamp(Duration::from_millis(100), STALL_CHECK_INTERVAL),
        );
        loop {
            checks.tick().await;
            let stalled_before = self.0.now().saturating_sub(stall_ms);
            for state in self.0.table().iter() {
                let stalled = state
                    .pending_writes()
                    .values()
                    .filter(|begun_ms| **begun_ms < stalled_before)
                    .count();
                // A pending write belongs to a call in `calls`, and each call has at most one. So
                // the answers of all calls have stalled if as many writes have stalled.
                let all_stalled = stalled > 0 && stalled >= state.calls.load(Ordering::Acquire);
                if all_stalled {
                    state.close_for_stalling();
                }
            }
        }
    }
}

/// Closes connections whose slots others need.
fn close_evicted(evicted: Vec<Arc<SlotState>>) {
    for state in evicted {
        state.close.cancel();
        let owner = if *state.owner() == Owner::Unauthenticated {
            "unknown"
        } else {
            "tenant"
        };
        metrics::counter!("anneal_connections_closed_for_others_total", "owner" => owner)
            .increment(1);
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, ConnectionTable<Arc<SlotState>>> {
        // A panic cannot leave the table half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the limit was created.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl SlotState {
    fn pending_writes(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.pending_writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self) -> MutexGuard<'_, Owner> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_for_stalling(&self) {
        if !self.close.is_cancelled() {
            self.close.cancel();
            metrics::counter!("anneal_connections_closed_for_stalling_total").increment(1);
        }
    }
}

impl Activity for Arc<SlotState> {
    fn is_busy(&self) -> bool {
        self.calls.load(Ordering::Acquire) > 0
    }

    fn has_unauthenticated_call(&self) -> bool {
        self.unauthenticated_calls.load(Ordering::Acquire) > 0
    }

    fn last_active(&self) -> u64 {
        self.last_active_ms.load(Ordering::Relaxed)
    }
}

impl ConnectionSlot {
    /// Records that something was read or written.
    pub(crate) fn touch(&self) {
        self.reference
            .state
            .last_active_ms
            .store(self.reference.shared.now(), Ordering::Relaxed);
    }

    /// Records how many streams the client has opened, and whether it has sent a large frame. If
    /// the connection now has more streams at the same time than its slots cover, it takes further
    /// slots. A buffer that has grown for a large frame takes further slots, too.
    pub(super) fn note_frames(
        &self,
        FrameCounts {
            requests: streams,
            has_large,
        }: FrameCounts,
    ) {
        let SlotRef { id, shared, state } = &self.reference;
        let was_large = state.has_large_buffer.fetch_or(has_large, Ordering::AcqRel);
        let has_large_buffer = was_large || has_large;
        if streams == 0 && has_large_buffer == was_large {
            return;
        }
        let pending_streams = state
            .pending_streams
            .fetch_add(streams, Ordering::AcqRel)
            .saturating_add(streams);
        let streams = pending_streams.saturating_add(state.active_streams.load(Ordering::Acquire));
        let slots = streams.div_ceil(STREAMS_PER_SLOT).max(1)
            + LARGE_BUFFER_SLOTS * u32::from(has_large_buffer);
        if state.slots.fetch_max(slots, Ordering::AcqRel) < slots {
            let owner = state.owner();
            let evicted = shared.table().resize(*id, *owner, slots as usize);
            drop(owner);
            close_evicted(evicted);
        }
    }

    /// Records that a read found nothing more to read. If no call has begun since the last such
    /// read, the calls of the pending streams will never begin: they were refused or cancelled.
    pub(super) fn note_read_drained(&self) {
        let state = &self.reference.state;
        if !state.has_begun_since_drain.swap(false, Ordering::AcqRel) {
            state.pending_streams.store(0, Ordering::Release);
        }
    }

    /// Cancelled when the connection must be closed.
    pub(crate) fn close_token(&self) -> CancellationToken {
        self.reference.close_token()
    }

    pub(crate) fn reference(&self) -> SlotRef {
        self.reference.clone()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let SlotRef { id, shared, state } = &self.reference;
        // Lock order, as in `assign_tenant`: owner, then table.
        let owner = state.owner();
        let mut table = shared.table();
        drop(table.remove(*owner, *id));
        metrics::gauge!("anneal_connections_open").set(table.len() as f64);
    }
}

impl SlotRef {
    /// Records that a call of this tenant has arrived. From then on the connection counts in the
    /// tenant's share. If the tenant exceeds its share, or all tenants together exceed their part
    /// of the slots, connections of tenants are closed until they do not. The rest of the slots is
    /// reserved for new connections.
    pub(crate) fn assign_tenant(&self, tenant: TenantId) {
        let mut owner = self.state.owner();
        let new_owner = match *owner {
            Owner::Unauthenticated => Owner::Tenant(tenant),
            Owner::Tenant(before) if before != tenant => Owner::Shared,
            Owner::Tenant(_) | Owner::Shared => return,
        };
        let evicted = self.shared.table().change_owner(self.id, *owner, new_owner);
        *owner = new_owner;
        drop(owner);
        close_evicted(evicted);
    }

    /// Moves one pending stream to the active ones, until the guard is dropped.
    pub(crate) fn begin_stream(&self) -> CountGuard {
        self.state
            .has_begun_since_drain
            .store(true, Ordering::Release);
        let _ = self.state.pending_streams.fetch_update(
            Ordering::AcqRel,
            Ordering::Acquire,
            |streams| streams.checked_sub(1),
        );
        self.state.active_streams.fetch_add(1, Ordering::AcqRel);
        CountGuard {
            state: Arc::clone(&self.state),
            counter: |state| &state.active_streams,
        }
    }

    /// Whether the connection is among the next to be closed: it is unauthenticated, and half of
    /// all slots are taken.
    pub(crate) fn is_eviction_candidate(&self) -> bool {
        let owner = *self.state.owner();
        owner == Owner::Unauthenticated && self.shared.table().is_half_full()
    }

    /// Counts a call as in flight until the guard is dropped.
    pub(crate) fn begin_call(&self) -> InFlight {
        self.state.calls.fetch_add(1, Ordering::AcqRel);
        InFlight(Arc::clone(&self.state))
    }

    /// Cancelled when the connection must be closed.
    pub(crate) fn close_token(&self) -> CancellationToken {
        self.state.close.clone()
    }

    /// Closes the connection because an answer on it is read too slowly.
    pub(crate) fn close_for_stalling(&self) {
        self.state.close_for_stalling();
    }

    /// Closes the oldest other connection with an unauthenticated call. This makes room for a new
    /// unauthenticated call when such calls have as many waiting bytes as they may have together.
    pub(crate) fn close_oldest_unauthenticated_caller(&self) {
        let evicted = self.shared.table().remove_unauthenticated_caller(self.id);
        close_evicted(evicted.into_iter().collect());
    }

    /// Counts an unauthenticated call. None: `max` of them are already in flight.
    pub(crate) fn begin_unauthenticated_call(&self, max: u32) -> Option<CountGuard> {
        self.begin(max, |state| &state.unauthenticated_calls)
    }

    /// Counts an unauthenticated watch. None: `max` of them are already in flight.
    pub(crate) fn begin_unauthenticated_watch(&self, max: u32) -> Option<CountGuard> {
        self.begin(max, |state| &state.unauthenticated_watches)
    }

    fn begin(&self, max: u32, counter: fn(&SlotState) -> &AtomicU32) -> Option<CountGuard> {
        let more = |calls: u32| (calls < max).then_some(calls + 1);
        let begun = counter(&self.state).fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        begun.is_ok().then(|| CountGuard {
            state: Arc::clone(&self.state),
            counter,
        })
    }

    /// Records that bytes of an answer wait to be read, until the guard is dropped.
    pub(crate) fn begin_write(&self) -> PendingWrite {
        let id = self.state.next_write_id.fetch_add(1, Ordering::Relaxed);
        self.state.pending_writes().insert(id, self.shared.now());
        PendingWrite {
            state: Arc::clone(&self.state),
            id,
        }
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        self.state.pending_writes().remove(&self.id);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        (self.counter)(&self.state).fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[path = "connection_limit_tests.rs"]
mod tests;
