//! Enqueues jobs, within the transaction that causes the work. A conversation has at most one job
//! of each kind: if it waits or runs already, its generation grows.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
};
use uuid::Uuid;

use crate::{connection::BoundedConnection, error::StoreError, failpoint};

/// Enqueues jobs of these kinds for a conversation, in the open transaction of `db`, which holds
/// the conversation's row lock.
pub(crate) async fn enqueue_jobs(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    kinds: &[JobKind],
) -> Result<(), StoreError> {
    let due: Vec<_> = kinds
        .iter()
        .map(|kind| (caller.tenant(), id, *kind))
        .collect();
    enqueue_jobs_of_many(db, &due).await
}

/// Enqueues these jobs of many conversations, in the open transaction of `db`, which holds the
/// conversations' row locks.
pub(crate) async fn enqueue_jobs_of_many(
    db: &mut BoundedConnection,
    due: &[(TenantId, ConversationId, JobKind)],
) -> Result<(), StoreError> {
    if due.is_empty() {
        return Ok(());
    }
    let tenants: Vec<Uuid> = due.iter().map(|(tenant, _, _)| tenant.0).collect();
    let kinds: Vec<i16> = due.iter().map(|(_, _, kind)| kind.code()).collect();
    let conversations: Vec<Uuid> = due.iter().map(|(_, id, _)| id.0).collect();
    failpoint!("enqueue.begun");
    sqlx::query_file!(
        "sql/enqueue_jobs.sql",
        &tenants,
        &kinds,
        &conversations,
        None::<String>
    )
    .execute(db)
    .await?;
    failpoint!("enqueue.marked");
    Ok(())
}

/// Enqueues a checkpoint job that a caller asked for. It is claimed before those that triggers
/// cause. `argument` is the [`ManualCompaction`](super::ManualCompaction) as JSON.
pub(crate) async fn enqueue_manual_checkpoint(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    argument: String,
) -> Result<(), StoreError> {
    let kinds = [JobKind::Checkpoint.code()];
    sqlx::query_file!(
        "sql/enqueue_jobs.sql",
        &[caller.tenant().0],
        &kinds,
        &[id.0],
        Some(argument)
    )
    .execute(db)
    .await?;
    failpoint!("enqueue.manual");
    Ok(())
}
