//! Conversations written as files of other systems.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use crate::{
    Format, Head, Stored, Summary, anthropic::Anthropic, claw0, openai::OpenAi, pi, sharegpt::ShareGpt, talks::Lists,
    zeroclaw,
};

/// Where a file goes.
pub enum Output {
    /// Line by line into this. Every format but ZeroClaw's.
    Stream(Box<dyn Write + Send>),
    /// A file by its path, made anew. Every format.
    File(PathBuf),
}

/// Why a file was not written to its end.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output cannot be written.
    #[error("the file cannot be written")]
    Io(#[from] io::Error),
    /// The database cannot be written.
    #[error("the database cannot be written")]
    Database(#[from] rusqlite::Error),
    /// A database is no stream.
    #[error("{0:?} is a database and needs a file's path")]
    NeedsFile(Format),
    /// The format's files hold one conversation each.
    #[error("a file of {0:?} holds one conversation")]
    OneOnly(Format),
}

/// A file of one format, while it is written.
pub(crate) trait Sheet {
    /// Begins a conversation; ends the one before it.
    fn begin(&mut self, head: &Head) -> Result<(), WriteError>;
    /// Its next message.
    fn message(&mut self, stored: &Stored) -> Result<(), WriteError>;
    /// A summary of it.
    fn summary(&mut self, summary: &Summary) -> Result<(), WriteError>;
    /// The user's mark.
    fn separator(&mut self) -> Result<(), WriteError>;
    /// Ends the file.
    fn end(&mut self) -> Result<(), WriteError>;
}

/// Writes conversations: each [`Writer::begin`], then its messages, summaries and separators in order; [`Writer::end`]
/// after the last one.
pub struct Writer(Box<dyn Sheet + Send>);

/// A writer of the format.
pub fn writer(format: Format, output: Output) -> Result<Writer, WriteError> {
    let stream = match (format, output) {
        (Format::ZeroClaw, Output::Stream(_)) => return Err(WriteError::NeedsFile(format)),
        (Format::ZeroClaw, Output::File(path)) => return Ok(Writer(Box::new(zeroclaw::Database::create(&path)?))),
        (_, Output::Stream(stream)) => stream,
        (_, Output::File(path)) => Box::new(BufWriter::new(File::create(path)?)),
    };
    Ok(Writer(match format {
        Format::Anthropic => Box::new(Lists::new(Anthropic, stream)),
        Format::Claw0 => Box::new(claw0::Records::new(stream)),
        Format::Pi => Box::new(pi::Session::new(stream)),
        Format::ShareGpt => Box::new(Lists::new(ShareGpt::default(), stream)),
        Format::OpenAi | Format::ZeroClaw => Box::new(Lists::new(OpenAi, stream)),
    }))
}

impl Writer {
    /// Begins a conversation; ends the one before it.
    pub fn begin(&mut self, head: &Head) -> Result<(), WriteError> {
        self.0.begin(head)
    }

    /// Its next message.
    pub fn message(&mut self, stored: &Stored) -> Result<(), WriteError> {
        self.0.message(stored)
    }

    /// A summary of it, after the last message that it could know.
    pub fn summary(&mut self, summary: &Summary) -> Result<(), WriteError> {
        self.0.summary(summary)
    }

    /// The user's mark.
    pub fn separator(&mut self) -> Result<(), WriteError> {
        self.0.separator()
    }

    /// Ends the file.
    pub fn end(mut self) -> Result<(), WriteError> {
        self.0.end()
    }
}
