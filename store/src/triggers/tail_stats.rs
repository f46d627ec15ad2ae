//! Reads the figures of a tail, for triggers and for GetContextUsage, and the boundary before it.
//! No content is read.

use std::collections::HashMap;

use anneal_core::{
    boundary::Boundary,
    caller::{Caller, ConversationId},
    context::SwappedMessage,
    message::MessageId,
    policy::{PolicyOverrides, TailFigures},
    tokens::{Encoding, Tokens},
    trigger::{Preparation, TailState},
};
use uuid::Uuid;

use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    policy_defaults::PolicyDefaults,
    rows::{self, json, tokens},
};

/// How much of its context a conversation uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextUsage {
    /// The state of the tail from which the triggers decide.
    pub state: TailState,
    /// Tokens of the system prompt.
    pub system_prompt: Tokens,
    /// Tokens of the newest valid checkpoint's summary; zero if there is none.
    pub summary: Tokens,
    /// The boundary after which the context starts.
    pub boundary: Boundary,
    /// The encoding that the conversation's tokens are counted in.
    pub encoding: Encoding,
    /// Tokens of the tail as contexts send it now. With stepped cooling, cool messages may still be
    /// sent with their original content.
    pub sent_tail: Tokens,
    /// Messages of the tail that contexts send as their summaries.
    pub swapped: Vec<SwappedMessage>,
    /// Tokens that are saved because summaries are sent instead of originals.
    pub saved_tokens: Tokens,
    /// Number of messages of the tail that are not counted yet.
    pub uncounted_messages: u64,
}

impl Store {
    /// Reads how much of its context a conversation uses, under the overrides of a preview.
    pub async fn read_context_usage(
        &self,
        caller: Caller,
        id: ConversationId,
        preview: &PolicyOverrides,
    ) -> Result<ContextUsage, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let usage = read_usage(&mut db, caller, id, &self.policy_defaults.get(), preview).await;
        db.settle(usage).await
    }
}

/// Reads the state of the tail from which the triggers decide, as the current transaction sees it.
pub(crate) async fn read_tail_state(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    policy_defaults: &PolicyDefaults,
) -> Result<TailState, StoreError> {
    Ok(
        read_usage(db, caller, id, policy_defaults, &PolicyOverrides::default())
            .await?
            .state,
    )
}

/// The state of a tail, and the model and context window on which its triggers depend.
pub(crate) struct TailAndWindow {
    pub(crate) state: TailState,
    /// The model that the settings in force name. None: they name none.
    pub(crate) model: Option<String>,
    /// The context window that the model's provider has reported, in tokens. None: it has reported
    /// none.
    pub(crate) window: Option<i64>,
}

/// Reads the tails of many conversations; deleted ones are missing in the result.
pub(crate) async fn read_tails(
    db: &mut BoundedConnection,
    tenants: &[Uuid],
    conversations: &[Uuid],
    policy_defaults: &PolicyDefaults,
) -> Result<HashMap<ConversationId, TailAndWindow>, StoreError> {
    let preview = PolicyOverrides::default();
    let rows = select_rows(db, tenants, conversations, policy_defaults, &preview).await?;
    let tails = rows.into_iter().map(|mut row| {
        let (id, model, window) = (
            ConversationId(row.conversation_id),
            row.model.take(),
            row.window_tokens,
        );
        Ok((
            id,
            TailAndWindow {
                state: row.usage(policy_defaults, &preview)?.state,
                model,
                window,
            },
        ))
    });
    tails.collect()
}

/// Reads the boundary after which contexts start, as the current transaction sees it.
pub(crate) async fn read_boundary(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<Boundary, StoreError> {
    let row = sqlx::query_file!("sql/boundary.sql", caller.tenant().0, id.0)
        .fetch_one(db)
        .await?;
    Ok(Boundary::newest(
        row.separator.map(MessageId),
        row.checkpoint_last.map(MessageId),
    ))
}

/// Reads everything that GetContextUsage shows, including the state for the triggers.
async fn read_usage(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    policy_defaults: &PolicyDefaults,
    preview: &PolicyOverrides,
) -> Result<ContextUsage, StoreError> {
    let row = select_rows(db, &[caller.tenant().0], &[id.0], policy_defaults, preview)
        .await?
        .pop();
    row.ok_or(StoreError::NotFound(Entity::Conversation))?
        .usage(policy_defaults, preview)
}

async fn select_rows(
    db: &mut BoundedConnection,
    tenants: &[Uuid],
    conversations: &[Uuid],
    policy_defaults: &PolicyDefaults,
    preview: &PolicyOverrides,
) -> Result<Vec<UsageRow>, StoreError> {
    let rows = sqlx::query_file_as!(
        UsageRow,
        "sql/tail_usage.sql",
        tenants,
        conversations,
        policy_defaults.bases(),
        json(preview),
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// A row of tail_usage.sql.
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
    is_prepared: bool,
    unprepared_until: Option<i64>,
}

const fn preparation(is_prepared: bool, unprepared_until: Option<i64>) -> Preparation {
    match unprepared_until {
        _ if is_prepared => Preparation::Done,
        Some(until) => Preparation::Failed {
            until: MessageId(until),
        },
        None => Preparation::Missing,
    }
}

fn sorted_by_id(mut swapped: Vec<SwappedMessage>) -> Vec<SwappedMessage> {
    swapped.sort_by_key(|message| message.id);
    swapped
}

impl UsageRow {
    fn usage(
        self,
        policy_defaults: &PolicyDefaults,
        preview: &PolicyOverrides,
    ) -> Result<ContextUsage, StoreError> {
        let checkpoint = self.checkpoint_last.map(MessageId);
        let boundary = Boundary::newest(self.separator.map(MessageId), checkpoint);
        let swapped = self
            .swapped_ids
            .into_iter()
            .zip(self.swapped_roles)
            .zip(self.swapped_bytes)
            .zip(self.swapped_outlines);
        let swapped = swapped.map(|(((id, role), bytes), outline)| {
            Ok(SwappedMessage {
                id: MessageId(id),
                role: rows::role(role)?,
                original_bytes: bytes.unsigned_abs(),
                outline: serde_json::from_str(&outline)
                    .map_err(|_| StoreError::Unreadable("tool outline"))?,
            })
        });
        Ok(ContextUsage {
            state: TailState {
                policy: policy_defaults.policy(&self.policy, preview, self.window_tokens)?,
                last_message_id: MessageId(self.last_message_id),
                stalled_message_id: MessageId(self.stalled_message_id),
                figures: TailFigures {
                    head: tokens(self.system_prompt_tokens)
                        + tokens(self.summary_tokens.unwrap_or(0)),
                    tail: tokens(self.tail_tokens),
                    messages: self.tail_messages.unsigned_abs(),
                    turns: self.tail_turns.unsigned_abs(),
                    calls: self.tail_calls.unsigned_abs(),
                },
                unsummarized: self.unsummarized.unsigned_abs(),
                nearly_cool: self.nearly_cool.unsigned_abs(),
                preparation: preparation(self.is_prepared, self.unprepared_until),
            },
            system_prompt: tokens(self.system_prompt_tokens),
            summary: tokens(self.summary_tokens.unwrap_or(0)),
            boundary,
            encoding: rows::encoding(self.encoding)?,
            sent_tail: tokens(self.sent_tokens),
            swapped: sorted_by_id(swapped.collect::<Result<_, StoreError>>()?),
            saved_tokens: tokens(self.saved),
            uncounted_messages: self.estimated.unsigned_abs(),
        })
    }
}
