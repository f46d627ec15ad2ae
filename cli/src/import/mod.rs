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

use std::{fs::File, io, path::Path, process::ExitCode};

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
    files, output,
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
        output::note(format_args!("anneal: {error:#}"));
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
    let spooled = spooled(path)?;
    let source = match &spooled {
        Some(copy) => source(copy.path(), None, ask).await?,
        None => source(path, Some(path), ask).await?,
    };
    let known = keys::survey(&source, ask).await?;
    let progress = ProgressBar::new(known.messages()).with_style(style());
    progress.set_message(harmless(&path.display().to_string()));
    let ids = Box::pin(send::all(client, &source, ask, known, report, &progress)).await;
    progress.finish_and_clear();
    say(&(report.sum() + "\n"));
    ids
}

/// What can be read once only, standard input and pipes, as a file, since it is read twice; gone when dropped. None: it is one.
fn spooled(path: &Path) -> anyhow::Result<Option<NamedTempFile>> {
    let mut pipe: Box<dyn io::Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else if path.metadata().is_ok_and(|of| !of.is_file() && !of.is_dir()) {
        Box::new(File::open(path).context("it cannot be opened")?)
    } else {
        return Ok(None);
    };
    let mut copy = NamedTempFile::new().context("cannot make a temporary file")?;
    io::copy(&mut pipe, &mut copy).context("it cannot be read")?;
    Ok(Some(copy))
}

/// What to read: `at` is where it lies, `named` what the user called it if it is a file.
async fn source(at: &Path, named: Option<&Path>, ask: &Ask) -> anyhow::Result<Source> {
    let stem = named.and_then(Path::file_stem);
    let stem = stem.map_or_else(|| "import".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let options = ReadOptions { strict: ask.strict, branches: ask.branches, name: ask.name.clone().unwrap_or(stem) };
    let path = at.to_owned();
    let format = match ask.format {
        Some(format) => format,
        None => tokio::task::spawn_blocking(move || anneal_formats::detect(&path)).await??,
    };
    let origin = named.filter(|_| ask.name.is_none()).and_then(origin::of);
    Ok(Source { path: at.to_owned(), format, options, origin })
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} messages {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
