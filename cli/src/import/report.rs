//! The report of an import: counts per file, and remarks.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anneal_formats::ImportOutcome;
use anyhow::Context as _;
use serde_json::json;

use crate::{sanitize::sanitize, text_format::pluralize};

/// Most remarks that are printed. The report file has all of them.
const MAX_PRINTED_REMARKS: usize = 20;

/// The location of a remark.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReportLocation {
    /// The location that the reader gave.
    File(anneal_formats::Location),
    /// A message of the conversation, from 1.
    Message(u64),
    /// The file as a whole: its import failed.
    FailedFile,
}

/// The counts of one file.
#[derive(Default)]
struct Counts {
    conversations: usize,
    /// Messages stored by this run.
    stored: usize,
    /// Messages stored by earlier runs.
    already_stored: usize,
    /// Messages that were not stored, or were found stored without their tool parts, because the
    /// conversation stores no tool messages.
    tools_dropped: usize,
    /// Number of remarks by what happened to the item.
    outcomes: BTreeMap<ImportOutcome, usize>,
}

/// The report of all files.
#[derive(Default)]
pub(crate) struct Report {
    files: Vec<(String, Counts)>,
    /// The first [`MAX_PRINTED_REMARKS`] remarks, one line each.
    first_remarks: Vec<String>,
    /// Number of further remarks, which are not printed.
    further_remarks: usize,
    /// The file that `--report` names: a line of JSON for every remark.
    json_file: Option<ReportFile>,
}

/// The file to which every remark is written.
struct ReportFile {
    path: PathBuf,
    file: BufWriter<File>,
    /// The first write error.
    write_error: Option<std::io::Error>,
}

impl Report {
    /// A report that is also written to this file, if there is one.
    pub(super) fn at(path: Option<&Path>) -> anyhow::Result<Self> {
        let open = |path: &Path| {
            let file =
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            anyhow::Ok(ReportFile {
                path: path.to_owned(),
                file: BufWriter::new(file),
                write_error: None,
            })
        };
        Ok(Self {
            json_file: path.map(open).transpose()?,
            ..Self::default()
        })
    }

    /// Starts the counts of a file.
    pub(super) fn begin_file(&mut self, file: &str) {
        self.files.push((file.to_owned(), Counts::default()));
    }

    fn counts(&mut self) -> Option<&mut Counts> {
        self.files.last_mut().map(|(_, counts)| counts)
    }

    /// Counts a complete conversation: messages stored, messages stored before, and tool messages
    /// that were dropped.
    pub(super) fn count_conversation(
        &mut self,
        stored: usize,
        already_stored: usize,
        tools_dropped: usize,
    ) {
        let Some(counts) = self.counts() else { return };
        counts.conversations += 1;
        counts.stored += stored;
        counts.already_stored += already_stored;
        counts.tools_dropped += tools_dropped;
    }

    /// Adds a remark about an item that was changed, set aside or refused.
    pub(super) fn remark(
        &mut self,
        conversation: &str,
        location: ReportLocation,
        outcome: ImportOutcome,
        what: &str,
    ) {
        let Some((file, counts)) = self.files.last_mut() else {
            return;
        };
        *counts.outcomes.entry(outcome).or_default() += 1;
        if let Some(report_file) = &mut self.json_file {
            report_file.write(&json_line(file, conversation, location, outcome, what));
        }
        let location = match location {
            ReportLocation::File(anneal_formats::Location::WholeFile) => String::new(),
            ReportLocation::File(location) => format!(" {location}"),
            ReportLocation::Message(number) => format!(" message {number}"),
            // The error was printed already.
            ReportLocation::FailedFile => return,
        };
        if self.first_remarks.len() < MAX_PRINTED_REMARKS {
            self.first_remarks.push(sanitize(&format!(
                "  {file}{location} {}: {what}",
                outcome_name(outcome)
            )));
        } else {
            self.further_remarks += 1;
        }
    }

    /// Whether an item was refused.
    pub(super) fn has_refusals(&self) -> bool {
        self.files
            .iter()
            .any(|(_, counts)| counts.outcomes.contains_key(&ImportOutcome::Refused))
    }

    /// The counts of the last file, on one line.
    pub(super) fn summary_line(&self) -> String {
        let Some((file, counts)) = self.files.last() else {
            return String::new();
        };
        let mut line = format!(
            "{}: {}, {} stored, {} there already",
            sanitize(file),
            pluralize(counts.conversations, "conversation"),
            pluralize(counts.stored, "message"),
            counts.already_stored
        );
        if counts.tools_dropped > 0 {
            let _ = write!(line, ", {} tool messages not kept", counts.tools_dropped);
        }
        for (outcome, number) in &counts.outcomes {
            let _ = write!(line, ", {number} {}", outcome_name(*outcome));
        }
        line
    }

    /// The first remarks, one line each, and the number of the others.
    pub(crate) fn remarks(&self) -> String {
        let mut lines = self
            .first_remarks
            .iter()
            .fold(String::new(), |lines, line| lines + line + "\n");
        if self.further_remarks > 0 {
            let _ = writeln!(lines, "  … and {} more", self.further_remarks);
        }
        lines
    }

    /// Flushes the report file. Returns its first write error.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        let Some(mut report_file) = self.json_file.take() else {
            return Ok(());
        };
        let ended = report_file
            .write_error
            .map_or_else(|| report_file.file.flush(), Err);
        ended.with_context(|| format!("cannot write {}", report_file.path.display()))
    }
}

impl ReportFile {
    fn write(&mut self, line: &str) {
        if self.write_error.is_none() {
            self.write_error = writeln!(self.file, "{line}").err();
        }
    }
}

/// A remark as a line of JSON. The field `fate` holds the outcome.
fn json_line(
    file: &str,
    conversation: &str,
    location: ReportLocation,
    outcome: ImportOutcome,
    what: &str,
) -> String {
    let mut line = json!({"file": file, "conversation": conversation, "fate": outcome_name(outcome), "what": what});
    match location {
        ReportLocation::File(anneal_formats::Location::WholeFile) | ReportLocation::FailedFile => {}
        ReportLocation::File(anneal_formats::Location::Line(number)) => {
            line["line"] = number.into();
        }
        ReportLocation::File(anneal_formats::Location::Entry {
            line: number,
            entry,
        }) => {
            line["line"] = number.into();
            line["entry"] = entry.into();
        }
        ReportLocation::File(anneal_formats::Location::Row(row)) => line["row"] = row.into(),
        ReportLocation::Message(number) => line["message"] = number.into(),
    }
    line.to_string()
}

/// Prints a text, sanitized. Ignores write errors, so that the import goes on after the reader of
/// its output has closed it.
pub(super) fn print_best_effort(text: &str) {
    let _ = std::io::stdout().write_all(sanitize(text).as_bytes());
}

const fn outcome_name(outcome: ImportOutcome) -> &'static str {
    match outcome {
        ImportOutcome::Changed => "changed",
        ImportOutcome::SetAside => "set aside",
        ImportOutcome::Refused => "refused",
    }
}
