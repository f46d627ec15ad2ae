//! Claims due jobs for a worker.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::{JobKind, LEASE_SECONDS},
};
use uuid::Uuid;

use super::compactions::QueuedCompaction;
use crate::{Store, connection::row_security::Scope, error::StoreError, failpoint};

/// Most tenants that one claim examines. Examining a tenant takes some reads of an index.
const TENANTS_PER_CLAIM: i32 = 1_000;

/// A job that this worker holds for the length of its lease.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// Kind of the job.
    pub kind: JobKind,
    /// The conversation that it works on.
    pub conversation: ConversationId,
    /// The conversation's tenant.
    pub tenant: TenantId,
    /// Starts since the last success, this one included.
    pub attempts: i16,
    /// The compactions that callers asked for. None: a trigger caused the job, or this build cannot
    /// read the job's argument.
    pub manual: Option<QueuedCompaction>,
    /// The trace context (`traceparent`) of the newest call that enqueued the job. None: that
    /// process exports no traces.
    pub trace_context: Option<String>,
    /// The job's generation at the claim. New work makes it greater.
    pub(super) generation: i64,
    /// The fencing token of the claim.
    pub(crate) lease: Uuid,
}

/// Result of a claim.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// The claimed jobs, held for the length of their leases.
    pub jobs: Vec<ClaimedJob>,
    /// The last tenant examined, if more tenants may follow. None: all were examined.
    pub more_after: Option<TenantId>,
}

impl ClaimedJob {
    /// The caller that the job acts as.
    pub const fn caller(&self) -> Caller {
        Caller::of(self.tenant)
    }
}

impl Store {
    /// Claims up to `limit` due jobs of a kind.
    ///
    /// - Each tenant with due jobs gets at most an equal share of `limit` or a quarter of it,
    ///   whichever is more, and at most `per_tenant` jobs. Tenants in `skipped` get none.
    /// - Jobs whose rows another transaction has locked are skipped.
    /// - Tenants are examined in the order of their ids, after `cursor`, at most 1,000 in one
    ///   claim. So a claim may find nothing although later tenants have due jobs: `more_after` says
    ///   where to continue.
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
        db.release().await?;
        let mut claim = Claim::default();
        if rows.iter().any(|row| row.conversation_id.is_some()) {
            failpoint!("claim.claimed");
        }
        for row in rows {
            // Only the row that says where to continue has no conversation. In the rows of jobs,
            // only the argument and the trace context may be null.
            let (tenant, Some(conversation)) = (TenantId(row.tenant_id), row.conversation_id)
            else {
                claim.more_after = Some(TenantId(row.tenant_id));
                continue;
            };
            claim.jobs.push(ClaimedJob {
                kind,
                conversation: ConversationId(conversation),
                tenant,
                attempts: row.attempts.unwrap_or_default(),
                manual: row
                    .argument
                    .as_deref()
                    .and_then(|argument| serde_json::from_str(argument).ok()),
                trace_context: row.trace_context,
                generation: row.generation.unwrap_or_default(),
                lease,
            });
        }
        Ok(claim)
    }
}
