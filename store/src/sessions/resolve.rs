//! Finds the active conversation of a session key, and creates one if there is none.

use anneal_core::{
    caller::{Caller, ConversationId},
    session_key::SessionKey,
};
use uuid::Uuid;

use super::{MAX_TRIES, StoredSession, session};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::{CountedConversation, insert::insert_conversation},
    error::{Entity, StoreError, violated},
};

impl Store {
    /// Finds the session of a key with its active conversation. None: there is none.
    pub async fn find_session(
        &self,
        caller: Caller,
        key: &SessionKey,
    ) -> Result<Option<StoredSession>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = find_session(&mut db, caller, key).await;
        db.settle(found).await
    }

    /// Returns the session of a key with its active conversation. If there is none, creates both;
    /// `new` are the attributes of the conversation. Concurrent calls create only one.
    pub async fn resolve_session(
        &self,
        caller: Caller,
        key: &SessionKey,
        new: &CountedConversation,
    ) -> Result<StoredSession, StoreError> {
        if let Some(session) = self.find_session(caller, key).await? {
            return Ok(session);
        }
        let mut db = self.writes.checkout(caller).await?;
        let created = create_session(&mut db, caller, key, new).await;
        db.settle(created).await
    }
}

/// Finds the session of a key.
async fn find_session(
    db: &mut BoundedConnection,
    caller: Caller,
    key: &SessionKey,
) -> Result<Option<StoredSession>, StoreError> {
    let row = sqlx::query_file!("sql/find_session.sql", caller.tenant().0, key.as_str())
        .fetch_optional(db)
        .await?;
    Ok(match row {
        Some(row) => Some(session!(row, false)),
        None => None,
    })
}

/// Creates the session of a key, or finds the one that another call has created meanwhile.
async fn create_session(
    db: &mut BoundedConnection,
    caller: Caller,
    key: &SessionKey,
    new: &CountedConversation,
) -> Result<StoredSession, StoreError> {
    let mut is_taken = false;
    for _ in 0..MAX_TRIES {
        let id = Uuid::now_v7();
        is_taken = false;
        match insert_conversation(db, caller, id, key.as_str(), None, new).await {
            Ok(()) => {}
            Err(error) if violated(&error) == Some("ai_session_pkey") => is_taken = true,
            Err(error) => return Err(error.into()),
        }
        if let Some(session) = find_session(db, caller, key).await? {
            let is_new = session.conversation.id == ConversationId(id);
            return Ok(StoredSession { is_new, ..session });
        }
        // Another call has deleted the session's conversation meanwhile: try again.
    }
    // The session is there, but its conversation is not among those that the caller is bound to.
    if is_taken && caller.bound().is_some() {
        return Err(StoreError::NotFound(Entity::Conversation));
    }
    Err(StoreError::SessionMoved)
}
