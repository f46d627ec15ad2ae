//! Finds the question of a turn by the turn's request id, or that of the turn that is under way in
//! a conversation.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};

use crate::{Store, connection::BoundedConnection, error::StoreError};

/// A turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedTurn {
    /// The turn's request id.
    pub request_id: String,
    /// Its question. None: it is not stored yet, or does not stand any more.
    pub question: Option<TurnQuestion>,
}

/// The stored question of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnQuestion {
    /// New messages, of which this is the first.
    Messages(MessageId),
    /// A stored question that is answered anew: its last message.
    Anew(MessageId),
}

impl Store {
    /// Finds the turn with this request id in a conversation. It may have ended.
    pub async fn find_turn(
        &self,
        caller: Caller,
        id: ConversationId,
        request_id: &str,
    ) -> Result<Option<AskedTurn>, StoreError> {
        self.find_asked_turn(caller, id, Some(request_id)).await
    }

    /// Finds the turn that is under way in a conversation, on whichever server it runs. A turn
    /// whose server has died is under way until its lease ends.
    pub async fn find_turn_under_way(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<Option<AskedTurn>, StoreError> {
        self.find_asked_turn(caller, id, None).await
    }

    async fn find_asked_turn(
        &self,
        caller: Caller,
        id: ConversationId,
        request_id: Option<&str>,
    ) -> Result<Option<AskedTurn>, StoreError> {
        // Leases are read where they are written: a standby may be behind.
        let mut db = self.writes.checkout(caller).await?;
        let found = select_turn(&mut db, (caller, id), request_id).await;
        db.settle(found).await
    }
}

async fn select_turn(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    request_id: Option<&str>,
) -> Result<Option<AskedTurn>, StoreError> {
    let row = sqlx::query_file!(
        "sql/find_turn_question.sql",
        caller.tenant().0,
        id.0,
        request_id,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| {
        let anew = row.question.map(|id| TurnQuestion::Anew(MessageId(id)));
        let first = row.first.map(|id| TurnQuestion::Messages(MessageId(id)));
        AskedTurn {
            request_id: row.request_id,
            question: anew.or(first),
        }
    }))
}
