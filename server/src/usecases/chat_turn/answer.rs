//! Receives the answer of one model call. Sends its pieces to the caller as they arrive, and
//! collects them into the parts of one message.

use std::time::{Duration, Instant};

use anneal_core::{
    limits::{ID_BYTES, MESSAGE_BYTES, PARTS_PER_MESSAGE},
    message::{Part, part_text},
    tokens::Tokens,
};
use anneal_gateway::CallStream;
use anneal_llm::provider::{CallFailure, End, Piece, StopReason};
use anneal_proto::v1 as pb;
use pb::chat_response::Event;

use super::{TurnError, event_stream::EventSender, model_failure};
use crate::failure::Failure;

/// If the caller has stalled the stream for this long in all, the provider is not blamed for
/// closing it.
const READER_STALL: Duration = Duration::from_secs(1);

/// The answer has more bytes than a message may have.
const TOO_LARGE: CallFailure = CallFailure::Broken("the answer is too large to be stored");

/// The model's answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// In the order of the stream. Empty: the output limit or a filter left no content.
    pub(super) parts: Vec<Part>,
    pub(super) end: End,
    /// Whether the provider has reported its usage. Otherwise it is estimated.
    pub(super) has_reported_usage: bool,
}

impl Answer {
    fn new(parts: Vec<Part>, end: End) -> Self {
        Self {
            parts,
            end,
            has_reported_usage: end.usage.input > Tokens::ZERO,
        }
    }
}

/// Receives the whole answer of a model, which has at most `most_bytes`. Sends its events to the
/// caller. `draft` holds what has come if the future is dropped before.
pub(super) async fn receive(
    stream: &mut CallStream<'_>,
    model: &str,
    events: &EventSender,
    (draft, most_bytes): (&mut Draft, usize),
) -> Result<Answer, TurnError> {
    let failed = |failure| model_failure(model, failure);
    draft.clear();
    let mut stalled = Duration::ZERO;
    while let Some(piece) = stream.next().await {
        let piece = match piece {
            // The provider's timeout runs while the caller reads slowly, so the provider may have
            // closed the stream for the caller's slowness.
            Err(CallFailure::Unavailable { .. }) if stalled >= READER_STALL => {
                return Err(Failure::SlowReader.into());
            }
            piece => piece.map_err(failed)?,
        };
        let step = draft.take(piece).map_err(failed)?;
        if draft.bytes > most_bytes {
            return Err(failed(TOO_LARGE).into());
        }
        match step {
            DraftStep::StoredOnly => {}
            DraftStep::Shown(event) => {
                let begun = Instant::now();
                events.send(event).await?;
                stalled += begun.elapsed();
            }
            DraftStep::Finished(mut answer) => {
                if !answer.has_reported_usage {
                    let cost = stream.cost();
                    (answer.end.usage.input, answer.end.usage.output) =
                        (cost.input(), cost.output());
                }
                return Ok(answer);
            }
        }
    }
    Err(failed(CallFailure::Broken("the answer has no end")).into())
}

/// The parts received so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    parts: Vec<Part>,
    /// Bytes of the parts' texts and tool inputs, for [`MESSAGE_BYTES`].
    bytes: usize,
}

/// The effect of a piece of the answer.
enum DraftStep {
    /// An event for the caller.
    Shown(Event),
    /// A part that is stored, but not sent to the caller: reasoning without a signature.
    StoredOnly,
    /// The complete answer.
    Finished(Answer),
}

impl Draft {
    /// Forgets what has come.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes what has come of an answer that ends here: text as it came, complete tool calls, and
    /// the signed or hidden reasoning before them. Reasoning at the end led to nothing, and
    /// providers refuse an answer that ends with it. None: neither a text nor a call has come.
    pub(super) fn take_kept(&mut self) -> Option<Vec<Part>> {
        let mut parts = std::mem::take(self).parts;
        let last = parts.iter().rposition(has_content)?;
        parts.truncate(last + 1);
        Some(parts)
    }

    /// Adds a piece. Fails if an append would refuse the message, or if the answer is empty, except
    /// because of the output limit or a filter.
    fn take(&mut self, piece: Piece) -> Result<DraftStep, CallFailure> {
        match piece {
            Piece::Text(text) => {
                self.grow(text.len())?;
                match self.parts.last_mut() {
                    Some(Part::Text { text: before }) => before.push_str(&text),
                    _ => self.push(Part::Text { text: text.clone() })?,
                }
                Ok(DraftStep::Shown(Event::TextDelta(text)))
            }
            // Not stored: the complete reasoning comes as `Piece::Reasoning`, if it is signed.
            Piece::Thought(text) => Ok(DraftStep::Shown(Event::ReasoningDelta(text))),
            Piece::Reasoning(part) => {
                self.grow(part_text(&part).len())?;
                let end = reasoning_end(&part);
                self.push(part)?;
                Ok(end.map_or(DraftStep::StoredOnly, DraftStep::Shown))
            }
            Piece::ToolUse { id, name, input } => {
                if ![&id, &name].into_iter().all(|text| is_valid_id(text)) {
                    return Err(CallFailure::Broken("a tool call has an invalid id or name"));
                }
                self.grow(input.len())?;
                self.push(Part::ToolUse {
                    id: id.clone(),
                    name: name.clone(),
                    input: input.clone(),
                })?;
                Ok(DraftStep::Shown(Event::ToolCall(pb::ToolUsePart {
                    id,
                    name,
                    input,
                })))
            }
            Piece::End(end) if !self.parts.iter().any(has_content) => end_without_content(end),
            Piece::End(end) => Ok(DraftStep::Finished(Answer::new(
                std::mem::take(&mut self.parts),
                end,
            ))),
        }
    }

    /// Counts bytes of the message. Fails if there are too many.
    fn grow(&mut self, bytes: usize) -> Result<(), CallFailure> {
        self.bytes += bytes;
        if self.bytes > MESSAGE_BYTES {
            Err(TOO_LARGE)
        } else {
            Ok(())
        }
    }

    /// Adds a part. Fails if there are too many.
    fn push(&mut self, part: Part) -> Result<(), CallFailure> {
        if self.parts.len() == PARTS_PER_MESSAGE {
            return Err(CallFailure::Broken("the answer has too many parts"));
        }
        self.parts.push(part);
        Ok(())
    }
}

/// The end of an answer without content. An error, unless the stop reason shows that a retry would
/// end the same way.
fn end_without_content(end: End) -> Result<DraftStep, CallFailure> {
    match end.stop {
        StopReason::Done | StopReason::ToolUse => Err(CallFailure::Broken("the answer is empty")),
        StopReason::OutputLimit | StopReason::Filtered => {
            Ok(DraftStep::Finished(Answer::new(Vec::new(), end)))
        }
    }
}

/// The event for the end of a reasoning part, which holds the part as it is stored. None: the part
/// has no signature.
pub(super) fn reasoning_end(part: &Part) -> Option<Event> {
    let Part::Reasoning {
        text,
        signature,
        provider,
        redacted,
    } = part
    else {
        return None;
    };
    (!signature.is_empty()).then(|| {
        Event::ReasoningEnd(pb::ReasoningPart {
            text: text.clone(),
            signature: signature.clone(),
            provider: provider.clone(),
            redacted: *redacted,
        })
    })
}

/// Whether a part counts as an answer: reasoning alone does not.
fn has_content(part: &Part) -> bool {
    match part {
        Part::Text { text } => !text.trim().is_empty(),
        Part::ToolUse { .. } => true,
        Part::Reasoning { .. } | Part::ToolResult { .. } | Part::Media(_) => false,
    }
}

/// Whether an append accepts this as the id of a tool call or the name of a tool.
fn is_valid_id(text: &str) -> bool {
    (1..=ID_BYTES).contains(&text.len()) && !text.contains('\0')
}

#[cfg(test)]
mod tests {
    use anneal_llm::provider::CallUsage;

    use super::*;

    fn end() -> Piece {
        Piece::End(End {
            stop: StopReason::Done,
            usage: CallUsage::default(),
        })
    }

    fn call(id: &str, name: &str) -> Piece {
        Piece::ToolUse {
            id: id.into(),
            name: name.into(),
            input: "{}".into(),
        }
    }

    fn reasoning() -> Part {
        Part::Reasoning {
            text: "hm".into(),
            signature: "s".into(),
            provider: "p".into(),
            redacted: false,
        }
    }

    #[test]
    fn parts_keep_the_order_of_the_stream() {
        let mut draft = Draft::default();
        let pieces = [
            Piece::Thought("h".into()),
            Piece::Reasoning(reasoning()),
            Piece::Text("a".into()),
            Piece::Text("b".into()),
            call("1", "look"),
            Piece::Text("c".into()),
        ];
        for piece in pieces {
            draft.take(piece).expect("taken");
        }
        let Ok(DraftStep::Finished(answer)) = draft.take(end()) else {
            panic!("the last piece finishes the answer")
        };
        let text = |text: &str| Part::Text { text: text.into() };
        let tool = Part::ToolUse {
            id: "1".into(),
            name: "look".into(),
            input: "{}".into(),
        };
        assert_eq!(answer.parts, [reasoning(), text("ab"), tool, text("c")]);
    }

    #[test]
    fn the_end_of_signed_reasoning_is_shown_as_it_is_stored() {
        let mut draft = Draft::default();
        let Ok(DraftStep::Shown(Event::ReasoningEnd(shown))) =
            draft.take(Piece::Reasoning(reasoning()))
        else {
            panic!("signed reasoning has an event")
        };
        let stored = pb::Part::from(draft.parts[0].clone());
        assert_eq!(stored.part, Some(pb::part::Part::Reasoning(shown)));
        let unsigned = Part::Reasoning {
            text: "hm".into(),
            signature: String::new(),
            provider: String::new(),
            redacted: false,
        };
        let step = draft.take(Piece::Reasoning(unsigned));
        assert!(matches!(step, Ok(DraftStep::StoredOnly)));
    }

    #[test]
    fn what_is_kept_of_an_answer_has_a_text_or_a_call() {
        let mut draft = Draft::default();
        for piece in [
            Piece::Thought("h".into()),
            Piece::Reasoning(reasoning()),
            Piece::Text(" \n".into()),
        ] {
            draft.take(piece).expect("taken");
        }
        assert_eq!(draft.take_kept(), None);
        for piece in [Piece::Reasoning(reasoning()), Piece::Text(" a\n".into())] {
            draft.take(piece).expect("taken");
        }
        let text = Part::Text {
            text: " a\n".into(),
        };
        assert_eq!(draft.take_kept(), Some(vec![reasoning(), text]));
        assert_eq!(draft.take_kept(), None, "it is taken once");
        draft.take(call("1", "look")).expect("taken");
        assert_eq!(draft.take_kept().map(|parts| parts.len()), Some(1));
    }

    #[test]
    fn what_is_kept_of_an_answer_does_not_end_with_reasoning() {
        let text = Part::Text { text: "a".into() };
        let tool = Part::ToolUse {
            id: "1".into(),
            name: "look".into(),
            input: "{}".into(),
        };
        for (piece, part) in [
            (Piece::Text("a".into()), text.clone()),
            (call("1", "look"), tool),
        ] {
            let mut draft = Draft::default();
            let before = [Piece::Reasoning(reasoning()), piece];
            // A blank text after it is no content, either.
            let after = [Piece::Reasoning(reasoning()), Piece::Text("\n".into())];
            for piece in before.into_iter().chain(after) {
                draft.take(piece).expect("taken");
            }
            assert_eq!(draft.take_kept(), Some(vec![reasoning(), part]));
        }
        let mut draft = Draft::default();
        for piece in [Piece::Text("a".into()), Piece::Reasoning(reasoning())] {
            draft.take(piece).expect("taken");
        }
        assert_eq!(draft.take_kept(), Some(vec![text]));
    }

    #[test]
    fn an_answer_that_an_append_would_refuse_is_broken() {
        let long = "x".repeat(ID_BYTES + 1);
        for (id, name) in [
            ("", "look"),
            ("1", ""),
            ("1\0", "look"),
            ("1", long.as_str()),
        ] {
            assert!(
                matches!(
                    Draft::default().take(call(id, name)),
                    Err(CallFailure::Broken(_))
                ),
                "{id:?} {name:?}"
            );
        }
        let mut draft = Draft::default();
        for nth in 0..PARTS_PER_MESSAGE {
            draft
                .take(call(&nth.to_string(), "look"))
                .expect("below the limit of parts");
        }
        assert!(draft.take(call("one more", "look")).is_err());
    }

    #[test]
    fn reasoning_alone_is_no_answer_unless_the_answer_was_filtered() {
        let mut draft = Draft::default();
        draft.take(Piece::Reasoning(reasoning())).expect("taken");
        assert!(matches!(draft.take(end()), Err(CallFailure::Broken(_))));
        let filtered = Piece::End(End {
            stop: StopReason::Filtered,
            usage: CallUsage::default(),
        });
        let Ok(DraftStep::Finished(answer)) = draft.take(filtered) else {
            panic!("a filtered answer without content is no failure")
        };
        assert!(answer.parts.is_empty());
    }
}
