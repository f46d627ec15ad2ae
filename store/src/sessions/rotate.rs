//! Rotates a session: replaces its active conversation by a new one.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
    session_key::SessionKey,
};
use uuid::Uuid;

use super::{MAX_TRIES, StoredSession, session};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::{
        CountedConversation,
        insert::{id_of_names, insert_conversation},
        lift_binding, lock_conversation,
    },
    error::{Entity, StoreError, violated},
    rows::{column, encoding_code, json},
};

/// The attributes of the conversation that a rotation creates.
#[derive(Debug, Clone)]
pub enum RotationAttributes {
    /// A copy of the old conversation's attributes, but without a title and not pinned. The given
    /// attributes apply only if there is no old conversation.
    CopyOfOld(CountedConversation),
    /// The given attributes.
    Given(CountedConversation),
}

/// A rotation to execute.
#[derive(Debug, Clone)]
pub struct Rotation<'a> {
    /// The session's key.
    pub key: &'a SessionKey,
    /// The caller's request id. None: a repetition rotates again.
    pub request_id: Option<&'a str>,
    /// Digest of the caller's request.
    pub request_digest: Digest,
    /// The attributes of the new conversation.
    pub attributes: RotationAttributes,
}

impl Store {
    /// Replaces a session's active conversation by a new one, and archives the old one; with a
    /// request id only once. If the key has no session yet, creates it.
    pub async fn rotate_session(
        &self,
        caller: Caller,
        rotation: &Rotation<'_>,
    ) -> Result<StoredSession, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let rotated = rotate_with_retries(&mut db, caller, rotation).await;
        db.settle(rotated).await
    }
}

async fn rotate_with_retries(
    db: &mut BoundedConnection,
    caller: Caller,
    rotation: &Rotation<'_>,
) -> Result<StoredSession, StoreError> {
    let key = rotation.key.as_str().as_bytes();
    let derived = |request_id: &str| id_of_names(caller, [b"rotate", key, request_id.as_bytes()]);
    let id = rotation.request_id.map_or_else(Uuid::now_v7, derived);
    let mut finds_active = false;
    for _ in 0..MAX_TRIES {
        if rotation.request_id.is_some()
            && let Some(session) = find_rotation(db, caller, rotation, id).await?
        {
            return Ok(session);
        }
        let active = find_active(db, caller, rotation.key).await?;
        finds_active = active.is_some();
        let tried = match active {
            None => insert_first(db, caller, rotation, id).await?,
            Some(old) => replace_active(db, caller, rotation, old, id).await?,
        };
        if let Some(session) = tried {
            return Ok(session);
        }
    }
    // The session is there, but its conversation is not among those that the caller is bound to.
    if !finds_active && caller.bound().is_some() {
        return Err(StoreError::NotFound(Entity::Conversation));
    }
    Err(StoreError::SessionMoved)
}

/// Finds the conversation with the id that this rotation gives. Fails if a different request has
/// created it.
async fn find_rotation(
    db: &mut BoundedConnection,
    caller: Caller,
    rotation: &Rotation<'_>,
    id: Uuid,
) -> Result<Option<StoredSession>, StoreError> {
    let row = sqlx::query_file!("sql/find_rotated.sql", caller.tenant().0, id)
        .fetch_optional(db)
        .await?;
    let Some(row) = row else { return Ok(None) };
    if rotation.request_id.is_some()
        && row.create_digest.as_deref() != Some(rotation.request_digest.as_slice())
    {
        return Err(StoreError::RequestIdReused);
    }
    Ok(Some(session!(row, true)))
}

async fn find_active(
    db: &mut BoundedConnection,
    caller: Caller,
    key: &SessionKey,
) -> Result<Option<ConversationId>, StoreError> {
    let id = sqlx::query_scalar!(
        "select conversation_id from ai_session where tenant_id = $1 and session_key = $2",
        caller.tenant().0,
        key.as_str(),
    )
    .fetch_optional(db)
    .await?;
    Ok(id.map(ConversationId))
}

/// Inserts the first conversation of a session. Returns None if another call has created the
/// session or this conversation meanwhile.
async fn insert_first(
    db: &mut BoundedConnection,
    caller: Caller,
    rotation: &Rotation<'_>,
    id: Uuid,
) -> Result<Option<StoredSession>, StoreError> {
    let (RotationAttributes::CopyOfOld(new) | RotationAttributes::Given(new)) =
        &rotation.attributes;
    let digest = rotation
        .request_id
        .map(|_| rotation.request_digest.as_slice());
    match insert_conversation(db, caller, id, rotation.key.as_str(), digest, new).await {
        Ok(()) => find_rotation(db, caller, rotation, id).await,
        Err(error) if already_exists(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Replaces the active conversation under its row lock. Returns None if another call has replaced
/// or deleted it meanwhile, or has executed the same request.
async fn replace_active(
    db: &mut BoundedConnection,
    caller: Caller,
    rotation: &Rotation<'_>,
    old: ConversationId,
    id: Uuid,
) -> Result<Option<StoredSession>, StoreError> {
    let mut tx = db.begin().await?;
    let replacement = match lock_conversation(&mut tx, caller, old).await {
        Ok(_) => {
            // The statement moves the session to a conversation that it creates itself, and policies
            // would have to see that one. Its user and agent are those of the old one, or those
            // that the caller is bound to.
            lift_binding(&mut tx, caller).await?;
            insert_replacement(&mut tx, caller, rotation, old, id).await?
        }
        Err(StoreError::NotFound(_)) => Replacement::TooLate,
        Err(error) => return Err(error),
    };
    match replacement {
        Replacement::Done => {
            // Read before the commit, after which another call can delete the conversation.
            let session = find_rotation(&mut tx, caller, rotation, id).await?;
            tx.commit().await?;
            Ok(session)
        }
        Replacement::TooLate => {
            tx.rollback().await?;
            Ok(None)
        }
    }
}

/// Whether the new conversation replaced the active one.
enum Replacement {
    /// The new conversation is active.
    Done,
    /// The old conversation is no longer active or no longer exists, or the same request has
    /// created the new one already.
    TooLate,
}

async fn insert_replacement(
    tx: &mut BoundedConnection,
    caller: Caller,
    rotation: &Rotation<'_>,
    old: ConversationId,
    id: Uuid,
) -> Result<Replacement, StoreError> {
    let (new, tokens) = match &rotation.attributes {
        RotationAttributes::Given(counted) => (
            Some(&counted.new),
            Some(column(counted.system_prompt_tokens)),
        ),
        RotationAttributes::CopyOfOld(_) => (None, None),
    };
    let inserted = sqlx::query_file!(
        "sql/rotate_session.sql",
        caller.tenant().0,
        rotation.key.as_str(),
        old.0,
        id,
        new.map(|new| new.agent_id.as_str()),
        new.map(|new| new.user_id.as_str()),
        new.map(|new| new.title.as_str()),
        new.map(|new| new.pinned),
        new.map(|new| json(&new.metadata)),
        new.map(|new| new.system_prompt.as_str()),
        tokens,
        new.map(|new| json(&new.policy)),
        new.map(|new| encoding_code(new.encoding)),
        rotation
            .request_id
            .map(|_| rotation.request_digest.as_slice()),
    )
    .execute(tx)
    .await;
    match inserted {
        Ok(done) if done.rows_affected() == 1 => Ok(Replacement::Done),
        Ok(_) => Ok(Replacement::TooLate),
        Err(error) if already_exists(&error) => Ok(Replacement::TooLate),
        Err(error) => Err(error.into()),
    }
}

/// Whether an insert failed because another call has just created the same session, or the same
/// conversation for the same request.
fn already_exists(error: &sqlx::Error) -> bool {
    matches!(
        violated(error),
        Some("ai_session_pkey" | "ai_conversation_pkey")
    )
}
