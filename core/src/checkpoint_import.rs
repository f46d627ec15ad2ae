//! Validates a checkpoint whose summary another system made: may it replace the beginning of the
//! tail?

use crate::{
    cut::{TailItem, allowed_cuts},
    message::MessageId,
    tokens::Tokens,
};

/// An imported summary, with the state of the conversation that it is imported into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointImport {
    /// The last message that the summary covers.
    pub last: MessageId,
    /// Tokens of the summary, in the conversation's encoding.
    pub summary: Tokens,
    /// The current boundary.
    pub boundary: MessageId,
    /// Tokens of the previous summary, that of the newest valid checkpoint; zero if there is none.
    pub previous: Tokens,
}

/// Sizes before and after a valid import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportPlan {
    /// Tokens of the previous summary and the whole tail before the import.
    pub tokens_before: Tokens,
    /// Tokens of the messages that stay in the tail.
    pub tokens_kept: Tokens,
}

/// Why an imported summary is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCheckpoint {
    /// The conversation has no such message.
    #[error("message {last} is newer than the newest message, {newest}")]
    BeyondNewest {
        /// The last message that the summary covers.
        last: MessageId,
        /// The newest message of the conversation.
        newest: MessageId,
    },
    /// The boundary would not move forward.
    #[error("message {last} is not newer than the current boundary, {boundary}")]
    NotNewer {
        /// The last message that the summary covers.
        last: MessageId,
        /// The current boundary.
        boundary: MessageId,
    },
    /// A tool call would be covered while its result stays in the tail or, in the newest turn, is
    /// not stored yet.
    #[error("a tool call up to message {last} has its result after that message, or has none yet")]
    SplitsToolCall {
        /// The last message that the summary covers.
        last: MessageId,
    },
    /// The context would not become smaller.
    #[error(
        "the summary has {summary} tokens, but must have fewer than the {replaced} that it replaces"
    )]
    NotShorter {
        /// Tokens of the summary.
        summary: Tokens,
        /// Tokens of the previous summary and of the messages that it would replace.
        replaced: Tokens,
    },
    /// An earlier call has imported it, and a message that it covers was changed since.
    #[error(
        "the checkpoint up to message {last} was imported before and no longer holds, because a \
         message that it covers was changed"
    )]
    NoLongerHolds {
        /// The last message that the summary covers.
        last: MessageId,
    },
}

/// Validates an import. `tail` holds every message after the current boundary.
pub fn plan_import(
    tail: &[TailItem],
    import: CheckpointImport,
) -> Result<ImportPlan, InvalidCheckpoint> {
    let last = import.last;
    let newest = tail.last().map_or(import.boundary, |item| item.id);
    if last > newest {
        return Err(InvalidCheckpoint::BeyondNewest { last, newest });
    }
    if last <= import.boundary {
        return Err(InvalidCheckpoint::NotNewer {
            last,
            boundary: import.boundary,
        });
    }
    let cut = tail.partition_point(|item| item.id <= last);
    if !allowed_cuts(tail)[cut] {
        return Err(InvalidCheckpoint::SplitsToolCall { last });
    }
    let sum = |items: &[TailItem]| items.iter().map(|item| item.tokens).sum::<Tokens>();
    let (covered, kept) = (sum(&tail[..cut]), sum(&tail[cut..]));
    let replaced = import.previous + covered;
    if import.summary >= replaced {
        return Err(InvalidCheckpoint::NotShorter {
            summary: import.summary,
            replaced,
        });
    }
    Ok(ImportPlan {
        tokens_before: replaced + kept,
        tokens_kept: kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Role, ToolMark};

    fn item(id: i64, outline: Vec<ToolMark>) -> TailItem {
        TailItem {
            id: MessageId(id),
            role: Role::Assistant,
            turn: 1,
            tokens: Tokens::new(100),
            bytes: 400,
            outline,
        }
    }

    /// Messages 6 to 9 after a boundary at 5. Message 7 calls a tool, message 8 answers.
    fn tail() -> Vec<TailItem> {
        let call = ToolMark::Call {
            id: "c".into(),
            name: "look".into(),
        };
        let result = ToolMark::Result {
            id: "c".into(),
            is_error: false,
        };
        vec![
            item(6, vec![]),
            item(7, vec![call]),
            item(8, vec![result]),
            item(9, vec![]),
        ]
    }

    /// The plan for a summary of `summary` tokens up to message `last`. The previous summary has 10
    /// tokens, each message of the tail 100.
    fn plan_for(last: i64, summary: u64) -> Result<ImportPlan, InvalidCheckpoint> {
        let boundary = MessageId(5);
        let import = CheckpointImport {
            last: MessageId(last),
            summary: Tokens::new(summary),
            boundary,
            previous: Tokens::new(10),
        };
        plan_import(&tail(), import)
    }

    #[test]
    fn an_imported_summary_replaces_the_previous_one_and_the_messages_it_covers() {
        let plan = |before, kept| {
            Ok(ImportPlan {
                tokens_before: Tokens::new(before),
                tokens_kept: Tokens::new(kept),
            })
        };
        assert_eq!(plan_for(8, 50), plan(410, 100));
        assert_eq!(
            plan_for(9, 50),
            plan(410, 0),
            "the summary may cover the whole tail"
        );
    }

    #[test]
    fn an_import_beyond_the_newest_message_or_not_beyond_the_boundary_is_refused() {
        let (last, newest) = (MessageId(10), MessageId(9));
        assert_eq!(
            plan_for(10, 50),
            Err(InvalidCheckpoint::BeyondNewest { last, newest })
        );
        let boundary = MessageId(5);
        assert_eq!(
            plan_for(5, 50),
            Err(InvalidCheckpoint::NotNewer {
                last: boundary,
                boundary
            })
        );
    }

    #[test]
    fn an_import_that_separates_a_call_from_its_result_is_refused() {
        assert_eq!(
            plan_for(7, 50),
            Err(InvalidCheckpoint::SplitsToolCall { last: MessageId(7) })
        );
        let tail_without_result = &tail()[..2];
        let import = CheckpointImport {
            last: MessageId(7),
            summary: Tokens::ZERO,
            boundary: MessageId(5),
            previous: Tokens::ZERO,
        };
        assert_eq!(
            plan_import(tail_without_result, import),
            Err(InvalidCheckpoint::SplitsToolCall { last: MessageId(7) }),
            "the result may still come"
        );
    }

    #[test]
    fn an_imported_summary_must_have_fewer_tokens_than_what_it_replaces() {
        let replaced = Tokens::new(110);
        assert_eq!(
            plan_for(6, 110),
            Err(InvalidCheckpoint::NotShorter {
                summary: replaced,
                replaced
            })
        );
        assert!(plan_for(6, 109).is_ok());
    }
}
