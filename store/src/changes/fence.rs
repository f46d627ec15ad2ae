//! Ends what was begun before a change, so that what was read before it cannot be stored after it.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
};
use uuid::Uuid;

use crate::{connection::BoundedConnection, error::StoreError};

/// Ends the leases of the conversation's running jobs, of its turn, if one is under way, and of the
/// call that keeps a provider's cache warm; deletes the finished parts of summaries and the
/// prepared checkpoint. Returns the kinds of the jobs that ran: they wait again. Until the transaction ends,
/// no job of the conversation can be claimed. `spared` is the lease of a turn that makes the change
/// itself and has read nothing yet. Fails with [`StoreError::LeaseLost`] if the turn no longer has
/// it.
pub(super) async fn end_work_under_way(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    spared: Option<Uuid>,
) -> Result<Vec<JobKind>, StoreError> {
    let kinds: Vec<i16> = JobKind::ALL.iter().map(|kind| kind.code()).collect();
    let ended =
        sqlx::query_file_scalar!("sql/revoke_job_leases.sql", caller.tenant().0, id.0, &kinds)
            .fetch_all(&mut *db)
            .await?;
    // The lease of a call that keeps a cache warm has a request id, too.
    sqlx::query!(
        "delete from ai_model_lease
         where tenant_id = $1 and conversation_id = $2 and (turn or request_id is not null)
             and lease is distinct from $3::uuid",
        caller.tenant().0,
        id.0,
        spared,
    )
    .execute(&mut *db)
    .await?;
    if let Some(lease) = spared {
        hold_lease(&mut *db, caller, id, lease).await?;
    }
    // After the jobs were locked: a part is stored under its job's lock, and is seen here if that
    // came first.
    sqlx::query!(
        "delete from ai_summary_part where tenant_id = $1 and conversation_id = $2",
        caller.tenant().0,
        id.0,
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "delete from ai_prepared_checkpoint where tenant_id = $1 and conversation_id = $2",
        caller.tenant().0,
        id.0,
    )
    .execute(db)
    .await?;
    Ok(ended.into_iter().filter_map(JobKind::from_code).collect())
}

/// Locks the lease of a turn until the transaction ends, so that no other turn is admitted before.
/// Fails with [`StoreError::LeaseLost`] if the turn no longer has it.
pub(super) async fn hold_lease(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    lease: Uuid,
) -> Result<(), StoreError> {
    let held = sqlx::query_scalar!(
        "select lease from ai_model_lease
         where tenant_id = $1 and conversation_id = $2 and lease = $3 and turn for no key update",
        caller.tenant().0,
        id.0,
        lease,
    )
    .fetch_optional(db)
    .await?;
    held.map(|_| ()).ok_or(StoreError::LeaseLost)
}
