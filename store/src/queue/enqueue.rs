//! Marks conversations dirty for kinds of jobs, within the transaction that causes the work.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
};
use uuid::Uuid;

use crate::{connection::BoundedConnection, error::StoreError, failpoint};

/// Marks a conversation dirty for these kinds, in the caller's transaction, which holds the
/// conversation's row lock.
pub(crate) async fn enqueue_jobs(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    kinds: &[JobKind],
) -> Result<(), StoreError> {
    let dirty: Vec<_> = kinds
        .iter()
        .map(|kind| (caller.tenant(), id, *kind))
        .collect();
    enqueue_jobs_of_many(db, &dirty).await
}

/// Marks many conversations dirty, each for one kind, in the caller's transaction, which holds their
/// row locks.
pub(crate) async fn enqueue_jobs_of_many(
    db: &mut BoundedConnection,
    dirty: &[(TenantId, ConversationId, JobKind)],
) -> Result<(), StoreError> {
    if dirty.is_empty() {
        return Ok(());
    }
    let tenants: Vec<Uuid> = dirty.iter().map(|(tenant, _, _)| tenant.0).collect();
    let kinds: Vec<i16> = dirty.iter().map(|(_, _, kind)| kind.code()).collect();
    let conversations: Vec<Uuid> = dirty.iter().map(|(_, id, _)| id.0).collect();
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

/// Marks a conversation dirty for a checkpoint that a caller asked for. It is claimed before
/// automatic ones.
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
