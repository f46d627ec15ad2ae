//! Commits the checkpoint that a context makes because the provider's cache is cold. No job makes
//! it, so nothing but the conversation's row decides whether it is still valid.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    message::MessageId,
    trigger,
};

use super::{
    commit::{CheckpointDraft, has_same_boundary, insert_checkpoint},
    import::read_sources,
};
use crate::{
    Store, connection::BoundedConnection, conversations::lock_for_change, error::StoreError,
    policy_defaults::PolicyDefaults, queue::enqueue_jobs, triggers::tail_stats,
};

/// A checkpoint to commit, made of the rows of a context.
#[derive(Debug, Clone)]
pub struct IdleCheckpoint {
    /// The checkpoint. The digest of its sources is computed when it is committed.
    pub draft: CheckpointDraft,
    /// The conversation's `change_id` when the rows were read.
    pub change_id: i64,
}

impl Store {
    /// Commits a checkpoint, if neither the boundary nor a message has changed since its rows were
    /// read. Returns the jobs that are due because of it. None: nothing was stored.
    pub async fn commit_idle_checkpoint(
        &self,
        caller: Caller,
        id: ConversationId,
        idle: &IdleCheckpoint,
    ) -> Result<Option<Vec<JobKind>>, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let committed = commit_idle(&mut db, caller, id, idle, &self.policy_defaults.get()).await;
        db.settle(committed).await
    }
}

async fn commit_idle(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    idle: &IdleCheckpoint,
    policy_defaults: &PolicyDefaults,
) -> Result<Option<Vec<JobKind>>, StoreError> {
    let mut tx = db.begin().await?;
    let head = lock_for_change(&mut tx, caller, id).await?;
    // Each change of messages, each summary and each checkpoint has a number.
    if head.change_id != idle.change_id
        || !has_same_boundary(&mut tx, caller, id, &idle.draft).await?
    {
        tx.commit().await?;
        return Ok(None);
    }
    let before_sources = MessageId(idle.draft.source_first.0 - 1);
    let sources = read_sources(&mut tx, caller, id, before_sources, idle.draft.last).await?;
    let draft = CheckpointDraft {
        source_digest: sources.digest,
        ..idle.draft.clone()
    };
    insert_checkpoint(&mut tx, caller, id, &draft, None).await?;
    let state = tail_stats::read_tail_state(&mut tx, caller, id, policy_defaults).await?;
    let caused = trigger::due_jobs(&state);
    let traceparent = anneal_trace::current_traceparent();
    enqueue_jobs(&mut tx, caller, id, &caused, traceparent.as_deref()).await?;
    tx.commit().await?;
    Ok(Some(caused))
}
