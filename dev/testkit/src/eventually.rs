//! Waits until something has happened in another process or task.

use std::time::Duration;

/// Calls `holds` every 20 ms until it returns true. Panics after a minute. `what` names the
/// condition in the panic's message.
pub async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    eventually_within(Duration::from_mins(1), what, holds).await;
}

/// Waits as [`eventually`] does. Panics after `limit`.
pub async fn eventually_within(limit: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let condition = async {
        loop {
            ticks.tick().await;
            if holds().await {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(limit, condition).await;
    assert!(
        in_time.is_ok(),
        "this did not happen within {limit:?}: {what}"
    );
}
