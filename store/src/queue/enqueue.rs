//! Enqueues jobs, within the transaction that causes the work. A conversation has at most one job
//! of each kind: if it waits or runs already, its generation grows.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
};
use uuid::Uuid;

use super::compactions::{ManualCompaction, argument_with};
use crate::{connection::BoundedConnection, error::StoreError, failpoint};

/// A job to enqueue.
pub(crate) struct DueJob<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) conversation: ConversationId,
    pub(crate) kind: JobKind,
    /// The trace that the job continues, if there is one.
    pub(crate) trace_context: Option<&'a str>,
}

/// Enqueues jobs of these kinds for a conversation, in the open transaction of `db`, which holds
/// the conversation's row lock. The jobs continue the trace of `trace_context`.
pub(crate) async fn enqueue_jobs(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    kinds: &[JobKind],
    trace_context: Option<&str>,
) -> Result<(), StoreError> {
    let due: Vec<_> = kinds
        .iter()
        .map(|kind| DueJob {
            tenant: caller.tenant(),
            conversation: id,
            kind: *kind,
            trace_context,
        })
        .collect();
    enqueue_jobs_of_many(db, &due).await
}

/// Enqueues these jobs of many conversations, in the open transaction of `db`, which holds the
/// conversations' row locks.
pub(crate) async fn enqueue_jobs_of_many(
    db: &mut BoundedConnection,
    due: &[DueJob<'_>],
) -> Result<(), StoreError> {
    if due.is_empty() {
        return Ok(());
    }
    let tenants: Vec<Uuid> = due.iter().map(|job| job.tenant.0).collect();
    let kinds: Vec<i16> = due.iter().map(|job| job.kind.code()).collect();
    let conversations: Vec<Uuid> = due.iter().map(|job| job.conversation.0).collect();
    let trace_contexts: Vec<Option<&str>> = due.iter().map(|job| job.trace_context).collect();
    failpoint!("enqueue.begun");
    sqlx::query_file!(
        "sql/enqueue_jobs.sql",
        &tenants,
        &kinds,
        &conversations,
        None::<String>,
        &trace_contexts as &[Option<&str>]
    )
    .execute(db)
    .await?;
    failpoint!("enqueue.marked");
    Ok(())
}

/// Enqueues a checkpoint job that a caller asked for. It is claimed before those that triggers
/// cause. If other compactions wait for the conversation's job, it makes all of them together.
/// Fails if too many wait.
pub(crate) async fn enqueue_manual_checkpoint(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    manual: &ManualCompaction,
) -> Result<(), StoreError> {
    let argument = argument_with(db, caller, id, manual).await?;
    let kinds = [JobKind::Checkpoint.code()];
    let trace_contexts = [anneal_trace::current_traceparent()];
    sqlx::query_file!(
        "sql/enqueue_jobs.sql",
        &[caller.tenant().0],
        &kinds,
        &[id.0],
        Some(argument),
        &trace_contexts as &[Option<String>]
    )
    .execute(db)
    .await?;
    failpoint!("enqueue.manual");
    Ok(())
}
