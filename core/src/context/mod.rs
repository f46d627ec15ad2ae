//! BuildContext, decided: what to send to the model next. Pure; the store brings the material, the server sends the answer.

mod budget;
mod entry;
mod repair;
#[cfg(test)]
mod tests;

use crate::{
    boundary::Boundary,
    cooling,
    message::{Message, MessageId, Part, Role, ToolMark},
    policy::Policy,
    tokens::{Encoding, FRAMING_PER_MESSAGE, Tokens},
    turn,
};
use entry::Entry;
pub use entry::{Swapped, checkpoint_tokens_around};

/// What the store knows of a conversation, read in one snapshot.
#[derive(Debug, Clone)]
pub struct Material {
    /// The newest message.
    pub last_message_id: MessageId,
    /// Its role; None in an empty conversation.
    pub last_role: Option<Role>,
    /// Its turn.
    pub turn: i32,
    /// What the conversation's tokens are counted in.
    pub encoding: Encoding,
    /// The settings in force.
    pub policy: Policy,
    /// The conversation's system prompt; empty for none.
    pub system_prompt: String,
    /// Its tokens.
    pub system_prompt_tokens: Tokens,
    /// The last separator's place, if there is a separator.
    pub separator: Option<MessageId>,
    /// The newest checkpoint that holds.
    pub checkpoint: Option<CheckpointSummary>,
    /// The messages after the boundary, in id order.
    pub tail: Vec<TailMessage>,
}

/// The summary that stands for everything up to the boundary.
#[derive(Debug, Clone)]
pub struct CheckpointSummary {
    /// The last message covered.
    pub last: MessageId,
    /// The summary.
    pub text: String,
    /// Its tokens.
    pub tokens: Tokens,
}

/// One message after the boundary.
#[derive(Debug, Clone)]
pub struct TailMessage {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// Its turn.
    pub turn: i32,
    /// Tokens of the original: counted, or else estimated.
    pub tokens: Tokens,
    /// Whether `tokens` is an estimate.
    pub estimated: bool,
    /// What of it was read.
    pub body: Body,
}

/// What the store read of a message.
#[derive(Debug, Clone)]
pub enum Body {
    /// The original.
    Original(Vec<Part>),
    /// The summary of a cool large message; its original was not read.
    Summary {
        /// The summary.
        text: String,
        /// Its tokens.
        tokens: Tokens,
        /// Bytes of the original's plain text.
        original_bytes: u64,
        /// Its tool calls and results, which must stay in their places.
        outline: Vec<ToolMark>,
    },
}

/// What the caller asks for.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Messages that are not stored yet and end the context.
    pub current_input: Vec<Message>,
    /// Sent instead of the conversation's system prompt.
    pub system_prompt: Option<String>,
    /// The whole context counts at most this.
    pub budget: Option<Tokens>,
}

/// What a part of the context is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Segment {
    /// The system prompt.
    SystemPrompt,
    /// The checkpoint's summary.
    CheckpointSummary,
    /// Stored messages after the boundary.
    Tail,
    /// What the caller gave with the call.
    CurrentInput,
}

/// One message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextMessage {
    /// What it is.
    pub segment: Segment,
    /// Who speaks. A checkpoint's summary is the user's: data, never an instruction.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// The stored messages that it stands for.
    pub message_ids: Vec<MessageId>,
    /// Tokens, framing included.
    pub tokens: Tokens,
}

/// How messages appear in the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// As said.
    Original,
    /// As the summary of the one message.
    Summary,
    /// Within the checkpoint's summary.
    Checkpoint,
    /// Not at all: before the last separator.
    BeforeSeparator,
    /// As said, with its middle left out.
    Clipped,
    /// Not at all, to fit the budget.
    Dropped,
    /// Not at all: a provider would refuse it.
    Repaired,
}

/// Why messages appear as they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Not large.
    Small,
    /// Large, and too young to be swapped.
    Hot,
    /// Large and cool, without a summary yet.
    SummaryPending,
    /// Large, cool and summarised.
    Cool,
    /// Covered by the checkpoint.
    Checkpointed,
    /// A separator stands after it.
    Separated,
    /// The budget asked for it.
    Budget,
    /// A tool result without a call.
    ResultWithoutCall,
    /// Nothing in it can be sent.
    Empty,
}

/// A run of messages with one representation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The first message.
    pub first: MessageId,
    /// The last message.
    pub last: MessageId,
    /// How they appear.
    pub representation: Representation,
    /// Why.
    pub reason: Reason,
    /// Tokens that they take in the context, framing not included.
    pub tokens: Tokens,
    /// Tokens of the originals; zero where nothing was read.
    pub original_tokens: Tokens,
    /// More than the hot zone's radius old; only said of the tail.
    pub cool: bool,
    /// Byte ranges of the plain text that a clip left out.
    pub clipped: Vec<std::ops::Range<usize>>,
}

/// A change that makes the context acceptable to providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// What was done.
    pub kind: RepairKind,
    /// The stored message concerned; None for current input.
    pub message: Option<MessageId>,
    /// The tool call concerned; empty when there is none.
    pub call: String,
}

/// Kinds of repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairKind {
    /// Joined to the message before, which has the same role.
    Merged,
    /// A call got a synthetic result.
    ResultAdded,
    /// A result without a call was left out.
    ResultDropped,
    /// A message with nothing in it was left out.
    EmptyDropped,
    /// A result that came late was moved up to its call.
    ResultMoved,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// In the order to send.
    pub messages: Vec<ContextMessage>,
    /// Every id from 1 to the newest, once, in order.
    pub manifest: Vec<ManifestEntry>,
    /// What was changed for the providers' sake.
    pub repairs: Vec<Repair>,
    /// Tokens of `messages`, framing included; an upper bound where messages were merged.
    pub total: Tokens,
    /// Whether `total` rests on an estimate.
    pub estimated: bool,
    /// The newest message known.
    pub last_message_id: MessageId,
    /// Where the context starts.
    pub boundary: Boundary,
    /// The turn that coolness was measured from.
    pub current_turn: i32,
}

/// The budget cannot hold even what must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a budget of {budget} tokens cannot hold the system prompt ({system_prompt}) and the newest message (at least {newest})"
)]
pub struct BudgetTooSmall {
    /// What was asked for.
    pub budget: Tokens,
    /// What the system prompt takes.
    pub system_prompt: Tokens,
    /// What the newest message takes when cut as far as it goes.
    pub newest: Tokens,
}

/// Builds the context: system prompt, checkpoint summary, tail with cool large messages as their summaries, current input.
pub fn build(material: Material, ask: Ask) -> Result<Context, BudgetTooSmall> {
    let current_turn =
        turn::after(material.turn, material.last_role, ask.current_input.iter().map(|message| message.role));
    let boundary = Boundary::newest(material.separator, material.checkpoint.as_ref().map(|held| held.last));
    let Material { last_message_id, encoding, policy, separator, last_role, turn, .. } = material;
    let mut draft = Draft {
        encoding,
        budget: ask.budget,
        manifest: before_boundary(separator, material.checkpoint.as_ref()),
        repairs: Vec::new(),
        entries: Vec::with_capacity(material.tail.len() + ask.current_input.len() + 2),
    };

    let prompt = ask.system_prompt.map_or((material.system_prompt, material.system_prompt_tokens), |text| {
        let tokens = encoding.counter().count(&text);
        (text, tokens)
    });
    draft.entries.extend(Entry::system_prompt(prompt.0, prompt.1));
    draft.entries.extend(material.checkpoint.as_ref().map(|held| Entry::checkpoint(held, encoding)));
    for message in material.tail {
        let cool = cooling::is_cool(message.turn, current_turn, &policy);
        let (manifest, entry) = Entry::stored(message, cool, &policy, encoding);
        draft.manifest.push(manifest);
        draft.entries.push(entry);
    }
    draft.entries.extend(Entry::input(ask.current_input, turn, last_role, encoding));

    repair::pair_tools(&mut draft);
    budget::fit(&mut draft)?;
    repair::merge(&mut draft);
    Ok(draft.finish(last_message_id, boundary, current_turn))
}

/// Manifest of what stands before the tail: at most two runs, however long the history.
fn before_boundary(separator: Option<MessageId>, checkpoint: Option<&CheckpointSummary>) -> Vec<ManifestEntry> {
    let run = |first: MessageId, last, representation, reason, tokens| {
        (first <= last).then_some(ManifestEntry {
            first,
            last,
            representation,
            reason,
            tokens,
            original_tokens: Tokens::ZERO,
            cool: false,
            clipped: Vec::new(),
        })
    };
    let separated = separator.unwrap_or_default();
    let before = run(MessageId(1), separated, Representation::BeforeSeparator, Reason::Separated, Tokens::ZERO);
    let covered = checkpoint.and_then(|held| {
        run(separated.next(), held.last, Representation::Checkpoint, Reason::Checkpointed, held.tokens)
    });
    before.into_iter().chain(covered).collect()
}

/// A context in the making.
struct Draft {
    encoding: Encoding,
    budget: Option<Tokens>,
    entries: Vec<Entry>,
    manifest: Vec<ManifestEntry>,
    repairs: Vec<Repair>,
}

impl Draft {
    fn total(&self) -> Tokens {
        self.entries.iter().map(Entry::framed).sum()
    }

    /// The manifest's entry of a stored message of the tail.
    fn fate(&mut self, id: MessageId) -> Option<&mut ManifestEntry> {
        let place = self.manifest.binary_search_by(|entry| entry.first.cmp(&id)).ok()?;
        self.manifest.get_mut(place)
    }

    fn finish(self, last_message_id: MessageId, boundary: Boundary, current_turn: i32) -> Context {
        let total = self.total();
        Context {
            estimated: self.entries.iter().any(|entry| entry.estimated),
            messages: self.entries.into_iter().map(ContextMessage::from).collect(),
            manifest: self.manifest,
            repairs: self.repairs,
            total,
            last_message_id,
            boundary,
            current_turn,
        }
    }
}

impl From<Entry> for ContextMessage {
    fn from(entry: Entry) -> Self {
        Self {
            tokens: entry.framed(),
            segment: entry.segment,
            role: entry.role,
            parts: entry.parts,
            message_ids: entry.ids,
        }
    }
}

impl Entry {
    /// Tokens with the provider's framing of every message merged into it.
    fn framed(&self) -> Tokens {
        self.tokens + Tokens::new(FRAMING_PER_MESSAGE.get() * self.framings)
    }
}
