//! Remarks: what a reader could not keep unchanged, and where in the file it is.

use std::fmt;

/// A location in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// The whole file, or the whole conversation.
    WholeFile,
    /// A line, from 1.
    Line(u64),
    /// An entry of a list.
    Entry {
        /// The line that the entry begins on, from 1.
        line: u64,
        /// The number of the entry in its list, from 1.
        entry: u64,
    },
    /// A row of a database, by its id.
    Row(i64),
}

impl Location {
    /// The line; None for a row and for the whole file.
    pub const fn line(self) -> Option<u64> {
        match self {
            Self::Line(line) | Self::Entry { line, .. } => Some(line),
            Self::WholeFile | Self::Row(_) => None,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WholeFile => f.write_str("the file"),
            Self::Line(line) => write!(f, "line {line}"),
            Self::Entry { line, entry } => write!(f, "line {line} entry {entry}"),
            Self::Row(row) => write!(f, "row {row}"),
        }
    }
}

/// The part of a file that a remark is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The file: an item before, between or after its conversations, or in all of them.
    File,
    /// The conversation that began last.
    Conversation,
}

/// An item of a file that was not kept unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Where the item is in the file.
    pub location: Location,
    /// Whether the remark is about the file or about a conversation.
    pub scope: Scope,
    /// How much of the item was kept.
    pub outcome: ImportOutcome,
    /// A sentence that names fields and kinds, never content.
    pub what: String,
}

/// How much of an item of a file was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImportOutcome {
    /// Kept with a change: for example without a lone surrogate, or without bytes that are not
    /// UTF-8.
    Changed,
    /// Kept as metadata, or left out because anneal has no place or no use for it.
    SetAside,
    /// Not kept: it cannot be read.
    Refused,
}
