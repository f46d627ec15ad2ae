//! `anneal import`: files of chat messages become conversations. A second run of the same file adds nothing, and one that
//! was interrupted goes on where it stopped: every call carries a request id made from the content.

mod openai;
mod send;

use std::{io::Read as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::{client::Client, command::ImportArguments, policy::PolicyArguments, words::counted};

/// Imports files; exit code 1 when a line was refused.
pub(crate) async fn run(arguments: ImportArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    for file in &arguments.files {
        self::file(&client, file, &arguments.agent, &arguments.user, &arguments.policy).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Imports one file and returns the ids of its conversations.
pub(crate) async fn file(
    client: &Client,
    path: &Path,
    agent: &str,
    user: &str,
    policy: &PolicyArguments,
) -> anyhow::Result<Vec<String>> {
    let name = path.file_stem().map_or_else(|| "import".into(), |stem| stem.to_string_lossy().into_owned());
    let text = read(path)?;
    let talks = openai::parse(&text, &name).with_context(|| format!("cannot import {}", path.display()))?;
    let messages: usize = talks.iter().map(|talk| talk.messages.len()).sum();
    let progress = MultiProgress::new().add(ProgressBar::new(messages as u64).with_style(style()));
    progress.set_message(name);
    let mut ids = Vec::new();
    let (mut stored, mut known) = (0, 0);
    for talk in talks {
        let sent = send::talk(client, talk, agent, user, policy, &progress).await?;
        stored += sent.stored;
        known += sent.known;
        progress.suspend(|| {
            println!("{}  {} ({})", sent.conversation, sent.title, counted(sent.stored + sent.known, "message"));
        });
        ids.push(sent.conversation);
    }
    progress.finish_and_clear();
    println!(
        "{}: {}, {} stored, {known} there already",
        path.display(),
        counted(ids.len(), "conversation"),
        counted(stored, "message")
    );
    Ok(ids)
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    let text = String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned))
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} messages {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
