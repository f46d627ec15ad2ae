//! The database's clock, the only one that stored times are compared with, and the repair of stored
//! times that lie too far in the future after that clock was set back.

use std::time::Duration;

use anneal_core::job::LEASE_SECONDS;

use super::row_security::Scope;
use crate::{Store, error::StoreError};

impl Store {
    /// Time on the database's clock, in microseconds since 1970-01-01 UTC.
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

    /// Repairs times that lie further in the future than a correct clock sets them. Leases are cut
    /// to the length of one lease. Jobs that wait without a reason become due now. Deferred jobs
    /// and open breakers are cut to `most`. Returns the number of rows changed. Skips locked rows:
    /// the transaction that holds a row sets its time itself.
    pub async fn mend_times(&self, most: Duration) -> Result<i64, StoreError> {
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        let (lease, most) = (f64::from(LEASE_SECONDS), most.as_secs_f64());
        let mended = sqlx::query_file_scalar!("sql/mend_times.sql", lease, most)
            .fetch_one(&mut *db)
            .await?;
        db.release().await?;
        Ok(mended)
    }
}
