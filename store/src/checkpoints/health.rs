//! Whether summaries of a conversation can be made now.

use std::time::Duration;

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    message::MessageId,
};

use crate::{
    Store,
    error::{Entity, StoreError},
    rows::time_left,
};

/// What keeps summaries of a conversation from being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryHealth {
    /// Triggers cause no checkpoint until a message after this one is the newest. None: they wait
    /// for none.
    pub until: Option<MessageId>,
    /// Whether a job was given up.
    pub is_dead: bool,
    /// When the model is tried again. None: no breaker is open.
    pub retry_after: Option<Duration>,
    /// The last failure, by its name and status, without content. Empty: none.
    pub last_failure: String,
}

impl Store {
    /// Reads what keeps summaries of a conversation from being made. `model` writes them; empty:
    /// the built-in summarizer does.
    pub async fn read_summary_health(
        &self,
        caller: Caller,
        id: ConversationId,
        model: &str,
    ) -> Result<SummaryHealth, StoreError> {
        let kinds = [
            JobKind::Checkpoint.code(),
            JobKind::SummarizeMessages.code(),
        ];
        let mut db = self.reads.checkout(caller).await?;
        let row = sqlx::query_file!(
            "sql/summary_health.sql",
            caller.tenant().0,
            id.0,
            model,
            &kinds,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        let row = row.ok_or(StoreError::NotFound(Entity::Conversation))?;
        let waits = row.stalled_message_id > 0 && row.stalled_message_id >= row.last_message_id;
        Ok(SummaryHealth {
            until: waits.then_some(MessageId(row.stalled_message_id)),
            is_dead: row.is_dead,
            retry_after: time_left(row.open_seconds),
            last_failure: row.last_failure,
        })
    }
}
