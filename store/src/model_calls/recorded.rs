//! Finds the stored answer of an earlier turn. A repeated request gets that answer, without another
//! call of the model. Also says whether a conversation has continued since a question, or changed
//! since an answer.

use anneal_core::{
    cache::BreakReason,
    caller::{Caller, ConversationId},
    digest::Digest,
    message::{MessageId, Role},
    tokens::Tokens,
    usage::CacheState,
};

use super::usage_reports::cache_state;
use crate::{
    Store,
    connection::BoundedConnection,
    context::break_reason,
    conversations::lock_conversation,
    error::StoreError,
    messages::{ContentRead, ReadBudget, StoredMessage},
    rows::{role_code, tokens},
};

/// The stored answer of an earlier turn.
#[derive(Debug, Clone)]
pub struct StoredAnswer {
    /// The message that holds the answer.
    pub message: StoredMessage,
    /// The call that produced it. None: its usage was not recorded.
    pub call: Option<RecordedCall>,
}

/// The recorded usage of a model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// Name of the model.
    pub model: String,
    /// Input tokens, including those read from the cache and written to it.
    pub input: Tokens,
    /// Input tokens that were read from the cache.
    pub cached: Tokens,
    /// Input tokens that were written to the cache.
    pub written: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Why the model stopped, as in [`crate::UsageReport::stop_reason`].
    pub stop_reason: Option<i16>,
    /// How it used the provider's cache; None: its row is of an older server.
    pub cache: Option<RecordedCacheUse>,
}

/// How a recorded call used the provider's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedCacheUse {
    /// Tokens that were expected in the cache.
    pub expected: Tokens,
    /// Whether the cache held what was expected.
    pub state: CacheState,
    /// Why less than the last call's context was expected; None: nothing broke.
    pub break_reason: Option<BreakReason>,
    /// Input tokens that were written to a cache of an hour.
    pub long_written: Tokens,
}

/// The state of a conversation in which a turn has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnsweredState {
    /// The message that holds the answer.
    pub answer: MessageId,
    /// The newest change when the context of the answer was read.
    pub change_id: i64,
    /// The message that the context started after.
    pub boundary: MessageId,
    /// SHA-256 of the conversation's system prompt.
    pub system_prompt: Digest,
}

impl Store {
    /// Whether a question whose last message is `last` should no longer be answered, because the
    /// conversation has continued: a later message that stands is the assistant's, or a separator
    /// follows.
    pub async fn is_overtaken(
        &self,
        caller: Caller,
        id: ConversationId,
        last: MessageId,
    ) -> Result<bool, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let overtaken = sqlx::query_scalar!(
            r#"select exists (
                   select from ai_message
                   where tenant_id = $1 and conversation_id = $2 and message_id > $3 and role = $4
                       and withdrawn_ts is null
               ) or exists (
                   select from ai_separator
                   where tenant_id = $1 and conversation_id = $2 and after_message_id >= $3
               ) as "overtaken!""#,
            caller.tenant().0,
            id.0,
            last.0,
            role_code(Role::Assistant),
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(overtaken)
    }

    /// Whether the next context of a conversation would begin like that of this answer: it stands,
    /// no message follows it, no turn is under way, and since the context was read no message,
    /// boundary or system prompt has changed. Summaries of messages do not count: contexts replace
    /// messages later, and in steps.
    pub async fn is_idle_since(
        &self,
        caller: Caller,
        id: ConversationId,
        state: &AnsweredState,
    ) -> Result<bool, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let is_idle = select_is_idle(&mut db, caller, id, state).await;
        db.settle(is_idle).await
    }

    /// [`Store::is_idle_since`] under the conversation's row lock, for a call that keeps a cache
    /// warm and was admitted before: a change of messages has either committed before, which is
    /// seen, or ends the lease of that call.
    pub async fn is_still_idle_since(
        &self,
        caller: Caller,
        id: ConversationId,
        state: &AnsweredState,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let mut tx = db.begin().await?;
        lock_conversation(&mut tx, caller, id).await?;
        let is_idle = select_is_idle(&mut tx, caller, id, state).await?;
        tx.commit().await?;
        db.release().await?;
        Ok(is_idle)
    }

    /// Finds the answer that was stored under a request id, with its usage, if it fits the budget.
    /// Fails with [`StoreError::MessageWithdrawn`] if the answer is withdrawn.
    pub async fn find_answer(
        &self,
        caller: Caller,
        id: ConversationId,
        request_id: &str,
        budget: &ReadBudget,
    ) -> Result<ContentRead<Option<StoredAnswer>>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let row = sqlx::query!(
            r#"select m.message_id, c.model as "model?", c.input_tokens as "input_tokens?",
                   c.cached_tokens as "cached_tokens?", c.written_tokens as "written_tokens?",
                   c.output_tokens as "output_tokens?", c.stop_reason, c.expected_tokens,
                   c.cache_state as "cache_state?", c.break_reason, c.long_written_tokens
               from ai_message as m
               left join ai_model_call as c on c.conversation_id = m.conversation_id and c.request_id = m.request_id
               where m.tenant_id = $1 and m.conversation_id = $2 and m.request_id = $3"#,
            caller.tenant().0,
            id.0,
            request_id,
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        let Some(row) = row else {
            return Ok(ContentRead::Read {
                value: None,
                bytes: 0,
            });
        };
        let message = self
            .get_message(caller, id, MessageId(row.message_id), budget)
            .await?;
        let count = |tokens_or_null: Option<i64>| tokens(tokens_or_null.unwrap_or(0));
        let call = row.model.map(|model| RecordedCall {
            model,
            input: count(row.input_tokens),
            cached: count(row.cached_tokens),
            written: count(row.written_tokens),
            output: count(row.output_tokens),
            stop_reason: row.stop_reason,
            cache: row
                .expected_tokens
                .zip(row.cache_state.and_then(cache_state))
                .map(|(expected, state)| RecordedCacheUse {
                    expected: tokens(expected),
                    state,
                    break_reason: row.break_reason.and_then(break_reason),
                    long_written: count(row.long_written_tokens),
                }),
        });
        Ok(message.map(|message| Some(StoredAnswer { message, call })))
    }
}

async fn select_is_idle(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    state: &AnsweredState,
) -> Result<bool, StoreError> {
    let is_idle = sqlx::query_file_scalar!(
        "sql/is_idle_since.sql",
        caller.tenant().0,
        id.0,
        state.answer.0,
        state.change_id,
        state.boundary.0,
        state.system_prompt.as_slice(),
    )
    .fetch_one(db)
    .await?;
    Ok(is_idle)
}
