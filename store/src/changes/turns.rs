//! The turns of the messages that stand. They are those of a conversation in which only these
//! messages were ever appended. A withdrawn message keeps the turn that it had.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};

use crate::{connection::BoundedConnection, error::StoreError, failpoint};

/// Gives the messages from `first` on their turns, after messages from `first` to `last` were
/// withdrawn or restored. If the first message after `last` keeps its turn, so do all messages
/// after it, and their rows are not written.
pub(super) async fn renumber(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    (first, last): (MessageId, MessageId),
) -> Result<(), StoreError> {
    let following = sqlx::query_file!(
        "sql/renumber_turns.sql",
        caller.tenant().0,
        id.0,
        first.0,
        last.0,
    )
    .fetch_optional(&mut *db)
    .await?;
    failpoint!("change.renumbered");
    let Some(following) = following.filter(|following| following.shift != 0) else {
        return Ok(());
    };
    sqlx::query!(
        "update ai_message set turn = turn + $4
         where tenant_id = $1 and conversation_id = $2 and message_id > $3 and withdrawn_ts is null",
        caller.tenant().0,
        id.0,
        following.message_id,
        following.shift,
    )
    .execute(db)
    .await?;
    Ok(())
}
