//! Files made and read by tests.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::path::Path;

use anneal_core::message::Message;
use anneal_formats::{
    Branches, Format, Found, Head, Output, ReadError, ReadOptions, Remark, Sink, Stopped, Stored, Strictness, read,
    writer,
};
use tempfile::NamedTempFile;

pub(crate) const FORMATS: [Format; 6] =
    [Format::OpenAi, Format::Anthropic, Format::Claw0, Format::Pi, Format::ShareGpt, Format::ZeroClaw];

/// How files are read unless a test says otherwise.
pub(crate) fn options() -> ReadOptions {
    ReadOptions { strict: Strictness::Lenient, branches: Branches::Active, name: "file".into() }
}

/// A file of these bytes.
pub(crate) fn file(bytes: impl AsRef<[u8]>) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("writes");
    file
}

/// Everything in a file.
pub(crate) fn found(path: &Path, format: Format) -> Vec<Found> {
    try_found(path, format, &options()).expect("reads")
}

/// Everything in a file, or why it was not read.
pub(crate) fn try_found(path: &Path, format: Format, options: &ReadOptions) -> Result<Vec<Found>, ReadError> {
    let mut all = Vec::new();
    let mut sink = |found: Found| -> Result<(), Stopped> {
        all.push(found);
        Ok(())
    };
    let sink: &mut dyn Sink = &mut sink;
    read(path, format, options, sink)?;
    Ok(all)
}

/// Everything in a file of this text.
pub(crate) fn of_text(text: impl AsRef<[u8]>, format: Format) -> Vec<Found> {
    found(file(text).path(), format)
}

/// The messages among what was found.
pub(crate) fn messages(found: &[Found]) -> Vec<Message> {
    let messages = found.iter().filter_map(|one| match one {
        Found::Message(message) => Some(message.clone()),
        _ => None,
    });
    messages.collect()
}

/// The remarks among what was found.
pub(crate) fn remarks(found: &[Found]) -> Vec<Remark> {
    let remarks = found.iter().filter_map(|one| match one {
        Found::Remark(remark) => Some(remark.clone()),
        _ => None,
    });
    remarks.collect()
}

/// The line of a remark; 0 for none.
pub(crate) fn line(remark: &Remark) -> u64 {
    remark.place.line().unwrap_or(0)
}

/// The heads among what was found.
pub(crate) fn heads(found: &[Found]) -> Vec<Head> {
    let heads = found.iter().filter_map(|one| match one {
        Found::Conversation(head) => Some(head.clone()),
        _ => None,
    });
    heads.collect()
}

/// A file of one conversation.
pub(crate) fn written(format: Format, head: &Head, events: &[Found]) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    let mut writer = writer(format, Output::File(file.path().to_owned())).expect("begins");
    writer.begin(head).expect("begins");
    let mut id = 0;
    for event in events {
        match event {
            Found::Message(message) => {
                id += 1;
                let created_us = 1_795_245_647_355_999 + id * 1_500_000;
                writer.message(&Stored { id, message: message.clone(), created_us }).expect("writes");
            }
            Found::Summary(summary) => writer.summary(summary).expect("writes"),
            Found::Separator => writer.separator().expect("writes"),
            Found::Conversation(_) | Found::Remark(_) => {}
        }
    }
    writer.end().expect("ends");
    file
}
