//! Derives the id of a new conversation, inserts its row, and reads which request created it.

use anneal_core::{caller::Caller, digest};
use uuid::Uuid;

use super::conversation::{CountedConversation, chat_options_column};
use crate::{
    connection::BoundedConnection,
    rows::{column, encoding_code, json},
};

/// Derives the id of a new conversation from what causes its creation, for example a request id or
/// the id of an older system's conversation. It is a version 8 uuid, computed from the tenant and
/// `names`. The same cause always gives the same id.
pub(crate) fn derived_id<const N: usize>(caller: Caller, names: [&[u8]; N]) -> Uuid {
    let tenant = caller.tenant().0;
    let digest = digest::of_fields(std::iter::once(tenant.as_bytes().as_slice()).chain(names));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::new_v8(bytes)
}

/// Derives an id as [`derived_id`] does, of the request that `names` name. Each user, agent and
/// conversation that credentials are bound to has request ids of its own: a bound caller does not
/// learn that somebody else has used the same one.
pub(crate) fn id_of_names<const N: usize>(caller: Caller, names: [&[u8]; N]) -> Uuid {
    let Some(bound) = caller.bound() else {
        return derived_id(caller, names);
    };
    let bound = bound.setting();
    let request = digest::of_fields(names);
    derived_id(caller, [b"bound", bound.as_bytes(), &request])
}

/// The id of the conversation that a call with this request id creates, or of a new one. The calls
/// that create a conversation, or fork one, have their request ids in common: each creates one.
pub(crate) fn id_of_request(caller: Caller, request_id: Option<&str>) -> Uuid {
    let derived = |request_id: &str| id_of_names(caller, [b"create", request_id.as_bytes()]);
    request_id.map_or_else(Uuid::now_v7, derived)
}

/// Inserts a conversation. If `session_key` is not empty, also inserts the session in which it is
/// active. `digest` is that of the request, if the request has an id. If either row exists already,
/// stores nothing and fails with an error that names the violated constraint.
pub(crate) async fn insert_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    id: Uuid,
    session_key: &str,
    digest: Option<&[u8]>,
    counted: &CountedConversation,
) -> Result<(), sqlx::Error> {
    if db.is_in_transaction() {
        // A savepoint, so that the caller can continue in the same transaction if the conversation
        // is stored already.
        let mut tx = db.begin().await?;
        let inserted = insert_row(&mut tx, caller, id, session_key, digest, counted).await;
        return if inserted.is_ok() {
            tx.commit().await
        } else {
            tx.rollback().await.and(inserted)
        };
    }
    insert_row(db, caller, id, session_key, digest, counted).await
}

/// Reads the digest of the request that created a conversation. None: there is no such
/// conversation, or its request had no id.
pub(crate) async fn read_create_digest(
    db: &mut BoundedConnection,
    caller: Caller,
    id: Uuid,
) -> Result<Option<Vec<u8>>, sqlx::Error> {
    let stored = sqlx::query_scalar!(
        "select create_digest from ai_conversation where tenant_id = $1 and conversation_id = $2",
        caller.tenant().0,
        id,
    )
    .fetch_optional(db)
    .await?;
    Ok(stored.flatten())
}

async fn insert_row(
    db: &mut BoundedConnection,
    caller: Caller,
    id: Uuid,
    session_key: &str,
    digest: Option<&[u8]>,
    counted: &CountedConversation,
) -> Result<(), sqlx::Error> {
    let CountedConversation {
        new,
        system_prompt_tokens,
    } = counted;
    sqlx::query_file!(
        "sql/create_conversation.sql",
        caller.tenant().0,
        id,
        new.agent_id,
        new.user_id,
        new.title,
        new.pinned,
        json(&new.metadata),
        new.system_prompt,
        column(*system_prompt_tokens),
        json(&new.policy),
        encoding_code(new.encoding),
        digest,
        session_key,
        chat_options_column(&new.chat_options),
    )
    .execute(db)
    .await?;
    Ok(())
}
