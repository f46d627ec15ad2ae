//! `anneal import`: imports files of other systems. A second run of the same file adds nothing. A
//! run after an interrupted one continues it. A file that has grown adds its new messages.
//!
//! A file is read twice: `survey` lists its conversations with their lengths, then `send` imports
//! them. Each pass has only a few messages in memory.
//!
//! - `file_reader`: reads a file on a blocking thread, in small batches.
//! - `conversation`: imports one conversation; decides which of its messages are new.
//! - `stored_messages`, `tool_retention`: the comparison with the messages that are stored.
//! - `stored_ids`: which message of the file is which stored message.
//! - `branches`: makes a branch of a session as a fork of the conversation that it leaves.
//! - `append`: the calls that append messages.
//! - `pause_triggers`: keeps the worker from making checkpoints while summaries are imported;
//!   updates conversations.
//! - `digest_prefix`: the keys of conversations, and digests in request ids and labels.
//! - `source_label`: the label that says from which file a conversation came.
//! - `report`: the counts and remarks of a run.

mod append;
mod branches;
mod conversation;
mod digest_prefix;
mod file_reader;
mod pause_triggers;
mod report;
mod send;
mod source_label;
mod stored_ids;
mod stored_messages;
mod survey;
mod tool_retention;

use std::{fs::File, io, path::Path, process::ExitCode};

use anneal_formats::{Branches, Format, ImportOutcome, Location, ReadOptions, Strictness};
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use tempfile::NamedTempFile;
use uuid::Uuid;

pub(crate) use pause_triggers::are_triggers_paused;
pub(crate) use report::Report;

use crate::{
    client::{Client, FailedCall},
    command::ImportArguments,
    file_format, output,
    policy::PolicyArguments,
    sanitize::sanitize,
    session_index::{IndexEntry, LastIndex},
};
use file_reader::Source;
use report::{ReportLocation, print_best_effort};

/// The options of an import.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImportOptions {
    /// The format; None: detected by content.
    pub(crate) format: Option<Format>,
    /// The agent of the conversations; empty: the agent that the file names.
    pub(crate) agent: String,
    /// The user of the conversations.
    pub(crate) user: String,
    /// The branches of branching sessions.
    pub(crate) branches: Branches,
    /// Whether an item that is refused ends the import.
    pub(crate) strict: Strictness,
    /// The name of a session that has none in the file; None: the file's name.
    pub(crate) name: Option<String>,
    /// Overrides of the server's session settings.
    pub(crate) policy: PolicyArguments,
}

/// Imports files. Exit code 1 if an item or a whole file was refused, or if the run ended early.
pub(crate) async fn run(arguments: ImportArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let options = ImportOptions {
        format: arguments.format.map(file_format::format),
        agent: arguments.agent,
        user: arguments.user,
        branches: if arguments.all_branches {
            Branches::All
        } else {
            Branches::Active
        },
        strict: if arguments.strict {
            Strictness::Strict
        } else {
            Strictness::Lenient
        },
        name: arguments.name,
        policy: arguments.policy,
    };
    let mut report = Report::at(arguments.report.as_deref())?;
    let mut run_error = None;
    let index = LastIndex::default();
    for path in &arguments.files {
        let imported = import_file(&client, path, (&options, &index), &mut report);
        let Err(error) = imported.await else {
            continue;
        };
        // A failed call ends the run: it may fail for the next file as well. Any other error
        // concerns this file only: the whole file counts as refused, and the run goes on.
        if options.strict == Strictness::Strict || error.is::<FailedCall>() {
            run_error = Some(error);
            break;
        }
        output::print_note(format_args!("anneal: {error:#}"));
        report.remark(
            "",
            ReportLocation::FailedFile,
            ImportOutcome::Refused,
            &format!("{error:#}"),
        );
    }
    print_best_effort(&report.remarks());
    report.finish()?;
    match run_error {
        Some(error) => Err(error),
        None if report.has_refusals() => Ok(ExitCode::FAILURE),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Imports one file and returns the ids of its conversations. The results go into the report.
/// `index`: the index that the file before it had.
pub(crate) async fn import_file(
    client: &Client,
    path: &Path,
    (options, index): (&ImportOptions, &LastIndex),
    report: &mut Report,
) -> anyhow::Result<Vec<Uuid>> {
    let name = path.display().to_string();
    report.begin_file(&name);
    let sent = survey_and_send(client, path, (options, index), report).await;
    sent.with_context(|| format!("cannot import {}", sanitize(&name)))
}

async fn survey_and_send(
    client: &Client,
    path: &Path,
    (options, index): (&ImportOptions, &LastIndex),
    report: &mut Report,
) -> anyhow::Result<Vec<Uuid>> {
    let spooled = spool(path)?;
    let mut source = match &spooled {
        Some(copy) => detect_source(copy.path(), None, options).await?,
        None => detect_source(path, Some(path), options).await?,
    };
    if spooled.is_none() && options.name.is_none() {
        source.index = find_in_index(&source, index, report).await?;
    }
    let survey = survey::survey_file(&source, options).await?;
    let progress = ProgressBar::new(survey.messages()).with_style(progress_style());
    progress.set_message(sanitize(&path.display().to_string()));
    let ids = Box::pin(send::send_all(
        client, &source, options, survey, report, &progress,
    ))
    .await;
    progress.finish_and_clear();
    print_best_effort(&(report.summary_line() + "\n"));
    ids
}

/// Copies standard input or a pipe into a temporary file, because a file is read twice. The copy is
/// deleted when it is dropped. None: the path is a file or a folder, and needs no copy.
fn spool(path: &Path) -> anyhow::Result<Option<NamedTempFile>> {
    let mut pipe: Box<dyn io::Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else if path
        .metadata()
        .is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
    {
        Box::new(File::open(path).context("it cannot be opened")?)
    } else {
        return Ok(None);
    };
    let mut copy = NamedTempFile::new().context("cannot make a temporary file")?;
    io::copy(&mut pipe, &mut copy).context("it cannot be read")?;
    Ok(Some(copy))
}

/// The source at this path without its entry in an index, with its format detected if the user gave
/// none. `given_path` is the path that the user gave; None for standard input and pipes.
async fn detect_source(
    path: &Path,
    given_path: Option<&Path>,
    options: &ImportOptions,
) -> anyhow::Result<Source> {
    let stem = given_path.and_then(Path::file_stem);
    let stem = stem.map_or_else(
        || "import".to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    );
    let read_options = ReadOptions {
        strict: options.strict,
        branches: options.branches,
        name: options.name.clone().unwrap_or(stem),
    };
    let format = if let Some(format) = options.format {
        format
    } else {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || anneal_formats::detect(&path)).await??
    };
    let origin = given_path
        .filter(|_| options.name.is_none())
        .and_then(source_label::label_of);
    Ok(Source {
        path: path.to_owned(),
        format,
        read_options,
        origin,
        index: None,
    })
}

/// The entry of a file in the index beside it. An index that cannot be read is remarked.
async fn find_in_index(
    source: &Source,
    last: &LastIndex,
    report: &mut Report,
) -> anyhow::Result<Option<IndexEntry>> {
    let (path, format, last) = (source.path.clone(), source.format, last.clone());
    let found = tokio::task::spawn_blocking(move || IndexEntry::find(&path, format, &last));
    Ok(found.await?.unwrap_or_else(|error| {
        report.remark(
            "",
            ReportLocation::File(Location::WholeFile),
            ImportOutcome::SetAside,
            &format!("{error:#}"),
        );
        None
    }))
}

fn progress_style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} messages {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
