//! What may happen to a conversation, in any order.

use proptest::{prelude::*, strategy::Union};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Messages are appended. With a request id that was used before: a repetition, or, with another body, a mistake.
    Append {
        /// One of three request ids, or none.
        request: Option<u8>,
        /// What is said: small, middling, large.
        body: u8,
        /// How many messages.
        messages: u8,
    },
    /// A separator is put at the end.
    Separate {
        /// One of two request ids, or none.
        request: Option<u8>,
    },
    /// The newest separator is taken away.
    Join,
    /// A compaction is asked for.
    Compact,
    /// A worker runs whatever is due.
    Step,
    /// A worker claims what is to be counted.
    Claim,
    /// One that has claimed reads its messages.
    Read(u8),
    /// One that has read records its counts, alone or as a batch.
    Record(u8, bool),
    /// One that has claimed fails.
    Fail(u8),
    /// One that has claimed says that it is alive.
    Beat(u8),
    /// A worker begins to summarise, and stays in the middle of it.
    Begin,
    /// One in the middle gets its summary and goes on. If it never does, it has died with the answer in its hand.
    GoOn(u8),
    /// All leases end, and what waits for its time is due.
    TimePasses,
    /// Orphaned jobs are freed.
    Rescue,
    /// Another policy.
    Change(u8),
    /// The conversation is deleted, and made again under the same id.
    Renew,
}

/// Lists of operations, up to so many.
pub(crate) fn lists(longest: usize) -> impl Strategy<Value = (u8, Vec<Operation>)> {
    (0_u8..4, prop::collection::vec(operation(), 1..=longest))
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{
        Append, Beat, Begin, Change, Claim, Compact, Fail, GoOn, Join, Read, Record, Renew, Rescue, Separate, Step,
        TimePasses,
    };
    let append = (prop::option::weighted(0.4, 0_u8..3), 0_u8..3, 1_u8..4)
        .prop_map(|(request, body, messages)| Append { request, body, messages });
    let place = || 0_u8..3;
    Union::new_weighted(vec![
        (14, append.boxed()),
        (2, prop::option::weighted(0.5, 0_u8..2).prop_map(|request| Separate { request }).boxed()),
        (2, Just(Join).boxed()),
        (1, Just(Compact).boxed()),
        (4, Just(Step).boxed()),
        (6, Just(Claim).boxed()),
        (6, place().prop_map(Read).boxed()),
        (6, (place(), any::<bool>()).prop_map(|(place, alone)| Record(place, alone)).boxed()),
        (1, place().prop_map(Fail).boxed()),
        (1, place().prop_map(Beat).boxed()),
        (3, Just(Begin).boxed()),
        (3, place().prop_map(GoOn).boxed()),
        (3, Just(TimePasses).boxed()),
        (3, Just(Rescue).boxed()),
        (1, (0_u8..4).prop_map(Change).boxed()),
        (1, Just(Renew).boxed()),
    ])
}
