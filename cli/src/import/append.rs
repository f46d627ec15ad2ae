//! The calls that append messages; every call is idempotent. Also functions on a message that an
//! import needs before it appends: checks, sizes, the message without its tool parts, added parts.

use std::time::Duration;

use anneal_core::{
    digest,
    limits::{DEADLINE_MAX_SECONDS, REQUEST_BYTES},
    message::{Message, plain_text_bytes},
};
use anneal_formats::Format;
use anneal_proto::{
    convert::{FieldError, message},
    v1 as pb,
};
use pb::{append_large_message_request as large, part::Part as Wire};
use prost::Message as _;
use tonic::Request;

use super::digest_prefix::hex_prefix;
use crate::client::{Client, failed_call, retry};

/// Most bytes of the messages in one batch. The rest of the request is for its other fields.
pub(super) const BATCH_BYTES: usize = REQUEST_BYTES / 2;
/// Most bytes of a large message without the text that is streamed. 64 KiB of the request are left
/// for its other fields.
const HEADER_BYTES: usize = REQUEST_BYTES - 64 * 1024;
/// Bytes of one chunk of a large message.
const CHUNK_BYTES: usize = 1024 * 1024;

/// The parts of a message as JSON, for digests.
pub(super) fn content_json(message: &Message) -> String {
    serde_json::to_string(&message.parts)
        .expect("strings, numbers and lists of them always serialize")
}

/// The message for the API, or why the server would refuse it. Applies the rules of the server
/// before anything is sent.
pub(super) fn check_message(message: Message) -> Result<pb::NewMessage, String> {
    let message = parse(message.into()).map_err(|refused| refused.to_string())?;
    let message = pb::NewMessage::from(message);
    if message.encoded_len() > HEADER_BYTES && header_bytes(&message) > HEADER_BYTES {
        return Err(format!(
            "without its first text, the message has more than {HEADER_BYTES} bytes"
        ));
    }
    Ok(message)
}

/// Bytes of the message without the text that [`append_large`] streams.
fn header_bytes(message: &pb::NewMessage) -> usize {
    let streamed = message
        .parts
        .iter()
        .find_map(|part| match part.part.as_ref()? {
            Wire::Text(part) => Some(part.text.len()),
            Wire::ToolResult(part) => Some(part.text.len()),
            Wire::ToolUse(part) => Some(part.input.len()),
            Wire::Media(_) | Wire::Reasoning(_) => None,
        });
    message.encoded_len() - streamed.unwrap_or(0)
}

fn parse(message: pb::NewMessage) -> Result<Message, FieldError> {
    message::parse("message", message)
}

/// The message without its tool calls and results, as a conversation that keeps none stores it.
/// None: nothing is left of it.
pub(super) fn without_tools(message: &pb::NewMessage) -> Option<pb::NewMessage> {
    let message = parse(message.clone()).ok()?;
    anneal_core::message::without_tools(&[message])
        .pop()
        .map(|(_, kept)| kept.into())
}

/// Bytes of the message's plain text.
pub(super) fn text_bytes(message: &pb::NewMessage) -> i64 {
    let message = parse(message.clone());
    message.map_or(0, |message| plain_text_bytes(&message.parts) as i64)
}

/// The parts that the file added after the first `stored_parts` parts of the message, as a message
/// of their own. None: the file has added no parts.
pub(super) fn added_parts(
    message: &pb::NewMessage,
    stored_parts: usize,
    format: Format,
) -> Option<pb::NewMessage> {
    let message = parse(message.clone()).ok()?;
    anneal_formats::added_parts(format, message, stored_parts).map(pb::NewMessage::from)
}

/// Whether the parts include tool calls or results.
pub(super) fn has_tools(parts: &[pb::Part]) -> bool {
    parts.iter().any(is_tool_part)
}

/// Whether the parts are only tool calls and results.
pub(super) fn has_only_tools(parts: &[pb::Part]) -> bool {
    parts.iter().all(is_tool_part)
}

const fn is_tool_part(part: &pb::Part) -> bool {
    matches!(part.part, Some(Wire::ToolUse(_) | Wire::ToolResult(_)))
}

/// The place at which a batch is appended.
#[derive(Debug, Clone)]
pub(super) struct AppendTarget<'a> {
    pub(super) conversation_id: &'a str,
    /// The key of the conversation, as hex digits. Part of the request id.
    pub(super) key: &'a str,
    /// The message id that the batch must follow.
    pub(super) after_message_id: i64,
}

/// Appends a batch directly after `target.after_message_id`. An error if the conversation ends
/// elsewhere.
pub(super) async fn append(
    client: &Client,
    target: AppendTarget<'_>,
    mut batch: Vec<pb::NewMessage>,
) -> anyhow::Result<pb::AppendMessagesResponse> {
    let bytes: Vec<Vec<u8>> = batch.iter().map(pb::NewMessage::encode_to_vec).collect();
    let batch_digest = hex_prefix(&digest::of_fields(bytes.iter().map(Vec::as_slice)));
    let request_id = format!(
        "import:{}:{}:{batch_digest}",
        target.key, target.after_message_id
    );
    // Only a batch of one message is so large: BATCH_BYTES limits batches of several.
    if bytes.iter().map(Vec::len).sum::<usize>() > HEADER_BYTES
        && let Some(message) = batch.pop()
    {
        return append_large(client, target, request_id, message).await;
    }
    let ask = pb::AppendMessagesRequest {
        conversation_id: target.conversation_id.to_owned(),
        request_id,
        messages: batch,
        expected_last_message_id: Some(target.after_message_id),
    };
    let appended = retry(async || client.messages().append_messages(ask.clone()).await).await;
    appended.map_err(|status| failed_call(&status))
}

/// Appends one large message: streams its first text, or input of a tool call, in chunks.
async fn append_large(
    client: &Client,
    target: AppendTarget<'_>,
    request_id: String,
    mut message: pb::NewMessage,
) -> anyhow::Result<pb::AppendMessagesResponse> {
    let text = message
        .parts
        .iter_mut()
        .find_map(|part| match part.part.as_mut()? {
            Wire::Text(part) => Some(std::mem::take(&mut part.text)),
            Wire::ToolResult(part) => Some(std::mem::take(&mut part.text)),
            Wire::ToolUse(part) => Some(std::mem::take(&mut part.input)),
            Wire::Media(_) | Wire::Reasoning(_) => None,
        });
    let text = bytes_of(text.unwrap_or_default());
    let header = large::Header {
        conversation_id: target.conversation_id.to_owned(),
        request_id,
        expected_last_message_id: Some(target.after_message_id),
        message: Some(message),
    };
    let frames = || {
        let (text, length) = (text.clone(), text.len());
        let chunks = (0..length).step_by(CHUNK_BYTES).map(move |from| {
            large::Frame::Chunk(text[from..length.min(from + CHUNK_BYTES)].to_vec())
        });
        let frames = std::iter::once(large::Frame::Header(header.clone())).chain(chunks);
        tokio_stream::iter(frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) }))
    };
    let appended = retry(async || {
        let mut request = Request::new(frames());
        request.set_timeout(Duration::from_secs(DEADLINE_MAX_SECONDS));
        client.messages().append_large_message(request).await
    });
    appended.await.map_err(|status| failed_call(&status))
}

fn bytes_of(text: String) -> std::sync::Arc<[u8]> {
    text.into_bytes().into()
}
