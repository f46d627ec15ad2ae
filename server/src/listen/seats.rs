//! How many connections there are, and which of them is closed where there are too many.

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
    frames::Frames,
    table::{Bounds, Entry, Owner, Table},
};

/// From one look at readers to the next.
const LOOK: Duration = Duration::from_secs(1);
/// Streams that a connection's place covers. One on which more have been open at once takes a place more for each so many: it
/// keeps the memory for them, about a KiB each beside its own 27 KiB.
const STREAMS_PER_PLACE: u32 = 8;
/// Places that a connection takes beside, once its buffer has grown for something large: it keeps 34 KiB more from then on.
const PLACES_OF_A_BUFFER: u32 = 2;

/// Room for connections. Cheap to clone: both ports share it.
#[derive(Clone)]
pub(crate) struct Seats(Arc<Room>);

struct Room {
    began: Instant,
    taken: Mutex<Table<Arc<State>>>,
}

struct State {
    /// Whose it is.
    owner: Mutex<Owner>,
    /// Calls under way.
    calls: AtomicUsize,
    /// Calls under way that need no credential, and those of them that watch.
    open_calls: AtomicU32,
    open_watches: AtomicU32,
    /// Streams that the client has opened: those that were not looked at yet, and those that are under way.
    announced: AtomicU32,
    streams: AtomicU32,
    /// Whether one has begun since everything was read that was there.
    has_begun: AtomicBool,
    /// Whether something has come for which the connection's buffer had to grow.
    has_had_large: AtomicBool,
    /// Places that the connection takes for the most streams that it ever had.
    places: AtomicU32,
    /// Milliseconds, since the room was opened, at which something last came or went.
    heard: AtomicU64,
    leave: CancellationToken,
    /// Since when what was offered to the reader of an answer was not taken, by offer; in milliseconds as above.
    offered: Mutex<HashMap<u64, u64>>,
    next_offer: AtomicU64,
}

/// A connection's place. Dropped, it is free.
pub(crate) struct Seat {
    place: Place,
}

/// What a call takes of its connection's place: it counts as under way while there is one.
pub(crate) struct Occupied(Arc<State>);

/// A piece of an answer that its reader has not taken. Dropped, it is taken.
pub(crate) struct Offered {
    state: Arc<State>,
    id: u64,
}

/// A stream, or a call that needs no credential, that is under way on a connection until this is dropped.
pub(crate) struct OpenCall {
    state: Arc<State>,
    counter: fn(&State) -> &AtomicU32,
}

/// The way to a connection's place for its calls. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Place {
    id: u64,
    room: Arc<Room>,
    state: Arc<State>,
}

impl Seats {
    /// Room for so many connections, of which one tenant may have so many percent.
    pub(crate) fn new(most: NonZeroU32, share_percent: u32) -> Self {
        let taken = Mutex::new(Table::new(Bounds::new(most, share_percent)));
        Self(Arc::new(Room { began: Instant::now(), taken }))
    }

    /// A place; where all are taken, that of the connection that has been there longest without a credential.
    pub(crate) fn take(&self) -> Seat {
        let state = Arc::new(State {
            owner: Mutex::new(Owner::Unknown),
            calls: AtomicUsize::new(0),
            open_calls: AtomicU32::new(0),
            open_watches: AtomicU32::new(0),
            announced: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            has_begun: AtomicBool::new(false),
            has_had_large: AtomicBool::new(false),
            places: AtomicU32::new(1),
            heard: AtomicU64::new(self.0.now()),
            leave: CancellationToken::new(),
            offered: Mutex::default(),
            next_offer: AtomicU64::new(0),
        });
        let mut taken = self.0.taken();
        let (id, closed) = taken.insert(Arc::clone(&state));
        metrics::gauge!("connections_open").set(taken.len() as f64);
        drop(taken);
        close(closed);
        Seat { place: Place { id, room: Arc::clone(&self.0), state } }
    }

    /// Has connections leave on which the reader of every answer takes nothing for so long, until the future is dropped. One
    /// that takes nothing beside others that do is a proxy's, which carries the calls of many.
    pub(crate) async fn watch_readers(self, stall: Duration) {
        let most = u64::try_from(stall.as_millis()).unwrap_or(u64::MAX);
        let mut looks = tokio::time::interval((stall / 4).clamp(Duration::from_millis(100), LOOK));
        loop {
            looks.tick().await;
            let since = self.0.now().saturating_sub(most);
            for state in self.0.taken().iter() {
                let stalled = state.offered().values().filter(|offered| **offered < since).count();
                let is_every_one = stalled > 0 && stalled >= state.calls.load(Ordering::Acquire);
                if is_every_one {
                    state.close_for_stalling();
                }
            }
        }
    }
}

/// Ends connections whose places others need.
fn close(closed: Vec<Arc<State>>) {
    for state in closed {
        state.leave.cancel();
        let owner = if *state.owner() == Owner::Unknown { "unknown" } else { "tenant" };
        metrics::counter!("connections_closed_for_others_total", "owner" => owner).increment(1);
    }
}

impl Room {
    fn taken(&self) -> MutexGuard<'_, Table<Arc<State>>> {
        // No change of the table stops half-way.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl State {
    fn offered(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self) -> MutexGuard<'_, Owner> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_for_stalling(&self) {
        if !self.leave.is_cancelled() {
            self.leave.cancel();
            metrics::counter!("connections_closed_for_stalling_total").increment(1);
        }
    }
}

impl Entry for Arc<State> {
    fn is_busy(&self) -> bool {
        self.calls.load(Ordering::Acquire) > 0
    }

    fn has_open_call(&self) -> bool {
        self.open_calls.load(Ordering::Acquire) > 0
    }

    fn last_active(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }
}

impl Seat {
    /// Takes down that something came or went.
    pub(crate) fn heard(&self) {
        self.place.state.heard.store(self.place.room.now(), Ordering::Relaxed);
    }

    /// Notes that the client has opened streams, none of which was looked at yet, or sends something large. A connection that
    /// has had more streams at once than its places cover takes more places, and some for its buffer.
    pub(super) fn announce(&self, Frames { requests: streams, has_large }: Frames) {
        let Place { id, room, state } = &self.place;
        let has_had_large = has_large || state.has_had_large.load(Ordering::Acquire);
        if streams == 0 && has_had_large == state.has_had_large.swap(has_had_large, Ordering::AcqRel) {
            return;
        }
        let announced = state.announced.fetch_add(streams, Ordering::AcqRel).saturating_add(streams);
        let streams = announced.saturating_add(state.streams.load(Ordering::Acquire));
        let places = streams.div_ceil(STREAMS_PER_PLACE).max(1) + PLACES_OF_A_BUFFER * u32::from(has_had_large);
        if state.places.fetch_max(places, Ordering::AcqRel) < places {
            let owner = state.owner();
            let closed = room.taken().resize(*id, *owner, places as usize);
            drop(owner);
            close(closed);
        }
    }

    /// Notes that nothing more is there to be read. Where it was so before, and no stream has begun since then, what was announced
    /// and has not begun never will: it was refused, or given up.
    pub(super) fn read_all(&self) {
        let state = &self.place.state;
        if !state.has_begun.swap(false, Ordering::AcqRel) {
            state.announced.store(0, Ordering::Release);
        }
    }

    /// Cancelled when the connection has to go.
    pub(crate) fn leave(&self) -> CancellationToken {
        self.place.state.leave.clone()
    }

    /// The way here for calls.
    pub(crate) fn place(&self) -> Place {
        self.place.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Place { id, room, state } = &self.place;
        // In the order of `becomes_known`: owner, then table.
        let owner = state.owner();
        let mut taken = room.taken();
        drop(taken.remove(*owner, *id));
        metrics::gauge!("connections_open").set(taken.len() as f64);
    }
}

impl Place {
    /// Notes that a call of this tenant has come. A connection that becomes a tenant's counts in its share; beyond that, or
    /// where tenants have taken all places but those that are kept for new connections, one of theirs is closed.
    pub(crate) fn becomes_known(&self, tenant: TenantId) {
        let mut owner = self.state.owner();
        let next = match *owner {
            Owner::Unknown => Owner::Tenant(tenant),
            Owner::Tenant(before) if before != tenant => Owner::Several,
            Owner::Tenant(_) | Owner::Several => return,
        };
        let closed = self.room.taken().give(self.id, *owner, next);
        *owner = next;
        drop(owner);
        close(closed);
    }

    /// Notes that an announced stream begins, until what is returned is dropped.
    pub(crate) fn begin_stream(&self) -> OpenCall {
        self.state.has_begun.store(true, Ordering::Release);
        let _ =
            self.state.announced.fetch_update(Ordering::AcqRel, Ordering::Acquire, |streams| streams.checked_sub(1));
        self.state.streams.fetch_add(1, Ordering::AcqRel);
        OpenCall { state: Arc::clone(&self.state), counter: |state| &state.streams }
    }

    /// Whether the connection may soon have to make room for others: nobody on it is known, and places are scarce.
    pub(crate) fn is_next_to_go(&self) -> bool {
        let owner = *self.state.owner();
        owner == Owner::Unknown && self.room.taken().is_half_taken()
    }

    /// Counts a call as under way until what is returned is dropped.
    pub(crate) fn occupy(&self) -> Occupied {
        self.state.calls.fetch_add(1, Ordering::AcqRel);
        Occupied(Arc::clone(&self.state))
    }

    /// Closes the connection, because the reader of an answer on it is too slow.
    pub(crate) fn close_for_stalling(&self) {
        self.state.close_for_stalling();
    }

    /// Closes another connection on which nobody is known, the oldest with a call that needs no credential: what such calls may
    /// take together is taken, and another one has come here.
    pub(crate) fn make_room_for_a_stranger(&self) {
        let closed = self.room.taken().take_open_caller(self.id);
        close(closed.into_iter().collect());
    }

    /// Notes that a call without a credential is under way; None: so many are already.
    pub(crate) fn begin_open_call(&self, most: u32) -> Option<OpenCall> {
        self.begin(most, |state| &state.open_calls)
    }

    /// The same for one that watches.
    pub(crate) fn begin_open_watch(&self, most: u32) -> Option<OpenCall> {
        self.begin(most, |state| &state.open_watches)
    }

    fn begin(&self, most: u32, counter: fn(&State) -> &AtomicU32) -> Option<OpenCall> {
        let more = |calls: u32| (calls < most).then_some(calls + 1);
        let begun = counter(&self.state).fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        begun.is_ok().then(|| OpenCall { state: Arc::clone(&self.state), counter })
    }

    /// Takes down that a piece of an answer is there for its reader, until what is returned is dropped.
    pub(crate) fn offer(&self) -> Offered {
        let id = self.state.next_offer.fetch_add(1, Ordering::Relaxed);
        self.state.offered().insert(id, self.room.now());
        Offered { state: Arc::clone(&self.state), id }
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        self.state.offered().remove(&self.id);
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        (self.counter)(&self.state).fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[path = "seats_tests.rs"]
mod tests;
