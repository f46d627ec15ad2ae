//! Places of connections: who takes one, and who has to leave.

use uuid::Uuid;

use super::*;

const ANNA: TenantId = TenantId(Uuid::from_u128(1));
const EVE: TenantId = TenantId(Uuid::from_u128(2));

fn streams(requests: u32) -> Frames {
    Frames { requests, has_large: false }
}

#[test]
fn a_tenant_above_its_share_loses_a_connection_and_the_others_keep_theirs() {
    let seats = Seats::new(NonZeroU32::new(8).expect("not 0"), 50);
    let anna = seats.take();
    anna.place().becomes_known(ANNA);
    let eve: Vec<Seat> = (0..5).map(|_| seats.take()).collect();
    let calls: Vec<Occupied> = eve.iter().map(|seat| seat.place().occupy()).collect();
    for seat in &eve {
        seat.place().becomes_known(EVE);
        seat.place().becomes_known(EVE);
    }
    let closed: Vec<bool> = eve.iter().map(|seat| seat.leave().is_cancelled()).collect();
    assert_eq!(closed, [true, false, false, false, false], "the oldest, although a call is under way on it");
    assert!(!anna.leave().is_cancelled());
    drop((eve, calls));
    assert_eq!(seats.0.taken().len(), 1);
    let shared = seats.take();
    shared.place().becomes_known(ANNA);
    shared.place().becomes_known(EVE);
    shared.place().becomes_known(ANNA);
    drop((shared, anna));
    assert_eq!(seats.0.taken().len(), 0);
}

#[test]
fn a_connection_takes_a_place_for_every_eight_streams_that_it_has_at_once() {
    let seats = Seats::new(NonZeroU32::new(16).expect("not 0"), 100);
    let (first, second, third) = (seats.take(), seats.take(), seats.take());
    for _ in 0..1_000 {
        second.announce(streams(1));
        drop(second.place().begin_stream());
    }
    second.announce(streams(7));
    second.read_all();
    second.read_all();
    second.announce(streams(8));
    assert!(!first.leave().is_cancelled(), "eight at a time take no more than one place");
    let begun: Vec<OpenCall> = (0..8).map(|_| second.place().begin_stream()).collect();
    second.announce(streams(88));
    second.announce(Frames { requests: 0, has_large: true });
    assert!(!first.leave().is_cancelled(), "fourteen places, two of them for the buffer");
    second.announce(streams(1));
    drop(begun);
    let closed = [first, second, third].map(|seat| seat.leave().is_cancelled());
    assert_eq!(closed, [true, false, false], "fifteen places, and one for each of the others");
}

#[test]
fn open_calls_of_a_connection_are_few() {
    let seats = Seats::new(NonZeroU32::MIN, 100);
    let seat = seats.take();
    let place = seat.place();
    let held = [place.begin_open_call(2), place.begin_open_call(2)];
    assert!(held.iter().all(Option::is_some) && place.begin_open_call(2).is_none());
    assert!(place.begin_open_watch(1).is_some(), "they are counted apart");
    drop(held);
    assert!(place.begin_open_call(2).is_some());
}
