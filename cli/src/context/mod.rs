//! `anneal context`: what would be sent to the model next. Looking leaves no trace.

mod explain;
mod page;

use std::{collections::HashMap, process::ExitCode};

use anneal_proto::v1 as pb;
use pb::{Role, part::Part};

use crate::{
    client::{Client, refusal},
    command::{ContextArguments, FormatArgument, PressureArgument},
    output,
    paint::Paint,
};
use page::{Page, Texts};

/// Shows the context of a conversation.
pub(crate) async fn run(arguments: ContextArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let ask = pb::BuildContextRequest {
        conversation_id: arguments.conversation,
        current_input: arguments.input.map(said_by_user).into_iter().collect(),
        budget_tokens: arguments.budget,
        format: arguments.format.map_or(pb::Format::Unspecified, format).into(),
        pressure: arguments.pressure.map_or(pb::Pressure::Unspecified, pressure).into(),
        policy: arguments.policy.policy(),
        ..Default::default()
    };
    if arguments.explain {
        let about = about(&client, &ask.conversation_id).await?;
        output::page(&explain::explained(&about, &build(&client, ask).await?, Paint::of_output()));
    } else if arguments.format.is_some() {
        output::json(&build(&client, ask).await?.rendered.unwrap_or_default());
    } else if arguments.json {
        for message in build(&client, ask).await?.messages {
            output::json(&json(&message)?);
        }
    } else {
        show(&client, ask, if arguments.full { Texts::Whole } else { Texts::FirstLines }).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the context in short: segments with bars, then a line for every message.
pub(crate) async fn outline(client: &Client, conversation_id: &str) -> anyhow::Result<()> {
    let ask = pb::BuildContextRequest { conversation_id: conversation_id.to_owned(), ..Default::default() };
    show(client, ask, Texts::FirstLines).await
}

async fn show(client: &Client, ask: pb::BuildContextRequest, texts: Texts) -> anyhow::Result<()> {
    let about = about(client, &ask.conversation_id).await?;
    let context = build(client, ask).await?;
    output::page(&Page { about: &about, context: &context, texts, paint: Paint::of_output() }.text());
    Ok(())
}

/// The conversation's row.
pub(crate) async fn about(client: &Client, conversation_id: &str) -> anyhow::Result<pb::Conversation> {
    let ask = pb::GetConversationRequest { conversation_id: conversation_id.to_owned() };
    Ok(client.conversations().get_conversation(ask).await.map_err(|status| refusal(&status))?.into_inner())
}

/// Builds the context without leaving a trace: looking must not move what cools.
async fn build(client: &Client, ask: pb::BuildContextRequest) -> anyhow::Result<pb::BuildContextResponse> {
    let ask = pb::BuildContextRequest { dry_run: true, ..ask };
    Ok(client.contexts().build_context(ask).await.map_err(|status| refusal(&status))?.into_inner())
}

fn said_by_user(text: String) -> pb::NewMessage {
    pb::NewMessage {
        role: Role::User.into(),
        parts: vec![pb::Part { part: Some(Part::Text(pb::TextPart { text })) }],
        metadata: HashMap::new(),
    }
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

const fn role(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::System => "system",
        Role::Unspecified => "?",
    }
}

/// One message as a JSON line: role, parts and ids.
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
        "role": role(message.role()),
        "parts": parts.collect::<Vec<_>>(),
        "message_ids": message.message_ids,
        "tokens": message.tokens,
    });
    Ok(serde_json::to_string(&line)?)
}
