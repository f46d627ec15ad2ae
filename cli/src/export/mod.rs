//! `anneal export`: conversations become a file of another system.

mod checkpoints;
mod marks;
mod place;
mod read;

use std::{
    io::{BufWriter, IsTerminal as _, Write},
    process::ExitCode,
};

use anneal_formats::{Head, Output, Writer, writer};
use anneal_process::shutdown;
use anyhow::Context as _;

use crate::{
    client::{Client, refusal},
    command::ExportArguments,
    files, output,
    pages::Pages,
    unheard::Heard,
};
use checkpoints::Checkpoints;
use marks::Marks;
use place::Target;

/// Writes the conversations, one after the other. Without a whole file nothing is left behind.
pub(crate) async fn run(arguments: ExportArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let Some(path) = &arguments.output else {
        let stdout = Heard(std::io::stdout());
        let stream: Box<dyn Write + Send> =
            if std::io::stdout().is_terminal() { Box::new(output::Escaping::new(stdout)) } else { Box::new(stdout) };
        write(&client, &arguments, Output::Stream(Box::new(BufWriter::new(stream)))).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let target = Target::open(path, arguments.force)?;
    let output = target.output()?;
    let Target::File(whole) = target else {
        write(&client, &arguments, output).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let stop = shutdown::on_signals()?;
    tokio::select! {
        written = write(&client, &arguments, output) => written?,
        () = stop.cancelled() => anyhow::bail!("stopped before {} was whole", path.display()),
    }
    whole.keep().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

async fn write(client: &Client, arguments: &ExportArguments, output: Output) -> anyhow::Result<()> {
    let format = files::format(arguments.format);
    let mut writer = writer(format, output).context("cannot export; name a file with --output")?;
    for id in &arguments.conversations {
        conversation(client, id, &mut writer).await.with_context(|| format!("cannot export {id}"))?;
    }
    writer.end()?;
    Ok(())
}

async fn conversation(client: &Client, id: &str, writer: &mut Writer) -> anyhow::Result<()> {
    let conversation = read::conversation(client, id).await?;
    writer.begin(&Head {
        created_us: conversation.created_time.map(|created| read::micros(Some(created))),
        identity: conversation.conversation_id,
        title: conversation.title,
        agent_id: conversation.agent_id,
        system_prompt: conversation.system_prompt,
        metadata: conversation.metadata.into_iter().collect(),
    })?;
    let mut marks = Marks::new(Checkpoints::of(client, id).await?);
    let mut pages = Pages::of(client, id);
    while let Some(page) = pages.next().await.map_err(|status| refusal(&status))? {
        marks.separators.extend(page.separators);
        for message in page.messages {
            let message = read::stored(message)?;
            marks.write(writer, Some(message.created_us)).await?;
            writer.message(&message)?;
            marks.after = message.id;
        }
    }
    marks.write(writer, None).await
}
