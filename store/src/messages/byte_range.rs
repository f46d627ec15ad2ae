//! Byte ranges of a message's text. The database cuts out the range, so that a short range of a
//! long message is not much to transfer.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::{MessageId, plain_text},
};

use super::{
    read::{MessageRow, StoredMessage, read_newest_id},
    read_budget::{ContentRead, ReadBudget, parse_within, row_bytes},
};
use crate::{
    Store,
    error::{Entity, StoreError},
};

/// A byte range of a message's plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRange {
    /// The message, without its parts.
    pub message: StoredMessage,
    /// Where the range begins, in bytes of the message's plain text.
    pub offset: u64,
    /// The text of the range.
    pub text: String,
}

impl Store {
    /// Reads `length` bytes (at most 4 MiB) of the plain text of a message that stands, from
    /// `offset` on. The range is widened to whole characters. The whole message must fit the
    /// budget, because the database reads all of it.
    pub async fn get_message_range(
        &self,
        caller: Caller,
        id: ConversationId,
        message: MessageId,
        (offset, length): (u64, u64),
        budget: &ReadBudget,
    ) -> Result<ContentRead<MessageRange>, StoreError> {
        let column = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let mut db = self.reads.checkout(caller).await?;
        db.attach_reservation(budget.reservation.clone());
        read_newest_id(&mut db, caller, id).await?;
        let row = sqlx::query_file!(
            "sql/get_message_range.sql",
            caller.tenant().0,
            id.0,
            message.0,
            column(offset),
            column(length),
            budget.column(),
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
            version: row.version,
            edited_us: row.edited_us,
            withdrawn_us: row.withdrawn_us,
            stopped: row.stopped,
            bytes: row.bytes,
        };
        let message_row = message_row.standing()?;
        if bytes > budget.bytes() {
            return Ok(ContentRead::TooLarge { bytes });
        }
        let Some(cut) = cut else {
            // The text contains NUL, or the characters `\u0000`: the database does not cut it.
            let whole = self.get_message(caller, id, message, budget).await?;
            return cut_range(whole, (offset, length), budget).await;
        };
        let (offset, text) = range_within(&cut, from, whole_bytes, (offset, length))?;
        let bytes = row_bytes(1, text.len() as i64);
        Ok(ContentRead::Read {
            value: MessageRange {
                message: message_row.try_into()?,
                offset,
                text,
            },
            bytes,
        })
    }
}

/// Cuts a byte range out of the plain text of a message that was read as a whole. The message keeps
/// no parts.
pub(super) async fn cut_range(
    read: ContentRead<StoredMessage>,
    range: (u64, u64),
    budget: &ReadBudget,
) -> Result<ContentRead<MessageRange>, StoreError> {
    let (mut message, bytes) = match read {
        ContentRead::Read { value, bytes } => (value, bytes),
        ContentRead::TooLarge { bytes } => return Ok(ContentRead::TooLarge { bytes }),
    };
    let cut = move || {
        let whole = plain_text(&std::mem::take(&mut message.parts));
        let (offset, text) = range_within(whole.as_bytes(), 0, whole.len(), range)?;
        Ok(MessageRange {
            message,
            offset,
            text,
        })
    };
    Ok(ContentRead::Read {
        value: parse_within(budget, bytes, cut).await?,
        bytes,
    })
}

/// Cuts a range out of a plain text, and widens it to whole characters. Returns where the widened
/// range begins, and its text.
///
/// - `cut`: the part of the text that contains the range, and three more bytes on either side if
///   the text has them;
/// - `from`: where `cut` begins in the text;
/// - `whole_bytes`: the length of the text.
fn range_within(
    cut: &[u8],
    from: usize,
    whole_bytes: usize,
    (offset, length): (u64, u64),
) -> Result<(u64, String), StoreError> {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(whole_bytes);
    let end = start
        .saturating_add(usize::try_from(length).unwrap_or(usize::MAX))
        .min(whole_bytes);
    // In UTF-8, a byte of the form 10xxxxxx continues a character.
    let is_boundary = |at: &usize| cut.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
    let first = (0..=start - from).rev().find(is_boundary).unwrap_or(0);
    let past = (end - from..=cut.len())
        .find(is_boundary)
        .unwrap_or(cut.len());
    let text =
        std::str::from_utf8(&cut[first..past]).map_err(|_| StoreError::Unreadable("content"))?;
    Ok(((from + first) as u64, text.to_owned()))
}
