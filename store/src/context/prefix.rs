//! Recorded versions of the beginning of a conversation's contexts, which a provider can cache. A
//! new version is recorded when a context no longer begins like the last recorded version.

use anneal_core::{
    caller::{Caller, ConversationId},
    context::{BreakReason, NewVersion, PendingChange},
    digest::Digest,
    message::MessageId,
};

use crate::{Store, connection::BoundedConnection, error::StoreError, rows::column};

impl Store {
    /// Records a new version of the beginning of a conversation's contexts. Returns false if
    /// another call has recorded one first, or if messages were changed since the context was read;
    /// then the context must be built again.
    pub async fn record_prefix(
        &self,
        caller: Caller,
        id: ConversationId,
        new: &NewVersion,
    ) -> Result<bool, StoreError> {
        let version = &new.version;
        let swapped: Vec<i64> = version.swapped.iter().map(|id| id.0).collect();
        let mut db = self.writes.checkout(caller).await?;
        let recorded = sqlx::query_file!(
            "sql/record_prefix.sql",
            caller.tenant().0,
            id.0,
            version.epoch,
            version.hash.as_slice(),
            version.boundary.0,
            version.system_prompt.as_slice(),
            swapped.last().copied().unwrap_or(0),
            &swapped,
            new.last_message_id.0,
            reason_code(new.reason),
            new.broken_at.0,
            column(new.rewritten),
            column(new.saved),
            version.cut,
            (version.change_epoch > 0).then_some(version.change_epoch),
            version.identity.model.as_deref(),
            version.identity.tools.as_ref().map(Digest::as_slice),
            version.identity.options.as_ref().map(Digest::as_slice),
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        Ok(recorded.rows_affected() == 1)
    }
}

/// The last of the messages that neither the context that was recorded last nor the next one sends:
/// a change of messages up to this one breaks nothing. [`MessageId::NONE`]: any message may be sent.
/// `separator`: the message before the last separator; NONE if there is none.
pub(crate) async fn find_last_unsent(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    separator: MessageId,
) -> Result<MessageId, StoreError> {
    if separator == MessageId::NONE {
        return Ok(MessageId::NONE);
    }
    let boundary = sqlx::query_scalar!(
        "select boundary_message_id from ai_context_prefix where tenant_id = $1 and conversation_id = $2
         order by epoch desc limit 1",
        caller.tenant().0,
        id.0,
    )
    .fetch_optional(db)
    .await?;
    // A version from before the separator: deleting the separator lets contexts start there again.
    let starts_after_separator = boundary.is_some_and(|boundary| boundary >= separator.0);
    Ok(if starts_after_separator {
        separator
    } else {
        MessageId::NONE
    })
}

/// A change of stored messages that a context depends on.
pub(crate) struct PrefixMark {
    /// [`BreakReason::Withdrawal`], [`BreakReason::Edit`] or [`BreakReason::Erasure`].
    pub(crate) reason: BreakReason,
    /// The first changed message; [`MessageId::NONE`] if the boundary moved.
    pub(crate) broken_at: MessageId,
    /// The newest message of the conversation.
    pub(crate) last_message_id: MessageId,
}

/// Marks a change, in the transaction of the change: contexts that were read before it are built
/// again, and the next one names the change as the reason of its cache break.
pub(crate) async fn mark_prefix(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    mark: &PrefixMark,
) -> Result<(), StoreError> {
    // The mark must be the newest row. A context may record a version until the mark has its number;
    // the next try then sees that version.
    loop {
        let marked = sqlx::query_file!(
            "sql/mark_prefix.sql",
            caller.tenant().0,
            id.0,
            reason_code(mark.reason),
            mark.broken_at.0,
            mark.last_message_id.0,
        )
        .execute(&mut *db)
        .await?;
        if marked.rows_affected() == 1 {
            return Ok(());
        }
    }
}

/// The change that a mark stands for. `broken`: its column `broken_message_id`.
pub(super) const fn pending_change(reason: i16, broken: i64) -> Result<PendingChange, StoreError> {
    let (reason, at) = match reason {
        1 => (BreakReason::First, MessageId::NONE),
        9 => (BreakReason::Withdrawal, MessageId(broken)),
        10 => (BreakReason::Edit, MessageId(broken)),
        11 => (BreakReason::Erasure, MessageId(broken)),
        _ => return Err(StoreError::Unreadable("prefix")),
    };
    Ok(PendingChange { reason, at })
}

/// The value of `ai_context_prefix.reason` and of `ai_model_call.break_reason`.
pub(crate) const fn reason_code(reason: BreakReason) -> i16 {
    match reason {
        BreakReason::First => 1,
        BreakReason::Checkpoint => 2,
        BreakReason::Separator => 3,
        BreakReason::SystemPrompt => 4,
        BreakReason::Swap => 5,
        BreakReason::Budget => 6,
        BreakReason::Repair => 7,
        BreakReason::Idle => 8,
        BreakReason::Withdrawal => 9,
        BreakReason::Edit => 10,
        BreakReason::Erasure => 11,
        BreakReason::Model => 12,
        BreakReason::Tools => 13,
        BreakReason::Options => 14,
    }
}

/// The reason with this [`reason_code`]; None: it is one of a newer version.
pub(crate) fn break_reason(code: i16) -> Option<BreakReason> {
    let reasons = [
        BreakReason::First,
        BreakReason::Checkpoint,
        BreakReason::Separator,
        BreakReason::SystemPrompt,
        BreakReason::Swap,
        BreakReason::Budget,
        BreakReason::Repair,
        BreakReason::Idle,
        BreakReason::Withdrawal,
        BreakReason::Edit,
        BreakReason::Erasure,
        BreakReason::Model,
        BreakReason::Tools,
        BreakReason::Options,
    ];
    reasons
        .into_iter()
        .find(|reason| reason_code(*reason) == code)
}
