//! GetMessage.

use anneal_core::{caller::Caller, limits::RANGE_BYTES, message::plain_text};
use anneal_proto::v1 as pb;

use crate::{house::House, parse, reply, status::Failure};

/// One message, whole or a byte range of its text.
pub(crate) async fn get_message(
    house: &House,
    caller: Caller,
    ask: pb::GetMessageRequest,
) -> Result<pb::GetMessageResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let message_id = parse::message_id("message_id", ask.message_id)?;
    if let Some(range) = ask.range {
        check(range)?;
    }
    let mut message = house.store.message(caller, id, message_id).await?;
    let Some(range) = ask.range else {
        return Ok(pb::GetMessageResponse { message: Some(reply::message(message)), text: String::new(), range: None });
    };
    let text = plain_text(&std::mem::take(&mut message.parts));
    let (start, end) = widened(&text, range);
    Ok(pb::GetMessageResponse {
        message: Some(reply::message(message)),
        range: Some(pb::ByteRange { offset: start as i64, length: (end - start) as i64 }),
        text: text[start..end].to_owned(),
    })
}

fn check(range: pb::ByteRange) -> Result<(), Failure> {
    if range.offset < 0 {
        return Err(Failure::invalid("range.offset", "must not be negative"));
    }
    if range.length < 0 {
        return Err(Failure::invalid("range.length", "must not be negative"));
    }
    if range.length > RANGE_BYTES {
        return Err(Failure::limit("range.length", RANGE_BYTES as usize, "bytes"));
    }
    Ok(())
}

/// The asked range within the text, widened to whole characters.
fn widened(text: &str, range: pb::ByteRange) -> (usize, usize) {
    let length = if range.length == 0 { RANGE_BYTES } else { range.length };
    let start = usize::try_from(range.offset).unwrap_or(usize::MAX).min(text.len());
    let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(text.len());
    (text.floor_char_boundary(start), text.ceil_char_boundary(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_widened_to_whole_characters() {
        let range = |offset, length| pb::ByteRange { offset, length };
        assert_eq!(widened("a冷b", range(2, 1)), (1, 4));
        assert_eq!(widened("a冷b", range(1, 3)), (1, 4));
        assert_eq!(widened("a冷b", range(0, 0)), (0, 5));
        assert_eq!(widened("a冷b", range(i64::MAX, 1)), (5, 5));
    }
}
