//! Changes a conversation's attributes, once per request id.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
    tokens::Tokens,
    trigger,
};

use super::{
    conversation::{
        Conversation, ConversationChange, ConversationStatus, chat_options_column,
        select_conversation,
    },
    lock::lock_conversation,
};
use crate::{
    Store,
    connection::BoundedConnection,
    error::StoreError,
    idempotency::{self, EarlierRequest, IdempotentRequest},
    policy_defaults::PolicyDefaults,
    queue::enqueue_jobs,
    rows::{column, json},
    triggers::tail_stats,
};

impl Store {
    /// Updates a conversation; with a request id only once. After a new policy or system prompt,
    /// checks the triggers and enqueues the jobs that are due. `prompt_tokens` is the count of a
    /// new system prompt in the conversation's encoding. The caller counts before, so that the row
    /// lock is not held meanwhile; this is safe because the encoding never changes.
    pub async fn update_conversation(
        &self,
        caller: Caller,
        id: ConversationId,
        request_id: Option<&str>,
        digest: Digest,
        change: &ConversationChange,
        prompt_tokens: Option<Tokens>,
    ) -> Result<Conversation, StoreError> {
        let request = IdempotentRequest {
            method: "update_conversation",
            id: request_id,
            digest,
        };
        let mut db = self.writes.checkout(caller).await?;
        let changed = update_once(
            &mut db,
            caller,
            id,
            &request,
            (change, prompt_tokens),
            &self.policy_defaults.get(),
        )
        .await;
        db.settle(changed).await
    }
}

async fn update_once(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    request: &IdempotentRequest<'_>,
    (change, prompt_tokens): (&ConversationChange, Option<Tokens>),
    policy_defaults: &PolicyDefaults,
) -> Result<Conversation, StoreError> {
    let mut tx = db.begin().await?;
    let revision = lock_conversation(&mut tx, caller, id).await?;
    if let EarlierRequest::None = idempotency::find_request(&mut tx, caller, id, request).await? {
        if change.revision.is_some_and(|expected| expected != revision) {
            return Err(StoreError::EtagMismatch);
        }
        sqlx::query_file!(
            "sql/update_conversation.sql",
            caller.tenant().0,
            id.0,
            change.title,
            change.status.map(ConversationStatus::code),
            change.pinned,
            change.metadata.as_ref().map(json),
            change.system_prompt,
            prompt_tokens.map(column),
            change.policy.as_ref().map(json),
            change.chat_options.is_some(),
            change.chat_options.as_ref().and_then(chat_options_column),
        )
        .execute(&mut *tx)
        .await?;
        if change.policy.is_some() || change.system_prompt.is_some() {
            let state = tail_stats::read_tail_state(&mut tx, caller, id, policy_defaults).await?;
            let due = trigger::due_jobs(&state);
            let traceparent = anneal_trace::current_traceparent();
            enqueue_jobs(&mut tx, caller, id, &due, traceparent.as_deref()).await?;
        }
        idempotency::put_request(&mut tx, caller, id, request, None).await?;
    }
    let changed = select_conversation(&mut tx, caller, id).await?;
    tx.commit().await?;
    Ok(changed)
}
