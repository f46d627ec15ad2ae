//! Making a conversation: its id and its row, whoever asks for it.

use anneal_core::{caller::Caller, digest};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::{
    conversations::CountedConversation,
    pool::is_in_transaction,
    rows::{column, encoding_code, json},
};

/// The id that a cause of creation (a repeatable request, an older conversation) always gives: version 8, from the tenant and
/// what names the cause.
pub(crate) fn derived_id<const N: usize>(caller: Caller, names: [&[u8]; N]) -> Uuid {
    let tenant = caller.tenant().0;
    let digest = digest::of_fields(std::iter::once(tenant.as_bytes().as_slice()).chain(names));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::new_v8(bytes)
}

/// Stores a new conversation, and with a session key the session that it is active in. Fails with the name of a violated
/// key where either is there already; then neither is stored.
pub(crate) async fn insert(
    db: &mut PgConnection,
    caller: Caller,
    id: Uuid,
    session_key: &str,
    digest: Option<&[u8]>,
    counted: &CountedConversation,
) -> Result<(), sqlx::Error> {
    if is_in_transaction(db) {
        // Whoever learns that it is there already goes on in the same transaction.
        let mut tx = db.begin().await?;
        let inserted = put(&mut tx, caller, id, session_key, digest, counted).await;
        return if inserted.is_ok() { tx.commit().await } else { tx.rollback().await.and(inserted) };
    }
    put(db, caller, id, session_key, digest, counted).await
}

async fn put(
    db: &mut PgConnection,
    caller: Caller,
    id: Uuid,
    session_key: &str,
    digest: Option<&[u8]>,
    counted: &CountedConversation,
) -> Result<(), sqlx::Error> {
    let CountedConversation { new, system_prompt_tokens } = counted;
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
    )
    .execute(db)
    .await?;
    Ok(())
}
