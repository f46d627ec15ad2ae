//! Writes files: chooses the writer of each format.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
};

use crate::{
    Format, Head, StoredMessage, Summary, WriteError, anthropic::Anthropic, claw0,
    format_writer::FormatWriter, message_list::MessageListWriter, openai::OpenAi, pi,
    sharegpt::ShareGpt, zeroclaw,
};

/// Where a file is written.
pub enum Output {
    /// A stream, written line by line. For every format except ZeroClaw.
    Stream(Box<dyn Write + Send>),
    /// A new file at this path. For every format.
    File(PathBuf),
}

/// Writes conversations. For each one, call [`Writer::begin_conversation`], then write its
/// messages, summaries and separators in order. Call [`Writer::finish`] after the last one.
pub struct Writer(Box<dyn FormatWriter + Send>);

/// Creates a writer of the format. An error if the output does not suit the format or cannot be
/// created.
pub fn writer(format: Format, output: Output) -> Result<Writer, WriteError> {
    let stream = match (format, output) {
        (Format::ZeroClaw, Output::Stream(_)) => return Err(WriteError::NeedsFile(format)),
        (Format::ZeroClaw, Output::File(path)) => {
            return Ok(Writer(Box::new(zeroclaw::ZeroClawWriter::create(&path)?)));
        }
        (_, Output::Stream(stream)) => stream,
        (_, Output::File(path)) => Box::new(BufWriter::new(File::create(path)?)),
    };
    Ok(Writer(match format {
        Format::Anthropic => Box::new(MessageListWriter::new(Anthropic, stream)),
        Format::Claw0 => Box::new(claw0::Claw0Writer::new(stream)),
        Format::Pi => Box::new(pi::PiWriter::new(stream)),
        Format::ShareGpt => Box::new(MessageListWriter::new(ShareGpt::default(), stream)),
        // ZeroClaw has returned above.
        Format::OpenAi | Format::ZeroClaw => Box::new(MessageListWriter::new(OpenAi, stream)),
    }))
}

impl Writer {
    /// Begins a conversation and ends the one before it.
    pub fn begin_conversation(&mut self, head: &Head) -> Result<(), WriteError> {
        self.0.begin_conversation(head)
    }

    /// Writes the next message of the conversation.
    pub fn write_message(&mut self, stored: &StoredMessage) -> Result<(), WriteError> {
        self.0.write_message(stored)
    }

    /// Writes a summary. It follows the last message that existed when it was made.
    pub fn write_summary(&mut self, summary: &Summary) -> Result<(), WriteError> {
        self.0.write_summary(summary)
    }

    /// Writes a separator, which the user put at this position.
    pub fn write_separator(&mut self) -> Result<(), WriteError> {
        self.0.write_separator()
    }

    /// Ends the file and flushes it.
    pub fn finish(mut self) -> Result<(), WriteError> {
        self.0.finish()
    }
}
