//! `anneal export`: writes conversations as a file of another format.
//!
//! - `pending_marks`: writes checkpoints and separators between the right messages.
//! - `checkpoints`: the list of checkpoints.
//! - `target_file`: the file; it appears only when it is complete.
//! - `convert`: converts messages and times of the API for the writers of files.

mod checkpoints;
mod convert;
mod pending_marks;
mod target_file;

use std::{
    io::{BufWriter, IsTerminal as _, Write},
    process::ExitCode,
};

use anneal_formats::{Head, Output, Writer, writer};
use anneal_process::shutdown;
use anyhow::Context as _;

use crate::{
    broken_pipe::ExitOnBrokenPipe,
    client::{self, Client, failed_call},
    command::ExportArguments,
    conversation_ids, file_format,
    message_pages::MessagePages,
    output,
    session_index::WrittenSession,
};
use checkpoints::Checkpoints;
use pending_marks::PendingMarks;
use target_file::ExportTarget;

/// Writes the conversations in order. An incomplete file is removed; what was written to standard
/// output, a device or a pipe stays.
pub(crate) async fn run(arguments: ExportArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let arguments = ExportArguments {
        conversations: conversation_ids::resolve_all(&client, &arguments.conversations).await?,
        ..arguments
    };
    let Some(path) = &arguments.output else {
        let stdout = ExitOnBrokenPipe(std::io::stdout());
        let stream: Box<dyn Write + Send> = if std::io::stdout().is_terminal() {
            Box::new(output::Escaping::new(stdout))
        } else {
            Box::new(stdout)
        };
        export_all(
            &client,
            &arguments,
            Output::Stream(Box::new(BufWriter::new(stream))),
        )
        .await?;
        return Ok(ExitCode::SUCCESS);
    };
    let target = ExportTarget::open(path, arguments.force)?;
    let output = target.output()?;
    let ExportTarget::File(staged) = target else {
        export_all(&client, &arguments, output).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let stop = shutdown::cancel_on_signals()?;
    let written = tokio::select! {
        written = export_all(&client, &arguments, output) => written?,
        () = stop.cancelled() => anyhow::bail!("stopped before {} was complete", path.display()),
    };
    staged
        .commit()
        .with_context(|| format!("cannot write {}", path.display()))?;
    if let [session] = written.as_slice() {
        let (session, path) = (session.clone(), path.clone());
        let format = file_format::format(arguments.format);
        tokio::task::spawn_blocking(move || session.put_into_index(&path, format)).await??;
    }
    Ok(ExitCode::SUCCESS)
}

async fn export_all(
    client: &Client,
    arguments: &ExportArguments,
    output: Output,
) -> anyhow::Result<Vec<WrittenSession>> {
    let format = file_format::format(arguments.format);
    let mut writer = writer(format, output).context("cannot export; name a file with --output")?;
    let mut written = Vec::new();
    for id in &arguments.conversations {
        let session = export_conversation(client, id, &mut writer)
            .await
            .with_context(|| format!("cannot export {id}"))?;
        written.push(session);
    }
    writer.finish()?;
    Ok(written)
}

async fn export_conversation(
    client: &Client,
    id: &str,
    writer: &mut Writer,
) -> anyhow::Result<WrittenSession> {
    let conversation = client::get_conversation(client, id).await?;
    let head = Head {
        created_us: conversation
            .created_time
            .map(|created| convert::micros(Some(created))),
        identity: conversation.conversation_id,
        title: conversation.title,
        agent_id: conversation.agent_id,
        system_prompt: conversation.system_prompt,
        metadata: conversation.metadata.into_iter().collect(),
        ..Head::default()
    };
    writer.begin_conversation(&head)?;
    let mut session = WrittenSession {
        title: head.title,
        agent_id: head.agent_id,
        metadata: head.metadata,
        created_us: head.created_us,
        ..WrittenSession::default()
    };
    let mut marks = PendingMarks::new(Checkpoints::list(client, id).await?);
    let mut pages = MessagePages::of(client, id);
    while let Some(page) = pages.next().await.map_err(|status| failed_call(&status))? {
        marks.separators.extend(page.separators);
        for message in page.messages {
            let message = convert::stored_message(message)?;
            marks.write_due(writer, Some(&message)).await?;
            writer.write_message(&message)?;
            session.last_us = Some(message.created_us);
            session.messages += 1;
        }
    }
    marks.write_due(writer, None).await?;
    Ok(session)
}
