//! The rows from which a checkpoint is planned, and the messages that its summarizer reads.

use anneal_core::{
    caller::{Caller, ConversationId},
    cut::TailItem,
    message::{MessageId, Part, Role},
    policy::{Policy, PolicyOverrides},
    tokens::{Encoding, Tokens},
};
use futures::TryStreamExt as _;

use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    failpoint,
    messages::read_budget::{ROW_BYTES, YIELD_BYTES},
    policy_defaults::PolicyDefaults,
    queue::ClaimedJob,
    rows::{self, column, json, tokens},
};

/// The rows from which a checkpoint is planned.
#[derive(Debug, Clone)]
pub struct CheckpointMaterial {
    /// The policy in force.
    pub policy: Policy,
    /// The encoding that the conversation's tokens are counted in.
    pub encoding: Encoding,
    /// Tokens of the system prompt.
    pub system_prompt_tokens: Tokens,
    /// The last separator.
    pub separator: Option<MessageId>,
    /// The newest valid checkpoint.
    pub previous: Option<PreviousCheckpoint>,
    /// The newest message.
    pub last_message_id: MessageId,
    /// The messages after the boundary that stand, without content.
    pub tail: Vec<TailItem>,
}

impl CheckpointMaterial {
    /// Tokens that a context has before the tail: those of the system prompt and of the newest
    /// checkpoint's summary.
    pub fn head_tokens(&self) -> Tokens {
        self.system_prompt_tokens
            + self
                .previous
                .as_ref()
                .map_or(Tokens::ZERO, |previous| previous.tokens)
    }
}

/// The newest checkpoint, on whose summary the next one can be built.
#[derive(Debug, Clone)]
pub struct PreviousCheckpoint {
    /// The last message that it covers.
    pub last: MessageId,
    /// The text of its summary.
    pub summary: String,
    /// Tokens of the summary.
    pub tokens: Tokens,
    /// How many summaries were built on each other, this one included.
    pub generation: i32,
}

/// One message as a checkpoint's summarizer reads it.
#[derive(Debug, Clone)]
pub struct CheckpointSource {
    /// Id of the message.
    pub id: MessageId,
    /// Role of the author.
    pub role: Role,
    /// The content or summary that the summarizer reads.
    pub body: CheckpointSourceBody,
    /// Digest of the stored content.
    pub content_digest: Vec<u8>,
}

/// The text that stands for a message.
#[derive(Debug, Clone)]
pub enum CheckpointSourceBody {
    /// The message's content; empty if the message is withdrawn.
    Content(Vec<Part>),
    /// The stored summary of a large message.
    Summary(String),
}

impl Store {
    /// Reads what a job's checkpoint is planned from. None if the conversation has been deleted.
    pub async fn read_checkpoint_material(
        &self,
        job: &ClaimedJob,
    ) -> Result<Option<CheckpointMaterial>, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let material = read_material(
            &mut db,
            &self.policy_defaults.get(),
            job.caller(),
            job.conversation,
            &PolicyOverrides::default(),
        )
        .await;
        failpoint!("checkpoint.planned");
        db.settle(material).await
    }

    /// Reads what a checkpoint would be planned from, under the overrides of a preview.
    pub async fn read_checkpoint_preview(
        &self,
        caller: Caller,
        id: ConversationId,
        preview: &PolicyOverrides,
    ) -> Result<CheckpointMaterial, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let material =
            read_material(&mut db, &self.policy_defaults.get(), caller, id, preview).await;
        db.settle(material)
            .await?
            .ok_or(StoreError::NotFound(Entity::Conversation))
    }

    /// Measures the content of the messages after `after` up to `last`, in bytes. A result above
    /// `most` may be too small, because content is not measured exactly then.
    pub async fn measure_content(
        &self,
        job: &ClaimedJob,
        after: MessageId,
        last: MessageId,
        most: u64,
    ) -> Result<u64, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let bytes = sqlx::query_file_scalar!(
            "sql/content_bytes.sql",
            job.tenant.0,
            job.conversation.0,
            after.0,
            last.0,
            most as i64,
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(bytes.unsigned_abs())
    }

    /// Measures the content of a tail, which are the messages after `after`, in bytes. A result
    /// above `most` may be too small.
    pub async fn measure_tail(
        &self,
        caller: Caller,
        id: ConversationId,
        after: MessageId,
        most: u64,
    ) -> Result<u64, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let bytes = sqlx::query_file_scalar!(
            "sql/content_bytes.sql",
            caller.tenant().0,
            id.0,
            after.0,
            i64::MAX,
            most as i64,
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(bytes.unsigned_abs())
    }

    /// Reads the messages after `after` up to `last`, withdrawn ones included: a digest of all of
    /// them tells whether one was changed. A large message that has a summary comes as its summary.
    pub async fn read_checkpoint_sources(
        &self,
        job: &ClaimedJob,
        policy: &Policy,
        after: MessageId,
        last: MessageId,
    ) -> Result<Vec<CheckpointSource>, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let rows = sqlx::query_file!(
            "sql/checkpoint_sources.sql",
            job.tenant.0,
            job.conversation.0,
            after.0,
            last.0,
            column(policy.large_message_threshold),
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        failpoint!("checkpoint.read");
        let sources = rows.into_iter().map(|row| {
            let body = match (row.content, row.summary_cache) {
                (Some(content), _) => CheckpointSourceBody::Content(rows::parts(&content)?),
                (None, Some(summary)) => CheckpointSourceBody::Summary(summary),
                (None, None) => return Err(StoreError::Unreadable("content")),
            };
            Ok(CheckpointSource {
                id: MessageId(row.message_id),
                role: rows::role(row.role)?,
                body,
                content_digest: row.content_digest,
            })
        });
        sources.collect()
    }
}

/// Reads the rows from which a checkpoint is planned, in one snapshot. Parses each row when it
/// arrives, and yields in between: a tail can have hundreds of thousands of messages, and parsing
/// all of them at once would block the async thread.
pub(super) async fn read_material(
    db: &mut BoundedConnection,
    policy_defaults: &PolicyDefaults,
    caller: Caller,
    id: ConversationId,
    preview: &PolicyOverrides,
) -> Result<Option<CheckpointMaterial>, StoreError> {
    let mut rows = sqlx::query_file!(
        "sql/checkpoint_material.sql",
        caller.tenant().0,
        id.0,
        policy_defaults.bases(),
        json(preview),
    )
    .fetch(db);
    let (mut head, mut tail) = (None, Vec::new());
    let mut bytes_since_yield = 0;
    while let Some(row) = rows.try_next().await? {
        if row.message_id == 0 {
            head = Some(row);
            continue;
        }
        let outline = row.tool_outline.as_deref().unwrap_or("[]");
        tail.push(TailItem {
            id: MessageId(row.message_id),
            role: rows::role(row.role.unwrap_or(0))?,
            turn: row.turn,
            tokens: tokens(row.tokens),
            bytes: row.bytes.unwrap_or(0).unsigned_abs(),
            outline: serde_json::from_str(outline)
                .map_err(|_| StoreError::Unreadable("tool outline"))?,
        });
        bytes_since_yield += ROW_BYTES as usize + outline.len();
        if bytes_since_yield >= YIELD_BYTES {
            bytes_since_yield = 0;
            tokio::task::yield_now().await;
        }
    }
    let Some(head) = head else {
        return Ok(None);
    };
    tail.sort_by_key(|item| item.id);
    let policy = policy_defaults.policy(
        head.policy.as_deref().unwrap_or("{}"),
        preview,
        head.window_tokens,
    )?;
    let previous = head.checkpoint_last.map(|last| PreviousCheckpoint {
        last: MessageId(last),
        summary: head.summary.unwrap_or_default(),
        // The head row has the tokens of the checkpoint's summary in the column `tokens`.
        tokens: tokens(head.tokens),
        generation: head.generation.unwrap_or(0),
    });
    Ok(Some(CheckpointMaterial {
        policy,
        // The head row has the system prompt's tokens in the column `bytes`.
        system_prompt_tokens: tokens(head.bytes.unwrap_or(0)),
        encoding: rows::encoding(head.encoding.unwrap_or(0))?,
        separator: head.separator.map(MessageId),
        previous,
        last_message_id: MessageId(head.newest.unwrap_or(0)),
        tail,
    }))
}
