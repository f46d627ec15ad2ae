//! The entries that a context is built from: one for each message, before repairs and budget.

use super::{
    Body, CheckpointSummary, ManifestEntry, Reason, Representation, Segment, SwappedMessage,
    TailMessage,
    swapped_message::{checkpoint_mark, checkpoint_overhead_tokens},
};
use crate::{
    cooling,
    message::{Message, MessageId, PART_JOIN, Part, Role, part_text},
    policy::Policy,
    tokens::{Encoding, Tokens, count_message},
    turn,
};

/// One message of a context during its build.
pub(super) struct Entry {
    pub(super) segment: Segment,
    pub(super) role: Role,
    pub(super) parts: Vec<Part>,
    /// The stored messages that it represents.
    pub(super) ids: Vec<MessageId>,
    /// Its turn; 0 for system prompt, summary and added user messages.
    pub(super) turn: i32,
    /// Tokens of the parts.
    pub(super) tokens: Tokens,
    /// Number of messages whose framing is counted: more than one after messages were merged.
    pub(super) framing_count: u64,
    /// Whether `tokens` is an estimate.
    pub(super) estimated: bool,
    /// Whether the parts are those of the original, so that a clip can name the bytes that it left
    /// out.
    pub(super) original: bool,
    /// One origin for each part. Empty until the parts are first changed.
    pub(super) origins: Vec<Origin>,
    /// Where messages end that others were merged into. A message whose last text was extended does
    /// not end anywhere.
    pub(super) joins: Vec<Extent>,
}

/// How much of an entry, from its beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    pub(super) parts: usize,
    pub(super) ids: usize,
    /// Tokens with framing.
    pub(super) tokens: Tokens,
}

/// The source of a part's text.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin {
    /// The text's byte range in the stored message's plain text; None if it does not come from
    /// there.
    pub(super) byte_range: Option<std::ops::Range<usize>>,
    /// The text before it was clipped; None if it was not clipped.
    pub(super) whole: Option<String>,
    /// Byte ranges of `whole` that a clip left out.
    pub(super) left_out: Vec<std::ops::Range<usize>>,
}

impl Entry {
    pub(super) fn system_prompt(text: String, tokens: Tokens) -> Option<Self> {
        (!text.is_empty()).then(|| Self::derived(Segment::SystemPrompt, Role::System, text, tokens))
    }

    pub(super) fn checkpoint(summary: &CheckpointSummary, encoding: Encoding) -> Self {
        let tokens = checkpoint_overhead_tokens(summary.last, encoding) + summary.tokens;
        Self::derived(
            Segment::CheckpointSummary,
            Role::User,
            checkpoint_mark(summary.last) + &summary.text,
            tokens,
        )
    }

    /// An entry with one text that is no stored message.
    fn derived(segment: Segment, role: Role, text: String, tokens: Tokens) -> Self {
        let parts = vec![Part::Text { text }];
        Self {
            segment,
            role,
            parts,
            ids: Vec::new(),
            turn: 0,
            tokens,
            framing_count: 1,
            estimated: false,
            original: false,
            origins: Vec::new(),
            joins: Vec::new(),
        }
    }

    /// The entry of a message of the tail, and its manifest entry.
    pub(super) fn of_tail_message(
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
                    (true, true) if message.ready_summary.is_some() => Reason::StepPending,
                    (true, true) => Reason::SummaryPending,
                };
                (Representation::Original, reason, parts, original_tokens)
            }
            Body::Summary {
                text,
                tokens,
                original_bytes,
                outline,
            } => {
                let swapped = SwappedMessage {
                    id: message.id,
                    role: message.role,
                    original_bytes,
                    outline,
                };
                let (parts, overhead) = swapped.parts(&text, encoding);
                (
                    Representation::Summary,
                    Reason::Cool,
                    parts,
                    tokens + overhead,
                )
            }
        };
        let manifest_entry = ManifestEntry {
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
            framing_count: 1,
            estimated: message.estimated && original,
            original,
            origins: Vec::new(),
            joins: Vec::new(),
        };
        (manifest_entry, entry)
    }

    /// The entries of the current input, with the turns that they would have if they were stored.
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
                framing_count: 1,
                estimated: false,
                original: true,
                origins: Vec::new(),
                joins: Vec::new(),
            }
        })
    }

    /// All of it.
    pub(super) fn extent(&self) -> Extent {
        Extent {
            parts: self.parts.len(),
            ids: self.ids.len(),
            tokens: self.framed_tokens(),
        }
    }

    /// Whether it is a message of the conversation, as opposed to system prompt and summary.
    pub(super) const fn is_conversation(&self) -> bool {
        matches!(self.segment, Segment::Tail | Segment::CurrentInput)
    }

    /// The newest stored message that it represents; None for what is not stored, such as current
    /// input.
    pub(super) fn message_id(&self) -> Option<MessageId> {
        self.ids.last().copied()
    }

    /// Records the origins of the parts. Call it before the parts are first changed.
    pub(super) fn note_origins(&mut self) {
        if self.origins.len() == self.parts.len() {
            return;
        }
        let mut offset = 0;
        let original = self.original;
        let origin = |part: &Part| {
            let bytes = part_text(part).len();
            let byte_range = original.then_some(offset..offset + bytes);
            if bytes > 0 {
                offset += bytes + PART_JOIN.len();
            }
            Origin {
                byte_range,
                ..Origin::default()
            }
        };
        self.origins = self.parts.iter().map(origin).collect();
    }

    /// Removes the parts that `keep` does not accept, and returns them with their origins.
    pub(super) fn take_parts(
        &mut self,
        mut keep: impl FnMut(&Part) -> bool,
    ) -> Vec<(Part, Origin)> {
        self.note_origins();
        let parts = std::mem::take(&mut self.parts)
            .into_iter()
            .zip(std::mem::take(&mut self.origins));
        let (kept, taken): (Vec<_>, Vec<_>) = parts.partition(|(part, _)| keep(part));
        (self.parts, self.origins) = kept.into_iter().unzip();
        taken
    }
}
