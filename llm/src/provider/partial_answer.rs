//! An answer that is being received. The events of every protocol become the same pieces.

use std::collections::{HashSet, VecDeque};

use anneal_core::{message::Part, tokens::Tokens};
use serde::de::IgnoredAny;

use super::{CallFailure, CallUsage, End, Piece, StopReason, failure::PROMPT_SHORTENED};
use crate::provider_error::{Confidence, is_prompt_truncated};

/// Most tool calls in one answer: as many as a message may have parts.
pub(super) const MAX_TOOL_CALLS: usize = 256;

/// The failure of an answer with more than [`MAX_TOOL_CALLS`].
pub(super) const TOO_MANY_TOOL_CALLS: CallFailure = CallFailure::Broken("it calls too many tools");

/// Reads the events of one protocol.
pub(super) trait ProtocolReader: Send {
    /// Reads the JSON of one event.
    fn read(&mut self, json: &str, answer: &mut PartialAnswer) -> Result<(), CallFailure>;

    /// Reads an answer that came as one document although a stream was requested.
    fn read_whole(&mut self, _json: &str, _answer: &mut PartialAnswer) -> Result<(), CallFailure> {
        Err(CallFailure::Broken("it does not follow the protocol"))
    }

    /// Adds the pieces that were kept until the end of the answer.
    fn finish(&mut self, _answer: &mut PartialAnswer) -> Result<(), CallFailure> {
        Ok(())
    }
}

/// The failure of an event that does not follow the protocol.
pub(super) const MALFORMED_EVENT: CallFailure =
    CallFailure::Broken("an event does not follow the protocol");

/// The answer so far.
#[derive(Default)]
pub(super) struct PartialAnswer {
    /// Pieces that the caller has not taken yet.
    pieces: VecDeque<Piece>,
    /// The last tool call, if its input is not valid JSON. It is dropped if the answer ends here by
    /// the output limit, which has then cut it off.
    invalid_call: Option<Piece>,
    /// Ids of the tool calls.
    ids: HashSet<String>,
    stop: Option<StopReason>,
    usage: CallUsage,
    /// As [`super::Call::least_sent_tokens`].
    least_sent_tokens: Option<Tokens>,
    /// Whether there is any text or tool call.
    has_content: bool,
    /// Whether there is any output, including thoughts or an incomplete tool call.
    has_output: bool,
    /// Whether the protocol has marked the end.
    is_closed: bool,
}

impl PartialAnswer {
    pub(super) fn new(least_sent_tokens: Option<Tokens>) -> Self {
        Self {
            least_sent_tokens,
            ..Self::default()
        }
    }

    /// Removes and returns the next piece.
    pub(super) fn pop_piece(&mut self) -> Option<Piece> {
        self.pieces.pop_front()
    }

    /// Drops the pieces that were not taken.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    pub(super) fn push_text(&mut self, text: String) {
        self.has_content |= !text.trim().is_empty();
        if !text.is_empty() {
            self.push(Piece::Text(text));
        }
    }

    pub(super) fn push_thought(&mut self, text: String) {
        if !text.is_empty() {
            self.push(Piece::Thought(text));
        }
    }

    /// Adds complete thoughts that `provider` has signed or hidden.
    pub(super) fn push_reasoning(
        &mut self,
        provider: &str,
        text: String,
        signature: String,
        visibility: Visibility,
    ) {
        let redacted = visibility == Visibility::Hidden;
        self.push(Piece::Reasoning(Part::Reasoning {
            text,
            signature,
            provider: provider.to_owned(),
            redacted,
        }));
    }

    /// Adds a tool call. Gives it a new id if its own is missing or is used by another call. Empty
    /// input becomes `{}`.
    pub(super) fn push_tool_call(
        &mut self,
        id: String,
        name: String,
        input: String,
    ) -> Result<(), CallFailure> {
        if name.is_empty() {
            return Err(CallFailure::Broken("a call of a tool has no name"));
        }
        if self.ids.len() == MAX_TOOL_CALLS {
            return Err(TOO_MANY_TOOL_CALLS);
        }
        let is_unique = !id.trim().is_empty() && !self.ids.contains(&id);
        let id = if is_unique {
            id
        } else {
            format!("call_{}", uuid::Uuid::new_v4().simple())
        };
        self.ids.insert(id.clone());
        let input = if input.trim().is_empty() {
            "{}".to_owned()
        } else {
            input
        };
        let is_json = serde_json::from_str::<IgnoredAny>(&input).is_ok();
        let call = Piece::ToolUse { id, name, input };
        if is_json {
            self.push(call);
        } else {
            self.release_invalid_call();
            self.has_output = true;
            self.invalid_call = Some(call);
        }
        Ok(())
    }

    /// Records the provider's counts so far. Fails if they show that the provider has truncated the
    /// prompt.
    pub(super) fn record_usage(&mut self, usage: CallUsage) -> Result<(), CallFailure> {
        if is_prompt_truncated(usage.input.get(), self.least_sent_tokens.map(Tokens::get)) {
            return Err(CallFailure::Overflow {
                window: None,
                prompt: None,
                read: Some(usage.input),
                rule: PROMPT_SHORTENED,
                confidence: Confidence::Certain,
                status: None,
                wording: None,
            });
        }
        // Cached and written tokens are part of the input, thoughts of the output.
        let cached = usage.cached.min(usage.input);
        let written = usage.written.min(usage.input.less(cached));
        self.usage = CallUsage {
            cached,
            written,
            long_written: usage.long_written.min(written),
            reasoning: usage.reasoning.min(usage.output),
            ..usage
        };
        Ok(())
    }

    /// The provider's counts so far.
    pub(super) const fn usage(&self) -> CallUsage {
        self.usage
    }

    pub(super) fn set_stop(&mut self, reason: StopReason) {
        self.stop = Some(reason);
    }

    /// Whether the provider has reported why the model stopped; the rest of the protocol is then
    /// optional.
    pub(super) fn has_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Records that the protocol has marked the end.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Sets the stop reason to `Done` if the answer has content and a marked end but no stop
    /// reason.
    pub(super) fn default_stop_to_done(&mut self) {
        if self.is_closed && (self.has_content || self.invalid_call.is_some()) {
            self.stop.get_or_insert(StopReason::Done);
        }
    }

    /// Adds the last piece, the end. Fails if the answer is incomplete or empty.
    pub(super) fn push_end(&mut self) -> Result<(), CallFailure> {
        let stop = self
            .stop
            .ok_or(CallFailure::Broken("it ended without a stop reason"))?;
        if stop == StopReason::OutputLimit {
            self.invalid_call = None;
        }
        self.release_invalid_call();
        let may_be_empty =
            stop == StopReason::Filtered || (stop == StopReason::OutputLimit && self.has_output);
        if !self.has_content && !may_be_empty {
            return Err(CallFailure::Broken("it has no content"));
        }
        // Whether there are tool calls decides between these two reasons: some servers report the
        // wrong one.
        let stop = match stop {
            StopReason::Done if !self.ids.is_empty() => StopReason::ToolUse,
            StopReason::ToolUse if self.ids.is_empty() => StopReason::Done,
            other => other,
        };
        self.pieces.push_back(Piece::End(End {
            stop,
            usage: self.usage,
        }));
        Ok(())
    }

    fn push(&mut self, piece: Piece) {
        self.release_invalid_call();
        self.has_output = true;
        self.has_content |= matches!(piece, Piece::ToolUse { .. });
        self.pieces.push_back(piece);
    }

    /// Passes the call with invalid input on, once it is clear that the output limit did not cut it
    /// off.
    fn release_invalid_call(&mut self) {
        if let Some(call) = self.invalid_call.take() {
            self.has_content = true;
            self.pieces.push_back(call);
        }
    }
}

/// Whether a model's thoughts are readable, or hidden by the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visibility {
    Readable,
    Hidden,
}
