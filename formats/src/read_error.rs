//! Why a file was not read to its end.

use std::io;

use crate::{Format, Location, Stopped};

/// Why a file was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("the file cannot be read")]
    Io(#[from] io::Error),
    /// The SQLite database cannot be read, or its tables are not as expected.
    #[error("the database cannot be read")]
    Database(#[from] rusqlite::Error),
    /// The content has no known format.
    #[error("its content has none of the known formats: {}", Format::ALL.map(Format::name).join(", "))]
    Unknown,
    /// The file has no conversation.
    #[error("it has no conversation")]
    Empty,
    /// An item cannot be read, and the reading is [`Strict`](crate::Strictness::Strict).
    #[error("{location}: {what}")]
    Refused {
        /// Where the item is in the file.
        location: Location,
        /// A sentence that names fields and kinds, never content.
        what: String,
    },
    /// The sink takes no more events.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
