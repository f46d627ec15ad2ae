//! Helpers of the tests: they create, read and write files, and select events by kind.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::path::Path;

use anneal_core::message::Message;
use anneal_formats::{
    Branches, FileEvent, Format, Head, Output, ReadError, ReadOptions, Remark, Sink, Stopped,
    StoredMessage, Strictness, read, writer,
};
use tempfile::NamedTempFile;

pub(crate) const FORMATS: [Format; 6] = [
    Format::OpenAi,
    Format::Anthropic,
    Format::Claw0,
    Format::Pi,
    Format::ShareGpt,
    Format::ZeroClaw,
];

/// The default options of the tests.
pub(crate) fn options() -> ReadOptions {
    ReadOptions {
        strict: Strictness::Lenient,
        branches: Branches::Active,
        name: "file".into(),
    }
}

/// A temporary file with this content.
pub(crate) fn file(bytes: impl AsRef<[u8]>) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("writes");
    file
}

/// All events of a file.
pub(crate) fn read_all(path: &Path, format: Format) -> Vec<FileEvent> {
    try_read_all(path, format, &options()).expect("reads")
}

/// All events of a file, or the error.
pub(crate) fn try_read_all(
    path: &Path,
    format: Format,
    options: &ReadOptions,
) -> Result<Vec<FileEvent>, ReadError> {
    let mut all = Vec::new();
    let mut sink = |found: FileEvent| -> Result<(), Stopped> {
        all.push(found);
        Ok(())
    };
    let sink: &mut dyn Sink = &mut sink;
    read(path, format, options, sink)?;
    Ok(all)
}

/// All events of a file with this content.
pub(crate) fn read_text(text: impl AsRef<[u8]>, format: Format) -> Vec<FileEvent> {
    read_all(file(text).path(), format)
}

pub(crate) fn messages(found: &[FileEvent]) -> Vec<Message> {
    let messages = found.iter().filter_map(|one| match one {
        FileEvent::Message(message) => Some(message.clone()),
        _ => None,
    });
    messages.collect()
}

pub(crate) fn remarks(found: &[FileEvent]) -> Vec<Remark> {
    let remarks = found.iter().filter_map(|one| match one {
        FileEvent::Remark(remark) => Some(remark.clone()),
        _ => None,
    });
    remarks.collect()
}

/// The line of the remark's location; 0 if the location has none.
pub(crate) fn line(remark: &Remark) -> u64 {
    remark.location.line().unwrap_or(0)
}

pub(crate) fn heads(found: &[FileEvent]) -> Vec<Head> {
    let heads = found.iter().filter_map(|one| match one {
        FileEvent::Conversation(head) => Some(head.clone()),
        _ => None,
    });
    heads.collect()
}

/// Writes a file with one conversation.
pub(crate) fn write_file(format: Format, head: &Head, events: &[FileEvent]) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    let mut writer = writer(format, Output::File(file.path().to_owned())).expect("begins");
    writer.begin_conversation(head).expect("begins");
    let mut id = 0;
    for event in events {
        match event {
            FileEvent::Message(message) => {
                id += 1;
                // Times in November 2026, 1.5 s apart, that are no whole milliseconds.
                let created_us = 1_795_245_647_355_999 + id * 1_500_000;
                writer
                    .write_message(&StoredMessage {
                        id,
                        message: message.clone(),
                        created_us,
                    })
                    .expect("writes");
            }
            FileEvent::Summary(summary) => writer.write_summary(summary).expect("writes"),
            FileEvent::Separator => writer.write_separator().expect("writes"),
            FileEvent::Conversation(_) | FileEvent::Remark(_) => {}
        }
    }
    writer.finish().expect("ends");
    file
}
