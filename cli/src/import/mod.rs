//! `anneal import`: files of other systems become conversations. A second run of the same file adds nothing, one that was
//! interrupted goes on where it stopped, and a file that has grown adds what is new.
//!
//! A file is read twice: first to find which conversations it holds (and how long they are), then to send them. Neither
//! reading holds more of it than a few messages.

mod hold;
mod keys;
mod origin;
mod reading;
mod report;
mod send;
mod stored;
mod talk;
mod tools;
mod wire;

use std::{path::Path, process::ExitCode};

use anneal_formats::{Branches, Fate, Format, ReadOptions, Strictness};
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use tempfile::NamedTempFile;
use uuid::Uuid;

pub(crate) use hold::{find, is_held};
pub(crate) use report::Report;

use crate::{
    client::{Client, Refusal},
    command::ImportArguments,
    files,
    paint::harmless,
    policy::PolicyArguments,
};
use reading::Source;
use report::{Place, say};

/// How files are imported.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ask {
    /// What kind of files they are; None: by their content.
    pub(crate) format: Option<Format>,
    /// The agent that the conversations belong to; empty: the one that the file names.
    pub(crate) agent: String,
    /// The user that they belong to.
    pub(crate) user: String,
    /// Which branches of a session that has some.
    pub(crate) branches: Branches,
    /// What something that cannot be kept means.
    pub(crate) strict: Strictness,
    /// What files are called that name no session themselves; None: by their own names.
    pub(crate) name: Option<String>,
    /// What the conversations override of the server's settings.
    pub(crate) policy: PolicyArguments,
}

/// Imports files; exit code 1 when something in them was refused.
pub(crate) async fn run(arguments: ImportArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let ask = Ask {
        format: arguments.format.map(files::format),
        agent: arguments.agent,
        user: arguments.user,
        branches: if arguments.all_branches { Branches::All } else { Branches::Active },
        strict: if arguments.strict { Strictness::Strict } else { Strictness::Lenient },
        name: arguments.name,
        policy: arguments.policy,
    };
    let mut report = Report::at(arguments.report.as_deref())?;
    let mut failed = None;
    for path in &arguments.files {
        let Err(error) = file(&client, path, &ask, &mut report).await else { continue };
        if ask.strict == Strictness::Strict || error.is::<Refusal>() {
            failed = Some(error);
            break;
        }
        eprintln!("anneal: {error:#}");
        report.remark("", Place::Unread, Fate::Refused, &format!("{error:#}"));
    }
    say(&report.remarks());
    report.end()?;
    match failed {
        Some(error) => Err(error),
        None if report.refused() => Ok(ExitCode::FAILURE),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Imports one file and returns the ids of its conversations; what became of it goes into the report.
pub(crate) async fn file(client: &Client, path: &Path, ask: &Ask, report: &mut Report) -> anyhow::Result<Vec<Uuid>> {
    let named = path.display().to_string();
    report.begin(&named);
    let sent = send(client, path, ask, report).await;
    sent.with_context(|| format!("cannot import {}", harmless(&named)))
}

async fn send(client: &Client, path: &Path, ask: &Ask, report: &mut Report) -> anyhow::Result<Vec<Uuid>> {
    let spooled = if path == Path::new("-") { Some(spool()?) } else { None };
    let source = source(spooled.as_ref().map_or(path, NamedTempFile::path), path, ask).await?;
    let known = keys::survey(&source, ask).await?;
    let progress = ProgressBar::new(known.messages()).with_style(style());
    progress.set_message(harmless(&path.display().to_string()));
    let ids = Box::pin(send::all(client, &source, ask, known, report, &progress)).await;
    progress.finish_and_clear();
    say(&(report.sum() + "\n"));
    ids
}

/// Standard input as a file, since it is read twice; gone when dropped.
fn spool() -> anyhow::Result<NamedTempFile> {
    let mut file = NamedTempFile::new().context("cannot make a temporary file")?;
    std::io::copy(&mut std::io::stdin().lock(), &mut file).context("cannot read standard input")?;
    Ok(file)
}

/// What to read: `at` is where it lies, `named` what the user called it.
async fn source(at: &Path, named: &Path, ask: &Ask) -> anyhow::Result<Source> {
    let stem = named.file_stem().filter(|_| named != Path::new("-"));
    let stem = stem.map_or_else(|| "import".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let options = ReadOptions { strict: ask.strict, branches: ask.branches, name: ask.name.clone().unwrap_or(stem) };
    let path = at.to_owned();
    let format = match ask.format {
        Some(format) => format,
        None => tokio::task::spawn_blocking(move || anneal_formats::detect(&path)).await??,
    };
    let origin = if named == Path::new("-") || ask.name.is_some() { None } else { origin::of(named) };
    Ok(Source { path: at.to_owned(), format, options, origin })
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} messages {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
