//! Converts messages and times of the API to the types of [`anneal_formats`].

use anneal_formats::StoredMessage;
use anneal_proto::{
    convert::{message, time},
    v1 as pb,
};

/// The message in the form that writers of files take.
pub(super) fn stored_message(message: pb::Message) -> anyhow::Result<StoredMessage> {
    let (id, created_us) = (message.message_id, micros(message.created_time));
    let message = message::parse("message", message.into())
        .map_err(|why| anyhow::anyhow!("message {id} is from a newer server: {why}"))?;
    Ok(StoredMessage {
        id,
        message,
        created_us,
    })
}

/// Microseconds since 1970; 0: absent.
pub(super) fn micros(time: Option<prost_types::Timestamp>) -> i64 {
    time.map_or(0, time::micros)
}
