//! Changes of stored messages: messages are withdrawn, withdrawn ones are restored, messages are
//! edited, and content is erased. A change is one transaction. What is derived from the messages
//! follows in it, and what was made from them and comes later is refused. ARCHITECTURE.md has the
//! steps.
//!
//! - `selection`: the messages that a call names, as runs of ids.
//! - `targets`: the messages that a call changes: those of its selection, and the other halves of
//!   their tool pairs.
//! - `transaction`: what all changes share: conditions, repetitions, figures, the answer.
//! - `withdraw`, `restore`, `edit`, `erase`: the step in which they differ.
//! - `anew`: begins to answer a question anew: withdraws what stands after it, and edits it.
//! - `alternatives`: the rows of answers that were withdrawn so.
//! - `choose`: makes one of these answers stand again. `list_alternatives`: lists them.
//! - `blank`: what else an erasure deletes in rows that stay.
//! - `turns`: the turns of the messages that stand.
//! - `title`: the title that the messages that stand give.
//! - `derived`: checkpoints that no longer hold, and the mark that the next context differs.
//! - `fence`: ends the jobs, the turn and the call after a turn that are under way.

mod alternatives;
mod anew;
mod blank;
mod choose;
mod derived;
mod edit;
mod erase;
mod fence;
mod list_alternatives;
mod restore;
mod selection;
mod targets;
pub(crate) mod title;
mod transaction;
mod turns;
mod withdraw;

use anneal_core::{
    boundary::Boundary,
    digest::{self, Digest},
    job::JobKind,
    message::{MessageId, Part},
    tokens::{Encoding, Tokens},
};
use uuid::Uuid;

pub use anew::{Anew, AnewAsk, AnewQuestion};
pub use choose::ChooseAsk;
pub use edit::{Labels, MessageEdit, NewContent};
pub use list_alternatives::Alternative;
pub use selection::{IdRange, Selection};

pub(crate) use blank::{blank_derived_texts, blank_request_digests};
pub(crate) use selection::{from_columns, runs_of};

use crate::{error::StoreError, idempotency::IdempotentRequest};

/// Whether the halves of a tool pair are changed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolPairs {
    /// A call is changed with its results, and a result with its call.
    Together,
    /// Only the selected messages are changed.
    Apart,
}

/// The state of the conversation that a change expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeConditions {
    /// The newest message. None: not checked.
    pub expected_last: Option<MessageId>,
    /// The conversation's revision. None: not checked.
    pub revision: Option<i64>,
}

/// A change that a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeAsk {
    /// The messages.
    pub selection: Selection,
    /// Whether tool pairs are changed together.
    pub pairs: ToolPairs,
    /// The state that is expected.
    pub conditions: ChangeConditions,
    /// The caller's request id. None: a repetition is executed again.
    pub request_id: Option<String>,
}

impl ChangeAsk {
    /// The request of a call of this method.
    fn request(&self, method: &'static str) -> IdempotentRequest<'_> {
        IdempotentRequest {
            method,
            id: self.request_id.as_deref(),
            digest: self.digest(),
        }
    }

    /// Digest of what is asked for. The conditions are no part of it, as in appends. A request that
    /// a client repeats after an upgrade must have the same digest.
    fn digest(&self) -> Digest {
        let pairs: &[u8] = match self.pairs {
            ToolPairs::Together => b"together",
            ToolPairs::Apart => b"apart",
        };
        let (form, ids) = self.selection.digest_fields();
        digest::of_fields([form, pairs, ids.as_slice()])
    }
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageChangeKind {
    /// Messages were withdrawn.
    Withdrawn,
    /// Withdrawn messages were restored.
    Restored,
    /// A message got a new version of its content.
    Edited,
    /// Content was erased.
    Erased,
}

impl MessageChangeKind {
    /// The number stored in `ai_message_change`.
    pub const fn code(self) -> i16 {
        match self {
            Self::Withdrawn => 1,
            Self::Restored => 2,
            Self::Edited => 3,
            Self::Erased => 4,
        }
    }

    /// The kind stored as `code`.
    pub(crate) const fn from_code(code: i16) -> Result<Self, StoreError> {
        match code {
            1 => Ok(Self::Withdrawn),
            2 => Ok(Self::Restored),
            3 => Ok(Self::Edited),
            4 => Ok(Self::Erased),
            _ => Err(StoreError::Unreadable("kind of a change")),
        }
    }
}

/// The result of a change. Boundary and figures are those of the conversation now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageChange {
    /// Number of the change among the summaries, checkpoints and changes of the conversation. 0:
    /// there was nothing to change.
    pub id: i64,
    /// Whether messages were, or were to be, withdrawn, restored, edited or erased.
    pub kind: MessageChangeKind,
    /// The changed messages, in order.
    pub changed: Vec<IdRange>,
    /// The messages that those checkpoints covered that no longer hold because of it.
    pub void_checkpoints: Vec<IdRange>,
    /// Where contexts start.
    pub boundary: Boundary,
    /// Tokens of all messages that stand.
    pub token_total: Tokens,
    /// Messages whose tokens are estimates.
    pub uncounted: i64,
    /// Messages that are withdrawn or erased.
    pub withdrawn: i64,
    /// The conversation's revision.
    pub revision: i64,
    /// After an edit, the version that it has stored. If nothing was changed: the one that stands.
    pub version: Option<i32>,
    /// The receipt of an erasure.
    pub erasure: Option<Uuid>,
    /// Whether an earlier call with the same request id has made the change.
    pub replayed: bool,
    /// The jobs that are due because of it.
    pub caused: Vec<JobKind>,
}

/// A withdrawn message whose content was never counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncountedVersion {
    /// Id of the message.
    pub id: MessageId,
    /// The withdrawn content.
    pub parts: Vec<Part>,
    /// The encoding that the conversation's tokens are counted in.
    pub encoding: Encoding,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(selection: Selection, pairs: ToolPairs) -> ChangeAsk {
        ChangeAsk {
            selection,
            pairs,
            conditions: ChangeConditions::default(),
            request_id: None,
        }
    }

    fn ids<const N: usize>(ids: [i64; N]) -> Selection {
        Selection::Ids(ids.map(MessageId).to_vec())
    }

    #[test]
    fn a_repetition_has_the_same_digest_whatever_its_order_and_its_conditions() {
        let digest = ask(ids([3, 1, 2]), ToolPairs::Together).digest();
        let repeated = ChangeAsk {
            conditions: ChangeConditions {
                expected_last: Some(MessageId(9)),
                revision: Some(4),
            },
            ..ask(ids([1, 2, 3, 3]), ToolPairs::Together)
        };
        assert_eq!(repeated.digest(), digest);
    }

    #[test]
    fn other_messages_and_another_choice_of_pairs_have_other_digests() {
        let range = |first, last| {
            Selection::Range(IdRange {
                first: MessageId(first),
                last: MessageId(last),
            })
        };
        let digests = [
            ask(ids([1, 2]), ToolPairs::Together).digest(),
            ask(ids([1, 2]), ToolPairs::Apart).digest(),
            ask(ids([1]), ToolPairs::Together).digest(),
            ask(range(1, 2), ToolPairs::Together).digest(),
            ask(Selection::After(MessageId(1)), ToolPairs::Together).digest(),
        ];
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest), "the one at {index}");
        }
    }
}
