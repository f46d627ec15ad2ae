//! Files of other systems: whatever is in one, what is read of it can be stored, and comes back as it is from a file that is
//! written of it.

use std::{
    io::{Cursor, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anneal_core::message::Message;
use anneal_formats::{
    Branches, Fate, Format, Found, Head, Output, ReadError, ReadOptions, Remark, Stopped, Stored, Strictness, Summary,
    Writer, read, read_from, writer,
};
use arbitrary::Unstructured;
use tempfile::NamedTempFile;

use crate::said;

const FORMATS: [Format; 6] =
    [Format::OpenAi, Format::Anthropic, Format::Claw0, Format::Pi, Format::ShareGpt, Format::ZeroClaw];

/// Where databases are made: in memory, where the system has such a folder.
const SHARED_MEMORY: &str = "/dev/shm";

/// Messages of a conversation that is written.
const MESSAGES: usize = 8;

fn options(strict: Strictness, branches: Branches) -> ReadOptions {
    ReadOptions { strict, branches, name: "file".into() }
}

fn lenient() -> ReadOptions {
    options(Strictness::Lenient, Branches::Active)
}

/// A file of these bytes, in memory or on disk, whichever the format is read from.
fn found(format: Format, bytes: &[u8], options: &ReadOptions) -> Result<Vec<Found>, ReadError> {
    let mut all = Vec::new();
    let mut sink = |found: Found| -> Result<(), Stopped> {
        all.push(found);
        Ok(())
    };
    if format == Format::ZeroClaw {
        let file = scratch();
        std::fs::write(file.path(), bytes).expect("a scratch file can be written");
        read(file.path(), format, options, &mut sink)?;
    } else {
        read_from(Cursor::new(bytes), format, options, &mut sink)?;
    }
    Ok(all)
}

fn scratch() -> NamedTempFile {
    let folder = Path::new(SHARED_MEMORY);
    let made = if folder.is_dir() { NamedTempFile::new_in(folder) } else { NamedTempFile::new() };
    made.expect("a scratch file can be made")
}

/// What is written, by whoever writes it.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One conversation: how it begins, and what is in it, remarks left out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Talk {
    head: Head,
    events: Vec<Found>,
}

impl Talk {
    fn messages(&self) -> Vec<&Message> {
        self.events
            .iter()
            .filter_map(|event| if let Found::Message(message) = event { Some(message) } else { None })
            .collect()
    }

    fn separators(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Found::Separator)).count()
    }

    /// The summaries that a file of this format keeps: the newest alone where it has room for one.
    fn summaries(&self, format: Format) -> Vec<(u64, &str)> {
        let all = self.events.iter().filter_map(|event| match event {
            Found::Summary(summary) => Some((summary.covers, summary.text.as_str())),
            _ => None,
        });
        let all: Vec<_> = all.collect();
        if format == Format::ZeroClaw { all.into_iter().next_back().into_iter().collect() } else { all }
    }

    fn write(&self, writer: &mut Writer) -> Result<(), anneal_formats::WriteError> {
        writer.begin(&self.head)?;
        let mut id = 0;
        for event in &self.events {
            match event {
                Found::Message(message) => {
                    id += 1;
                    let created_us = 1_795_245_647_355_999 + id * 1_500_000;
                    writer.message(&Stored { id, message: message.clone(), created_us })?;
                }
                Found::Summary(summary) => writer.summary(summary)?,
                Found::Separator => writer.separator()?,
                Found::Conversation(_) | Found::Remark(_) => {}
            }
        }
        Ok(())
    }

    /// A file of it.
    fn written(&self, format: Format) -> Vec<u8> {
        let (page, file) = (Page::default(), scratch());
        let output = match format {
            Format::ZeroClaw => Output::File(file.path().to_owned()),
            _ => Output::Stream(Box::new(page.clone())),
        };
        let mut writer = writer(format, output).expect("a scratch file can be written");
        self.write(&mut writer).expect("one conversation is never too many");
        writer.end().expect("a scratch file can be written");
        match format {
            Format::ZeroClaw => std::fs::read(file.path()).expect("it was just written"),
            _ => std::mem::take(&mut *page.0.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// The conversations of a file, and what was remarked.
fn talks(found: Vec<Found>) -> (Vec<Talk>, Vec<Remark>) {
    let (mut talks, mut remarks) = (Vec::<Talk>::new(), Vec::new());
    for one in found {
        match (one, talks.last_mut()) {
            (Found::Remark(remark), _) => remarks.push(remark),
            (Found::Conversation(head), _) => talks.push(Talk { head, events: Vec::new() }),
            (event, Some(talk)) => talk.events.push(event),
            (event, None) => panic!("before any conversation: {event:?}"),
        }
    }
    (talks, remarks)
}

/// What is written of a conversation is read as it was, and nothing is remarked but summaries that give way to a newer one.
fn comes_back(talk: &Talk, format: Format) {
    let file = talk.written(format);
    let shown = || String::from_utf8_lossy(&file).into_owned();
    let (again, remarks) = talks(found(format, &file, &lenient()).expect("what was written is read"));
    let [read] = again.as_slice() else { panic!("{format:?}: {} conversations are read of {}", again.len(), shown()) };
    assert_eq!(read.messages(), talk.messages(), "{format:?}: {}", shown());
    assert_eq!(read.summaries(format), talk.summaries(format), "{format:?}: {}", shown());
    assert_eq!(read.separators(), talk.separators(), "{format:?}: {}", shown());
    // A conversation without a name is called as its file is, where it is alone in it.
    let title = if talk.head.title.is_empty() { read.head.title.clone() } else { talk.head.title.clone() };
    assert_eq!(read.head, Head { title, ..talk.head.clone() }, "{format:?}: {}", shown());
    let replaced = talk.summaries(Format::OpenAi).len() - talk.summaries(format).len();
    assert_eq!(remarks.len(), replaced, "{format:?}: {remarks:?} of {}", shown());
}

/// Bytes as a file of this format.
fn foreign(format: Format, bytes: &[u8]) {
    let _ = found(format, bytes, &options(Strictness::Lenient, Branches::All));
    let strictly = found(format, bytes, &options(Strictness::Strict, Branches::Active));
    let Ok(leniently) = found(format, bytes, &lenient()) else {
        assert!(strictly.is_err(), "what is read strictly is not read leniently");
        return;
    };
    let (talks, remarks) = talks(leniently.clone());
    let refused = remarks.iter().any(|remark| remark.fate == Fate::Refused);
    match strictly {
        Ok(strictly) => assert!(strictly == leniently && !refused, "strictly read, there is something else"),
        Err(ReadError::Refused { place, .. }) => {
            let same = |remark: &Remark| remark.fate == Fate::Refused && remark.place == place;
            assert!(remarks.iter().any(same), "{place} is refused strictly, and not in {remarks:?}");
        }
        Err(error) => panic!("strictly: {error}"),
    }
    assert!(!talks.is_empty(), "a file without a conversation is read");
    for talk in &talks {
        for message in talk.messages() {
            let stored = anneal_server::acceptable(said::again(message));
            assert_eq!(stored.as_ref(), Ok(message), "what is read is not stored");
        }
        comes_back(talk, format);
    }
}

/// What the door lets in, in a file of every format.
fn own(from: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let format = *from.choose(&FORMATS)?;
    let mut head =
        Head { identity: "known".into(), title: "title".into(), agent_id: "agent".into(), ..Head::default() };
    head.system_prompt = said::text(from)?.replace('\0', "");
    let mut events = Vec::new();
    let (mut covers, mut covered) = (0, 0);
    for _ in 0..from.int_in_range(0..=MESSAGES)? {
        match from.int_in_range(0..=9)? {
            0 => events.push(Found::Separator),
            1 if covers > covered => {
                covered = covers;
                events.push(Found::Summary(Summary { covers, text: format!("of {covers}"), ..Summary::default() }));
            }
            _ => {
                if let Some(message) = said::message(from)? {
                    covers += 1;
                    events.push(Found::Message(message));
                }
            }
        }
    }
    comes_back(&Talk { head, events }, format);
    Ok(())
}

/// The first byte says what the rest is: a file of one of the six formats, or what a conversation is made of that is written.
pub fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    if let Some(format) = FORMATS.get(usize::from(*first) % (FORMATS.len() + 2)) {
        foreign(*format, rest);
    } else {
        // Too few bytes for a case are no case.
        let _ = own(&mut Unstructured::new(rest));
    }
}
