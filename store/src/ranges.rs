//! Byte ranges of a message's text. They are cut in the database, so that one byte of a message of 64 MiB is one byte here.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::{MessageId, plain_text},
};

use crate::{
    Store,
    content::{ContentRead, ContentRoom, parse_in_room, row_bytes},
    error::{Entity, StoreError},
    messages::{self, MessageRow, StoredMessage},
};

/// A byte range of a message's plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRange {
    /// The message, without its parts.
    pub message: StoredMessage,
    /// Where the text begins, in bytes of the message's plain text.
    pub offset: u64,
    /// The text.
    pub text: String,
}

impl Store {
    /// The plain text of a message from `offset` on, at most `length` bytes (4 MiB at most), widened to whole characters, if
    /// there is room for the message: the database reads all of it.
    pub async fn message_range(
        &self,
        caller: Caller,
        id: ConversationId,
        message: MessageId,
        (offset, length): (u64, u64),
        room: &ContentRoom,
    ) -> Result<ContentRead<MessageRange>, StoreError> {
        let column = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let mut db = self.reads.checkout(caller).await?;
        db.hold(room.held.clone());
        messages::newest(&mut db, caller, id).await?;
        let row = sqlx::query_file!(
            "sql/get_message_range.sql",
            caller.tenant().0,
            id.0,
            message.0,
            column(offset),
            column(length),
            room.column(),
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        let row = row.ok_or(StoreError::NotFound(Entity::Message))?;
        let bytes = row_bytes(1, row.bytes);
        let (cut, from, whole_bytes) = (row.cut, row.cut_from as usize, row.whole_bytes as usize);
        let message_row = MessageRow {
            message_id: row.message_id,
            role: row.role,
            turn: row.turn,
            tokens: row.tokens,
            estimated: row.estimated,
            text_bytes: row.text_bytes,
            content: None,
            metadata: row.metadata,
            summary: row.summary,
            summary_tokens: row.summary_tokens,
            summary_kind: row.summary_kind,
            summary_model: row.summary_model,
            summary_us: row.summary_us,
            created_us: row.created_us,
            bytes: row.bytes,
        };
        if bytes > room.bytes() {
            return Ok(ContentRead::TooLarge { bytes });
        }
        let Some(cut) = cut else { return self.range_of_whole(caller, id, message, (offset, length), room).await };
        let (offset, text) = range_within(&cut, from, whole_bytes, (offset, length))?;
        let bytes = row_bytes(1, text.len() as i64);
        Ok(ContentRead::Read { value: MessageRange { message: message_row.try_into()?, offset, text }, bytes })
    }

    /// The same of a message that the database cannot cut, for its text holds NUL: it is read whole.
    async fn range_of_whole(
        &self,
        caller: Caller,
        id: ConversationId,
        message: MessageId,
        range: (u64, u64),
        room: &ContentRoom,
    ) -> Result<ContentRead<MessageRange>, StoreError> {
        let (mut message, bytes) = match self.message(caller, id, message, room).await? {
            ContentRead::Read { value, bytes } => (value, bytes),
            ContentRead::TooLarge { bytes } => return Ok(ContentRead::TooLarge { bytes }),
        };
        let cut = move || {
            let whole = plain_text(&std::mem::take(&mut message.parts));
            let (offset, text) = range_within(whole.as_bytes(), 0, whole.len(), range)?;
            Ok(MessageRange { message, offset, text })
        };
        Ok(ContentRead::Read { value: parse_in_room(room, bytes, cut).await?, bytes })
    }
}

/// A range of a plain text of `whole` bytes, widened to whole characters. `cut` is a piece of that text from `from` on, which
/// holds the range and three bytes more on either side, if there are any.
fn range_within(
    cut: &[u8],
    from: usize,
    whole: usize,
    (offset, length): (u64, u64),
) -> Result<(u64, String), StoreError> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(whole);
    let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(whole);
    let is_boundary = |at: &usize| cut.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
    let first = (0..=start - from).rev().find(is_boundary).unwrap_or(0);
    let past = (end - from..=cut.len()).find(is_boundary).unwrap_or(cut.len());
    let text = std::str::from_utf8(&cut[first..past]).map_err(|_| StoreError::Unreadable("content"))?;
    Ok(((from + first) as u64, text.to_owned()))
}
