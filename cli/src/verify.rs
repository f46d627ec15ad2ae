//! `anneal verify`: checks stored conversations against the promises, which are listed in
//! docs/operations.md, The auditor.

use std::process::ExitCode;

use anneal_proto::v1 as pb;
use indicatif::ProgressBar;
use tonic::Code;

use crate::{
    client::{Client, failed_call, get_conversation},
    command::VerifyArguments,
    import, output,
    text_format::pluralize,
};

/// Checks the promises. Exit code 1 if one is broken. Also lists conversations whose triggers an
/// import has paused.
pub(crate) async fn run(arguments: VerifyArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let (conversations, paused) = if arguments.all {
        list_all(&client).await?
    } else {
        let paused = paused_among(&client, &arguments.conversations).await?;
        (arguments.conversations, paused)
    };
    let outcome = check_conversations(&client, &conversations, arguments.all).await;
    for conversation in paused {
        output::print_line(format_args!(
            "{conversation}: an import into it did not finish, so it gets no automatic checkpoints yet; import its file again"
        ));
    }
    outcome
}

/// Checks conversations and prints the violations. A missing conversation is an error, unless
/// `may_be_deleted` is set: then it was deleted since it was listed.
pub(crate) async fn check_conversations(
    client: &Client,
    conversations: &[String],
    may_be_deleted: bool,
) -> anyhow::Result<ExitCode> {
    let progress = ProgressBar::new(conversations.len() as u64);
    let (mut checked, mut messages, mut checkpoints, mut violations) = (0, 0_i64, 0_i64, 0);
    for conversation in conversations {
        let ask = pb::VerifyConversationRequest {
            conversation_id: conversation.clone(),
        };
        let verified = match client.operators().verify_conversation(ask).await {
            Ok(verified) => verified.into_inner(),
            Err(status) if may_be_deleted && status.code() == Code::NotFound => continue,
            Err(status) => return Err(failed_call(&status)),
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

/// Of these conversations, those whose triggers an import has paused.
async fn paused_among(client: &Client, conversations: &[String]) -> anyhow::Result<Vec<String>> {
    let mut paused = Vec::new();
    for conversation in conversations {
        if import::are_triggers_paused(&get_conversation(client, conversation).await?) {
            paused.push(conversation.clone());
        }
    }
    Ok(paused)
}

/// All conversations, and those of them whose triggers an import has paused.
async fn list_all(client: &Client) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let (mut ids, mut paused) = (Vec::new(), Vec::new());
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
        paused.extend(paused_on_page.map(|conversation| conversation.conversation_id.clone()));
        ids.extend(
            page.conversations
                .into_iter()
                .map(|conversation| conversation.conversation_id),
        );
        if page.next_page_token.is_empty() {
            return Ok((ids, paused));
        }
        page_token = page.next_page_token;
    }
}
