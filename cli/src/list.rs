//! `anneal list`: lists conversations, the newest activity first, or the forks of one conversation.

use std::{process::ExitCode, time::SystemTime};

use anneal_proto::v1 as pb;

use crate::{
    client::{Client, failed_call, retry},
    command::{ListArguments, StatusArgument},
    conversation_ids,
    conversation_rows::{self, OwnerColumn},
    output, terminal_size,
};

/// Most conversations fetched per call.
const PAGE: u32 = 500;

/// Runs the command.
pub(crate) async fn run(arguments: ListArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let source = match &arguments.forks_of {
        Some(source) => conversation_ids::resolve(&client, source).await?,
        None => String::new(),
    };
    let filter = pb::ListConversationsRequest {
        agent_id: arguments.agent,
        user_id: arguments.user,
        status: status(arguments.status).into(),
        title_prefix: arguments.title,
        forked_from_conversation_id: source,
        ..Default::default()
    };
    let (conversations, has_more) = fetch_newest(&client, filter, arguments.limit).await?;
    if arguments.json {
        for conversation in &conversations {
            output::print_json(&json(conversation).to_string());
        }
    } else if conversations.is_empty() {
        output::print_line("no conversations");
    } else {
        let rows = conversation_rows::rows(
            &conversations,
            None,
            OwnerColumn::IfWide,
            SystemTime::now(),
            terminal_size::table_columns(),
        );
        output::print(&rows);
    }
    if has_more {
        output::print_note(format_args!(
            "anneal: there are older conversations; --limit lists more than {}",
            arguments.limit
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Up to `limit` conversations that pass the filter, and whether there are more.
async fn fetch_newest(
    client: &Client,
    filter: pb::ListConversationsRequest,
    limit: u32,
) -> anyhow::Result<(Vec<pb::Conversation>, bool)> {
    let mut conversations = Vec::new();
    let mut page_token = String::new();
    let mut missing = limit;
    loop {
        let ask = pb::ListConversationsRequest {
            page_size: missing.min(PAGE).cast_signed(),
            page_token,
            ..filter.clone()
        };
        let page = retry(async || client.conversations().list_conversations(ask.clone()).await)
            .await
            .map_err(|status| failed_call(&status))?;
        missing = missing.saturating_sub(page.conversations.len() as u32);
        conversations.extend(page.conversations);
        page_token = page.next_page_token;
        if missing == 0 || page_token.is_empty() {
            return Ok((conversations, !page_token.is_empty()));
        }
    }
}

const fn status(argument: Option<StatusArgument>) -> pb::ConversationStatus {
    match argument {
        None => pb::ConversationStatus::Unspecified,
        Some(StatusArgument::Active) => pb::ConversationStatus::Active,
        Some(StatusArgument::Archived) => pb::ConversationStatus::Archived,
    }
}

/// A conversation as JSON, without its policy.
fn json(conversation: &pb::Conversation) -> serde_json::Value {
    let status = match conversation.status() {
        pb::ConversationStatus::Archived => "archived",
        pb::ConversationStatus::Active | pb::ConversationStatus::Unspecified => "active",
    };
    let total = conversation.token_total.unwrap_or_default();
    let time = |time: Option<prost_types::Timestamp>| time.map(|time| time.to_string());
    serde_json::json!({
        "conversation_id": conversation.conversation_id,
        "agent_id": conversation.agent_id,
        "user_id": conversation.user_id,
        "session_key": conversation.session_key,
        "title": conversation.title,
        "status": status,
        "pinned": conversation.pinned,
        "metadata": conversation.metadata,
        "encoding": conversation.encoding,
        "message_count": conversation.message_count,
        "tokens": total.tokens,
        "estimated_messages": total.estimated_messages,
        "turn": conversation.turn,
        "forked_from_conversation_id": conversation.forked_from_conversation_id,
        "forked_message_id": conversation.forked_message_id,
        "created_time": time(conversation.created_time),
        "last_activity_time": time(conversation.last_activity_time),
    })
}
