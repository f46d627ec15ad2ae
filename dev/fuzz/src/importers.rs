//! Fuzzes the import of files of other systems. Everything that is read from a file can be stored.
//! If it is written to a file again, it is read back unchanged.

use std::{
    io::{Cursor, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anneal_core::message::Message;
use anneal_formats::{
    Branches, FileEvent, Format, Head, ImportOutcome, Output, ReadError, ReadOptions, Remark,
    Stopped, StoredMessage, Strictness, Summary, Writer, read, read_from, writer,
};
use anneal_proto::convert::message;
use arbitrary::Unstructured;
use tempfile::NamedTempFile;

use crate::messages;

const FORMATS: [Format; 6] = [
    Format::OpenAi,
    Format::Anthropic,
    Format::Claw0,
    Format::Pi,
    Format::ShareGpt,
    Format::ZeroClaw,
];

/// Where temporary databases are created: in memory, if the system has such a folder.
const SHARED_MEMORY: &str = "/dev/shm";

/// Maximum number of messages, summaries and separators of a generated conversation, together.
const MAX_EVENTS: usize = 8;

fn options(strict: Strictness, branches: Branches) -> ReadOptions {
    ReadOptions {
        strict,
        branches,
        name: "file".into(),
    }
}

fn lenient() -> ReadOptions {
    options(Strictness::Lenient, Branches::Active)
}

/// Reads these bytes as a file of the format, in memory or on disk, as the format requires.
fn read_events(
    format: Format,
    bytes: &[u8],
    options: &ReadOptions,
) -> Result<Vec<FileEvent>, ReadError> {
    let mut events = Vec::new();
    let mut sink = |event: FileEvent| -> Result<(), Stopped> {
        events.push(event);
        Ok(())
    };
    if format == Format::ZeroClaw {
        let file = scratch_file();
        std::fs::write(file.path(), bytes).expect("a scratch file can be written");
        read(file.path(), format, options, &mut sink)?;
    } else {
        read_from(Cursor::new(bytes), format, options, &mut sink)?;
    }
    Ok(events)
}

fn scratch_file() -> NamedTempFile {
    let folder = Path::new(SHARED_MEMORY);
    let made = if folder.is_dir() {
        NamedTempFile::new_in(folder)
    } else {
        NamedTempFile::new()
    };
    made.expect("a scratch file can be made")
}

/// A buffer that is shared with the writer that fills it.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One conversation: its head and its contents, without remarks.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileConversation {
    head: Head,
    events: Vec<FileEvent>,
}

impl FileConversation {
    fn messages(&self) -> Vec<&Message> {
        self.events
            .iter()
            .filter_map(|event| {
                if let FileEvent::Message(message) = event {
                    Some(message)
                } else {
                    None
                }
            })
            .collect()
    }

    fn separators(&self) -> usize {
        self.events
            .iter()
            .filter(|event| matches!(event, FileEvent::Separator))
            .count()
    }

    /// The summaries that a file of this format keeps: only the newest if the format has room for
    /// one.
    fn summaries(&self, format: Format) -> Vec<(u64, &str)> {
        let all = self.events.iter().filter_map(|event| match event {
            FileEvent::Summary(summary) => Some((summary.covers, summary.text.as_str())),
            _ => None,
        });
        let all: Vec<_> = all.collect();
        if format == Format::ZeroClaw {
            all.into_iter().next_back().into_iter().collect()
        } else {
            all
        }
    }

    fn write(&self, writer: &mut Writer) -> Result<(), anneal_formats::WriteError> {
        writer.begin_conversation(&self.head)?;
        let mut id = 0;
        for event in &self.events {
            match event {
                FileEvent::Message(message) => {
                    id += 1;
                    // Any times with microseconds, 1.5 s apart.
                    let created_us = 1_795_245_647_355_999 + id * 1_500_000;
                    writer.write_message(&StoredMessage {
                        id,
                        message: message.clone(),
                        created_us,
                    })?;
                }
                FileEvent::Summary(summary) => writer.write_summary(summary)?,
                FileEvent::Separator => writer.write_separator()?,
                FileEvent::Conversation(_) | FileEvent::Remark(_) => {}
            }
        }
        Ok(())
    }

    /// Writes the conversation to a file.
    fn to_file(&self, format: Format) -> Vec<u8> {
        let (buffer, file) = (SharedBuffer::default(), scratch_file());
        let output = match format {
            Format::ZeroClaw => Output::File(file.path().to_owned()),
            _ => Output::Stream(Box::new(buffer.clone())),
        };
        let mut writer = writer(format, output).expect("a scratch file can be written");
        self.write(&mut writer)
            .expect("a conversation of this size can be written");
        writer.finish().expect("a scratch file can be written");
        match format {
            Format::ZeroClaw => std::fs::read(file.path()).expect("it was just written"),
            _ => std::mem::take(&mut *buffer.0.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// Splits the events of a file into its conversations and the remarks.
fn split_conversations(events: Vec<FileEvent>) -> (Vec<FileConversation>, Vec<Remark>) {
    let (mut conversations, mut remarks) = (Vec::<FileConversation>::new(), Vec::new());
    for event in events {
        match (event, conversations.last_mut()) {
            (FileEvent::Remark(remark), _) => remarks.push(remark),
            (FileEvent::Conversation(head), _) => conversations.push(FileConversation {
                head,
                events: Vec::new(),
            }),
            (event, Some(conversation)) => conversation.events.push(event),
            (event, None) => panic!("the file begins with {event:?}, not with a conversation"),
        }
    }
    (conversations, remarks)
}

/// Writes a conversation and checks that it is read back unchanged, with one remark for each
/// summary that the format replaces by a newer one.
fn assert_round_trip(conversation: &FileConversation, format: Format) {
    let file = conversation.to_file(format);
    let file_text = || String::from_utf8_lossy(&file).into_owned();
    let (conversations, remarks) = split_conversations(
        read_events(format, &file, &lenient()).expect("a written file can be read"),
    );
    let [read_back] = conversations.as_slice() else {
        panic!(
            "{format:?}: {} conversations are read from {}",
            conversations.len(),
            file_text()
        )
    };
    assert_eq!(
        read_back.messages(),
        conversation.messages(),
        "{format:?}: {}",
        file_text()
    );
    assert_eq!(
        read_back.summaries(format),
        conversation.summaries(format),
        "{format:?}: {}",
        file_text()
    );
    assert_eq!(
        read_back.separators(),
        conversation.separators(),
        "{format:?}: {}",
        file_text()
    );
    // A conversation without a title is named after its file if it is the only one in it.
    let title = if conversation.head.title.is_empty() {
        read_back.head.title.clone()
    } else {
        conversation.head.title.clone()
    };
    assert_eq!(
        read_back.head,
        Head {
            title,
            ..conversation.head.clone()
        },
        "{format:?}: {}",
        file_text()
    );
    // OpenAI's format keeps all summaries, so the first length is the number of all.
    let replaced =
        conversation.summaries(Format::OpenAi).len() - conversation.summaries(format).len();
    assert_eq!(
        remarks.len(),
        replaced,
        "{format:?}: {remarks:?} of {}",
        file_text()
    );
}

/// Reads bytes as a file of this format, strictly and leniently. Checks that the two readings
/// agree, that every message can be stored, and that every conversation survives a round trip.
fn check_foreign_file(format: Format, bytes: &[u8]) {
    let _ = read_events(format, bytes, &options(Strictness::Lenient, Branches::All));
    let strictly = read_events(
        format,
        bytes,
        &options(Strictness::Strict, Branches::Active),
    );
    let Ok(leniently) = read_events(format, bytes, &lenient()) else {
        assert!(
            strictly.is_err(),
            "strict reading accepts a file that lenient reading refuses"
        );
        return;
    };
    let (conversations, remarks) = split_conversations(leniently.clone());
    let has_refused = remarks
        .iter()
        .any(|remark| remark.outcome == ImportOutcome::Refused);
    match strictly {
        Ok(strictly) => assert!(
            strictly == leniently && !has_refused,
            "strict reading accepts the file, but lenient reading finds something else"
        ),
        Err(ReadError::Refused { location, .. }) => {
            let is_same = |remark: &Remark| {
                remark.outcome == ImportOutcome::Refused && remark.location == location
            };
            assert!(
                remarks.iter().any(is_same),
                "strict reading refuses {location}, but lenient reading does not: {remarks:?}"
            );
        }
        Err(error) => panic!("strict reading fails where lenient reading succeeds: {error}"),
    }
    assert!(
        !conversations.is_empty(),
        "a file without a conversation is accepted"
    );
    for conversation in &conversations {
        for message in conversation.messages() {
            let parsed = message::parse("message", message.clone().into());
            assert_eq!(
                parsed.as_ref(),
                Ok(message),
                "the server refuses a message that was read"
            );
        }
        assert_round_trip(conversation, format);
    }
}

/// Generates a conversation with messages that the server accepts. Checks that it is read back
/// unchanged after it was written in one of the formats.
fn check_generated_conversation(from: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let format = *from.choose(&FORMATS)?;
    let mut head = Head {
        identity: "known".into(),
        title: "title".into(),
        agent_id: "agent".into(),
        ..Head::default()
    };
    head.system_prompt = messages::text(from)?.replace('\0', "");
    let mut events = Vec::new();
    let (mut message_count, mut covered_by_newest_summary) = (0, 0);
    for _ in 0..from.int_in_range(0..=MAX_EVENTS)? {
        match from.int_in_range(0..=9)? {
            0 => events.push(FileEvent::Separator),
            1 if message_count > covered_by_newest_summary => {
                covered_by_newest_summary = message_count;
                events.push(FileEvent::Summary(Summary {
                    covers: message_count,
                    text: format!("summary up to {message_count}"),
                    ..Summary::default()
                }));
            }
            _ => {
                if let Some(message) = messages::message(from)? {
                    message_count += 1;
                    events.push(FileEvent::Message(message));
                }
            }
        }
    }
    assert_round_trip(&FileConversation { head, events }, format);
    Ok(())
}

/// The first byte selects what the rest is: a file of one of the six formats, or the data from
/// which a conversation is generated and written.
pub fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    // Of every eight values of the byte, six select a format and two a generated conversation.
    if let Some(format) = FORMATS.get(usize::from(*first) % (FORMATS.len() + 2)) {
        check_foreign_file(*format, rest);
    } else {
        // If there are too few bytes, there is nothing to check.
        let _ = check_generated_conversation(&mut Unstructured::new(rest));
    }
}
