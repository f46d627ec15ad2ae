//! How long a worker waits for the database: a connection may be dead without anybody saying so, and a job that waits for it would
//! keep its lease for ever.

use std::time::Duration;

use anneal_store::StoreError;
use tokio::time::timeout;

/// Far above what a call of the store takes, a few statements within the room for one.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the store answers; where it does not, the connection is given up, and the next try has another one.
pub(crate) fn answered<T>(
    asked: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    // What asks the database is large, and stands in futures within futures.
    let asked = Box::pin(asked);
    async move { timeout(PATIENCE, asked).await.unwrap_or(Err(StoreError::Silent)) }
}
