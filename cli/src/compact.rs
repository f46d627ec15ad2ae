//! `anneal compact`: a checkpoint by hand.

use std::{process::ExitCode, time::Duration};

use anneal_proto::v1 as pb;
use pb::{CheckpointTrigger, CompactOutcome};

use crate::{
    client::{Client, refusal},
    command::CompactArguments,
    output,
    words::{counted, wrapped},
};

/// Asks for a checkpoint, or for what one would cut; exit code 1 when it failed for good.
pub(crate) async fn run(arguments: CompactArguments) -> anyhow::Result<ExitCode> {
    let policy = arguments.policy.policy();
    anyhow::ensure!(
        arguments.dry_run || policy.is_none(),
        "settings of this call alone need --dry-run; a checkpoint is made under the conversation's own"
    );
    let client = Client::connect(&arguments.server).await?;
    let ask = pb::CompactRequest {
        conversation_id: arguments.conversation,
        focus: arguments.focus,
        wait: Some(Duration::from_secs(arguments.wait.into()).try_into()?),
        dry_run: arguments.dry_run,
        policy,
        ..Default::default()
    };
    let answer = client.contexts().compact(ask).await.map_err(|status| refusal(&status))?.into_inner();
    output::text(&said(&answer));
    Ok(if answer.outcome() == CompactOutcome::Failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What became of it, in a line.
pub(crate) fn said(answer: &pb::CompactResponse) -> String {
    match answer.outcome() {
        CompactOutcome::Created => answer.checkpoint.as_ref().map(created).unwrap_or_default(),
        CompactOutcome::WouldCreate => answer.preview.as_ref().map(previewed).unwrap_or_default(),
        CompactOutcome::Pending => "queued; `anneal jobs` shows the queue, `anneal context` the checkpoint\n".into(),
        CompactOutcome::NoProgress => "nothing to summarise: what may be cut off is too little, or nothing\n".into(),
        CompactOutcome::Failed => "failed for good; `anneal jobs list --state dead` says why\n".into(),
        CompactOutcome::Unspecified => "the server's answer is newer than this command\n".into(),
    }
}

fn created(checkpoint: &pb::Checkpoint) -> String {
    let by = match checkpoint.kind() {
        pb::SummaryKind::Extractive => "picked by rules",
        _ => checkpoint.model.as_str(),
    };
    format!(
        "a checkpoint at message {}: {} tokens became a summary of {} ({by}), {} tokens stay as they were said\n",
        checkpoint.last_message_id, checkpoint.tokens_before, checkpoint.token_usage, checkpoint.tokens_after
    )
}

/// A checkpoint that would be made, in words.
pub(crate) fn previewed(preview: &pb::CompactPreview) -> String {
    let why = match preview.trigger() {
        CheckpointTrigger::Tokens => ", for the number of tokens",
        CheckpointTrigger::Messages => ", for the number of messages",
        CheckpointTrigger::Imported => ", from another system",
        CheckpointTrigger::Manual | CheckpointTrigger::Unspecified => "",
    };
    let quoted = match preview.quoted_message_ids.as_slice() {
        [] => String::new(),
        ids => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            format!(" A turn is cut in two: the summary quotes what opens it, message {}.", ids.join(", "))
        }
    };
    wrapped(&format!(
        "a checkpoint at message {}{why}: {} would be summarised, {} with {} tokens would stay, of {} tokens now.{quoted}",
        preview.last_message_id,
        counted(preview.summarized_messages as usize, "message"),
        counted(preview.kept_messages as usize, "message"),
        preview.kept_tokens,
        preview.tokens_before,
    ))
}
