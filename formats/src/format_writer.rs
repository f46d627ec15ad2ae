//! The interface of the writers of all formats, and why writing fails.

use std::io;

use crate::{Format, Head, StoredMessage, Summary};

/// Why a file was not written to its end.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output cannot be written.
    #[error("the file cannot be written")]
    Io(#[from] io::Error),
    /// The SQLite database cannot be written.
    #[error("the database cannot be written")]
    Database(#[from] rusqlite::Error),
    /// The format is a database, which cannot be written to a stream.
    #[error("{0:?} is a database, and is written to a file path, not to a stream")]
    NeedsFile(Format),
    /// A file of this format holds one conversation, and a second one was begun.
    #[error("a file of the format {0:?} has only one conversation")]
    OneOnly(Format),
}

/// The writer of one format. The methods are those of [`Writer`](crate::Writer).
pub(crate) trait FormatWriter {
    fn begin_conversation(&mut self, head: &Head) -> Result<(), WriteError>;
    fn write_message(&mut self, stored: &StoredMessage) -> Result<(), WriteError>;
    fn write_summary(&mut self, summary: &Summary) -> Result<(), WriteError>;
    fn write_separator(&mut self) -> Result<(), WriteError>;
    fn finish(&mut self) -> Result<(), WriteError>;
}
