//! One conversation to a server, in batches that fit a call.

use anneal_core::{
    digest::{self, Digest},
    limits::{MESSAGES_PER_APPEND, REQUEST_BYTES},
    message::{Message, Part, plain_text_bytes},
};
use anneal_proto::v1 as pb;
use indicatif::ProgressBar;
use pb::append_large_message_request::{Frame, Header};

use super::openai::Talk;
use crate::{
    client::{Client, refusal},
    policy::PolicyArguments,
};

/// Bytes of text in one call; leaves room for the call's own framing.
const BATCH_BYTES: usize = REQUEST_BYTES / 2;
/// Bytes of one piece of a large message.
const CHUNK_BYTES: usize = 1024 * 1024;

/// What became of a conversation.
pub(super) struct Sent {
    pub(super) conversation: String,
    pub(super) title: String,
    pub(super) stored: usize,
    pub(super) known: usize,
}

pub(super) async fn talk(
    client: &Client,
    talk: Talk,
    agent: &str,
    user: &str,
    policy: &PolicyArguments,
    progress: &ProgressBar,
) -> anyhow::Result<Sent> {
    let policy = policy.policy();
    let key = key(&talk, agent, user, policy.as_ref());
    let create = pb::CreateConversationRequest {
        request_id: format!("import:{key}"),
        agent_id: agent.to_owned(),
        user_id: user.to_owned(),
        title: talk.title.clone(),
        system_prompt: talk.system_prompt,
        policy,
        ..Default::default()
    };
    let made = client.conversations().create_conversation(create).await.map_err(|status| refusal(&status))?;
    let mut sent = Sent { conversation: made.into_inner().conversation_id, title: talk.title, stored: 0, known: 0 };
    for (number, batch) in batches(talk.messages).into_iter().enumerate() {
        let count = batch.len();
        let replayed = append(client, &sent.conversation, format!("import:{key}:{number}"), batch).await?;
        *(if replayed { &mut sent.known } else { &mut sent.stored }) += count;
        progress.inc(count as u64);
    }
    Ok(sent)
}

/// Names the conversation by what is in it and how it is to be kept.
fn key(talk: &Talk, agent: &str, user: &str, policy: Option<&pb::Policy>) -> String {
    let contents: Vec<String> = talk.messages.iter().map(|message| format!("{:?}", message.parts)).collect();
    let messages: Digest = digest::of_append(&talk.messages, &contents);
    let policy = format!("{policy:?}");
    let fields =
        [talk.title.as_bytes(), talk.system_prompt.as_bytes(), agent.as_bytes(), user.as_bytes(), policy.as_bytes()];
    let whole = digest::of_fields(fields.into_iter().chain([messages.as_slice()]));
    whole[..16].iter().fold(String::new(), |mut hex, byte| {
        use std::fmt::Write as _;
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn batches(messages: Vec<Message>) -> Vec<Vec<Message>> {
    let mut batches: Vec<Vec<Message>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        let size = plain_text_bytes(&message.parts);
        match batches.last_mut() {
            Some(batch) if batch.len() < MESSAGES_PER_APPEND && bytes + size <= BATCH_BYTES => {
                bytes += size;
                batch.push(message);
            }
            _ => {
                bytes = size;
                batches.push(vec![message]);
            }
        }
    }
    batches
}

async fn append(
    client: &Client,
    conversation: &str,
    request_id: String,
    mut batch: Vec<Message>,
) -> anyhow::Result<bool> {
    let large = batch.len() == 1 && plain_text_bytes(&batch[0].parts) > BATCH_BYTES;
    if let Some(message) = batch.pop_if(|_| large) {
        return append_large(client, conversation, request_id, message).await;
    }
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation.to_owned(),
        request_id,
        messages: batch.into_iter().map(wire).collect(),
        expected_last_message_id: None,
    };
    let appended = client.messages().append_messages(ask).await.map_err(|status| refusal(&status))?;
    Ok(appended.into_inner().replayed)
}

async fn append_large(
    client: &Client,
    conversation: &str,
    request_id: String,
    mut message: Message,
) -> anyhow::Result<bool> {
    let text = message.parts.iter_mut().find_map(|part| match part {
        Part::Text { text } | Part::ToolResult { text, .. } => Some(std::mem::take(text)),
        Part::ToolUse { input, .. } => Some(std::mem::take(input)),
        Part::Media(_) | Part::Reasoning { .. } => None,
    });
    let header = Header {
        conversation_id: conversation.to_owned(),
        request_id,
        expected_last_message_id: None,
        message: Some(wire(message)),
    };
    let mut frames = vec![Frame::Header(header)];
    frames.extend(text.unwrap_or_default().as_bytes().chunks(CHUNK_BYTES).map(|chunk| Frame::Chunk(chunk.to_vec())));
    let frames = frames.into_iter().map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
    let appended = client.messages().append_large_message(tokio_stream::iter(frames)).await;
    Ok(appended.map_err(|status| refusal(&status))?.into_inner().replayed)
}

fn wire(message: Message) -> pb::NewMessage {
    pb::NewMessage {
        role: anneal_server::role(message.role).into(),
        parts: message.parts.into_iter().map(anneal_server::part).collect(),
        metadata: message.metadata.into_iter().collect(),
    }
}
