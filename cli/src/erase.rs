//! `anneal erase`: erases messages, conversations, users and tenants, and shows the receipts.

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use anneal_proto::v1 as pb;
use indicatif::ProgressBar;
use uuid::Uuid;

use crate::{
    change_arguments::{MessageIds, NamedMessages},
    client::{Client, failed_call, get_conversation, retry},
    columns::grouped,
    conversation_ids,
    erase_arguments::EraseArguments,
    output::{self, OutputFormat},
};

/// Time between two looks at an erasure that is waited for.
const WAIT_STEP: Duration = Duration::from_millis(500);

/// Erases, or shows receipts.
pub(crate) async fn run(arguments: EraseArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let format = OutputFormat::from_argument(arguments.json);
    if arguments.list {
        list(&client, arguments.user.unwrap_or_default(), format).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let erasure = if let Some(id) = arguments.show {
        get_erasure(&client, id).await?
    } else if let Some(conversation) = &arguments.conversation {
        let id = conversation_ids::resolve_for_change(&client, conversation).await?;
        if arguments.dry_run {
            plan_conversation(&client, id).await?
        } else if arguments.messages.is_empty() {
            delete_conversation(&client, id).await?
        } else {
            let receipt = erase_messages(&client, id, &arguments.messages).await?;
            let Some(receipt) = receipt else {
                output::print_note(
                    "anneal: there is nothing to erase: the messages are erased already",
                );
                return Ok(ExitCode::SUCCESS);
            };
            receipt
        }
    } else if let Some(user_id) = arguments.user {
        erase_user(&client, user_id, arguments.dry_run).await?
    } else {
        let tenant = arguments.tenant.unwrap_or_default();
        erase_tenant(&client, tenant, arguments.dry_run).await?
    };
    let erasure = if arguments.wait {
        wait_for_end(&client, erasure).await?
    } else {
        erasure
    };
    match format {
        OutputFormat::Text => output::print(&details(&erasure)),
        OutputFormat::Json => output::print_json(&json(&erasure).to_string()),
    }
    Ok(ExitCode::SUCCESS)
}

fn new_request_id() -> String {
    Uuid::new_v4().to_string()
}

async fn get_erasure(client: &Client, erasure_id: String) -> anyhow::Result<pb::Erasure> {
    let ask = pb::GetErasureRequest { erasure_id };
    retry(async || client.erasures().get_erasure(ask.clone()).await)
        .await
        .map_err(|status| failed_call(&status))
}

/// The rows that a deletion of the conversation would delete.
async fn plan_conversation(client: &Client, id: String) -> anyhow::Result<pb::Erasure> {
    let conversation = get_conversation(client, &id).await?;
    Ok(pb::Erasure {
        kind: pb::ErasureKind::Conversation.into(),
        state: pb::ErasureState::Running.into(),
        conversation_id: id,
        expected_conversations: Some(1),
        expected_messages: Some(conversation.message_count),
        ..Default::default()
    })
}

/// Deletes the conversation. Returns the receipt.
async fn delete_conversation(client: &Client, id: String) -> anyhow::Result<pb::Erasure> {
    let ask = pb::DeleteConversationRequest {
        conversation_id: id,
        request_id: new_request_id(),
        with_receipt: true,
    };
    let deleted = retry(async || {
        client
            .conversations()
            .delete_conversation(ask.clone())
            .await
    })
    .await
    .map_err(|status| failed_call(&status))?;
    get_erasure(client, deleted.erasure_id).await
}

/// Erases messages. Returns the receipt; None: there was nothing to erase.
async fn erase_messages(
    client: &Client,
    id: String,
    messages: &[MessageIds],
) -> anyhow::Result<Option<pb::Erasure>> {
    let named = NamedMessages::of(messages).map_err(anyhow::Error::msg)?;
    let ask = pb::EraseMessagesRequest {
        conversation_id: id,
        request_id: new_request_id(),
        message_ids: named.message_ids,
        range: named.range,
        ..Default::default()
    };
    let change = retry(async || client.messages().erase_messages(ask.clone()).await)
        .await
        .map_err(|status| failed_call(&status))?;
    if change.erasure_id.is_empty() {
        return Ok(None);
    }
    get_erasure(client, change.erasure_id).await.map(Some)
}

async fn erase_user(
    client: &Client,
    user_id: String,
    dry_run: bool,
) -> anyhow::Result<pb::Erasure> {
    let ask = pb::EraseUserRequest {
        request_id: new_request_id(),
        user_id,
        dry_run,
    };
    retry(async || client.erasures().erase_user(ask.clone()).await)
        .await
        .map_err(|status| failed_call(&status))
}

async fn erase_tenant(
    client: &Client,
    confirm_tenant: String,
    dry_run: bool,
) -> anyhow::Result<pb::Erasure> {
    let ask = pb::EraseTenantRequest {
        request_id: new_request_id(),
        confirm_tenant,
        dry_run,
    };
    retry(async || client.erasures().erase_tenant(ask.clone()).await)
        .await
        .map_err(|status| failed_call(&status))
}

/// Waits until the erasure has ended.
async fn wait_for_end(client: &Client, mut erasure: pb::Erasure) -> anyhow::Result<pb::Erasure> {
    let progress = ProgressBar::new(0);
    while erasure.state() == pb::ErasureState::Running {
        tokio::time::sleep(WAIT_STEP).await;
        erasure = get_erasure(client, erasure.erasure_id).await?;
        // The first step counts what is there.
        if let Some(expected) = erasure.expected_conversations {
            progress.set_length(expected.unsigned_abs());
        }
        progress.set_position(erasure.erased_conversations.unsigned_abs());
    }
    progress.finish_and_clear();
    Ok(erasure)
}

/// Lists erasures: those of a user, or all if `user_id` is empty.
async fn list(client: &Client, user_id: String, format: OutputFormat) -> anyhow::Result<()> {
    let (mut page_token, mut listed) = (String::new(), 0);
    loop {
        let ask = pb::ListErasuresRequest {
            user_id: user_id.clone(),
            page_token,
            ..Default::default()
        };
        let page = retry(async || client.erasures().list_erasures(ask.clone()).await)
            .await
            .map_err(|status| failed_call(&status))?;
        for erasure in &page.erasures {
            match format {
                OutputFormat::Text => output::print_line(line(erasure)),
                OutputFormat::Json => output::print_json(&json(erasure).to_string()),
            }
        }
        listed += page.erasures.len();
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    if listed == 0 && format == OutputFormat::Text {
        output::print_line("no erasures");
    }
    Ok(())
}

const fn kind_name(kind: pb::ErasureKind) -> &'static str {
    match kind {
        pb::ErasureKind::Messages => "messages",
        pb::ErasureKind::Conversation => "conversation",
        pb::ErasureKind::User => "user",
        pb::ErasureKind::Tenant => "tenant",
        pb::ErasureKind::Unspecified => "?",
    }
}

/// The state in one word. A dry run has no id.
fn state_name(erasure: &pb::Erasure) -> &'static str {
    match erasure.state() {
        pb::ErasureState::Running if erasure.erasure_id.is_empty() => "planned",
        pb::ErasureState::Running => "running",
        pb::ErasureState::Done => "done",
        pb::ErasureState::Unspecified => "?",
    }
}

/// A number of conversations and of messages.
fn amounts(conversations: i64, messages: i64) -> String {
    let amount = |number: i64, noun: &str| {
        let ending = if number == 1 { "" } else { "s" };
        format!("{} {noun}{ending}", grouped(number.unsigned_abs()))
    };
    format!(
        "{}, {}",
        amount(conversations, "conversation"),
        amount(messages, "message")
    )
}

/// An erasure on one line.
fn line(erasure: &pb::Erasure) -> String {
    format!(
        "{} {:<12} {:<7} {}, requested {} by {}",
        erasure.erasure_id,
        kind_name(erasure.kind()),
        state_name(erasure),
        amounts(erasure.erased_conversations, erasure.erased_messages),
        erasure
            .requested_time
            .map_or_else(|| "-".to_owned(), |time| time.to_string()),
        erasure.requested_by,
    )
}

/// All that is known of an erasure, a line for each fact.
fn details(erasure: &pb::Erasure) -> String {
    let mut text = String::new();
    let mut add = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{name:<14} {value}");
        }
    };
    let expected = erasure
        .expected_conversations
        .zip(erasure.expected_messages)
        .map(|(conversations, messages)| amounts(conversations, messages))
        .unwrap_or_default();
    add("erases", kind_name(erasure.kind()));
    if erasure.erasure_id.is_empty() {
        add("dry run", "nothing was changed");
        add("would delete", &expected);
        return text;
    }
    let time = |time: Option<prost_types::Timestamp>| {
        time.map(|time| time.to_string()).unwrap_or_default()
    };
    add("erasure", &erasure.erasure_id);
    add("state", state_name(erasure));
    add("conversation", &erasure.conversation_id);
    add("user's digest", &hex(&erasure.subject_digest));
    add("requested by", &erasure.requested_by);
    add("requested", &time(erasure.requested_time));
    add("ended", &time(erasure.ended_time));
    add("expected", &expected);
    let erased = amounts(erasure.erased_conversations, erasure.erased_messages);
    add("erased", &erased);
    add("ids' digest", &hex(&erasure.ids_digest));
    let mut rows: Vec<_> = erasure.rows.iter().collect();
    rows.sort_unstable();
    for (table, number) in rows {
        let _ = writeln!(text, "  {table:<28} {}", grouped(number.unsigned_abs()));
    }
    text
}

fn json(erasure: &pb::Erasure) -> serde_json::Value {
    serde_json::json!({
        "record": "erasure",
        "erasure_id": erasure.erasure_id,
        "kind": kind_name(erasure.kind()),
        "state": state_name(erasure),
        "conversation_id": erasure.conversation_id,
        "subject_digest": hex(&erasure.subject_digest),
        "requested_by": erasure.requested_by,
        "requested_time": erasure.requested_time.map(|time| time.to_string()),
        "ended_time": erasure.ended_time.map(|time| time.to_string()),
        "expected_conversations": erasure.expected_conversations,
        "expected_messages": erasure.expected_messages,
        "erased_conversations": erasure.erased_conversations,
        "erased_messages": erasure.erased_messages,
        "rows": erasure.rows,
        "ids_digest": hex(&erasure.ids_digest),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_says_what_would_be_deleted_and_a_receipt_what_was() {
        let planned = pb::Erasure {
            kind: pb::ErasureKind::User.into(),
            state: pb::ErasureState::Running.into(),
            expected_conversations: Some(1),
            expected_messages: Some(12_000),
            ..Default::default()
        };
        assert_eq!(
            details(&planned),
            "erases         user\ndry run        nothing was changed\nwould delete   1 conversation, 12,000 messages\n"
        );
        let begun = pb::Erasure {
            erasure_id: "e".into(),
            expected_conversations: None,
            expected_messages: None,
            ..planned.clone()
        };
        let text = details(&begun);
        assert!(!text.contains("expected"), "{text}");
        assert!(json(&begun)["expected_messages"].is_null());
        let done = pb::Erasure {
            erasure_id: "e".into(),
            state: pb::ErasureState::Done.into(),
            ids_digest: vec![0, 255],
            rows: [("ai_message".to_owned(), 3)].into(),
            ..planned
        };
        let text = details(&done);
        assert!(text.contains("ids' digest    00ff\n"), "{text}");
        assert!(
            text.contains("  ai_message                   3\n"),
            "{text}"
        );
        assert_eq!(json(&done)["state"], "done");
    }
}
