//! The usual time limit of a worker's calls to the database, and the retries with which a finished
//! summary is stored while no connection is free. Without the time limit, a job could wait for ever
//! on a broken connection that reports no error.

use std::time::Duration;

use anneal_store::StoreError;

/// The deadline of the worker's store calls, except claims (`run`) and heartbeats (`leases`), which
/// have shorter ones. Far above what a call normally takes: the wait for a connection and a few
/// statements.
pub(crate) const DB_DEADLINE: Duration = Duration::from_secs(20);

/// How often a call is tried at most while all connections of the worker are in use. By default
/// each try waits two seconds for a connection (`pool_wait_ms`), so all tries take a minute.
const MAX_TRIES: u32 = 30;

/// Repeats a store call while the connection pool is exhausted, up to [`MAX_TRIES`] tries, so that
/// a summary that is already paid for is not lost. If the lease is lost meanwhile, the store
/// returns that as an error.
pub(crate) async fn retry_while_busy<T, Called>(call: impl Fn() -> Called) -> Result<T, StoreError>
where
    Called: Future<Output = Result<T, StoreError>>,
{
    for _ in 1..MAX_TRIES {
        match call().await {
            Err(StoreError::Busy) => {}
            answer => return answer,
        }
    }
    call().await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_call_is_repeated_while_no_connection_is_free_but_not_after_another_error() {
        let calls = Cell::new(0);
        let call = || {
            calls.set(calls.get() + 1);
            std::future::ready(if calls.get() < 3 {
                Err(StoreError::Busy)
            } else {
                Ok("kept")
            })
        };
        assert_eq!(retry_while_busy(call).await.ok(), Some("kept"));
        assert_eq!(calls.get(), 3);
        let lost =
            retry_while_busy(|| std::future::ready(Err::<(), _>(StoreError::LeaseLost))).await;
        assert!(
            matches!(lost, Err(StoreError::LeaseLost)),
            "any other error is returned at once"
        );
    }
}
