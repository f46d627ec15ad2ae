//! What a server says, as writers take it.

use anneal_formats::Stored;
use anneal_proto::v1 as pb;

use crate::client::{Client, patiently, refusal};

/// One conversation.
pub(super) async fn conversation(client: &Client, id: &str) -> anyhow::Result<pb::Conversation> {
    let ask = pb::GetConversationRequest { conversation_id: id.to_owned() };
    let found = patiently(async || client.conversations().get_conversation(ask.clone()).await).await;
    found.map_err(|status| refusal(&status))
}

/// A message as writers take it.
pub(super) fn stored(message: pb::Message) -> anyhow::Result<Stored> {
    let (id, created_us) = (message.message_id, micros(message.created_time));
    let said = pb::NewMessage { role: message.role, parts: message.parts, metadata: message.metadata };
    let message =
        anneal_server::acceptable(said).map_err(|why| anyhow::anyhow!("message {id} is from a newer server: {why}"))?;
    Ok(Stored { id, message, created_us })
}

/// Microseconds since 1970.
pub(super) fn micros(time: Option<prost_types::Timestamp>) -> i64 {
    time.map_or(0, |time| time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000)
}
