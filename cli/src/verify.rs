//! `anneal verify`: checks stored conversations against the promises, which are listed in
//! docs/operations.md, The auditor.

use std::process::ExitCode;

use anneal_proto::v1 as pb;
use indicatif::ProgressBar;
use tonic::Code;

use crate::{
    client::{Client, failed_call, retry},
    command::VerifyArguments,
    conversation_ids, import, output,
    text_format::pluralize,
};

/// Checks the promises. Exit code 1 if one is broken. Also lists conversations whose triggers an
/// import has paused.
pub(crate) async fn run(arguments: VerifyArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let (conversations, missing) = if arguments.all {
        (list_all(&client).await?, MissingConversation::IsSkipped)
    } else {
        let ids = conversation_ids::resolve_all(&client, &arguments.conversations).await?;
        let conversations = fetch_by_ids(&client, ids).await?;
        (conversations, MissingConversation::IsError)
    };
    if arguments.json {
        return print_json(&client, &conversations, missing).await;
    }
    let outcome = check_conversations(&client, &conversations.ids, missing).await;
    for conversation in conversations.paused_ids {
        output::print_line(format_args!(
            "{conversation}: an import into it did not finish, so it gets no automatic checkpoints yet; import its file again"
        ));
    }
    outcome
}

/// The conversations to check.
#[derive(Default)]
struct ConversationsToCheck {
    ids: Vec<String>,
    /// Those of them whose triggers an import has paused.
    paused_ids: Vec<String>,
}

/// The verdict of a check on a conversation that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingConversation {
    /// Its id was given, so this is an error, unless a deletion has left rows of it.
    IsError,
    /// It was deleted after the check had listed it.
    IsSkipped,
}

/// Checks one conversation. None: it does not exist, and may be skipped.
async fn check_conversation(
    client: &Client,
    conversation: &str,
    missing: MissingConversation,
) -> anyhow::Result<Option<pb::VerifyConversationResponse>> {
    let ask = pb::VerifyConversationRequest {
        conversation_id: conversation.to_owned(),
    };
    match client.operators().verify_conversation(ask).await {
        Ok(verified) => Ok(Some(verified.into_inner())),
        Err(status)
            if missing == MissingConversation::IsSkipped && status.code() == Code::NotFound =>
        {
            Ok(None)
        }
        Err(status) => Err(failed_call(&status)),
    }
}

/// Checks conversations and prints a line of JSON for each: the figures and the violations.
async fn print_json(
    client: &Client,
    conversations: &ConversationsToCheck,
    missing: MissingConversation,
) -> anyhow::Result<ExitCode> {
    let mut has_violation = false;
    for conversation in &conversations.ids {
        let Some(verified) = check_conversation(client, conversation, missing).await? else {
            continue;
        };
        has_violation |= !verified.violations.is_empty();
        let violations: Vec<serde_json::Value> = verified
            .violations
            .iter()
            .map(|violation| {
                serde_json::json!({
                    "promise": violation.promise,
                    "description": violation.description,
                    "message_id": violation.message_id,
                })
            })
            .collect();
        let record = serde_json::json!({
            "conversation_id": conversation,
            "messages_checked": verified.messages_checked,
            "checkpoints_checked": verified.checkpoints_checked,
            "violations": violations,
            "import_unfinished": conversations.paused_ids.contains(conversation),
        });
        output::print_json(&record.to_string());
    }
    Ok(if has_violation {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Checks conversations and prints the violations.
pub(crate) async fn check_conversations(
    client: &Client,
    conversations: &[String],
    missing: MissingConversation,
) -> anyhow::Result<ExitCode> {
    let progress = ProgressBar::new(conversations.len() as u64);
    let (mut checked, mut messages, mut checkpoints, mut violations) = (0, 0_i64, 0_i64, 0);
    for conversation in conversations {
        let Some(verified) = check_conversation(client, conversation, missing).await? else {
            continue;
        };
        checked += 1;
        messages += verified.messages_checked;
        checkpoints += verified.checkpoints_checked;
        violations += verified.violations.len();
        for violation in verified.violations {
            progress.suspend(|| {
                output::print_line(format_args!(
                    "{conversation}: promise {}: {}",
                    violation.promise, violation.description
                ));
            });
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let checked_text = [
        pluralize(checked, "conversation"),
        pluralize(messages as usize, "message"),
        pluralize(checkpoints as usize, "checkpoint"),
    ]
    .join(", ");
    if violations == 0 {
        output::print_line(format_args!(
            "verified {checked_text}: every promise is kept"
        ));
        Ok(ExitCode::SUCCESS)
    } else {
        output::print_line(format_args!(
            "verified {checked_text}: {}",
            pluralize(violations, "violation")
        ));
        Ok(ExitCode::FAILURE)
    }
}

/// The conversations with these ids. Fetches them, to find those with paused triggers. One that
/// does not exist stays among them: its check finds the rows that a deletion has left.
async fn fetch_by_ids(client: &Client, ids: Vec<String>) -> anyhow::Result<ConversationsToCheck> {
    let mut paused_ids = Vec::new();
    for id in &ids {
        let ask = pb::GetConversationRequest {
            conversation_id: id.clone(),
        };
        let found =
            retry(async || client.conversations().get_conversation(ask.clone()).await).await;
        match found {
            Ok(conversation) if import::are_triggers_paused(&conversation) => {
                paused_ids.push(id.clone());
            }
            Ok(_) => {}
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => return Err(failed_call(&status)),
        }
    }
    Ok(ConversationsToCheck { ids, paused_ids })
}

/// All conversations.
async fn list_all(client: &Client) -> anyhow::Result<ConversationsToCheck> {
    let mut all = ConversationsToCheck::default();
    let mut page_token = String::new();
    loop {
        let ask = pb::ListConversationsRequest {
            page_size: 500,
            page_token,
            ..Default::default()
        };
        let page = client
            .conversations()
            .list_conversations(ask)
            .await
            .map_err(|status| failed_call(&status))?
            .into_inner();
        let paused_on_page = page
            .conversations
            .iter()
            .filter(|conversation| import::are_triggers_paused(conversation));
        all.paused_ids
            .extend(paused_on_page.map(|conversation| conversation.conversation_id.clone()));
        all.ids.extend(
            page.conversations
                .into_iter()
                .map(|conversation| conversation.conversation_id),
        );
        if page.next_page_token.is_empty() {
            return Ok(all);
        }
        page_token = page.next_page_token;
    }
}
