//! What a file holds, one thing after the other.

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::Path,
};

use crate::{
    Format, Place, Sink, Stopped, anthropic::Anthropic, claw0, cursor::Cursor, openai::OpenAi, out::Out, pi,
    sharegpt::ShareGpt, talks, zeroclaw,
};

/// How to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// What a line that cannot be read means.
    pub strict: Strictness,
    /// Which branches of a session that has some.
    pub branches: Branches,
    /// What to call conversations that the file gives no name: the file's stem.
    pub name: String,
}

/// What a line that cannot be read means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strictness {
    /// It is remarked on, and the reading goes on.
    #[default]
    Lenient,
    /// The reading ends with an error.
    Strict,
}

/// Which branches of a session are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Branches {
    /// The one that the last entry is on.
    #[default]
    Active,
    /// Each as a conversation of its own; the active one comes last.
    All,
}

/// Why a file was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read at all.
    #[error("the file cannot be read")]
    Io(#[from] io::Error),
    /// It is SQLite, but not as expected.
    #[error("the database cannot be read")]
    Database(#[from] rusqlite::Error),
    /// Its content is of no known format.
    #[error("its content is of no known format")]
    Unknown,
    /// It holds no conversation.
    #[error("it holds no conversation")]
    Empty,
    /// With [`Strictness::Strict`]: something in it cannot be read.
    #[error("{place}: {what}")]
    Refused {
        /// Where.
        place: Place,
        /// In a sentence; names fields and kinds, never content.
        what: String,
    },
    /// Whoever takes what is found wants no more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Gives everything in the file to `sink`, in order. Memory is bounded by the largest message, not by the file. Blocks.
pub fn read(path: &Path, format: Format, options: &ReadOptions, sink: &mut dyn Sink) -> Result<(), ReadError> {
    if format == Format::ZeroClaw {
        return zeroclaw::read(path, options, Out::new(sink, options.strict));
    }
    read_from(File::open(path)?, format, options, sink)
}

/// The same of anything that can be read twice. ZeroClaw's databases have to be files: they are [`ReadError::Unknown`].
pub fn read_from<R: Read + Seek>(
    source: R,
    format: Format,
    options: &ReadOptions,
    sink: &mut dyn Sink,
) -> Result<(), ReadError> {
    let out = Out::new(sink, options.strict);
    let cursor = Cursor::new(source)?;
    match format {
        Format::OpenAi => talks::read(cursor, OpenAi, options, out),
        Format::Anthropic => talks::read(cursor, Anthropic, options, out),
        Format::ShareGpt => talks::read(cursor, ShareGpt::default(), options, out),
        Format::Claw0 => claw0::read(cursor, options, out),
        Format::Pi => pi::read(cursor, options, out),
        Format::ZeroClaw => Err(ReadError::Unknown),
    }
}
