//! How long whoever asks waits for an answer: a connection may be dead without anybody saying so.

use std::time::Duration;

use tokio::time::timeout;

use crate::StoreError;

/// What the database answers, unless it takes longer than this: then the connection is given up, and the next try has another
/// one. What was asked may have been done or not.
pub fn within<T>(
    most: Duration,
    asked: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    // What asks the database is large, and stands in futures within futures.
    let asked = Box::pin(asked);
    async move { timeout(most, asked).await.unwrap_or(Err(StoreError::Silent)) }
}
