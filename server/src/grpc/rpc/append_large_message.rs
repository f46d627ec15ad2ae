//! AppendLargeMessage.

use anneal_core::{
    caller::Caller,
    limits::{CHUNK_BYTES, CONTENT_BYTES},
    message::{Message, Part},
};
use anneal_proto::{
    convert::{message, parse},
    v1 as pb,
};
use pb::append_large_message_request::{Frame, Header};
use tonic::{Code, Streaming};

use crate::{
    failure::Failure,
    limits::cpu_pool,
    state::ServerState,
    usecases::append::{self, AppendRequest},
};

/// Stores one message whose text is streamed.
pub(crate) async fn append_large_message(
    state: &ServerState,
    caller: Caller,
    mut frames: Streaming<pb::AppendLargeMessageRequest>,
) -> Result<pb::AppendMessagesResponse, Failure> {
    let _permit = state.large_append_limit.try_acquire(caller.tenant())?;
    let Some(Frame::Header(header)) = next_frame(&mut frames).await? else {
        return Err(Failure::invalid("header", "must be the first frame"));
    };
    let id = parse::conversation_id(&header.conversation_id)?;
    let request_id = parse::request_id(&header.request_id)?.map(str::to_owned);
    let expected = parse::expected_last(header.expected_last_message_id)?;
    let mut message = message_without_text(header)?;
    let most_bytes = state.settings.get().limits.message_bytes();
    let (pieces, content_bytes) = read_pieces(&mut frames, most_bytes).await?;
    // Reserves memory before the text is copied: into the JSON, and into the statement.
    let reservation = Some(
        state
            .content_budget
            .reserve(caller.tenant(), content_bytes as u64)
            .await?,
    );
    let is_long = cpu_pool::is_long(content_bytes, pieces.len());
    *text_to_fill(&mut message.parts)? = state
        .cpu
        .run_if(is_long, caller.tenant(), || join_pieces(pieces))
        .await??;
    let request = AppendRequest {
        id,
        request_id,
        expected,
        messages: [message].into(),
        reservation,
    };
    append::append(
        state,
        caller,
        &append::prepare(state, caller, request).await?,
    )
    .await
}

/// The message of the header, without its text.
fn message_without_text(header: Header) -> Result<Message, Failure> {
    let new = header
        .message
        .ok_or_else(|| Failure::invalid("header.message", "must be given"))?;
    let mut message = message::parse("header.message", new)?;
    text_to_fill(&mut message.parts)?;
    Ok(message)
}

/// The text that the stream fills: that of the first text, tool_result or tool_use part. Fails if
/// there is no such part, or if its text is not empty.
fn text_to_fill(parts: &mut [Part]) -> Result<&mut String, Failure> {
    let field = "header.message.parts";
    let text = parts.iter_mut().find_map(|part| match part {
        Part::Text { text } | Part::ToolResult { text, .. } => Some(text),
        Part::ToolUse { input, .. } => Some(input),
        Part::Media(_) | Part::Reasoning { .. } => None,
    });
    let text =
        text.ok_or_else(|| Failure::invalid(field, "must hold a part for the streamed text"))?;
    if text.is_empty() {
        Ok(text)
    } else {
        Err(Failure::invalid(
            field,
            "the part for the streamed text must be empty",
        ))
    }
}

/// Reads the streamed text, which has at most `most_bytes`. Returns it in pieces of at most
/// [`CHUNK_BYTES`], and its length as JSON.
async fn read_pieces(
    frames: &mut Streaming<pb::AppendLargeMessageRequest>,
    most_bytes: usize,
) -> Result<(Vec<Vec<u8>>, usize), Failure> {
    let (mut pieces, mut bytes, mut content_bytes) = (Vec::<Vec<u8>>::new(), 0, 0);
    while let Some(frame) = next_frame(frames).await? {
        let Frame::Chunk(chunk) = frame else {
            return Err(Failure::invalid("header", "must come only once"));
        };
        bytes += chunk.len();
        if bytes > most_bytes {
            return Err(Failure::limit("chunk", most_bytes, "bytes in all"));
        }
        content_bytes += json_bytes(&chunk);
        if content_bytes > CONTENT_BYTES {
            return Err(Failure::limit(
                "chunk",
                CONTENT_BYTES,
                "bytes in all, as JSON",
            ));
        }
        match pieces.last_mut() {
            Some(last) if last.len() + chunk.len() <= CHUNK_BYTES => last.extend_from_slice(&chunk),
            _ => pieces.push(chunk),
        }
        // Yields after each chunk, because one poll would else measure all buffered chunks.
        tokio::task::yield_now().await;
    }
    Ok((pieces, content_bytes))
}

/// Joins the pieces. Fails if they are not UTF-8.
fn join_pieces(pieces: Vec<Vec<u8>>) -> Result<String, Failure> {
    let mut bytes = Vec::with_capacity(pieces.iter().map(Vec::len).sum());
    for piece in pieces {
        bytes.extend_from_slice(&piece);
    }
    String::from_utf8(bytes).map_err(|_| Failure::invalid("chunk", "the whole text must be UTF-8"))
}

/// Bytes that JSON needs for each byte of a text: two for a quote, a backslash and a control
/// character with a short form (such as `\n`), six for another control character, else one.
const JSON_BYTES: [u8; 256] = {
    let mut bytes = [1; 256];
    let mut control = 0;
    while control < 32 {
        bytes[control] = 6;
        control += 1;
    }
    let (mut index, short) = (0, *b"\"\\\n\r\t\x08\x0c");
    while index < short.len() {
        bytes[short[index] as usize] = 2;
        index += 1;
    }
    bytes
};

/// Length of a text as JSON, without its quotes.
fn json_bytes(text: &[u8]) -> usize {
    let mut bytes = 0;
    for byte in text {
        bytes += usize::from(JSON_BYTES[usize::from(*byte)]);
    }
    bytes
}

async fn next_frame(
    frames: &mut Streaming<pb::AppendLargeMessageRequest>,
) -> Result<Option<Frame>, Failure> {
    let request = frames
        .message()
        .await
        .map_err(|status| match status.code() {
            Code::OutOfRange => Failure::limit("chunk", CHUNK_BYTES, "bytes in one piece"),
            _ => Failure::malformed(status.message()),
        })?;
    match request {
        None => Ok(None),
        Some(pb::AppendLargeMessageRequest { frame: Some(frame) }) => Ok(Some(frame)),
        Some(_) => Err(Failure::invalid("frame", "must hold a header or a chunk")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_length_equals_the_length_as_json() {
        let text: String = (0..0x250)
            .filter_map(char::from_u32)
            .chain("😀\u{2028}".chars())
            .collect();
        let json = serde_json::to_string(&text).expect("a text can be serialized");
        assert_eq!(
            json_bytes(text.as_bytes()),
            json.len() - 2,
            "without its quotes"
        );
    }
}
