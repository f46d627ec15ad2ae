//! The database's clock. Stored times are compared with it only. When it is set back, stored times
//! lie too far in the future, and are repaired here.

use std::time::Duration;

use anneal_core::job::LEASE_SECONDS;

use super::row_security::Scope;
use crate::{Store, error::StoreError};

impl Store {
    /// Reads the database's clock, in microseconds since 1970-01-01 UTC.
    pub async fn read_clock(&self) -> Result<i64, StoreError> {
        let mut db = self.jobs.checkout(Scope::Nobody).await?;
        let now_us = sqlx::query_scalar!(
            r#"select (extract(epoch from clock_timestamp()) * 1000000)::bigint as "now_us!""#
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(now_us)
    }

    /// Repairs times that lie further in the future than a correct clock would have set them.
    /// Leases end within the length of a lease. Breakers stay open, and jobs that were deferred or
    /// have failed wait, for at most `longest_wait`. Other jobs that would wait for more than two
    /// seconds become due now. Skips locked jobs, because the transaction that holds a job's row
    /// sets the time itself. Returns the number of rows changed.
    pub async fn mend_times(&self, longest_wait: Duration) -> Result<i64, StoreError> {
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        let (lease, wait) = (f64::from(LEASE_SECONDS), longest_wait.as_secs_f64());
        let mended = sqlx::query_file_scalar!("sql/mend_times.sql", lease, wait)
            .fetch_one(&mut *db)
            .await?;
        db.release().await?;
        Ok(mended)
    }
}
