//! Reads for watchers of conversations: the heads of many conversations in one statement, and the
//! changes and dead jobs of one conversation. A change is a summary or a checkpoint that was
//! stored, or a change of messages. It has a change id, which it takes from the conversation's row
//! under the row lock. So a reader that sees one change id sees all smaller ones as well.

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
    changes::{IdRange, MessageChangeKind, from_columns},
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
    /// The id of the newest change (a stored summary or checkpoint, or a change of messages); 0:
    /// there is none.
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
    /// The newest change when the watch began. Of the summaries and checkpoints up to this one,
    /// only those of messages after `start_message` are read. Changes of messages are read in any
    /// case: the watcher may have read the messages before them.
    pub start_change: i64,
    /// The message after which the watch begins.
    pub start_message: MessageId,
    /// Most changes to read.
    pub limit: i64,
}

/// A change of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Number of the change: 1, 2, 3 … within the conversation, in commit order.
    pub id: i64,
    /// The row that was stored or changed.
    pub kind: ChangeKind,
}

/// The row that was stored or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// The summary of a large message was stored.
    Summary {
        /// The message.
        message: MessageId,
        /// Tokens of the message.
        tokens: Tokens,
        /// Tokens of the summary.
        summary_tokens: Tokens,
        /// How the summary was made.
        summary_kind: SummaryKind,
    },
    /// A checkpoint was stored.
    Checkpoint {
        /// The last message that its summary replaces.
        last: MessageId,
        /// Tokens of the summary.
        summary_tokens: Tokens,
        /// How the summary was made.
        summary_kind: SummaryKind,
        /// The trigger that caused it. None: it was imported.
        trigger: Option<Trigger>,
    },
    /// These messages were withdrawn.
    Withdrawn(Vec<IdRange>),
    /// These messages were restored.
    Restored(Vec<IdRange>),
    /// A message got a new version of its content.
    Edited {
        /// The message.
        message: MessageId,
        /// The number of the new version.
        version: i32,
    },
    /// The content of these messages was erased.
    Erased(Vec<IdRange>),
}

/// A row of `conversation_changes.sql`. A summary or a checkpoint has the first columns, a change
/// of messages the last ones.
struct ChangeRow {
    change_id: i64,
    message_id: Option<i64>,
    summary_tokens: Option<i64>,
    tokens: Option<i64>,
    summary_kind: Option<i16>,
    trigger_kind: Option<i16>,
    message_change: Option<i16>,
    first_ids: Option<Vec<i64>>,
    last_ids: Option<Vec<i64>>,
    version: Option<i32>,
}

impl TryFrom<ChangeRow> for Change {
    type Error = StoreError;

    fn try_from(row: ChangeRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.change_id,
            kind: match row.message_change {
                Some(code) => message_change(MessageChangeKind::from_code(code)?, &row),
                None => stored_summary(&row),
            },
        })
    }
}

/// The change of messages in this row.
fn message_change(kind: MessageChangeKind, row: &ChangeRow) -> ChangeKind {
    let ranges = from_columns(
        row.first_ids.as_deref().unwrap_or_default(),
        row.last_ids.as_deref().unwrap_or_default(),
    );
    match kind {
        MessageChangeKind::Withdrawn => ChangeKind::Withdrawn(ranges),
        MessageChangeKind::Restored => ChangeKind::Restored(ranges),
        MessageChangeKind::Edited => ChangeKind::Edited {
            message: ranges.first().map_or(MessageId::NONE, |range| range.first),
            version: row.version.unwrap_or(1),
        },
        MessageChangeKind::Erased => ChangeKind::Erased(ranges),
    }
}

/// The summary or the checkpoint in this row.
fn stored_summary(row: &ChangeRow) -> ChangeKind {
    let message = row.message_id.map_or(MessageId::NONE, MessageId);
    let summary_tokens = tokens(row.summary_tokens.unwrap_or(0));
    let summary_kind = kind_from_code(row.summary_kind.unwrap_or(0));
    match row.trigger_kind {
        Some(code) => ChangeKind::Checkpoint {
            last: message,
            summary_tokens,
            summary_kind,
            trigger: rows::trigger(code),
        },
        None => ChangeKind::Summary {
            message,
            tokens: tokens(row.tokens.unwrap_or(0)),
            summary_tokens,
            summary_kind,
        },
    }
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
        let scope = Scope::of(watched.iter().map(|(tenant, _)| *tenant));
        self.read_heads_in(scope, watched).await
    }

    /// Reads the head of a conversation. None: the caller has no such conversation.
    pub async fn read_head(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<Option<ConversationHead>, StoreError> {
        let key = (caller.tenant(), id);
        Ok(self
            .read_heads_in(caller.into(), &[key])
            .await?
            .remove(&key))
    }

    async fn read_heads_in(
        &self,
        scope: Scope,
        watched: &[(TenantId, ConversationId)],
    ) -> Result<HashMap<(TenantId, ConversationId), ConversationHead>, StoreError> {
        let (tenants, conversations): (Vec<Uuid>, Vec<Uuid>) = watched
            .iter()
            .map(|(tenant, conversation)| (tenant.0, conversation.0))
            .unzip();
        let mut db = self.reads.checkout(scope).await?;
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
        let rows = sqlx::query_file_as!(
            ChangeRow,
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
        rows.into_iter().map(Change::try_from).collect()
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
