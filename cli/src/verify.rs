//! `anneal verify`.

use std::process::ExitCode;

use anneal_proto::v1 as pb;
use indicatif::ProgressBar;
use tonic::Code;

use crate::{
    client::{Client, refusal},
    command::VerifyArguments,
    import, output,
    words::counted,
};

/// Checks the promises; exit code 1 when one is broken. Names the conversations too whose triggers an import has left off.
pub(crate) async fn run(arguments: VerifyArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let (conversations, held) = if arguments.all {
        every(&client).await?
    } else {
        let held = held_among(&client, &arguments.conversations).await?;
        (arguments.conversations, held)
    };
    let outcome = check(&client, &conversations, arguments.all).await;
    for conversation in held {
        output::line(format_args!(
            "{conversation}: an import of it has not come to its end, and its triggers are off; import its file again"
        ));
    }
    outcome
}

/// Checks these conversations and prints what was found. One that is not there is an error, unless they `may_go`: were listed,
/// and may have been deleted since.
pub(crate) async fn check(client: &Client, conversations: &[String], may_go: bool) -> anyhow::Result<ExitCode> {
    let progress = ProgressBar::new(conversations.len() as u64);
    let (mut checked, mut messages, mut checkpoints, mut broken) = (0, 0_i64, 0_i64, 0);
    for conversation in conversations {
        let ask = pb::VerifyConversationRequest { conversation_id: conversation.clone() };
        let verified = match client.operators().verify_conversation(ask).await {
            Ok(verified) => verified.into_inner(),
            Err(status) if may_go && status.code() == Code::NotFound => continue,
            Err(status) => return Err(refusal(&status)),
        };
        checked += 1;
        messages += verified.messages_checked;
        checkpoints += verified.checkpoints_checked;
        broken += verified.violations.len();
        for violation in verified.violations {
            progress.suspend(|| {
                output::line(format_args!("{conversation}: promise {}: {}", violation.promise, violation.description));
            });
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let checked = [
        counted(checked, "conversation"),
        counted(messages as usize, "message"),
        counted(checkpoints as usize, "checkpoint"),
    ]
    .join(", ");
    if broken == 0 {
        output::line(format_args!("verified {checked}: every promise is kept"));
        Ok(ExitCode::SUCCESS)
    } else {
        output::line(format_args!("verified {checked}: {}", counted(broken, "violation")));
        Ok(ExitCode::FAILURE)
    }
}

/// Those of the conversations whose triggers an import has turned off.
async fn held_among(client: &Client, conversations: &[String]) -> anyhow::Result<Vec<String>> {
    let mut held = Vec::new();
    for conversation in conversations {
        if import::is_held(&import::find(client, conversation).await?) {
            held.push(conversation.clone());
        }
    }
    Ok(held)
}

/// Every conversation, and those of them whose triggers an import has turned off.
async fn every(client: &Client) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let (mut ids, mut held) = (Vec::new(), Vec::new());
    let mut page_token = String::new();
    loop {
        let ask = pb::ListConversationsRequest { page_size: 500, page_token, ..Default::default() };
        let page =
            client.conversations().list_conversations(ask).await.map_err(|status| refusal(&status))?.into_inner();
        let off = page.conversations.iter().filter(|conversation| import::is_held(conversation));
        held.extend(off.map(|conversation| conversation.conversation_id.clone()));
        ids.extend(page.conversations.into_iter().map(|conversation| conversation.conversation_id));
        if page.next_page_token.is_empty() {
            return Ok((ids, held));
        }
        page_token = page.next_page_token;
    }
}
