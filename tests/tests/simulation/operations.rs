//! What may happen to a conversation, in any order.

use proptest::{prelude::*, strategy::Union};

use crate::{
    invariants::BUILDS,
    materials::{BODIES, POLICIES},
};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Messages are appended. With a request id that was used before: a repetition, or, with another body, a mistake.
    Append {
        /// One of two request ids, or none.
        request: Option<u8>,
        /// What is said first: words of three sizes, a call of a tool, its result (small or large), two calls with words and a
        /// thought, pictures among words. What comes with it is words.
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
    /// A caller builds a context, in one of the formats, whole or within a small budget.
    Build(u8),
    /// A worker runs whatever is due.
    Step,
    /// A worker claims what is to be counted.
    Claim,
    /// One that has claimed reads its messages. Here and below: where nobody has, one claims.
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
    /// Somebody comes to a place where sessions are.
    Resolve,
    /// Somebody begins a new conversation there.
    Rotate {
        /// Under the one request id that there is, or under none.
        repeatable: bool,
    },
    /// The place's conversation is deleted.
    Leave,
    /// A file that grows by so many turns is imported.
    Import(u8),
    /// The imported conversation is deleted.
    Forget,
}

/// Lists of operations, up to so many.
pub(crate) fn lists(longest: usize) -> impl Strategy<Value = (u8, Vec<Operation>)> {
    (0..POLICIES, prop::collection::vec(operation(), 1..=longest))
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{
        Append, Beat, Begin, Build, Change, Claim, Compact, Fail, Forget, GoOn, Import, Join, Leave, Read, Record,
        Renew, Rescue, Resolve, Rotate, Separate, Step, TimePasses,
    };
    let append = (0..BODIES, 1_u8..4).prop_map(|(body, messages)| Append { request: None, body, messages });
    // Few, so that they come again.
    let repeatable = (0_u8..2, prop::sample::select(vec![0, 3, 6]), 1_u8..3)
        .prop_map(|(request, body, messages)| Append { request: Some(request), body, messages });
    let place = || 0_u8..3;
    Union::new_weighted(vec![
        (18, append.boxed()),
        (10, repeatable.boxed()),
        (4, prop::option::weighted(0.5, 0_u8..2).prop_map(|request| Separate { request }).boxed()),
        (4, Just(Join).boxed()),
        (2, Just(Compact).boxed()),
        (8, (0..BUILDS).prop_map(Build).boxed()),
        (8, Just(Step).boxed()),
        (4, Just(Claim).boxed()),
        (12, place().prop_map(Read).boxed()),
        (12, (place(), any::<bool>()).prop_map(|(place, alone)| Record(place, alone)).boxed()),
        (2, place().prop_map(Fail).boxed()),
        (2, place().prop_map(Beat).boxed()),
        (14, Just(Begin).boxed()),
        (14, place().prop_map(GoOn).boxed()),
        (10, Just(TimePasses).boxed()),
        (6, Just(Rescue).boxed()),
        (4, (0..POLICIES).prop_map(Change).boxed()),
        (2, Just(Renew).boxed()),
        (2, Just(Resolve).boxed()),
        (6, prop::bool::weighted(0.75).prop_map(|repeatable| Rotate { repeatable }).boxed()),
        (2, Just(Leave).boxed()),
        // Each is a process.
        (1, (0_u8..3).prop_map(Import).boxed()),
        (2, Just(Forget).boxed()),
    ])
}
