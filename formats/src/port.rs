//! What readers find in files, and what writers are given.

use std::{collections::BTreeMap, fmt};

use anneal_core::message::Message;

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenAI chat messages: a JSON list, an object with `messages`, or lines of either.
    OpenAi,
    /// Anthropic messages: the same shapes, with content blocks and `system` beside `messages`.
    Anthropic,
    /// claw0: lines of `user`, `assistant`, `tool_use` and `tool_result` records.
    Claw0,
    /// pi, OpenClaw and ai-panel: lines of a session, v1 to v3.
    Pi,
    /// ShareGPT: `conversations` of `from` and `value`.
    ShareGpt,
    /// ZeroClaw's SQLite `sessions.db`.
    ZeroClaw,
}

impl Format {
    /// Its name on a command line, in files and in labels' prefixes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Claw0 => "claw0",
            Self::Pi => "pi",
            Self::ShareGpt => "sharegpt",
            Self::ZeroClaw => "zeroclaw",
        }
    }
}

/// A conversation of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// What the file itself calls it, where it stays the same while the file grows (a session's id); empty: it has no name,
    /// and is known by its content.
    pub identity: String,
    /// What to call it in lists; empty: anneal's own choice.
    pub title: String,
    /// The agent that the file names; empty: none.
    pub agent_id: String,
    /// Sent before everything else; empty: none.
    pub system_prompt: String,
    /// Whatever else the file says of it.
    pub metadata: BTreeMap<String, String>,
    /// When it was begun, in microseconds since 1970. Writers are given it where it is known; readers leave it out, for what
    /// a file says of its time is a label.
    pub created_us: Option<i64>,
}

/// A summary that the other system made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many of the conversation's messages, from the first one, it stands for.
    pub covers: u64,
    /// What it says.
    pub text: String,
    /// Who made it, as far as the file says.
    pub model: String,
    /// Tokens of what it replaced, by the other system's count.
    pub tokens_before: Option<u64>,
    /// Tokens of what was left then, by the same count.
    pub tokens_after: Option<u64>,
}

/// One thing in a file. What follows a [`Found::Conversation`] belongs to it, until the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A conversation begins.
    Conversation(Head),
    /// A message of it.
    Message(Message),
    /// A summary of it. Comes after the last message that the other system had when it made it.
    Summary(Summary),
    /// The user's mark: contexts start after it.
    Separator,
    /// What became of something in the file.
    Remark(Remark),
}

/// Where in a file something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nowhere in particular: it is about the whole file, or the whole conversation.
    Whole,
    /// On this line, from 1 on.
    Line(u64),
    /// It is an entry of a list.
    Entry {
        /// The line that it begins on, from 1 on.
        line: u64,
        /// Which one it is, from 1 on.
        entry: u64,
    },
    /// In the row of this id.
    Row(i64),
}

impl Place {
    /// The line, where there are lines.
    pub const fn line(self) -> Option<u64> {
        match self {
            Self::Line(line) | Self::Entry { line, .. } => Some(line),
            Self::Whole | Self::Row(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("the file"),
            Self::Line(line) => write!(f, "line {line}"),
            Self::Entry { line, entry } => write!(f, "line {line} entry {entry}"),
            Self::Row(row) => write!(f, "row {row}"),
        }
    }
}

/// What a remark is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The file: something before, between or behind its conversations, or in all of them.
    File,
    /// The conversation that was found last.
    Conversation,
}

/// What became of something that is not simply kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Where in the file.
    pub place: Place,
    /// What it is about.
    pub scope: Scope,
    /// What became of it.
    pub fate: Fate,
    /// In a sentence; names fields and kinds, never content.
    pub what: String,
}

/// What became of a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Kept, but not as it stood: a lone surrogate, bytes that are no UTF-8.
    Changed,
    /// Kept beside the messages, as metadata, or left out because nothing would read it.
    SetAside,
    /// Not kept: it cannot be read.
    Refused,
}

/// Whoever takes what is found. An error ends the reading.
pub trait Sink {
    /// Takes the next thing.
    fn take(&mut self, found: Found) -> Result<(), Stopped>;
}

impl<F: FnMut(Found) -> Result<(), Stopped>> Sink for F {
    fn take(&mut self, found: Found) -> Result<(), Stopped> {
        self(found)
    }
}

/// Whoever takes what is found wants no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reading was stopped")]
pub struct Stopped;

/// A stored message, as a writer is given it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its id: 1, 2, 3 …
    pub id: i64,
    /// What was said.
    pub message: Message,
    /// When it was stored, in microseconds since 1970.
    pub created_us: i64,
}
