//! Deletes conversations for an erasure, and counts what is deleted.

use anneal_core::caller::{Caller, ConversationId};

use super::row_counts::{RowCounts, count_rows};
use crate::{
    connection::BoundedConnection,
    conversations::{DeletedRows, delete_messages_of, delete_rest_of},
    error::StoreError,
};

/// A deletion of conversations under way.
#[derive(Debug, Default)]
pub(super) struct Deletion {
    ids: Vec<ConversationId>,
    messages: i64,
    versions: i64,
    bytes: i64,
    freed: DeletedRows,
}

/// The deleted rows.
#[derive(Debug)]
pub(super) struct Deleted {
    pub(super) ids: Vec<ConversationId>,
    pub(super) messages: i64,
    /// Deleted rows, by table.
    pub(super) rows: RowCounts,
    /// The figures by which the tenant's usage is lowered.
    pub(super) freed: DeletedRows,
}

impl Deletion {
    /// The conversations, so far.
    pub(super) fn ids(&self) -> &[ConversationId] {
        &self.ids
    }

    /// Their messages, so far.
    pub(super) const fn messages(&self) -> i64 {
        self.messages
    }

    /// The bytes of the content of these messages and of their versions.
    pub(super) const fn bytes(&self) -> i64 {
        self.bytes
    }

    /// Deletes the messages of a conversation, which the caller has locked for deletion.
    pub(super) async fn add(
        &mut self,
        db: &mut BoundedConnection,
        caller: Caller,
        id: ConversationId,
    ) -> Result<(), StoreError> {
        let deleted = delete_messages_of(db, caller, id).await?;
        self.ids.push(id);
        self.messages += deleted.messages;
        self.versions += deleted.versions;
        self.bytes += deleted.bytes;
        self.freed.add(deleted.freed);
        Ok(())
    }

    /// Deletes everything else of the conversations. Jobs of several conversations are locked by
    /// one statement, in order.
    pub(super) async fn finish(
        self,
        db: &mut BoundedConnection,
        caller: Caller,
    ) -> Result<Deleted, StoreError> {
        let mut rows = count_rows(db, caller, &self.ids).await?;
        rows.add("ai_message", self.messages);
        rows.add("ai_message_version", self.versions);
        delete_rest_of(db, caller, &self.ids).await?;
        Ok(Deleted {
            ids: self.ids,
            messages: self.messages,
            rows,
            freed: self.freed,
        })
    }
}
