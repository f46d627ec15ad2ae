//! Reads for watchers of conversations: the heads of many conversations in one statement, and the
//! changes and dead jobs of one conversation. A change is a summary or a checkpoint that was
//! stored. It has a change id, which it takes from the conversation's row under the row lock. So a
//! reader that sees one change id sees all smaller ones as well.

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
    Store,
    connection::row_security::Scope,
    error::StoreError,
    rows::{self, Micros, tokens},
    summary_spec::{SummaryKind, kind_from_code},
};

/// The head of a conversation: its newest message, its newest change, and what else a watcher
/// compares to find out whether anything is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationHead {
    /// When the conversation was created. A conversation that is created again under the same id
    /// has another time.
    pub created: Micros,
    /// The newest message.
    pub last: MessageId,
    /// Every message up to this one is counted.
    pub counted: MessageId,
    /// Tokens of all messages.
    pub token_total: Tokens,
    /// The id of the newest change (a stored summary or checkpoint); 0: there is none.
    pub change: i64,
    /// When each dead job was given up, by the code of its kind.
    pub dead: BTreeMap<i16, Micros>,
}

/// Which changes to read.
#[derive(Debug, Clone, Copy)]
pub struct ChangesAsk {
    /// Only changes with a greater id than this.
    pub after: i64,
    /// Only changes with this id or a smaller one.
    pub through: i64,
    /// The newest change when the watch began. Of the changes up to this one, only those of
    /// messages after `start_message` are read.
    pub start_change: i64,
    /// The message after which the watch begins.
    pub start_message: MessageId,
    /// Most changes to read.
    pub limit: i64,
}

/// A summary or checkpoint that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Number of the change: 1, 2, 3 … within the conversation, in commit order.
    pub id: i64,
    /// The summarized message, or the checkpoint's boundary.
    pub message: MessageId,
    /// Tokens of the summary.
    pub summary_tokens: Tokens,
    /// How the summary was made.
    pub summary_kind: SummaryKind,
    /// Whether a message's summary or a checkpoint was stored.
    pub kind: ChangeKind,
}

/// The kind of a change: which of the two was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The summary of a large message. The tokens are those of the message.
    Summary(Tokens),
    /// A checkpoint, with the trigger that caused it. None: it was imported.
    Checkpoint(Option<Trigger>),
}

/// A job that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadJob {
    /// Kind of the job.
    pub kind: JobKind,
    /// Starts before it was given up.
    pub attempts: i16,
    /// The last error; never content.
    pub last_error: String,
    /// When it was given up.
    pub died: Micros,
}

impl Store {
    /// Reads the heads of these conversations in one statement. A deleted conversation is missing
    /// in the result.
    pub async fn read_heads(
        &self,
        watched: &[(TenantId, ConversationId)],
    ) -> Result<HashMap<(TenantId, ConversationId), ConversationHead>, StoreError> {
        let (tenants, conversations): (Vec<Uuid>, Vec<Uuid>) = watched
            .iter()
            .map(|(tenant, conversation)| (tenant.0, conversation.0))
            .unzip();
        let mut db = self
            .reads
            .checkout(Scope::of(watched.iter().map(|(tenant, _)| *tenant)))
            .await?;
        let rows = sqlx::query_file!("sql/watched_heads.sql", &tenants, &conversations)
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        let heads = rows.into_iter().map(|row| {
            let head = ConversationHead {
                created: Micros(row.created_us),
                last: MessageId(row.last_message_id),
                counted: MessageId(row.counted_message_id),
                token_total: tokens(row.token_total),
                change: row.change_id,
                dead: row
                    .dead_kinds
                    .into_iter()
                    .zip(row.dead_us.into_iter().map(Micros))
                    .collect(),
            };
            (
                (TenantId(row.tenant_id), ConversationId(row.conversation_id)),
                head,
            )
        });
        Ok(heads.collect())
    }

    /// Reads changes of a conversation, in commit order.
    pub async fn read_changes(
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
            ask.start_message.0,
            ask.start_change,
            ask.limit,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let changes = rows.into_iter().map(|row| {
            let kind = match row.trigger_kind {
                Some(code) => ChangeKind::Checkpoint(rows::trigger(code)),
                None => ChangeKind::Summary(tokens(row.tokens.unwrap_or(0))),
            };
            Change {
                id: row.change_id,
                message: MessageId(row.message_id),
                summary_tokens: tokens(row.summary_tokens),
                summary_kind: kind_from_code(row.kind),
                kind,
            }
        });
        Ok(changes.collect())
    }

    /// Reads the dead jobs of a conversation, in the order in which they were given up.
    pub async fn read_dead_jobs(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<Vec<DeadJob>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let rows = sqlx::query_file!("sql/dead_jobs.sql", caller.tenant().0, id.0)
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        // Skips kinds of jobs that only a newer version knows; servers of that version report them.
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
