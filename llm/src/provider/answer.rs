//! An answer under way: what a protocol's events come to, in the same terms for all of them.

use std::collections::{HashSet, VecDeque};

use anneal_core::{message::Part, tokens::Tokens};
use serde::de::IgnoredAny;

use super::{CallFailure, CallUsage, End, Piece, StopReason, failure::PROMPT_SHORTENED};
use crate::provider_error::is_cut_short;

/// Most calls of tools in one answer: as many as a message may have parts.
pub(super) const CALLS_MOST: usize = 256;

/// An answer with more of them.
pub(super) const TOO_MANY_CALLS: CallFailure = CallFailure::Broken("it calls too many tools");

/// How one protocol's events are read.
pub(super) trait Dialect: Send {
    /// Takes in the JSON of one event.
    fn read(&mut self, json: &str, answer: &mut UnderWay) -> Result<(), CallFailure>;

    /// Takes in an answer that came as one document although a stream was asked for.
    fn read_whole(&mut self, _json: &str, _answer: &mut UnderWay) -> Result<(), CallFailure> {
        Err(CallFailure::Broken("it is not the protocol"))
    }

    /// Hands over what was kept until the answer is whole.
    fn finish(&mut self, _answer: &mut UnderWay) -> Result<(), CallFailure> {
        Ok(())
    }
}

/// JSON that is not what the protocol says.
pub(super) const NOT_THE_PROTOCOL: CallFailure = CallFailure::Broken("an event of it is not the protocol");

/// What has come so far.
#[derive(Default)]
pub(super) struct UnderWay {
    /// Not yet handed on.
    pieces: VecDeque<Piece>,
    /// A call whose input is no JSON: if the output limit cut it off, it is left out.
    held: Option<Piece>,
    ids: HashSet<String>,
    stop: Option<StopReason>,
    usage: CallUsage,
    /// Tokens that were sent, as far as known.
    sent_tokens: Option<Tokens>,
    /// Whether there was a word or a call.
    has_spoken: bool,
    /// Whether there was anything, be it a thought or half a call.
    has_written: bool,
    /// Whether the protocol's own end has come.
    is_closed: bool,
}

impl UnderWay {
    pub(super) fn new(sent_tokens: Option<Tokens>) -> Self {
        Self { sent_tokens, ..Self::default() }
    }

    /// The next piece that is ready.
    pub(super) fn take(&mut self) -> Option<Piece> {
        self.pieces.pop_front()
    }

    /// Forgets what was not handed on.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    pub(super) fn text(&mut self, text: String) {
        self.has_spoken |= !text.trim().is_empty();
        if !text.is_empty() {
            self.push(Piece::Text(text));
        }
    }

    pub(super) fn thought(&mut self, text: String) {
        if !text.is_empty() {
            self.push(Piece::Thought(text));
        }
    }

    /// Complete thoughts that `provider` has signed, or hides.
    pub(super) fn reasoning(&mut self, provider: &str, text: String, signature: String, shown: Shown) {
        let redacted = shown == Shown::Hidden;
        self.push(Piece::Reasoning(Part::Reasoning { text, signature, provider: provider.to_owned(), redacted }));
    }

    /// A call of a tool. An id that is missing, or that another call of this answer has, is made here; no input is `{}`.
    pub(super) fn call(&mut self, id: String, name: String, input: String) -> Result<(), CallFailure> {
        if name.is_empty() {
            return Err(CallFailure::Broken("a call of a tool has no name"));
        }
        if self.ids.len() == CALLS_MOST {
            return Err(TOO_MANY_CALLS);
        }
        let is_fresh = !id.trim().is_empty() && !self.ids.contains(&id);
        let id = if is_fresh { id } else { format!("call_{}", uuid::Uuid::new_v4().simple()) };
        self.ids.insert(id.clone());
        let input = if input.trim().is_empty() { "{}".to_owned() } else { input };
        let is_json = serde_json::from_str::<IgnoredAny>(&input).is_ok();
        let call = Piece::ToolUse { id, name, input };
        if is_json {
            self.push(call);
        } else {
            self.release();
            self.has_written = true;
            self.held = Some(call);
        }
        Ok(())
    }

    /// What the provider counted so far. A prompt that it cut short is not the one that was to be answered.
    pub(super) fn counted(&mut self, usage: CallUsage) -> Result<(), CallFailure> {
        if is_cut_short(usage.input.get(), self.sent_tokens.map(Tokens::get)) {
            return Err(CallFailure::Overflow { window: None, prompt: None, rule: PROMPT_SHORTENED });
        }
        // Of it: never more than it.
        let cached = usage.cached.min(usage.input);
        self.usage = CallUsage { cached, written: usage.written.min(usage.input.less(cached)), ..usage };
        Ok(())
    }

    /// The tokens that the provider has counted so far.
    pub(super) const fn usage(&self) -> CallUsage {
        self.usage
    }

    pub(super) fn stop(&mut self, reason: StopReason) {
        self.stop = Some(reason);
    }

    /// Whether the provider has said why the model stopped: what comes after it may be missing.
    pub(super) fn has_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// The protocol's own end: nothing of the answer follows.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// An answer that was closed, and only did not say why the model stopped, stopped because all was said.
    pub(super) fn presume_done(&mut self) {
        if self.is_closed && (self.has_spoken || self.held.is_some()) {
            self.stop.get_or_insert(StopReason::Done);
        }
    }

    /// The end, as the last piece.
    pub(super) fn end(&mut self) -> Result<(), CallFailure> {
        let stop = self.stop.ok_or(CallFailure::Broken("it ended without its end"))?;
        if stop == StopReason::OutputLimit {
            self.held = None;
        }
        self.release();
        let excused = stop == StopReason::Filtered || (stop == StopReason::OutputLimit && self.has_written);
        if !self.has_spoken && !excused {
            return Err(CallFailure::Broken("nothing is said in it"));
        }
        let stop = match stop {
            StopReason::Done if !self.ids.is_empty() => StopReason::ToolUse,
            StopReason::ToolUse if self.ids.is_empty() => StopReason::Done,
            other => other,
        };
        self.pieces.push_back(Piece::End(End { stop, usage: self.usage }));
        Ok(())
    }

    fn push(&mut self, piece: Piece) {
        self.release();
        self.has_written = true;
        self.has_spoken |= matches!(piece, Piece::ToolUse { .. });
        self.pieces.push_back(piece);
    }

    fn release(&mut self) {
        if let Some(call) = self.held.take() {
            self.has_spoken = true;
            self.pieces.push_back(call);
        }
    }
}

/// Whether a provider lets its model's thoughts be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Readable,
    Hidden,
}
