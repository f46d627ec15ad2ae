//! The title that a conversation's messages give, after one of them was changed, or after only some
//! of them were copied.

use anneal_core::{
    caller::{Caller, ConversationId},
    title,
};

use crate::{connection::BoundedConnection, error::StoreError};

/// How many messages the second and each further statement reads. The first one reads one message,
/// which nearly always gives the title.
const MESSAGES: i64 = 16;

/// How many characters of a text are read. A title is made from its first visible ones. A text
/// without any in this beginning gives no title here, as if it had none at all.
const TEXT_CHARACTERS: i32 = 8_192;

/// The title that the conversation would have if only the messages that stand had been appended;
/// empty if none of them gives one.
pub(crate) async fn of_standing_messages(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<String, StoreError> {
    let (mut after, mut limit): (i64, i64) = (0, 1);
    loop {
        let rows = sqlx::query_file!(
            "sql/standing_title_sources.sql",
            caller.tenant().0,
            id.0,
            after,
            limit,
            TEXT_CHARACTERS,
        )
        .fetch_all(&mut *db)
        .await?;
        let mut texts = rows.iter().filter_map(|row| row.text.as_deref());
        if let Some(title) = texts.find_map(title::of_text) {
            return Ok(title);
        }
        let Some(last) = rows.last() else {
            return Ok(String::new());
        };
        (after, limit) = (last.message_id, MESSAGES);
    }
}
