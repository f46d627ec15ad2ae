//! The tail's figures: what the triggers and GetContextUsage look at. No content is read.

use std::collections::HashMap;

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
use uuid::Uuid;

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
        let mut db = self.reads.checkout(caller).await?;
        let usage = read(&mut db, caller, id, &self.rules, preview).await;
        db.settle(usage).await
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

/// What the triggers look at, and the window that it goes by.
pub(crate) struct Looked {
    pub(crate) state: TailState,
    /// The model that the conversation or its settings name.
    pub(crate) model: Option<String>,
    /// What that model's provider has named as its window.
    pub(crate) window: Option<i64>,
}

/// The same of many conversations; those that are gone are missing.
pub(crate) async fn look(
    db: &mut PgConnection,
    tenants: &[Uuid],
    conversations: &[Uuid],
    rules: &Rules,
) -> Result<HashMap<ConversationId, Looked>, StoreError> {
    let preview = PolicyOverrides::default();
    let rows = select(db, tenants, conversations, rules, &preview).await?;
    let looked = rows.into_iter().map(|mut row| {
        let (id, model, window) = (ConversationId(row.conversation_id), row.model.take(), row.window_tokens);
        Ok((id, Looked { state: row.usage(rules, &preview)?.state, model, window }))
    });
    looked.collect()
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
    let row = select(db, &[caller.tenant().0], &[id.0], rules, preview).await?.pop();
    row.ok_or(StoreError::NotFound(Entity::Conversation))?.usage(rules, preview)
}

async fn select(
    db: &mut PgConnection,
    tenants: &[Uuid],
    conversations: &[Uuid],
    rules: &Rules,
    preview: &PolicyOverrides,
) -> Result<Vec<UsageRow>, StoreError> {
    let rows =
        sqlx::query_file_as!(UsageRow, "sql/tail_usage.sql", tenants, conversations, rules.bases(), json(preview),)
            .fetch_all(db)
            .await?;
    Ok(rows)
}

struct UsageRow {
    conversation_id: Uuid,
    last_message_id: i64,
    stalled_message_id: i64,
    policy: String,
    encoding: i16,
    system_prompt_tokens: i64,
    separator: Option<i64>,
    checkpoint_last: Option<i64>,
    summary_tokens: Option<i64>,
    model: Option<String>,
    window_tokens: Option<i64>,
    tail_tokens: i64,
    sent_tokens: i64,
    tail_messages: i64,
    tail_turns: i64,
    tail_calls: i64,
    swapped_ids: Vec<i64>,
    swapped_roles: Vec<i16>,
    swapped_bytes: Vec<i64>,
    swapped_outlines: Vec<String>,
    saved: i64,
    unsummarized: i64,
    nearly_cool: i64,
    estimated: i64,
}

fn in_order(mut swapped: Vec<Swapped>) -> Vec<Swapped> {
    swapped.sort_by_key(|message| message.id);
    swapped
}

impl UsageRow {
    fn usage(self, rules: &Rules, preview: &PolicyOverrides) -> Result<Usage, StoreError> {
        let checkpoint = self.checkpoint_last.map(MessageId);
        let boundary = Boundary::newest(self.separator.map(MessageId), checkpoint);
        let swapped =
            self.swapped_ids.into_iter().zip(self.swapped_roles).zip(self.swapped_bytes).zip(self.swapped_outlines);
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
                policy: rules.policy(&self.policy, preview, self.window_tokens)?,
                last_message_id: MessageId(self.last_message_id),
                stalled: MessageId(self.stalled_message_id),
                figures: ThresholdContext {
                    head: tokens(self.system_prompt_tokens) + tokens(self.summary_tokens.unwrap_or(0)),
                    tail: tokens(self.tail_tokens),
                    messages: self.tail_messages.unsigned_abs(),
                    turns: self.tail_turns.unsigned_abs(),
                    calls: self.tail_calls.unsigned_abs(),
                },
                unsummarized: self.unsummarized.unsigned_abs(),
                nearly_cool: self.nearly_cool.unsigned_abs(),
            },
            system_prompt: tokens(self.system_prompt_tokens),
            summary: tokens(self.summary_tokens.unwrap_or(0)),
            boundary,
            encoding: rows::encoding(self.encoding)?,
            sent: tokens(self.sent_tokens),
            swapped: in_order(swapped.collect::<Result<_, StoreError>>()?),
            saved: tokens(self.saved),
            estimated: self.estimated.unsigned_abs(),
        })
    }
}
