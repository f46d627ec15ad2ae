//! What became of the files: counts of each, and the remarks.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anneal_formats::Fate;
use anyhow::Context as _;
use serde_json::json;

use crate::{paint::harmless, words::counted};

/// Remarks that are printed; the rest is in the report's file.
const SHOWN: usize = 20;

/// Where in a file something stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// Where its reader says.
    File(anneal_formats::Place),
    /// A message of a conversation, from 1 on.
    Message(u64),
    /// The file cannot be read at all.
    Unread,
}

/// What became of one file.
#[derive(Default)]
struct Counts {
    conversations: usize,
    stored: usize,
    known: usize,
    tools: usize,
    fates: BTreeMap<Fate, usize>,
}

/// What became of all files.
#[derive(Default)]
pub(crate) struct Report {
    files: Vec<(String, Counts)>,
    /// The first remarks, a line each.
    shown: Vec<String>,
    /// Remarks that there are beyond those.
    more: usize,
    file: Option<Written>,
}

/// The file that every remark is written to as it comes.
struct Written {
    path: PathBuf,
    file: BufWriter<File>,
    /// Why it is not whole.
    failed: Option<std::io::Error>,
}

impl Report {
    /// A report that is written to this file too.
    pub(super) fn at(path: Option<&Path>) -> anyhow::Result<Self> {
        let open = |path: &Path| {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            anyhow::Ok(Written { path: path.to_owned(), file: BufWriter::new(file), failed: None })
        };
        Ok(Self { file: path.map(open).transpose()?, ..Self::default() })
    }

    /// What follows is about this file.
    pub(super) fn begin(&mut self, file: &str) {
        self.files.push((file.to_owned(), Counts::default()));
    }

    fn counts(&mut self) -> Option<&mut Counts> {
        self.files.last_mut().map(|(_, counts)| counts)
    }

    /// A conversation has come to its end: messages stored, there already, and not kept because it keeps no tools.
    pub(super) fn conversation(&mut self, stored: usize, known: usize, tools: usize) {
        let Some(counts) = self.counts() else { return };
        counts.conversations += 1;
        counts.stored += stored;
        counts.known += known;
        counts.tools += tools;
    }

    /// Something is not simply kept.
    pub(super) fn remark(&mut self, conversation: &str, place: Place, fate: Fate, what: &str) {
        let Some((file, counts)) = self.files.last_mut() else { return };
        *counts.fates.entry(fate).or_default() += 1;
        if let Some(written) = &mut self.file {
            written.write(&line(file, conversation, place, fate, what));
        }
        let place = match place {
            Place::File(anneal_formats::Place::Whole) => String::new(),
            Place::File(place) => format!(" {place}"),
            Place::Message(number) => format!(" message {number}"),
            // The error has been printed.
            Place::Unread => return,
        };
        if self.shown.len() < SHOWN {
            self.shown.push(harmless(&format!("  {file}{place} {}: {what}", name(fate))));
        } else {
            self.more += 1;
        }
    }

    /// Whether anything was refused.
    pub(super) fn refused(&self) -> bool {
        self.files.iter().any(|(_, counts)| counts.fates.contains_key(&Fate::Refused))
    }

    /// A line about the newest file.
    pub(super) fn sum(&self) -> String {
        let Some((file, counts)) = self.files.last() else { return String::new() };
        let mut line = format!(
            "{}: {}, {} stored, {} there already",
            harmless(file),
            counted(counts.conversations, "conversation"),
            counted(counts.stored, "message"),
            counts.known
        );
        if counts.tools > 0 {
            let _ = write!(line, ", {} of tools not kept", counts.tools);
        }
        for (fate, number) in &counts.fates {
            let _ = write!(line, ", {number} {}", name(*fate));
        }
        line
    }

    /// The first remarks, a line each.
    pub(crate) fn remarks(&self) -> String {
        let mut lines = self.shown.iter().fold(String::new(), |lines, line| lines + line + "\n");
        if self.more > 0 {
            let _ = writeln!(lines, "  … and {} more", self.more);
        }
        lines
    }

    /// Nothing more comes: makes sure that the report's file is whole.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        let Some(mut written) = self.file.take() else { return Ok(()) };
        let ended = written.failed.map_or_else(|| written.file.flush(), Err);
        ended.with_context(|| format!("cannot write {}", written.path.display()))
    }
}

impl Written {
    fn write(&mut self, line: &str) {
        if self.failed.is_none() {
            self.failed = writeln!(self.file, "{line}").err();
        }
    }
}

/// A remark as a line of JSON.
fn line(file: &str, conversation: &str, place: Place, fate: Fate, what: &str) -> String {
    let mut line = json!({"file": file, "conversation": conversation, "fate": name(fate), "what": what});
    match place {
        Place::File(anneal_formats::Place::Whole) | Place::Unread => {}
        Place::File(anneal_formats::Place::Line(number)) => line["line"] = number.into(),
        Place::File(anneal_formats::Place::Entry { line: number, entry }) => {
            line["line"] = number.into();
            line["entry"] = entry.into();
        }
        Place::File(anneal_formats::Place::Row(row)) => line["row"] = row.into(),
        Place::Message(number) => line["message"] = number.into(),
    }
    line.to_string()
}

/// Prints it. Whoever reads it may have read enough: the import goes on.
pub(super) fn say(text: &str) {
    let _ = std::io::stdout().write_all(harmless(text).as_bytes());
}

const fn name(fate: Fate) -> &'static str {
    match fate {
        Fate::Changed => "changed",
        Fate::SetAside => "set aside",
        Fate::Refused => "refused",
    }
}
