//! The leases of claimed jobs. Heartbeats extend them, transactions check them, and `rescue_jobs`
//! frees jobs whose lease has ended.

use std::collections::HashSet;

use anneal_core::{
    caller::ConversationId,
    job::{JobKind, LEASE_SECONDS, MAX_ATTEMPTS},
};
use uuid::Uuid;

use super::claim::ClaimedJob;
use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    error::StoreError,
    failpoint,
};

/// How many jobs were freed because their leases had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RescueOutcome {
    /// Jobs that wait again.
    pub waiting: i64,
    /// Jobs that were given up.
    pub dead: i64,
}

impl Store {
    /// Extends the leases of these jobs. Returns for each job whether its lease is still held; jobs
    /// that have lost their lease must stop.
    pub async fn heartbeat(&self, jobs: &[ClaimedJob]) -> Result<Vec<bool>, StoreError> {
        let mut held = HashSet::with_capacity(jobs.len());
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        failpoint!("heartbeat.begun");
        for kind in JobKind::ALL {
            let of_kind = || jobs.iter().filter(|job| job.kind == kind);
            let conversations: Vec<Uuid> = of_kind().map(|job| job.conversation.0).collect();
            let leases: Vec<Uuid> = of_kind().map(|job| job.lease).collect();
            if leases.is_empty() {
                continue;
            }
            let seconds = f64::from(LEASE_SECONDS);
            let rows = sqlx::query_file!(
                "sql/heartbeat_jobs.sql",
                kind.code(),
                &conversations,
                &leases,
                seconds
            )
            .fetch_all(&mut *db)
            .await?;
            held.extend(
                rows.into_iter()
                    .map(|row| (kind, ConversationId(row.conversation_id))),
            );
        }
        failpoint!("heartbeat.extended");
        db.release().await?;
        Ok(jobs
            .iter()
            .map(|job| held.contains(&(job.kind, job.conversation)))
            .collect())
    }

    /// Frees up to `limit` jobs of each kind whose lease has ended. Their starts stay counted, so
    /// that a job that kills its workers is given up in the end.
    pub async fn rescue_jobs(&self, limit: i64) -> Result<RescueOutcome, StoreError> {
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        let mut rescued = RescueOutcome::default();
        failpoint!("rescue.begun");
        for kind in JobKind::ALL {
            let row = sqlx::query_file!("sql/rescue_jobs.sql", kind.code(), limit, MAX_ATTEMPTS)
                .fetch_one(&mut *db)
                .await?;
            rescued.waiting += row.waiting;
            rescued.dead += row.dead;
            if row.waiting + row.dead > 0 {
                failpoint!("rescue.freed");
            }
        }
        db.release().await?;
        Ok(rescued)
    }
}

/// Locks a job's row within a transaction that stores results but does not end the job. Fails if
/// the lease is lost: then the results must not be committed.
pub(crate) async fn lock_claimed_job(
    db: &mut BoundedConnection,
    job: &ClaimedJob,
) -> Result<(), StoreError> {
    // State 1: running. `is true` keeps the planner from partial indexes, as in claim_jobs.sql.
    let row = sqlx::query_scalar!(
        "select generation from ai_job where kind = $1 and conversation_id = $2 and lease = $3
             and (state = 1) is true for update",
        job.kind.code(),
        job.conversation.0,
        job.lease,
    )
    .fetch_optional(db)
    .await?;
    row.map(|_| ()).ok_or(StoreError::LeaseLost)
}
