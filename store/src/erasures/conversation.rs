//! Deletes one conversation, with a receipt.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::{self, SetDigest},
};
use uuid::Uuid;

use super::{
    deletion::Deletion,
    list::select_erasure,
    receipt::{ErasureKind, Receipt, erasure_id, insert_receipt},
};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::{lock_for_deletion, subtract_usage},
    error::{Entity, StoreError},
    failpoint,
};

impl Store {
    /// Deletes a conversation and everything derived from it, and stores a receipt in the same
    /// transaction. Returns the receipt's id. With a request id, a repetition returns the same one,
    /// and deletes nothing, also if the conversation was created again meanwhile.
    pub async fn delete_conversation_with_receipt(
        &self,
        caller: Caller,
        id: ConversationId,
        (request_id, requested_by): (Option<&str>, &str),
    ) -> Result<Uuid, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let receipt = delete_once(&mut db, caller, id, (request_id, requested_by)).await;
        db.settle(receipt).await
    }
}

async fn delete_once(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    (request_id, requested_by): (Option<&str>, &str),
) -> Result<Uuid, StoreError> {
    let request_digest = digest::of_fields([id.0.as_bytes().as_slice()]);
    let receipt_id = erasure_id(caller, "delete_conversation", request_id);
    let mut tx = db.begin().await?;
    let exists = match lock_for_deletion(&mut tx, caller, id).await {
        Ok(()) => true,
        Err(StoreError::NotFound(Entity::Conversation)) => false,
        Err(error) => return Err(error),
    };
    // After the lock, so that it also sees what an earlier call has done while this one waited.
    if request_id.is_some()
        && let Some(earlier) = select_erasure(&mut tx, caller, receipt_id).await?
    {
        tx.commit().await?;
        return if earlier.request_digest == request_digest {
            Ok(receipt_id)
        } else {
            Err(StoreError::RequestIdReused)
        };
    }
    if !exists {
        return Err(StoreError::NotFound(Entity::Conversation));
    }
    let mut deletion = Deletion::default();
    deletion.add(&mut tx, caller, id).await?;
    let deleted = deletion.finish(&mut tx, caller).await?;
    let mut ids_digest = SetDigest::default();
    ids_digest.add(id.0.as_bytes());
    let receipt = Receipt {
        id: receipt_id,
        kind: ErasureKind::Conversation,
        request_digest,
        requested_by,
        conversation: id,
        messages: deleted.messages,
        rows: deleted.rows,
        ids_digest,
    };
    insert_receipt(&mut tx, caller, &receipt).await?;
    failpoint!("erasure.conversation");
    subtract_usage(&mut tx, caller, deleted.freed).await?;
    tx.commit().await?;
    Ok(receipt_id)
}
