//! What the database's clock says, which is the only one that anything is compared with, and what it left behind when it was wrong.

use std::time::Duration;

use anneal_core::job::LEASE_SECONDS;

use crate::{Store, error::StoreError, scope::Scope};

impl Store {
    /// What the database's clock says: microseconds since 1970.
    pub async fn clock(&self) -> Result<i64, StoreError> {
        let mut db = self.jobs.checkout(Scope::Nobody).await?;
        let now_us =
            sqlx::query_scalar!(r#"select (extract(epoch from clock_timestamp()) * 1000000)::bigint as "now_us!""#)
                .fetch_one(&mut *db)
                .await?;
        db.release().await?;
        Ok(now_us)
    }

    /// Brings near what lies further ahead than a sound clock sets it: leases to the length of one, what waits for no reason to
    /// now, what was put off and open breakers to `most`. How many rows that were. Whoever holds a row sets it himself.
    pub async fn mend_times(&self, most: Duration) -> Result<i64, StoreError> {
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        let (lease, most) = (f64::from(LEASE_SECONDS), most.as_secs_f64());
        let mended = sqlx::query_file_scalar!("sql/mend_times.sql", lease, most).fetch_one(&mut *db).await?;
        db.release().await?;
        Ok(mended)
    }
}
