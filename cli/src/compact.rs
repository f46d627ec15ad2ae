//! `anneal compact`: requests a checkpoint.

use std::{process::ExitCode, time::Duration};

use anneal_proto::v1 as pb;
use pb::{CheckpointTrigger, CompactOutcome};

use crate::{
    client::{Client, failed_call},
    command::CompactArguments,
    conversation_ids, output,
    text_format::{pluralize, wrap},
};

/// Requests a checkpoint or, with `--dry-run`, a preview. Exit code 1 if the checkpoint failed
/// permanently.
pub(crate) async fn run(arguments: CompactArguments) -> anyhow::Result<ExitCode> {
    let policy = arguments.policy.policy();
    anyhow::ensure!(
        arguments.dry_run || policy.is_none(),
        "arguments that override the policy need --dry-run: a checkpoint is made with the conversation's own policy"
    );
    let client = Client::connect(&arguments.server).await?;
    let conversation_id = if arguments.dry_run {
        conversation_ids::resolve(&client, &arguments.conversation).await?
    } else {
        conversation_ids::resolve_for_change(&client, &arguments.conversation).await?
    };
    let ask = pb::CompactRequest {
        conversation_id: conversation_id.clone(),
        focus: arguments.focus,
        wait: Some(Duration::from_secs(arguments.wait.into()).try_into()?),
        dry_run: arguments.dry_run,
        policy,
        ..Default::default()
    };
    let answer = client
        .contexts()
        .compact(ask)
        .await
        .map_err(|status| failed_call(&status))?
        .into_inner();
    if arguments.json {
        output::print_json(&dry_run_json(&conversation_id, &answer).to_string());
    } else {
        output::print(&outcome_text(&answer));
    }
    Ok(if answer.outcome() == CompactOutcome::Failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The outcome as text that ends with a line end.
pub(crate) fn outcome_text(answer: &pb::CompactResponse) -> String {
    match answer.outcome() {
        CompactOutcome::Created => answer
            .checkpoint
            .as_ref()
            .map(created_text)
            .unwrap_or_default(),
        CompactOutcome::WouldCreate => answer
            .preview
            .as_ref()
            .map(preview_text)
            .unwrap_or_default(),
        CompactOutcome::Pending => {
            "queued; `anneal jobs` shows the queue, `anneal context` the checkpoint\n".into()
        }
        CompactOutcome::NoProgress => {
            "nothing to summarize: no message can be cut off, or the summary would not be shorter\n"
                .into()
        }
        CompactOutcome::Failed => {
            "failed permanently; `anneal jobs list --state dead` says why\n".into()
        }
        CompactOutcome::Unspecified => "the server's answer is newer than this command\n".into(),
    }
}

/// The answer to a dry run, with the fields of the API. `preview` is null if nothing would be
/// summarized.
fn dry_run_json(conversation_id: &str, answer: &pb::CompactResponse) -> serde_json::Value {
    let outcome = match answer.outcome() {
        CompactOutcome::WouldCreate => "would_create",
        CompactOutcome::NoProgress => "no_progress",
        CompactOutcome::Created
        | CompactOutcome::Pending
        | CompactOutcome::Failed
        | CompactOutcome::Unspecified => "unspecified",
    };
    let preview = answer.preview.as_ref().map(|preview| {
        serde_json::json!({
            "last_message_id": preview.last_message_id,
            "trigger": trigger_name(preview.trigger()),
            "tokens_before": preview.tokens_before,
            "kept_tokens": preview.kept_tokens,
            "summarized_messages": preview.summarized_messages,
            "kept_messages": preview.kept_messages,
            "quoted_message_ids": preview.quoted_message_ids,
        })
    });
    serde_json::json!({
        "conversation_id": conversation_id,
        "outcome": outcome,
        "preview": preview,
    })
}

const fn trigger_name(trigger: CheckpointTrigger) -> &'static str {
    match trigger {
        CheckpointTrigger::Tokens => "tokens",
        CheckpointTrigger::Messages => "messages",
        CheckpointTrigger::Manual => "manual",
        CheckpointTrigger::Imported => "imported",
        CheckpointTrigger::Idle => "idle",
        CheckpointTrigger::Unspecified => "unspecified",
    }
}

fn created_text(checkpoint: &pb::Checkpoint) -> String {
    let by = match checkpoint.kind() {
        pb::SummaryKind::Extractive => "selected by rules",
        _ => checkpoint.model.as_str(),
    };
    format!(
        "a checkpoint at message {}: {} tokens became {}, of which the summary ({by}) has {}\n",
        checkpoint.last_message_id,
        checkpoint.tokens_before,
        checkpoint.tokens_after,
        checkpoint.token_usage
    )
}

/// The preview of a checkpoint that would be made, as a paragraph.
pub(crate) fn preview_text(preview: &pb::CompactPreview) -> String {
    let why = match preview.trigger() {
        CheckpointTrigger::Tokens => ", for the number of tokens",
        CheckpointTrigger::Messages => ", for the number of messages",
        CheckpointTrigger::Imported => ", from another system",
        CheckpointTrigger::Idle => ", because the provider's cache was cold",
        CheckpointTrigger::Manual | CheckpointTrigger::Unspecified => "",
    };
    let quoted = match preview.quoted_message_ids.as_slice() {
        [] => String::new(),
        ids => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            format!(
                " The cut splits a turn: the summary quotes the user messages that start it: {}.",
                ids.join(", ")
            )
        }
    };
    wrap(&format!(
        "a checkpoint at message {}{why}: {} would be summarized, {} with {} tokens would stay, of {} tokens now.{quoted}",
        preview.last_message_id,
        pluralize(preview.summarized_messages as usize, "message"),
        pluralize(preview.kept_messages as usize, "message"),
        preview.kept_tokens,
        preview.tokens_before,
    ))
}
