//! Converts messages and times of the API to the types of [`anneal_formats`].

use anneal_formats::StoredMessage;
use anneal_proto::v1 as pb;

/// The message for a writer.
pub(super) fn stored_message(message: pb::Message) -> anyhow::Result<StoredMessage> {
    let (id, created_us) = (message.message_id, micros(message.created_time));
    let stored = pb::NewMessage {
        role: message.role,
        parts: message.parts,
        metadata: message.metadata,
    };
    let message = anneal_server::parse_message(stored)
        .map_err(|why| anyhow::anyhow!("message {id} is from a newer server: {why}"))?;
    Ok(StoredMessage {
        id,
        message,
        created_us,
    })
}

/// Microseconds since 1970.
pub(super) fn micros(time: Option<prost_types::Timestamp>) -> i64 {
    time.map_or(0, |time| {
        time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000
    })
}
