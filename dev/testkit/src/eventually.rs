//! Waiting for another process or task.

use std::time::Duration;

/// Checks `holds` every 20 ms until it returns true. Panics with `what` after a minute.
pub async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    eventually_within(Duration::from_mins(1), what, holds).await;
}

/// Checks `holds` every 20 ms until it returns true. Panics with `what` after `most`.
pub async fn eventually_within(most: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let patience = async {
        loop {
            looks.tick().await;
            if holds().await {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(most, patience).await;
    assert!(in_time.is_ok(), "{most:?} have passed without this: {what}");
}
