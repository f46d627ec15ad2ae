//! Creates a conversation, once per request id.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
};

use super::{
    conversation::{Conversation, CountedConversation, select_conversation},
    insert::{id_of_request, insert_conversation, read_create_digest},
};
use crate::{
    Store,
    error::{StoreError, violated},
    failpoint,
};

impl Store {
    /// Creates a conversation. With a request id, a repetition of the call returns the same
    /// conversation. `request_digest` is the digest of the request itself, before the server's
    /// settings are applied: it identifies a repetition even if these settings have changed since.
    pub async fn create_conversation(
        &self,
        caller: Caller,
        request_id: Option<&str>,
        request_digest: Digest,
        new: &CountedConversation,
    ) -> Result<Conversation, StoreError> {
        let id = id_of_request(caller, request_id);
        let digest = request_id.map(|_| request_digest.as_slice());
        let mut db = self.writes.checkout(caller).await?;
        match insert_conversation(&mut db, caller, id, "", digest, new).await {
            Ok(()) => {}
            Err(error) if violated(&error) == Some("ai_conversation_pkey") => {
                let stored = read_create_digest(&mut db, caller, id).await?;
                if stored.as_deref() != Some(request_digest.as_slice()) {
                    db.release().await?;
                    return Err(StoreError::RequestIdCreated(ConversationId(id)));
                }
            }
            Err(error) => return Err(error.into()),
        }
        failpoint!("create.inserted");
        let created = select_conversation(&mut db, caller, ConversationId(id)).await?;
        db.release().await?;
        Ok(created)
    }
}
