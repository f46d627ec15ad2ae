//! What watchers of conversations read: where many conversations stand, in one statement, and what has changed in one of
//! them. Nothing is written for it but a number: the change id, which each stored summary and checkpoint takes under the
//! conversation's row lock, so that a reader who sees one sees all before it.

use std::collections::{BTreeMap, HashMap};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    cut::Trigger,
    job::JobKind,
    message::MessageId,
    tokens::Tokens,
};
use uuid::Uuid;

use crate::{
    Store, checkpoints,
    error::StoreError,
    rows::{Micros, tokens},
    scope::Scope,
    summaries::{self, SummaryKind},
};

/// Where a conversation stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// When the conversation was made: one that is made anew under the same id is another.
    pub created: Micros,
    /// Its newest message.
    pub last: MessageId,
    /// Every message up to this one is counted.
    pub counted: MessageId,
    /// Tokens of all messages.
    pub token_total: Tokens,
    /// The id of its last change: a stored summary, a checkpoint.
    pub change: i64,
    /// When each dead job died, by kind.
    pub dead: BTreeMap<i16, Micros>,
}

/// Which changes to read.
#[derive(Debug, Clone, Copy)]
pub struct ChangesAsk {
    /// Only those after this one.
    pub after: i64,
    /// Only up to this one.
    pub through: i64,
    /// Up to this one, only those of messages after `beyond`.
    pub replayed: i64,
    /// See `replayed`.
    pub beyond: MessageId,
    /// At most so many.
    pub limit: i64,
}

/// Something that was stored beside the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Its number: 1, 2, 3 … within the conversation, in commit order.
    pub id: i64,
    /// The summarised message, or the checkpoint's boundary.
    pub message: MessageId,
    /// Tokens of the summary.
    pub summary_tokens: Tokens,
    /// Who made it.
    pub kind: SummaryKind,
    /// What was stored.
    pub what: Stored,
}

/// What a change has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The summary of a large message of so many tokens.
    Summary(Tokens),
    /// A checkpoint, made for this reason; None: another system made it.
    Checkpoint(Option<Trigger>),
}

/// A job that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadJob {
    /// What it was to do.
    pub kind: JobKind,
    /// Starts before it was given up.
    pub attempts: i16,
    /// What went wrong last; never content.
    pub last_error: String,
    /// When it was given up.
    pub died: Micros,
}

impl Store {
    /// Where each of these conversations stands; those that are gone are missing.
    pub async fn heads(
        &self,
        watched: &[(TenantId, ConversationId)],
    ) -> Result<HashMap<(TenantId, ConversationId), Head>, StoreError> {
        let (tenants, conversations): (Vec<Uuid>, Vec<Uuid>) =
            watched.iter().map(|(tenant, conversation)| (tenant.0, conversation.0)).unzip();
        let mut db = self.reads.checkout(Scope::of(watched.iter().map(|(tenant, _)| *tenant))).await?;
        let rows = sqlx::query_file!("sql/watched_heads.sql", &tenants, &conversations).fetch_all(&mut *db).await?;
        db.release().await?;
        let heads = rows.into_iter().map(|row| {
            let head = Head {
                created: Micros(row.created_us),
                last: MessageId(row.last_message_id),
                counted: MessageId(row.counted_message_id),
                token_total: tokens(row.token_total),
                change: row.change_id,
                dead: row.dead_kinds.into_iter().zip(row.dead_us.into_iter().map(Micros)).collect(),
            };
            ((TenantId(row.tenant_id), ConversationId(row.conversation_id)), head)
        });
        Ok(heads.collect())
    }

    /// Changes of a conversation, in the order in which they were committed.
    pub async fn changes(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: ChangesAsk,
    ) -> Result<Vec<Change>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let rows = sqlx::query_file!(
            "sql/conversation_changes.sql",
            caller.tenant().0,
            id.0,
            ask.after,
            ask.through,
            ask.beyond.0,
            ask.replayed,
            ask.limit,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let changes = rows.into_iter().map(|row| {
            let what = match row.trigger_kind {
                Some(code) => Stored::Checkpoint(checkpoints::trigger(code)),
                None => Stored::Summary(tokens(row.tokens.unwrap_or(0))),
            };
            Change {
                id: row.change_id,
                message: MessageId(row.message_id),
                summary_tokens: tokens(row.made_tokens),
                kind: summaries::kind(row.kind),
                what,
            }
        });
        Ok(changes.collect())
    }

    /// The dead jobs of a conversation, in the order in which they died.
    pub async fn dead_jobs(&self, caller: Caller, id: ConversationId) -> Result<Vec<DeadJob>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let rows = sqlx::query_file!("sql/dead_jobs.sql", caller.tenant().0, id.0).fetch_all(&mut *db).await?;
        db.release().await?;
        // A kind that only a newer version knows is for its servers to tell.
        let jobs = rows.into_iter().filter_map(|row| {
            Some(DeadJob {
                kind: JobKind::from_code(row.kind)?,
                attempts: row.attempts,
                last_error: row.last_error.unwrap_or_default(),
                died: Micros(row.died_us),
            })
        });
        Ok(jobs.collect())
    }
}
