//! The queue seen by a worker: claim, keep, finish, fail, give back, rescue. A claim carries a fencing token (`lease`);
//! whoever has lost it changes nothing any more.

use std::collections::{HashMap, HashSet};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::{JobKind, LEASE_SECONDS, MAX_ATTEMPTS},
    policy::KeepRecent,
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

#[cfg(feature = "sabotage")]
use crate::sabotage::{self, Sabotage};
use crate::{Store, error::StoreError, failpoint, jobs, scope::Scope};

/// Tenants that one claim looks at: each costs some reads of an index.
const TENANTS_PER_CLAIM: i32 = 1_000;

/// A job that is ours for the length of its lease.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// What to do.
    pub kind: JobKind,
    /// For which conversation.
    pub conversation: ConversationId,
    /// Whose.
    pub tenant: TenantId,
    /// Starts since its last success, this one included.
    pub attempts: i16,
    /// What a manual compaction asked for.
    pub manual: Option<ManualCompaction>,
    generation: i64,
    lease: Uuid,
}

/// What a claim found.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// The jobs, ours for the length of their lease.
    pub jobs: Vec<ClaimedJob>,
    /// The last tenant that was looked at, where others may follow.
    pub more_after: Option<TenantId>,
}

/// A compaction that a caller asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManualCompaction {
    /// What the summary should keep above all.
    pub focus: String,
    /// The caller's request, by which it finds its checkpoint.
    pub request_id: String,
    /// What it leaves in the tail, where that is not what the policy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<KeepRecent>,
}

/// How a finished job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// Nothing more to do.
    Done,
    /// New work arrived meanwhile; the job waits again.
    Again,
}

/// How a transaction of results ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Whether the job is done or waits again.
    pub finished: Finished,
    /// The jobs that the results caused.
    pub caused: Vec<JobKind>,
    /// False when the conversation had moved under the job: its results were discarded.
    pub kept: bool,
}

/// What a failed job became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// It waits for its next try.
    Retry,
    /// It was given up.
    Dead,
}

/// What a rescue found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rescued {
    /// Jobs that wait again.
    pub waiting: i64,
    /// Jobs that were given up.
    pub dead: i64,
}

impl ClaimedJob {
    /// The caller in whose name the job works.
    pub const fn caller(&self) -> Caller {
        Caller::of(self.tenant)
    }
}

impl Store {
    /// Claims up to `limit` due jobs of a kind, in equal shares of the tenants that have some
    /// due, or a quarter of `limit`, at most `per_tenant` of each, none of those in `skipped`. Rows that another worker
    /// holds are skipped. The tenants' order starts after `cursor`, so that each has its turn; so many may have something
    /// waiting that is not due that nothing is found before others follow.
    pub async fn claim_jobs(
        &self,
        kind: JobKind,
        limit: i32,
        per_tenant: i32,
        cursor: TenantId,
        worker: &str,
        skipped: &[TenantId],
    ) -> Result<Claim, StoreError> {
        let lease = Uuid::now_v7();
        let skipped: Vec<Uuid> = skipped.iter().map(|tenant| tenant.0).collect();
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        failpoint!("claim.begun");
        let rows = sqlx::query_file!(
            "sql/claim_jobs.sql",
            kind.code(),
            i64::from(limit),
            i64::from(per_tenant),
            cursor.0,
            worker,
            lease,
            f64::from(LEASE_SECONDS),
            TENANTS_PER_CLAIM,
            &skipped,
        )
        .fetch_all(&mut *db)
        .await?;
        #[cfg(feature = "sabotage")]
        sabotage::delete_claimed(&mut db, lease).await?;
        db.release().await?;
        let mut claim = Claim::default();
        if rows.iter().any(|row| row.conversation_id.is_some()) {
            failpoint!("claim.claimed");
        }
        for row in rows {
            let (tenant, Some(conversation)) = (TenantId(row.tenant_id), row.conversation_id) else {
                claim.more_after = Some(TenantId(row.tenant_id));
                continue;
            };
            claim.jobs.push(ClaimedJob {
                kind,
                conversation: ConversationId(conversation),
                tenant,
                attempts: row.attempts.unwrap_or_default(),
                manual: row.argument.as_deref().and_then(|argument| serde_json::from_str(argument).ok()),
                generation: row.generation.unwrap_or_default(),
                lease,
            });
        }
        Ok(claim)
    }

    /// Extends the leases of these jobs. Returns those that are still ours; the others' handlers must stop.
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
            #[cfg(feature = "sabotage")]
            let leases = sabotage::any_leases(&mut db, kind, &conversations, leases).await;
            let seconds = f64::from(LEASE_SECONDS);
            let rows = sqlx::query_file!("sql/heartbeat_jobs.sql", kind.code(), &conversations, &leases, seconds)
                .fetch_all(&mut *db)
                .await?;
            held.extend(rows.into_iter().map(|row| (kind, ConversationId(row.conversation_id))));
        }
        failpoint!("heartbeat.extended");
        db.release().await?;
        #[cfg(feature = "sabotage")]
        if sabotage::breaks(Sabotage::JobGoneAtClaim) {
            return Ok(vec![true; jobs.len()]);
        }
        Ok(jobs.iter().map(|job| held.contains(&(job.kind, job.conversation))).collect())
    }

    /// Ends a job that had nothing to write.
    pub async fn finish_job(&self, job: &ClaimedJob) -> Result<Finished, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let finished = finish(&mut db, job).await;
        db.settle(finished).await
    }

    /// Records a failure: the job waits `delay_ms`, or is given up after `most_attempts` starts.
    pub async fn fail_job(
        &self,
        job: &ClaimedJob,
        error: &str,
        delay_ms: i64,
        most_attempts: i16,
    ) -> Result<Failed, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        failpoint!("fail.begun");
        let row = sqlx::query_file!(
            "sql/fail_job.sql",
            job.kind.code(),
            job.conversation.0,
            job.lease,
            error,
            delay_ms as f64,
            most_attempts,
        )
        .fetch_optional(&mut *db)
        .await?;
        failpoint!("fail.recorded");
        db.release().await?;
        match row {
            Some(row) if row.dead => Ok(Failed::Dead),
            Some(_) => Ok(Failed::Retry),
            None => Err(StoreError::LeaseLost),
        }
    }

    /// Gives jobs back, as if they had not been claimed; they are due in `delay_ms`.
    pub async fn release_jobs(&self, jobs: &[ClaimedJob], delay_ms: i64) -> Result<(), StoreError> {
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        for job in jobs {
            release(&mut db, job, "", delay_ms).await?;
        }
        db.release().await?;
        Ok(())
    }

    /// Puts a job off for `delay_ms`: what it needs is not to be had before. Its attempt does not count.
    pub async fn defer_job(&self, job: &ClaimedJob, why: &str, delay_ms: i64) -> Result<(), StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        release(&mut db, job, why, delay_ms).await?;
        db.release().await?;
        Ok(())
    }

    /// Frees up to `limit` jobs of each kind whose lease ran out. Attempts are kept, so that a job which kills its worker dies.
    pub async fn rescue_jobs(&self, limit: i64) -> Result<Rescued, StoreError> {
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        let mut rescued = Rescued::default();
        failpoint!("rescue.begun");
        for kind in JobKind::ALL {
            let row =
                sqlx::query_file!("sql/rescue_jobs.sql", kind.code(), limit, MAX_ATTEMPTS).fetch_one(&mut *db).await?;
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

async fn release(db: &mut PgConnection, job: &ClaimedJob, why: &str, delay_ms: i64) -> Result<(), StoreError> {
    sqlx::query_file!("sql/release_job.sql", job.kind.code(), job.conversation.0, job.lease, why, delay_ms as f64)
        .execute(db)
        .await?;
    Ok(())
}

/// Locks a job's row within the transaction of results that do not end it. An error means that the lease is lost, and the
/// results with it.
pub(crate) async fn still_ours(db: &mut PgConnection, job: &ClaimedJob) -> Result<(), StoreError> {
    #[cfg(feature = "sabotage")]
    if sabotage::breaks(Sabotage::JobGoneAtClaim) || sabotage::breaks(Sabotage::NoLeaseToken) {
        return Ok(());
    }
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

/// A job that ends.
pub(crate) struct Ending<'a> {
    /// The job.
    pub(crate) job: &'a ClaimedJob,
    /// Whether it leaves something to do: it then waits again.
    pub(crate) more: bool,
}

/// Ends a job within the transaction of its results. An error means that the lease is lost, and the results with it.
pub(crate) async fn finish(db: &mut PgConnection, job: &ClaimedJob) -> Result<Finished, StoreError> {
    let finished = finish_all(db, job.kind, &[Ending { job, more: false }]).await?;
    finished.into_values().next().ok_or(StoreError::LeaseLost)
}

/// Ends a job within the transaction of its results, and marks its conversation dirty for what they call for. Jobs are locked
/// in the order of their kinds; one that calls for itself is marked first, and so waits again.
pub(crate) async fn finish_causing(
    db: &mut PgConnection,
    job: &ClaimedJob,
    caused: &[JobKind],
) -> Result<Finished, StoreError> {
    let (before, after): (Vec<_>, Vec<_>) = caused.iter().partition(|kind| kind.code() <= job.kind.code());
    jobs::enqueue(db, job.caller(), job.conversation, &before).await?;
    let finished = finish(db, job).await?;
    jobs::enqueue(db, job.caller(), job.conversation, &after).await?;
    Ok(finished)
}

/// Ends jobs of a kind within the transaction of their results. An error means that the lease of one is lost, and all results with it.
pub(crate) async fn finish_all(
    db: &mut PgConnection,
    kind: JobKind,
    endings: &[Ending<'_>],
) -> Result<HashMap<ConversationId, Finished>, StoreError> {
    let conversations: Vec<Uuid> = endings.iter().map(|end| end.job.conversation.0).collect();
    let leases: Vec<Uuid> = endings.iter().map(|end| end.job.lease).collect();
    #[cfg(feature = "sabotage")]
    let leases = sabotage::any_leases(db, kind, &conversations, leases).await;
    let generations: Vec<i64> = endings.iter().map(|end| end.job.generation).collect();
    let more: Vec<bool> = endings.iter().map(|end| end.more).collect();
    failpoint!("finish.begun");
    let rows = sqlx::query_file!("sql/finish_jobs.sql", kind.code(), &conversations, &leases, &generations, &more)
        .fetch_all(db)
        .await?;
    #[cfg(feature = "sabotage")]
    if sabotage::breaks(Sabotage::JobGoneAtClaim) {
        return Ok(endings.iter().map(|end| (end.job.conversation, Finished::Done)).collect());
    }
    if rows.len() < endings.len() {
        return Err(StoreError::LeaseLost);
    }
    failpoint!("finish.ended");
    let finished = rows
        .into_iter()
        .map(|row| (ConversationId(row.conversation_id), if row.clean { Finished::Done } else { Finished::Again }));
    Ok(finished.collect())
}
