//! `anneal withdraw`, `anneal rewind` and `anneal restore`: messages that no longer stand, or stand
//! again.

use std::{fmt::Write as _, process::ExitCode};

use anneal_proto::v1 as pb;
use pb::BoundaryKind;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    change_arguments::{ChangeArguments, NamedMessages, RewindArguments},
    client::{Client, failed_call, retry},
    columns::grouped,
    conversation_ids,
    output::{self, OutputFormat},
};

/// Withdraws messages.
pub(crate) async fn withdraw(arguments: ChangeArguments) -> anyhow::Result<ExitCode> {
    let named = NamedMessages::of(&arguments.messages).map_err(anyhow::Error::msg)?;
    let client = Client::connect(&arguments.server).await?;
    let ask = pb::WithdrawMessagesRequest {
        conversation_id: conversation_ids::resolve_for_change(&client, &arguments.conversation)
            .await?,
        request_id: Uuid::new_v4().to_string(),
        message_ids: named.message_ids,
        range: named.range,
        keep_tool_pairs_apart: arguments.keep_tool_pairs_apart,
        ..Default::default()
    };
    let change = retry(async || client.messages().withdraw_messages(ask.clone()).await)
        .await
        .map_err(|status| failed_call(&status))?;
    print_change(
        &change,
        OutputFormat::from_argument(arguments.json),
        ("withdrawn", "the messages are withdrawn already"),
    );
    Ok(ExitCode::SUCCESS)
}

/// Withdraws every message after one.
pub(crate) async fn rewind(arguments: RewindArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let ask = pb::RewindRequest {
        conversation_id: conversation_ids::resolve_for_change(&client, &arguments.conversation)
            .await?,
        request_id: Uuid::new_v4().to_string(),
        after_message_id: arguments.after,
        keep_tool_pairs_apart: arguments.keep_tool_pairs_apart,
        ..Default::default()
    };
    let change = retry(async || client.messages().rewind(ask.clone()).await)
        .await
        .map_err(|status| failed_call(&status))?;
    print_change(
        &change,
        OutputFormat::from_argument(arguments.json),
        ("withdrawn", "no message after this one stands"),
    );
    Ok(ExitCode::SUCCESS)
}

/// Restores withdrawn messages.
pub(crate) async fn restore(arguments: ChangeArguments) -> anyhow::Result<ExitCode> {
    let named = NamedMessages::of(&arguments.messages).map_err(anyhow::Error::msg)?;
    let client = Client::connect(&arguments.server).await?;
    let ask = pb::RestoreMessagesRequest {
        conversation_id: conversation_ids::resolve_for_change(&client, &arguments.conversation)
            .await?,
        request_id: Uuid::new_v4().to_string(),
        message_ids: named.message_ids,
        range: named.range,
        keep_tool_pairs_apart: arguments.keep_tool_pairs_apart,
        ..Default::default()
    };
    let change = retry(async || client.messages().restore_messages(ask.clone()).await)
        .await
        .map_err(|status| failed_call(&status))?;
    print_change(
        &change,
        OutputFormat::from_argument(arguments.json),
        ("restored", "the messages stand already"),
    );
    Ok(ExitCode::SUCCESS)
}

/// Prints the change. The words say what happened to the messages, or why nothing happened.
fn print_change(change: &pb::MessageChange, format: OutputFormat, words: (&str, &str)) {
    match format {
        OutputFormat::Json => output::print_json(&change_json(change).to_string()),
        OutputFormat::Text => output::print_page(&change_text(change, words)),
    }
}

fn change_text(change: &pb::MessageChange, (done, why_nothing): (&str, &str)) -> String {
    let mut text = if change.changed.is_empty() {
        format!("nothing to change: {why_nothing}\n")
    } else {
        format!("{done}: {}\n", messages_text(&change.changed))
    };
    if !change.void_checkpoints.is_empty() {
        let _ = writeln!(
            text,
            "checkpoints of these messages no longer hold: {}",
            ranges_text(&change.void_checkpoints)
        );
    }
    let boundary = change.boundary_message_id;
    let start = match change.boundary_kind() {
        BoundaryKind::Unspecified => "at the first message".to_owned(),
        BoundaryKind::Separator => format!("after message {boundary}, at a separator"),
        BoundaryKind::Checkpoint => format!("after message {boundary}, with a checkpoint"),
    };
    let total = change.token_total.unwrap_or_default();
    let about = if total.estimated_messages > 0 {
        "about "
    } else {
        ""
    };
    let _ = writeln!(
        text,
        "contexts start {start}; the conversation has {about}{} tokens, and {} withdrawn now",
        grouped(total.tokens),
        match change.withdrawn_messages {
            1 => "1 message is".to_owned(),
            number => format!("{} messages are", grouped(number.unsigned_abs())),
        },
    );
    text
}

/// The change as JSON, with the fields of the API.
fn change_json(change: &pb::MessageChange) -> Value {
    let ranges = |ranges: &[pb::IdRange]| -> Vec<Value> {
        let ranges = ranges.iter().map(|range| {
            json!({
                "first_message_id": range.first_message_id,
                "last_message_id": range.last_message_id,
            })
        });
        ranges.collect()
    };
    let boundary_kind = match change.boundary_kind() {
        BoundaryKind::Unspecified => None,
        BoundaryKind::Separator => Some("separator"),
        BoundaryKind::Checkpoint => Some("checkpoint"),
    };
    let total = change.token_total.unwrap_or_default();
    json!({
        "conversation_id": change.conversation_id,
        "change_id": change.change_id,
        "changed": ranges(&change.changed),
        "void_checkpoints": ranges(&change.void_checkpoints),
        "boundary_message_id": change.boundary_message_id,
        "boundary_kind": boundary_kind,
        "tokens": total.tokens,
        "estimated_messages": total.estimated_messages,
        "withdrawn_messages": change.withdrawn_messages,
        "etag": change.etag,
    })
}

/// The messages in words: `message 3`, or `messages 3, 5-9`.
pub(crate) fn messages_text(ranges: &[pb::IdRange]) -> String {
    let noun = match ranges {
        [only] if only.first_message_id == only.last_message_id => "message",
        _ => "messages",
    };
    format!("{noun} {}", ranges_text(ranges))
}

/// The ranges, as they are given to the commands: `3, 5-9`.
fn ranges_text(ranges: &[pb::IdRange]) -> String {
    let ranges = ranges.iter().map(|range| {
        if range.first_message_id == range.last_message_id {
            range.first_message_id.to_string()
        } else {
            format!("{}-{}", range.first_message_id, range.last_message_id)
        }
    });
    ranges.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(first_message_id: i64, last_message_id: i64) -> pb::IdRange {
        pb::IdRange {
            first_message_id,
            last_message_id,
        }
    }

    #[test]
    fn the_text_names_messages_checkpoints_and_the_boundary() {
        let change = pb::MessageChange {
            changed: vec![range(3, 3), range(5, 9)],
            void_checkpoints: vec![range(1, 8)],
            boundary_message_id: 2,
            boundary_kind: BoundaryKind::Separator.into(),
            token_total: Some(pb::TokenTotal {
                tokens: 1_234,
                estimated_messages: 1,
            }),
            withdrawn_messages: 6,
            ..Default::default()
        };
        assert_eq!(
            change_text(&change, ("withdrawn", "")),
            "withdrawn: messages 3, 5-9\n\
             checkpoints of these messages no longer hold: 1-8\n\
             contexts start after message 2, at a separator; the conversation has about 1,234 tokens, and 6 messages are withdrawn now\n"
        );
        assert_eq!(messages_text(&[range(7, 7)]), "message 7");
    }
}
