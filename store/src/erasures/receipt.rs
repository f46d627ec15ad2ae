//! What was erased, for whom and when, without any content. The receipt of messages and of one
//! conversation is stored in the transaction that erases them.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::{self, Digest, SetDigest},
};
use uuid::Uuid;

use super::row_counts::RowCounts;
use crate::{
    connection::BoundedConnection,
    conversations::insert::{derived_id, id_of_names},
    error::StoreError,
    rows::{Micros, json},
};

/// What is erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErasureKind {
    /// Messages of a conversation.
    Messages,
    /// A conversation.
    Conversation,
    /// All conversations of a user.
    User,
    /// All conversations of the tenant.
    Tenant,
}

impl ErasureKind {
    pub(super) const fn code(self) -> i16 {
        match self {
            Self::Messages => 1,
            Self::Conversation => 2,
            Self::User => 3,
            Self::Tenant => 4,
        }
    }

    pub(super) const fn from_code(code: i16) -> Option<Self> {
        match code {
            1 => Some(Self::Messages),
            2 => Some(Self::Conversation),
            3 => Some(Self::User),
            4 => Some(Self::Tenant),
            _ => None,
        }
    }
}

/// Whether an erasure has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErasureState {
    /// Something may be left.
    Running,
    /// Nothing was left when it ended.
    Done,
}

/// An erasure: the work that is left, or the receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erasure {
    /// Its id. None: it was only planned, and nothing is stored of it.
    pub id: Option<Uuid>,
    /// What is erased.
    pub kind: ErasureKind,
    /// Whether it has ended.
    pub state: ErasureState,
    /// The name of the caller that asked for it, as in logs.
    pub requested_by: String,
    /// When it was asked for. None: it was only planned.
    pub requested: Option<Micros>,
    /// When it ended. None: it has not.
    pub ended: Option<Micros>,
    /// The conversation; None if it is about a user or the tenant.
    pub conversation: Option<ConversationId>,
    /// SHA-256 of the tenant and the user's id; None if it is not about a user.
    pub subject_digest: Option<Vec<u8>>,
    /// Conversations that were there at its first step; of a plan, that are there now. None: they
    /// are not counted.
    pub expected_conversations: Option<i64>,
    /// Messages that were there then.
    pub expected_messages: Option<i64>,
    /// Conversations that are deleted.
    pub conversations: i64,
    /// Messages that are erased.
    pub messages: i64,
    /// Rows that are deleted or emptied, by table.
    pub rows: BTreeMap<String, i64>,
    /// Digest of the ids of what is erased.
    pub ids_digest: SetDigest,
}

/// A row of `ai_erasure`.
pub(super) struct ErasureRow {
    pub(super) erasure_id: Uuid,
    pub(super) kind: i16,
    pub(super) state: i16,
    pub(super) request_digest: Vec<u8>,
    pub(super) requested_by: String,
    pub(super) requested_us: i64,
    pub(super) ended_us: Option<i64>,
    pub(super) subject_digest: Option<Vec<u8>>,
    pub(super) subject_id: Option<Uuid>,
    pub(super) expected_conversations: Option<i64>,
    pub(super) expected_messages: Option<i64>,
    pub(super) conversations: i64,
    pub(super) messages: i64,
    pub(super) rows_erased: String,
    pub(super) ids_digest: Vec<u8>,
}

impl TryFrom<ErasureRow> for Erasure {
    type Error = StoreError;

    fn try_from(row: ErasureRow) -> Result<Self, StoreError> {
        let kind = ErasureKind::from_code(row.kind).ok_or(StoreError::Unreadable("erasure"))?;
        Ok(Self {
            id: Some(row.erasure_id),
            kind,
            state: if row.state == 1 {
                ErasureState::Done
            } else {
                ErasureState::Running
            },
            requested_by: row.requested_by,
            requested: Some(Micros(row.requested_us)),
            ended: row.ended_us.map(Micros),
            conversation: row.subject_id.map(ConversationId),
            subject_digest: row.subject_digest,
            expected_conversations: row.expected_conversations,
            expected_messages: row.expected_messages,
            conversations: row.conversations,
            messages: row.messages,
            rows: RowCounts::parse(&row.rows_erased)?.0,
            ids_digest: set_digest(&row.ids_digest)?,
        })
    }
}

/// The digest in the column `ids_digest`.
pub(super) fn set_digest(column: &[u8]) -> Result<SetDigest, StoreError> {
    Digest::try_from(column)
        .map(SetDigest)
        .map_err(|_| StoreError::Unreadable("digest of ids"))
}

/// The id of the erasure that a request causes. A repetition has the same one. Without a request
/// id, every call has another one.
pub(super) fn erasure_id(caller: Caller, method: &str, request_id: Option<&str>) -> Uuid {
    let derived = |request_id: &str| {
        id_of_names(
            caller,
            [b"erasure", method.as_bytes(), request_id.as_bytes()],
        )
    };
    request_id.map_or_else(Uuid::now_v7, derived)
}

/// Digest of a user's id, which an erasure keeps instead of the id.
pub(super) fn user_digest(caller: Caller, user_id: &str) -> Digest {
    digest::of_fields([caller.tenant().0.as_bytes().as_slice(), user_id.as_bytes()])
}

/// The id of the receipt of erased messages: that of the change that has erased them. `created`:
/// when the conversation was created. A conversation that is deleted and created again with the
/// same request id has the same id, and begins again with change 1.
pub(crate) fn message_receipt_id(
    caller: Caller,
    (id, created): (ConversationId, Micros),
    change_id: i64,
) -> Uuid {
    derived_id(
        caller,
        [
            b"erased messages",
            id.0.as_bytes(),
            &created.0.to_be_bytes(),
            &change_id.to_be_bytes(),
        ],
    )
}

/// The receipt of what one transaction has erased of one conversation.
pub(crate) struct Receipt<'a> {
    pub(crate) id: Uuid,
    pub(crate) kind: ErasureKind,
    pub(crate) request_digest: Digest,
    pub(crate) requested_by: &'a str,
    pub(crate) conversation: ConversationId,
    pub(crate) messages: i64,
    pub(crate) rows: RowCounts,
    pub(crate) ids_digest: SetDigest,
}

/// Stores a receipt. Fails with [`StoreError::RequestIdReused`] if there is one with this id:
/// another request with the same request id has erased something else.
pub(crate) async fn insert_receipt(
    db: &mut BoundedConnection,
    caller: Caller,
    receipt: &Receipt<'_>,
) -> Result<(), StoreError> {
    let conversations = i64::from(receipt.kind == ErasureKind::Conversation);
    let inserted = sqlx::query_file!(
        "sql/insert_receipt.sql",
        caller.tenant().0,
        receipt.id,
        receipt.kind.code(),
        receipt.request_digest.as_slice(),
        receipt.requested_by,
        receipt.conversation.0,
        conversations,
        receipt.messages,
        json(&receipt.rows.0),
        receipt.ids_digest.0.as_slice(),
    )
    .execute(db)
    .await?;
    if inserted.rows_affected() == 0 {
        return Err(StoreError::RequestIdReused);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use anneal_core::caller::TenantId;

    use super::*;

    #[test]
    fn receipts_of_a_conversation_that_was_created_again_have_other_ids() {
        let caller = Caller::of(TenantId(Uuid::from_u128(1)));
        let id = |created: i64, change_id: i64| {
            let conversation = ConversationId(Uuid::from_u128(2));
            message_receipt_id(caller, (conversation, Micros(created)), change_id)
        };
        assert_eq!(id(5, 2), id(5, 2));
        assert_ne!(id(5, 2), id(6, 2));
        assert_ne!(id(5, 2), id(5, 3));
    }
}
