//! How long a worker waits for the database: a connection may be dead without anybody saying so, and a job that waits for it would
//! keep its lease for ever.

use std::time::Duration;

use anneal_store::{StoreError, within};

/// Far above what a call of the store takes, a few statements within the room for one.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tries to store what a model has written while the worker's own connections are all in use: each waits two seconds for one.
const TRIES: u32 = 30;

/// What the store answers; where it does not, the connection is given up, and the next try has another one.
pub(crate) fn answered<T>(
    asked: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    within(PATIENCE, asked)
}

/// The same for what was paid for: asked again while no connection is to be had, so that no model writes it a second time. Who
/// has lost the lease meanwhile is told so by the store.
pub(crate) async fn stored<T, Asked>(ask: impl Fn() -> Asked) -> Result<T, StoreError>
where
    Asked: Future<Output = Result<T, StoreError>>,
{
    for _ in 1..TRIES {
        match answered(ask()).await {
            Err(StoreError::Busy) => {}
            answer => return answer,
        }
    }
    answered(ask()).await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn what_was_paid_for_is_stored_when_a_connection_is_to_be_had() {
        let asked = Cell::new(0);
        let ask = || {
            asked.set(asked.get() + 1);
            std::future::ready(if asked.get() < 3 { Err(StoreError::Busy) } else { Ok("kept") })
        };
        assert_eq!(stored(ask).await.ok(), Some("kept"));
        assert_eq!(asked.get(), 3);
        let lost = stored(|| std::future::ready(Err::<(), _>(StoreError::LeaseLost))).await;
        assert!(matches!(lost, Err(StoreError::LeaseLost)), "another answer is the answer");
    }
}
