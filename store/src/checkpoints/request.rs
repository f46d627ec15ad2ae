//! Queues the compactions that callers ask for, and reads their status.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    message::MessageId,
};

use super::read::{Checkpoint, CheckpointPosition, select_checkpoints};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::lock_conversation,
    error::StoreError,
    queue::{ManualCompaction, QueuedCompaction, enqueue_manual_checkpoint},
};

/// The method under which the table of requests has compactions. The answer is the last message of
/// the checkpoint.
const METHOD: &str = "compact";

/// Outcome of asking for a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionStart {
    /// An earlier call with the same request id has made this checkpoint. Nothing was queued.
    MadeEarlier(Box<Checkpoint>),
    /// The compaction is queued.
    Queued {
        /// The last message of the newest valid checkpoint at that time; 0: there was none.
        /// [`Store::read_compaction_status`] compares with it.
        boundary: MessageId,
    },
}

/// Status of a compaction that a caller asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionStatus {
    /// This checkpoint was made since the compaction was asked for, by it or by a trigger.
    Created(Box<Checkpoint>),
    /// The conversation's checkpoint job is queued or running.
    Pending,
    /// The job ended without a checkpoint.
    NoProgress,
    /// The job was given up.
    Failed,
}

impl Store {
    /// Queues a compaction, unless the same request has already made a checkpoint. Compactions that
    /// wait together make one checkpoint. Fails if too many wait.
    pub async fn request_compaction(
        &self,
        caller: Caller,
        id: ConversationId,
        manual: &ManualCompaction,
    ) -> Result<CompactionStart, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let outcome = request_once(&mut db, caller, id, manual).await;
        db.settle(outcome).await
    }

    /// Queues a compaction for which no caller waits, and returns true. Queues nothing and returns
    /// false if a manual compaction is already queued or running, if the same request has already
    /// made a checkpoint, or if a compaction of the same messages made no progress.
    pub async fn request_emergency_compaction(
        &self,
        caller: Caller,
        id: ConversationId,
        manual: &ManualCompaction,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let queued = enqueue_emergency_checkpoint(&mut db, caller, id, manual).await;
        db.settle(queued).await
    }

    /// Reads the status of a compaction. `before` is the boundary that [`Self::request_compaction`]
    /// returned when it queued the compaction.
    pub async fn read_compaction_status(
        &self,
        caller: Caller,
        id: ConversationId,
        before: MessageId,
    ) -> Result<CompactionStatus, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let job = sqlx::query!(
            "select exists (select from ai_job where kind = $2 and conversation_id = $3 and tenant_id = $1) as \"queued!\",
                    exists (select from ai_job_dead where kind = $2 and conversation_id = $3 and tenant_id = $1)
                        as \"dead!\"",
            caller.tenant().0,
            JobKind::Checkpoint.code(),
            id.0,
        )
        .fetch_one(&mut *db)
        .await?;
        let newest = select_checkpoints(&mut db, caller, id, None, None, 1)
            .await?
            .pop();
        db.release().await?;
        Ok(
            match newest.filter(|newest| newest.valid && newest.last > before) {
                Some(created) => CompactionStatus::Created(Box::new(created)),
                None if job.queued => CompactionStatus::Pending,
                None if job.dead => CompactionStatus::Failed,
                None => CompactionStatus::NoProgress,
            },
        )
    }
}

async fn enqueue_emergency_checkpoint(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    manual: &ManualCompaction,
) -> Result<bool, StoreError> {
    let mut tx = db.begin().await?;
    lock_conversation(&mut tx, caller, id).await?;
    let queued_or_stalled = sqlx::query_scalar!(
        r#"select (c.stalled_message_id >= c.last_message_id or exists (
                select from ai_job as j
                where j.tenant_id = $1 and j.conversation_id = $2 and j.kind = $3 and j.argument is not null
            )) as "queued_or_stalled!"
           from ai_conversation as c where c.tenant_id = $1 and c.conversation_id = $2"#,
        caller.tenant().0,
        id.0,
        JobKind::Checkpoint.code(),
    )
    .fetch_one(&mut *tx)
    .await?;
    let needless = queued_or_stalled
        || find_made(&mut tx, caller, id, &manual.request_id)
            .await?
            .is_some();
    if !needless {
        enqueue_manual_checkpoint(&mut tx, caller, id, manual).await?;
    }
    tx.commit().await?;
    Ok(!needless)
}

async fn request_once(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    manual: &ManualCompaction,
) -> Result<CompactionStart, StoreError> {
    let mut tx = db.begin().await?;
    lock_conversation(&mut tx, caller, id).await?;
    let done = find_made(&mut tx, caller, id, &manual.request_id).await?;
    let outcome = if let Some(done) = done {
        CompactionStart::MadeEarlier(Box::new(done))
    } else {
        let row = sqlx::query_file!("sql/boundary.sql", caller.tenant().0, id.0)
            .fetch_one(&mut *tx)
            .await?;
        enqueue_manual_checkpoint(&mut tx, caller, id, manual).await?;
        CompactionStart::Queued {
            boundary: MessageId(row.checkpoint_last.unwrap_or(0)),
        }
    };
    tx.commit().await?;
    Ok(outcome)
}

/// Finds the checkpoint that this request has made, alone or together with others, if it holds.
async fn find_made(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    request_id: &str,
) -> Result<Option<Checkpoint>, StoreError> {
    let answer = sqlx::query_scalar!(
        "select answer from ai_request
         where tenant_id = $1 and conversation_id = $2 and method = $3 and request_id = $4",
        caller.tenant().0,
        id.0,
        METHOD,
        request_id,
    )
    .fetch_optional(&mut *db)
    .await?;
    if let Some(last) = answer.flatten() {
        // The list goes on with the checkpoints whose last message is `last` or an earlier one.
        let start = CheckpointPosition {
            last: MessageId(last).next(),
            first: MessageId::NONE,
            void_change: None,
        };
        let newest = select_checkpoints(db, caller, id, Some(start), None, 1)
            .await?
            .pop();
        if let Some(made) = newest.filter(|made| made.last.0 == last) {
            return Ok(Some(made));
        }
    }
    // Answers are deleted after some time (retention), checkpoints are not.
    let made = select_checkpoints(db, caller, id, None, Some(request_id), 1).await?;
    Ok(made.into_iter().next())
}

/// Stores that these requests have made the checkpoint whose last message is `last`, in the
/// transaction that makes it.
pub(super) async fn record_made(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    made: &QueuedCompaction,
    last: MessageId,
) -> Result<(), StoreError> {
    let request_ids: Vec<String> = made.request_ids().map(str::to_owned).collect();
    // A repetition may name another focus, so there is no digest to compare. A request whose
    // checkpoint was void has made another one.
    sqlx::query!(
        "insert into ai_request (tenant_id, conversation_id, method, request_id, request_digest, answer)
         select $1, $2, $3, request_id, ''::bytea, $5
         from unnest((select $4::text[])) as made (request_id)
         on conflict (conversation_id, method, request_id) do update set answer = excluded.answer",
        caller.tenant().0,
        id.0,
        METHOD,
        &request_ids,
        last.0,
    )
    .execute(db)
    .await?;
    Ok(())
}
