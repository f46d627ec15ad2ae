//! The pieces of a context before repairs and budget: one entry per message.

use super::{Body, CheckpointSummary, ManifestEntry, Reason, Representation, Segment, TailMessage};
use crate::{
    cooling,
    message::{Message, MessageId, PART_JOIN, Part, Role, ToolMark, part_text},
    policy::Policy,
    tokens::{Encoding, Tokens, count_message},
    turn,
};

/// One message of the context in the making.
pub(super) struct Entry {
    pub(super) segment: Segment,
    pub(super) role: Role,
    pub(super) parts: Vec<Part>,
    /// Stored messages that it stands for.
    pub(super) ids: Vec<MessageId>,
    /// Turn it belongs to; 0 for system prompt and summary.
    pub(super) turn: i32,
    /// Tokens of the parts.
    pub(super) tokens: Tokens,
    /// How many messages' framing it costs: more than one once messages were merged into it.
    pub(super) framings: u64,
    pub(super) estimated: bool,
    /// Whether the parts are the original's, so that a clip can say which bytes it left out.
    pub(super) original: bool,
    /// One for each part from the first change of the parts on; empty before.
    pub(super) origins: Vec<Origin>,
}

/// Where a part's text comes from.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin {
    /// Its bytes in the stored message's plain text; None where they are not of it.
    pub(super) place: Option<std::ops::Range<usize>>,
    /// The text before it was clipped.
    pub(super) whole: Option<String>,
    /// Bytes of `whole` that a clip left out.
    pub(super) left_out: Vec<std::ops::Range<usize>>,
}

impl Entry {
    pub(super) fn system_prompt(text: String, tokens: Tokens) -> Option<Self> {
        (!text.is_empty()).then(|| Self::derived(Segment::SystemPrompt, Role::System, text, tokens))
    }

    pub(super) fn checkpoint(held: &CheckpointSummary, encoding: Encoding) -> Self {
        let tokens = checkpoint_tokens_around(held.last, encoding) + held.tokens;
        Self::derived(Segment::CheckpointSummary, Role::User, checkpoint_mark(held.last) + &held.text, tokens)
    }

    fn derived(segment: Segment, role: Role, text: String, tokens: Tokens) -> Self {
        let parts = vec![Part::Text { text }];
        Self {
            segment,
            role,
            parts,
            ids: Vec::new(),
            turn: 0,
            tokens,
            framings: 1,
            estimated: false,
            original: false,
            origins: Vec::new(),
        }
    }

    /// A message of the tail, and its line in the manifest.
    pub(super) fn stored(
        message: TailMessage,
        cool: bool,
        policy: &Policy,
        encoding: Encoding,
    ) -> (ManifestEntry, Self) {
        let original_tokens = message.tokens;
        let large = cooling::is_large(original_tokens, policy);
        let original = matches!(message.body, Body::Original(_));
        let (representation, reason, parts, tokens) = match message.body {
            Body::Original(parts) => {
                let reason = match (large, cool) {
                    (false, _) => Reason::Small,
                    (true, false) => Reason::Hot,
                    (true, true) if message.ready.is_some() => Reason::StepPending,
                    (true, true) => Reason::SummaryPending,
                };
                (Representation::Original, reason, parts, original_tokens)
            }
            Body::Summary { text, tokens, original_bytes, outline } => {
                let swapped = Swapped { id: message.id, role: message.role, original_bytes, outline };
                let (parts, around) = swapped.parts(&text, encoding);
                (Representation::Summary, Reason::Cool, parts, tokens + around)
            }
        };
        let line = ManifestEntry {
            first: message.id,
            last: message.id,
            representation,
            reason,
            tokens,
            original_tokens,
            cool,
            clipped: Vec::new(),
        };
        let entry = Self {
            segment: Segment::Tail,
            role: message.role,
            parts,
            ids: vec![message.id],
            turn: message.turn,
            tokens,
            framings: 1,
            estimated: message.estimated && original,
            original,
            origins: Vec::new(),
        };
        (line, entry)
    }

    /// The current input, with the turns that it would have if it were stored.
    pub(super) fn input(
        messages: Vec<Message>,
        turn: i32,
        predecessor: Option<Role>,
        encoding: Encoding,
    ) -> impl Iterator<Item = Self> {
        let mut turn = turn;
        let mut predecessor = predecessor;
        messages.into_iter().map(move |message| {
            turn += i32::from(turn::starts(message.role, predecessor));
            predecessor = Some(message.role);
            Self {
                segment: Segment::CurrentInput,
                role: message.role,
                tokens: count_message(encoding, &message),
                parts: message.parts,
                ids: Vec::new(),
                turn,
                framings: 1,
                estimated: false,
                original: true,
                origins: Vec::new(),
            }
        })
    }

    /// Whether it is a message of the conversation, not its prompt or summary.
    pub(super) const fn is_spoken(&self) -> bool {
        matches!(self.segment, Segment::Tail | Segment::CurrentInput)
    }

    /// The stored message whose parts these are; None for current input.
    pub(super) fn message(&self) -> Option<MessageId> {
        self.ids.last().copied()
    }

    /// Notes where the parts come from; to be called before the first change of them.
    pub(super) fn note_origins(&mut self) {
        if self.origins.len() == self.parts.len() {
            return;
        }
        let mut offset = 0;
        let original = self.original;
        let origin = |part: &Part| {
            let bytes = part_text(part).len();
            let place = original.then_some(offset..offset + bytes);
            if bytes > 0 {
                offset += bytes + PART_JOIN.len();
            }
            Origin { place, ..Origin::default() }
        };
        self.origins = self.parts.iter().map(origin).collect();
    }

    /// Keeps the parts of which `keep` says so, and their origins; gives back the others.
    pub(super) fn take_parts(&mut self, mut keep: impl FnMut(&Part) -> bool) -> Vec<(Part, Origin)> {
        self.note_origins();
        let parts = std::mem::take(&mut self.parts).into_iter().zip(std::mem::take(&mut self.origins));
        let (kept, taken): (Vec<_>, Vec<_>) = parts.partition(|(part, _)| keep(part));
        (self.parts, self.origins) = kept.into_iter().unzip();
        taken
    }
}

/// A message that is sent as its summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swapped {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// Bytes of the original's plain text.
    pub original_bytes: u64,
    /// Its tool calls and results.
    pub outline: Vec<ToolMark>,
}

impl Swapped {
    /// What is sent around the summary: the mark that says what it is, and tool calls and results in their places.
    pub fn tokens_around(&self, encoding: Encoding) -> Tokens {
        self.parts("", encoding).1
    }

    /// The parts that stand for the message, and what they count without the summary's own text.
    fn parts(&self, summary: &str, encoding: Encoding) -> (Vec<Part>, Tokens) {
        let counter = encoding.counter();
        let Self { id, original_bytes, .. } = self;
        let mark = format!("[Summary of message {id}; its original of {original_bytes} bytes is kept under that id]\n");
        let mut around = counter.count(&mark) + SEAM;
        let mut text = Some(mark + summary);
        let mut parts = Vec::with_capacity(self.outline.len() + 1);
        if self.role != Role::Tool {
            parts.extend(text.take().map(|text| Part::Text { text }));
        }
        for mark in &self.outline {
            parts.push(match mark {
                ToolMark::Call { id: call, name } => {
                    let input = format!("{{\"summarised_in_message\":{id}}}");
                    around += counter.count(&input) + counter.count(name);
                    Part::ToolUse { id: call.clone(), name: name.clone(), input }
                }
                ToolMark::Result { id: call, is_error } => {
                    let text = text.take().unwrap_or_else(|| {
                        around += counter.count(IN_THE_SUMMARY);
                        IN_THE_SUMMARY.to_owned()
                    });
                    Part::ToolResult { id: call.clone(), text, is_error: *is_error, media: Vec::new() }
                }
            });
        }
        parts.extend(text.map(|text| Part::Text { text }));
        (parts, around)
    }
}

/// What the further results of a swapped message say.
const IN_THE_SUMMARY: &str = "[in the summary above]";

/// What stands before a checkpoint's summary.
fn checkpoint_mark(last: MessageId) -> String {
    format!("[Summary of the conversation up to message {last}]\n")
}

/// What is sent around a checkpoint's summary.
pub fn checkpoint_tokens_around(last: MessageId, encoding: Encoding) -> Tokens {
    encoding.counter().count(&checkpoint_mark(last)) + SEAM
}

/// What mark and summary count more as one text than each by itself, at most: in `o200k_base` the end of the mark takes
/// slashes with it, so that `/MPL/` behind it is three tokens and alone one. The most among 450,000 beginnings of lines.
const SEAM: Tokens = Tokens::new(2);
