//! The operations of a list, and how often each is generated.

use proptest::{prelude::*, strategy::Union};

use crate::simulation::{
    changes::Pairs,
    invariants::BUILD_VARIANTS,
    policies_and_messages::{BODIES, POLICIES},
    turns::{TurnEnd, TurnPrompt},
};

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Appends messages. With a request id that was used before, the append is a repetition, or, if
    /// its messages differ, one that must be refused.
    Append {
        /// One of two request ids, or none.
        request: Option<u8>,
        /// The first message: a text of one of three sizes, a tool call, its result (small or
        /// large), two calls with text and reasoning, or a picture with text. Further messages are
        /// texts.
        body: u8,
        /// Number of messages.
        messages: u8,
    },
    /// Inserts a separator after the last message.
    InsertSeparator {
        /// One of two request ids, or none.
        request: Option<u8>,
    },
    /// Deletes the newest separator.
    DeleteSeparator,
    /// Requests a compaction.
    RequestCompaction,
    /// Builds the context of this variant: in one of the formats, whole or within a small budget.
    BuildContext(u8),
    /// A worker runs all due jobs.
    RunJobs,
    /// Workers claim the due counting jobs.
    ClaimCounting,
    /// A worker with a counting job reads the uncounted messages. The number chooses the worker,
    /// here and below. This operation and the next three claim counting jobs instead if no worker
    /// has one.
    ReadUncounted(u8),
    /// A worker with a counting job records its counts, by the call for one job (`true`) or for a
    /// batch.
    RecordCounts(u8, bool),
    /// The job of a worker with a counting job fails.
    FailJob(u8),
    /// A worker with a counting job sends a heartbeat.
    Heartbeat(u8),
    /// A worker begins a summary and waits for the model.
    BeginSummary,
    /// A worker that has begun a summary receives it and continues. A worker for which this does
    /// not happen stalls, and resumes only after the deletion at the end of the list.
    FinishSummary(u8),
    /// All leases end, and all waiting jobs are due.
    EndLeasesAndWaits,
    /// Frees the jobs whose leases have ended.
    RescueJobs,
    /// Gives the conversation the policy with this number.
    ChangePolicy(u8),
    /// Deletes the conversation and creates it again with the same id.
    Recreate,
    /// Resolves the session of a scope.
    ResolveSession,
    /// Rotates the session of `ResolveSession`: it gets a new conversation.
    RotateSession {
        /// Whether the rotation has a request id, always the same.
        repeatable: bool,
    },
    /// Deletes the session's current conversation.
    DeleteActiveSession,
    /// Imports a file that has grown by this number of turns.
    ImportFile(u8),
    /// Deletes the imported conversation.
    DeleteImported,
    /// Changes messages. With a request id that the method was called with before, the change is
    /// a repetition, or, if it is another one, one that must be refused.
    Change {
        operation: ChangeOperation,
        has_request: bool,
    },
    /// Edits a message twice at once, both times expecting the version that is stored.
    EditTwice {
        /// The message.
        which: u8,
        /// The size of both texts.
        size: u8,
    },
    /// Forks the conversation at a message, checks the fork, and deletes it. The number chooses the
    /// message.
    Fork(u8),
    /// Runs a turn with a scripted model. With a request id that a turn of the same kind had
    /// before, it is a repetition, or, if it is another one, it must be refused.
    Turn {
        prompt: TurnPrompt,
        end: TurnEnd,
        has_request: bool,
    },
    /// Chooses an answer to a question that was answered anew. The numbers choose the question and
    /// the answer.
    Choose(u8, u8),
}

/// A change of messages. The first number chooses a message, but for a rewind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeOperation {
    /// Withdraws up to this number of messages, from the first one on.
    Withdraw(u8, u8, Pairs),
    /// Withdraws the newest messages, this number of them.
    Rewind(u8, Pairs),
    /// Restores the withdrawn ones of up to this number of messages.
    Restore(u8, u8, Pairs),
    /// Gives a message another text, of this size (0 to 2). The last number chooses which version
    /// the edit expects.
    Edit(u8, u8, u8),
    /// Erases up to this number of messages.
    Erase(u8, u8),
}

/// A policy and a list of 1 to `longest` operations.
pub(crate) fn lists(longest: usize) -> impl Strategy<Value = (u8, Vec<Operation>)> {
    let operations = prop::collection::vec(step(), 1..=longest).prop_map(move |steps| {
        let mut operations = steps.concat();
        operations.truncate(longest);
        operations
    });
    (0..POLICIES, operations)
}

/// One operation, a compaction that is directly followed by a change of messages, or a question
/// that is answered twice and one of whose answers is chosen. By chance alone, few lists change a
/// message after a checkpoint of it, or choose an answer.
fn step() -> impl Strategy<Value = Vec<Operation>> {
    let changed_checkpoint = change().prop_map(|operation| {
        vec![
            Operation::RequestCompaction,
            Operation::RunJobs,
            Operation::Change {
                operation,
                has_request: false,
            },
        ]
    });
    let answered_twice = (any::<u8>(), any::<u8>(), 0_u8..4);
    let chosen_answer = answered_twice.prop_map(|(size, which, number)| {
        let answered = |prompt: TurnPrompt| Operation::Turn {
            prompt,
            end: TurnEnd::Answered,
            has_request: false,
        };
        vec![
            answered(TurnPrompt::New(size % 3)),
            answered(TurnPrompt::Newest),
            Operation::Choose(which, number),
        ]
    });
    Union::new_weighted(vec![
        (
            30,
            operation().prop_map(|operation| vec![operation]).boxed(),
        ),
        (2, changed_checkpoint.boxed()),
        (1, chosen_answer.boxed()),
    ])
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{
        Append, BeginSummary, BuildContext, Change, ChangePolicy, Choose, ClaimCounting,
        DeleteActiveSession, DeleteImported, DeleteSeparator, EditTwice, EndLeasesAndWaits,
        FailJob, FinishSummary, Fork, Heartbeat, ImportFile, InsertSeparator, ReadUncounted,
        RecordCounts, Recreate, RequestCompaction, RescueJobs, ResolveSession, RotateSession,
        RunJobs,
    };
    let append = (0..BODIES, 1_u8..4).prop_map(|(body, messages)| Append {
        request: None,
        body,
        messages,
    });
    // Few combinations, so that they repeat: a small text, a tool call (3), and two calls with text
    // and reasoning (6).
    let repeatable = (0_u8..2, prop::sample::select(vec![0, 3, 6]), 1_u8..3).prop_map(
        |(request, body, messages)| Append {
            request: Some(request),
            body,
            messages,
        },
    );
    let worker = || 0_u8..3;
    Union::new_weighted(vec![
        (18, append.boxed()),
        (10, repeatable.boxed()),
        (
            4,
            prop::option::weighted(0.5, 0_u8..2)
                .prop_map(|request| InsertSeparator { request })
                .boxed(),
        ),
        (4, Just(DeleteSeparator).boxed()),
        (2, Just(RequestCompaction).boxed()),
        (8, (0..BUILD_VARIANTS).prop_map(BuildContext).boxed()),
        (8, Just(RunJobs).boxed()),
        (4, Just(ClaimCounting).boxed()),
        (12, worker().prop_map(ReadUncounted).boxed()),
        (
            12,
            (worker(), any::<bool>())
                .prop_map(|(worker, is_single)| RecordCounts(worker, is_single))
                .boxed(),
        ),
        (2, worker().prop_map(FailJob).boxed()),
        (2, worker().prop_map(Heartbeat).boxed()),
        (14, Just(BeginSummary).boxed()),
        (14, worker().prop_map(FinishSummary).boxed()),
        (10, Just(EndLeasesAndWaits).boxed()),
        (6, Just(RescueJobs).boxed()),
        (4, (0..POLICIES).prop_map(ChangePolicy).boxed()),
        (2, Just(Recreate).boxed()),
        (2, Just(ResolveSession).boxed()),
        (
            6,
            prop::bool::weighted(0.75)
                .prop_map(|repeatable| RotateSession { repeatable })
                .boxed(),
        ),
        (2, Just(DeleteActiveSession).boxed()),
        // Rare, because each import starts a process.
        (1, (0_u8..3).prop_map(ImportFile).boxed()),
        (2, Just(DeleteImported).boxed()),
        (
            26,
            (change(), prop::bool::weighted(0.4))
                .prop_map(|(operation, has_request)| Change {
                    operation,
                    has_request,
                })
                .boxed(),
        ),
        (
            2,
            (any::<u8>(), 0_u8..3)
                .prop_map(|(which, size)| EditTwice { which, size })
                .boxed(),
        ),
        (2, any::<u8>().prop_map(Fork).boxed()),
        (16, turn().boxed()),
        (
            3,
            (any::<u8>(), 0_u8..4)
                .prop_map(|(which, number)| Choose(which, number))
                .boxed(),
        ),
    ])
}

fn turn() -> impl Strategy<Value = Operation> {
    let size = || 0_u8..3;
    let prompt = Union::new_weighted(vec![
        (4, size().prop_map(TurnPrompt::New).boxed()),
        (3, Just(TurnPrompt::Newest).boxed()),
        (
            3,
            (any::<u8>(), size())
                .prop_map(|(which, size)| TurnPrompt::Edited(which, size))
                .boxed(),
        ),
    ]);
    let end = Union::new_weighted(vec![
        (4, Just(TurnEnd::Answered)),
        (2, Just(TurnEnd::Kept)),
        (1, Just(TurnEnd::Dropped)),
        (1, Just(TurnEnd::Changed)),
    ]);
    (prompt, end, prop::bool::weighted(0.4)).prop_map(|(prompt, end, has_request)| {
        Operation::Turn {
            prompt,
            end,
            has_request,
        }
    })
}

fn change() -> impl Strategy<Value = ChangeOperation> {
    use ChangeOperation::{Edit, Erase, Restore, Rewind, Withdraw};
    let count = || 1_u8..5;
    let pairs = || prop::sample::select(vec![Pairs::Together, Pairs::Apart]);
    Union::new_weighted(vec![
        (
            8,
            (any::<u8>(), count(), pairs())
                .prop_map(|(first, count, pairs)| Withdraw(first, count, pairs))
                .boxed(),
        ),
        (
            4,
            (0_u8..5, pairs())
                .prop_map(|(back, pairs)| Rewind(back, pairs))
                .boxed(),
        ),
        (
            5,
            (any::<u8>(), count(), pairs())
                .prop_map(|(first, count, pairs)| Restore(first, count, pairs))
                .boxed(),
        ),
        (
            6,
            (any::<u8>(), 0_u8..3, 0_u8..4)
                .prop_map(|(which, size, version)| Edit(which, size, version))
                .boxed(),
        ),
        (
            3,
            (any::<u8>(), 1_u8..3)
                .prop_map(|(first, count)| Erase(first, count))
                .boxed(),
        ),
    ])
}
