//! `anneal context`: shows what would be sent to the model next, without side effects.
//!
//! - `page`: the outline, and the full texts for `--full`.
//! - `explain`: the manifest in words, for `--explain`.

mod explain;
mod page;

use std::process::ExitCode;

use anneal_proto::{
    convert::message::{self, text_message},
    v1 as pb,
};
use pb::{Role, part::Part};

use crate::{
    client::{Client, failed_call},
    command::{ContextArguments, FormatArgument, PressureArgument},
    conversation_ids, output, terminal_size,
    terminal_style::TerminalStyle,
};
use page::{Page, TextLength};

/// Prints the context of a conversation, in the form that the arguments ask for.
pub(crate) async fn run(arguments: ContextArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let ask = pb::BuildContextRequest {
        conversation_id: conversation_ids::resolve(&client, &arguments.conversation).await?,
        current_input: arguments
            .input
            .map(|text| text_message(Role::User, text))
            .into_iter()
            .collect(),
        budget_tokens: arguments.budget,
        format: arguments
            .format
            .map_or(pb::Format::Unspecified, format)
            .into(),
        pressure: arguments
            .pressure
            .map_or(pb::Pressure::Unspecified, pressure)
            .into(),
        policy: arguments.policy.policy(),
        ..Default::default()
    };
    if arguments.explain {
        let conversation = fetch_conversation(&client, &ask.conversation_id).await?;
        output::print_page(&explain::explanation(
            &conversation,
            &build_context(&client, ask).await?,
            TerminalStyle::of_output(),
        ));
    } else if arguments.format.is_some() {
        output::print_json(
            &build_context(&client, ask)
                .await?
                .rendered
                .unwrap_or_default(),
        );
    } else if arguments.json {
        for message in build_context(&client, ask).await?.messages {
            output::print_json(&json(&message)?);
        }
    } else {
        print_context(
            &client,
            ask,
            if arguments.full {
                TextLength::Full
            } else {
                TextLength::FirstLine
            },
        )
        .await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the outline of a context: a bar per segment, then a line per message.
pub(crate) async fn print_outline(client: &Client, conversation_id: &str) -> anyhow::Result<()> {
    let ask = pb::BuildContextRequest {
        conversation_id: conversation_id.to_owned(),
        ..Default::default()
    };
    print_context(client, ask, TextLength::FirstLine).await
}

async fn print_context(
    client: &Client,
    ask: pb::BuildContextRequest,
    text_length: TextLength,
) -> anyhow::Result<()> {
    let conversation = fetch_conversation(client, &ask.conversation_id).await?;
    let context = build_context(client, ask).await?;
    let page = Page {
        conversation: &conversation,
        context: &context,
        text_length,
        style: TerminalStyle::of_output(),
        columns: terminal_size::table_columns(),
    }
    .text();
    match text_length {
        TextLength::FirstLine => output::print_page(&page),
        TextLength::Full => output::print_unbroken_page(&page),
    }
    Ok(())
}

/// Gets a conversation, without retries.
pub(crate) async fn fetch_conversation(
    client: &Client,
    conversation_id: &str,
) -> anyhow::Result<pb::Conversation> {
    let ask = pb::GetConversationRequest {
        conversation_id: conversation_id.to_owned(),
    };
    Ok(client
        .conversations()
        .get_conversation(ask)
        .await
        .map_err(|status| failed_call(&status))?
        .into_inner())
}

/// Builds the context as a dry run, so that nothing is recorded.
async fn build_context(
    client: &Client,
    ask: pb::BuildContextRequest,
) -> anyhow::Result<pb::BuildContextResponse> {
    let ask = pb::BuildContextRequest {
        dry_run: true,
        ..ask
    };
    Ok(client
        .contexts()
        .build_context(ask)
        .await
        .map_err(|status| failed_call(&status))?
        .into_inner())
}

const fn format(format: FormatArgument) -> pb::Format {
    match format {
        FormatArgument::Openai => pb::Format::OpenaiChat,
        FormatArgument::Anthropic => pb::Format::AnthropicMessages,
        FormatArgument::Gemini => pb::Format::GeminiContents,
    }
}

const fn pressure(pressure: PressureArgument) -> pb::Pressure {
    match pressure {
        PressureArgument::Truncate => pb::Pressure::TruncateToolResults,
        PressureArgument::Compact => pb::Pressure::Compact,
    }
}

/// The name of the role with this number in protobuf; `?` if it is unknown.
fn role(number: i32) -> &'static str {
    message::parse_role("role", number).map_or("?", |role| role.name())
}

/// A message as one line of JSON: role, parts, ids and tokens. Leaves out the media of tool
/// results, and everything of reasoning but its text.
fn json(message: &pb::ContextMessage) -> anyhow::Result<String> {
    let parts = message.parts.iter().filter_map(|part| part.part.as_ref()).map(|part| match part {
        Part::Text(part) => serde_json::json!({"type": "text", "text": part.text}),
        Part::ToolUse(part) => {
            serde_json::json!({"type": "tool_use", "id": part.id, "name": part.name, "input": part.input})
        }
        Part::ToolResult(part) => serde_json::json!({
            "type": "tool_result", "tool_use_id": part.tool_use_id, "text": part.text, "is_error": part.is_error
        }),
        Part::Media(part) => serde_json::json!({"type": "media", "uri": part.uri, "media_type": part.media_type}),
        Part::Reasoning(part) => serde_json::json!({"type": "reasoning", "text": part.text}),
    });
    let line = serde_json::json!({
        "role": role(message.role),
        "parts": parts.collect::<Vec<_>>(),
        "message_ids": message.message_ids,
        "tokens": message.tokens,
    });
    Ok(serde_json::to_string(&line)?)
}
