//! The tail's figures: what the triggers and GetContextUsage look at. No content is read.

use anneal_core::{
    boundary::Boundary,
    caller::{Caller, ConversationId},
    context::Swapped,
    message::MessageId,
    policy::{PolicyOverrides, ThresholdContext},
    tokens::{Encoding, Tokens},
    trigger::TailState,
};
use sqlx::PgConnection;

use crate::{
    Store,
    error::{Entity, StoreError},
    rows::{self, json, tokens},
    rules::Rules,
};

/// How full a conversation's context is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// What the triggers look at.
    pub state: TailState,
    /// Tokens of the system prompt.
    pub system_prompt: Tokens,
    /// Tokens of the checkpoint's summary.
    pub summary: Tokens,
    /// Where the context starts.
    pub boundary: Boundary,
    /// What the conversation's tokens are counted in.
    pub encoding: Encoding,
    /// Tokens of the tail as it is sent now; with stepped cooling cool messages may still be sent as they were said.
    pub sent: Tokens,
    /// Messages of the tail that are sent as their summaries.
    pub swapped: Vec<Swapped>,
    /// Tokens that this saves.
    pub saved: Tokens,
    /// Messages of the tail that are not counted yet.
    pub estimated: u64,
}

impl Store {
    /// How full a conversation's context is, under the overrides of a preview.
    pub async fn usage(
        &self,
        caller: Caller,
        id: ConversationId,
        preview: &PolicyOverrides,
    ) -> Result<Usage, StoreError> {
        let mut db = self.reads.checkout().await?;
        let usage = read(&mut db, caller, id, &self.rules, preview).await;
        db.settle(usage)
    }
}

/// What the triggers look at, as the current transaction sees it.
pub(crate) async fn state(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    rules: &Rules,
) -> Result<TailState, StoreError> {
    Ok(read(db, caller, id, rules, &PolicyOverrides::default()).await?.state)
}

/// Where contexts start, as the current transaction sees it.
pub(crate) async fn boundary(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<Boundary, StoreError> {
    let row = sqlx::query_file!("sql/boundary.sql", caller.tenant().0, id.0).fetch_one(db).await?;
    Ok(Boundary::newest(row.separator.map(MessageId), row.checkpoint_last.map(MessageId)))
}

/// What the triggers look at, and everything else that GetContextUsage shows.
pub(crate) async fn read(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    rules: &Rules,
    preview: &PolicyOverrides,
) -> Result<Usage, StoreError> {
    let row = sqlx::query_file!("sql/tail_usage.sql", caller.tenant().0, id.0, rules.bases(), json(preview),)
        .fetch_optional(db)
        .await?
        .ok_or(StoreError::NotFound(Entity::Conversation))?;
    let checkpoint = row.checkpoint_last.map(MessageId);
    let boundary = Boundary::newest(row.separator.map(MessageId), checkpoint);
    let swapped = row.swapped_ids.into_iter().zip(row.swapped_roles).zip(row.swapped_bytes).zip(row.swapped_outlines);
    let swapped = swapped.map(|(((id, role), bytes), outline)| {
        Ok(Swapped {
            id: MessageId(id),
            role: rows::role(role)?,
            original_bytes: bytes.unsigned_abs(),
            outline: serde_json::from_str(&outline).map_err(|_| StoreError::Unreadable("tool outline"))?,
        })
    });
    Ok(Usage {
        state: TailState {
            policy: rules.policy(&row.policy, preview, row.window_tokens)?,
            last_message_id: MessageId(row.last_message_id),
            stalled: MessageId(row.stalled_message_id),
            figures: ThresholdContext {
                head: tokens(row.system_prompt_tokens) + tokens(row.summary_tokens.unwrap_or(0)),
                tail: tokens(row.tail_tokens),
                messages: row.tail_messages.unsigned_abs(),
                turns: row.tail_turns.unsigned_abs(),
                calls: row.tail_calls.unsigned_abs(),
            },
            unsummarized: row.unsummarized.unsigned_abs(),
            nearly_cool: row.nearly_cool.unsigned_abs(),
        },
        system_prompt: tokens(row.system_prompt_tokens),
        summary: tokens(row.summary_tokens.unwrap_or(0)),
        boundary,
        encoding: rows::encoding(row.encoding)?,
        sent: tokens(row.sent_tokens),
        swapped: swapped.collect::<Result<_, StoreError>>()?,
        saved: tokens(row.saved),
        estimated: row.estimated.unsigned_abs(),
    })
}
