//! The lock of a model's row (`ai_model_breaker`), under which calls are admitted, and settled if a
//! breaker changes; and how many calls may wait for it.

use std::time::Duration;

use anneal_core::{
    admission::{Breaker, BreakerCause, CallPurpose},
    caller::TenantId,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::{
    Store,
    connection::{BoundedConnection, StoreSettings, pool::Pool},
    error::StoreError,
    rows::{breaker, elapsed},
};

/// Limits how many calls wait for rows of models at once, each with a connection. A process that
/// hangs may lock such a row until PostgreSQL ends its session. Calls that wait for the row
/// meanwhile must not take all connections.
pub(crate) struct ModelRowPermits {
    jobs: Semaphore,
    writes: Semaphore,
}

/// How long a call waits for a permit. Longer than the 5 s after which PostgreSQL ends a session
/// that is idle in a transaction.
const PERMIT_DEADLINE: Duration = Duration::from_secs(10);

impl ModelRowPermits {
    /// A quarter of the connections for jobs, and a quarter of those for writes, at least one each.
    pub(crate) fn of(settings: &StoreSettings) -> Self {
        let quarter = |connections: u32| Semaphore::new((connections / 4).max(1) as usize);
        Self {
            jobs: quarter(settings.job_connections),
            writes: quarter(settings.write_connections),
        }
    }

    async fn acquire(&self, purpose: CallPurpose) -> Result<SemaphorePermit<'_>, StoreError> {
        let permits = match purpose {
            CallPurpose::Summary => &self.jobs,
            CallPurpose::Turn | CallPurpose::Ping => &self.writes,
        };
        let permit = timeout(PERMIT_DEADLINE, permits.acquire())
            .await
            .map_err(|_| StoreError::Busy)?;
        permit.map_err(|_| StoreError::Busy)
    }
}

impl Store {
    /// The pool for calls of a purpose: those of workers use that of jobs, those of servers that of
    /// writes.
    pub(crate) const fn calls_pool(&self, purpose: CallPurpose) -> &Pool {
        match purpose {
            CallPurpose::Summary => &self.jobs,
            CallPurpose::Turn | CallPurpose::Ping => &self.writes,
        }
    }

    /// Waits for the permit that a call needs before it locks a model's row: at most for
    /// [`PERMIT_DEADLINE`], and at most as long as one use of a connection may take. The wait is
    /// not part of that use.
    pub(crate) async fn acquire_model_row_permit(
        &self,
        purpose: CallPurpose,
    ) -> Result<SemaphorePermit<'_>, StoreError> {
        let permit = self.model_row_permits.acquire(purpose);
        self.calls_pool(purpose).deadline().bound(permit).await
    }
}

/// A model's row of `ai_model_breaker`. The default is the row of a model that has not failed.
#[derive(Default)]
pub(crate) struct ModelRow {
    pub(crate) breaker: Breaker,
    /// How many failures of the present series count against the model. Those of one tenant count
    /// only up to a limit (`core/src/breaker.rs`).
    pub(crate) evidence: u32,
    /// The number of the present series of failures. A new series begins when the model answers or
    /// its breaker opens.
    pub(crate) series: i64,
    /// Why and since when the breaker is open. Its `opened_ago` is None if the breaker is closed.
    pub(crate) cause: BreakerCause,
}

/// Whether the model's breaker, or the tenant's for the model, counts a failure or is not closed.
pub(super) async fn has_failures(
    db: &mut BoundedConnection,
    tenant: TenantId,
    model: &str,
) -> Result<bool, StoreError> {
    let has_failures = sqlx::query_scalar!(
        r#"select exists (
               select from ai_model_breaker
               where model = $2 and (failures > 0 or open_until_ts is not null)
           ) or exists (
               select from ai_tenant_breaker where tenant_id = $1 and model = $2
           ) as "has_failures!""#,
        tenant.0,
        model,
    );
    Ok(has_failures.fetch_one(db).await?)
}

/// Locks the model's row and reads its breaker; inserts the row if the model has none. Because of
/// the lock, calls of one model are admitted one after another, and so are settlements that change
/// its breaker.
pub(crate) async fn lock_model_breaker(
    db: &mut BoundedConnection,
    model: &str,
) -> Result<ModelRow, StoreError> {
    loop {
        if let Some(row) = find_and_lock(db, model).await? {
            return Ok(row);
        }
        // Only the first call of a model comes here: rows are never deleted.
        sqlx::query!(
            "insert into ai_model_breaker (model) values ($1) on conflict (model) do nothing",
            model
        )
        .execute(&mut *db)
        .await?;
    }
}

/// Locks the model's row and reads its breaker; None: the model has no row.
async fn find_and_lock(
    db: &mut BoundedConnection,
    model: &str,
) -> Result<Option<ModelRow>, StoreError> {
    let row = sqlx::query!(
        r#"select failures, evidence, series, coalesce(last_error, '') as "last_error!",
               extract(epoch from open_until_ts - now())::double precision as "open_seconds?",
               case when open_until_ts is not null then extract(epoch from now() - opened_ts)
               end::double precision as "opened_seconds?"
           from ai_model_breaker where model = $1 for update"#,
        model,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| ModelRow {
        breaker: breaker(row.failures, row.open_seconds),
        evidence: row.evidence.unsigned_abs(),
        series: row.series,
        cause: BreakerCause {
            opened_ago: elapsed(row.opened_seconds),
            last_error: row.last_error,
        },
    }))
}
