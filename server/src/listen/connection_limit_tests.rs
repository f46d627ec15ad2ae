//! Tests of `connection_limit.rs`: how many slots a connection takes, and which connections are
//! closed.

use uuid::Uuid;

use super::*;

const ANNA: TenantId = TenantId(Uuid::from_u128(1));
const EVE: TenantId = TenantId(Uuid::from_u128(2));

fn streams(requests: u32) -> FrameCounts {
    FrameCounts {
        requests,
        has_large: false,
    }
}

#[test]
fn a_tenant_above_its_share_loses_a_connection_and_the_others_keep_theirs() {
    // One tenant may take four of the eight slots.
    let limit = ConnectionLimit::new(NonZeroU32::new(8).expect("not 0"), 50);
    let anna = limit.acquire();
    anna.reference().assign_tenant(ANNA);
    let eve: Vec<ConnectionSlot> = (0..5).map(|_| limit.acquire()).collect();
    let calls: Vec<InFlight> = eve
        .iter()
        .map(|slot| slot.reference().begin_call())
        .collect();
    for slot in &eve {
        // Each connection carries two calls, but is assigned once.
        slot.reference().assign_tenant(EVE);
        slot.reference().assign_tenant(EVE);
    }
    let closed: Vec<bool> = eve
        .iter()
        .map(|slot| slot.close_token().is_cancelled())
        .collect();
    assert_eq!(
        closed,
        [true, false, false, false, false],
        "the oldest, although a call is under way on it"
    );
    assert!(!anna.close_token().is_cancelled());
    drop((eve, calls));
    assert_eq!(limit.0.table().len(), 1);
    let shared = limit.acquire();
    shared.reference().assign_tenant(ANNA);
    shared.reference().assign_tenant(EVE);
    shared.reference().assign_tenant(ANNA);
    drop((shared, anna));
    assert_eq!(limit.0.table().len(), 0);
}

#[test]
fn a_connection_takes_one_slot_per_eight_concurrent_streams() {
    let limit = ConnectionLimit::new(NonZeroU32::new(16).expect("not 0"), 100);
    let (first, second, third) = (limit.acquire(), limit.acquire(), limit.acquire());
    for _ in 0..1_000 {
        second.note_frames(streams(1));
        drop(second.reference().begin_stream());
    }
    // No call begins for these seven streams. The second drained read after the last call shows
    // that, and they no longer count.
    second.note_frames(streams(7));
    second.note_read_drained();
    second.note_read_drained();
    second.note_frames(streams(8));
    assert!(
        !first.close_token().is_cancelled(),
        "eight at a time take one slot"
    );
    let begun: Vec<CountGuard> = (0..8).map(|_| second.reference().begin_stream()).collect();
    // Eight active and 88 pending streams: twelve slots. One read has the requests and a large frame.
    second.note_frames(FrameCounts {
        requests: 88,
        has_large: true,
    });
    assert!(
        !first.close_token().is_cancelled(),
        "the second connection takes fourteen slots, two of them for its buffer"
    );
    second.note_frames(streams(1));
    drop(begun);
    let closed = [first, second, third].map(|slot| slot.close_token().is_cancelled());
    assert_eq!(
        closed,
        [true, false, false],
        "the second connection takes fifteen slots, which leaves one of sixteen for the others"
    );
}

#[test]
fn unauthenticated_calls_of_a_connection_are_bounded() {
    let limit = ConnectionLimit::new(NonZeroU32::MIN, 100);
    let slot = limit.acquire();
    let reference = slot.reference();
    let held = [
        reference.begin_unauthenticated_call(2),
        reference.begin_unauthenticated_call(2),
    ];
    assert!(held.iter().all(Option::is_some) && reference.begin_unauthenticated_call(2).is_none());
    assert!(
        reference.begin_unauthenticated_watch(1).is_some(),
        "watches have a limit of their own"
    );
    drop(held);
    assert!(reference.begin_unauthenticated_call(2).is_some());
}
