//! How many connections there are, and who has to go when there are too many: first whoever has shown no credential yet, then
//! whoever has been silent longest, if nobody waits for an answer there.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// A connection that was silent for less than this stays, whoever else would like its place.
const SILENT: Duration = Duration::from_secs(5);
/// From one look at readers to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Room for connections. Cheap to clone: both ports share it.
#[derive(Clone)]
pub(crate) struct Seats(Arc<Room>);

struct Room {
    most: usize,
    began: Instant,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    seats: HashMap<u64, Arc<State>>,
}

struct State {
    /// Calls under way.
    calls: AtomicUsize,
    /// Milliseconds, since the room was opened, at which something last came or went.
    heard: AtomicU64,
    /// Milliseconds, since the room was opened, at which it was taken.
    since: u64,
    /// Whether a call has come whose caller is known.
    is_known: AtomicBool,
    leave: CancellationToken,
    began: Instant,
    /// Since when what was offered to the reader of an answer was not taken, by offer; in milliseconds as above.
    offered: Mutex<HashMap<u64, u64>>,
    next_offer: AtomicU64,
}

/// A connection's place. Dropped, it is free.
pub(crate) struct Seat {
    id: u64,
    room: Arc<Room>,
    state: Arc<State>,
}

/// What a call takes of its connection's place: while there is one, the connection stays.
pub(crate) struct Occupied(Arc<State>);

/// A piece of an answer that its reader has not taken. Dropped, it is taken.
pub(crate) struct Offered {
    state: Arc<State>,
    id: u64,
}

/// The way to a connection's place for its calls. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Place(Arc<State>);

impl Seats {
    /// Room for so many.
    pub(crate) fn new(most: NonZeroU32) -> Self {
        Self(Arc::new(Room { most: most.get() as usize, began: Instant::now(), taken: Mutex::default() }))
    }

    /// A place; where all are taken, that of whoever has to go. None: everybody is busy.
    pub(crate) fn take(&self) -> Option<Seat> {
        let mut taken = self.0.taken();
        if taken.seats.len() >= self.0.most {
            let leaving = taken.seats.iter().filter(|(_, state)| self.0.may_leave(state));
            let id = *leaving.min_by_key(|(_, state)| state.standing())?.0;
            if let Some(state) = taken.seats.remove(&id) {
                state.leave.cancel();
                metrics::counter!("connections_closed_for_others_total").increment(1);
            }
        }
        let id = taken.next;
        taken.next += 1;
        let since = self.0.now();
        let state = Arc::new(State {
            calls: AtomicUsize::new(0),
            heard: AtomicU64::new(since),
            since,
            is_known: AtomicBool::new(false),
            leave: CancellationToken::new(),
            began: self.0.began,
            offered: Mutex::default(),
            next_offer: AtomicU64::new(0),
        });
        taken.seats.insert(id, Arc::clone(&state));
        metrics::gauge!("connections_open").set(taken.seats.len() as f64);
        Some(Seat { id, room: Arc::clone(&self.0), state })
    }

    /// Has connections leave on which the reader of every answer takes nothing for so long, until the future is dropped. One
    /// that takes nothing beside others that do is a proxy's, which carries the calls of many.
    pub(crate) async fn watch_readers(self, stall: Duration) {
        let most = u64::try_from(stall.as_millis()).unwrap_or(u64::MAX);
        let mut looks = tokio::time::interval((stall / 4).clamp(Duration::from_millis(100), LOOK));
        loop {
            looks.tick().await;
            let since = self.0.now().saturating_sub(most);
            for state in self.0.taken().seats.values() {
                let stalled = state.offered().values().filter(|offered| **offered < since).count();
                let is_every_one = stalled > 0 && stalled >= state.calls.load(Ordering::Acquire);
                if is_every_one && !state.leave.is_cancelled() {
                    state.leave.cancel();
                    metrics::counter!("connections_closed_for_stalling_total").increment(1);
                }
            }
        }
    }
}

fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Room {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Each change is one insertion or one removal.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        milliseconds(self.began)
    }

    fn may_leave(&self, state: &State) -> bool {
        let silent = self.now().saturating_sub(state.standing().1);
        state.calls.load(Ordering::Acquire) == 0 && u128::from(silent) >= SILENT.as_millis()
    }
}

impl State {
    fn offered(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is known, and since when it keeps its place for nothing: who is not known gains nothing by sending something.
    fn standing(&self) -> (bool, u64) {
        let is_known = self.is_known.load(Ordering::Relaxed);
        (is_known, if is_known { self.heard.load(Ordering::Relaxed) } else { self.since })
    }
}

impl Seat {
    /// Takes down that something came or went.
    pub(crate) fn heard(&self) {
        self.state.heard.store(self.room.now(), Ordering::Relaxed);
    }

    /// Cancelled when the connection has to go.
    pub(crate) fn leave(&self) -> CancellationToken {
        self.state.leave.clone()
    }

    /// The way here for calls.
    pub(crate) fn place(&self) -> Place {
        Place(Arc::clone(&self.state))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        taken.seats.remove(&self.id);
        metrics::gauge!("connections_open").set(taken.seats.len() as f64);
    }
}

impl Place {
    /// Takes down that a call has come whose caller is known.
    pub(crate) fn becomes_known(&self) {
        self.0.is_known.store(true, Ordering::Relaxed);
    }

    /// Keeps the connection until what is returned is dropped.
    pub(crate) fn occupy(&self) -> Occupied {
        self.0.calls.fetch_add(1, Ordering::AcqRel);
        Occupied(Arc::clone(&self.0))
    }

    /// Takes down that a piece of an answer is there for its reader, until what is returned is dropped.
    pub(crate) fn offer(&self) -> Offered {
        let id = self.0.next_offer.fetch_add(1, Ordering::Relaxed);
        self.0.offered().insert(id, milliseconds(self.0.began));
        Offered { state: Arc::clone(&self.0), id }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(seat: &Seat, order: u64) {
        // As if the room had been open for long.
        seat.place().becomes_known();
        seat.state.heard.store(order, Ordering::Relaxed);
    }

    fn opened_long_ago(most: u32) -> Seats {
        let began = Instant::now().checked_sub(Duration::from_mins(1)).expect("a machine that has run for a minute");
        Seats(Arc::new(Room { most: most as usize, began, taken: Mutex::default() }))
    }

    #[test]
    fn whoever_is_silent_longest_and_waits_for_nothing_makes_room() {
        let seats = opened_long_ago(3);
        let (first, second, third) = (seats.take(), seats.take(), seats.take());
        let (first, second, third) = (first.expect("room"), second.expect("room"), third.expect("room"));
        assert!(seats.take().is_none(), "everybody has just said something");
        silent(&first, 1);
        silent(&second, 2);
        let call = first.place().occupy();
        let fourth = seats.take().expect("the second goes");
        assert!(second.leave().is_cancelled() && !first.leave().is_cancelled() && !third.leave().is_cancelled());
        assert!(seats.take().is_none(), "the first waits for an answer");
        drop(call);
        let _fifth = seats.take().expect("the first goes");
        assert!(first.leave().is_cancelled());
        drop(fourth);
        drop(second);
        assert!(seats.take().is_some(), "who left has left a place");
    }
}
