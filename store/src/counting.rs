//! What the counting job reads, and the transaction in which it writes: counts, triggered jobs, its own end. Locks are taken
//! in one order everywhere: conversation, messages, jobs. A lost lease rolls everything back.

use anneal_core::{
    job::JobKind,
    message::{MessageId, Part, Role},
    tokens::{Encoding, Tokens},
    trigger,
};
use sqlx::Connection as _;

use crate::{
    Store,
    claims::{ClaimedJob, Committed, finish},
    conversations::locked,
    error::StoreError,
    jobs::enqueue,
    rows::{self, column},
    tail,
};

/// The messages of a conversation that are not counted yet, oldest first.
#[derive(Debug, Clone)]
pub struct UncountedMessages {
    /// What the conversation's tokens are counted in.
    pub encoding: Encoding,
    /// Every message up to this one is counted.
    pub counted: MessageId,
    /// The newest message of the conversation.
    pub last_message_id: MessageId,
    /// The messages: ids, roles and parts.
    pub messages: Vec<(MessageId, Role, Vec<Part>)>,
}

impl Store {
    /// The next uncounted messages of a job's conversation: at most `limit`, at most `bytes` of text beyond the first.
    /// None when the conversation is gone.
    pub async fn uncounted_messages(
        &self,
        job: &ClaimedJob,
        limit: i64,
        bytes: i64,
    ) -> Result<Option<UncountedMessages>, StoreError> {
        let mut db = self.jobs.checkout().await?;
        let rows =
            sqlx::query_file!("sql/uncounted_messages.sql", job.caller().tenant().0, job.conversation.0, limit, bytes,)
                .fetch_all(&mut *db)
                .await?;
        db.release();
        let Some(first) = rows.first() else { return Ok(None) };
        let mut uncounted = UncountedMessages {
            encoding: rows::encoding(first.encoding)?,
            counted: MessageId(first.counted_message_id),
            last_message_id: MessageId(first.last_message_id),
            messages: Vec::with_capacity(rows.len()),
        };
        for row in rows {
            if let (Some(message), Some(role), Some(content)) = (row.message_id, row.role, row.content) {
                uncounted.messages.push((MessageId(message), rows::role(role)?, rows::parts(&content)?));
            }
        }
        Ok(Some(uncounted))
    }

    /// Stores the counts of messages that follow `counted`, looks at the triggers, and ends the job.
    pub async fn record_counts(
        &self,
        job: &ClaimedJob,
        counted: MessageId,
        counts: &[(MessageId, Tokens)],
    ) -> Result<Committed, StoreError> {
        let (caller, id) = (job.caller(), job.conversation);
        let mut db = self.jobs.checkout().await?;
        let mut tx = db.begin().await?;
        locked(&mut tx, caller, id).await?;
        let ids: Vec<i64> = counts.iter().map(|(id, _)| id.0).collect();
        let tokens: Vec<i64> = counts.iter().map(|(_, tokens)| column(*tokens)).collect();
        let last = ids.last().copied().unwrap_or(counted.0);
        let row = sqlx::query_file!("sql/record_counts.sql", caller.tenant().0, id.0, &ids, &tokens, last, counted.0)
            .fetch_optional(&mut *tx)
            .await?;
        let state = tail::state(&mut tx, caller, id, &self.rules).await?;
        let mut caused = trigger::jobs(&state);
        if row.is_none_or(|row| row.last_message_id > last) {
            caused.push(JobKind::CountTokens);
        }
        enqueue(&mut tx, caller, id, &caused).await?;
        let finished = finish(&mut tx, job).await?;
        tx.commit().await?;
        db.release();
        Ok(Committed { finished, caused, kept: true })
    }
}
