//! Pauses of loops that every worker runs.

use std::time::Duration;

/// Sleeps for this pause, varied by a quarter, so that workers do not work all at once.
pub(crate) async fn sleep_about(pause: Duration) {
    tokio::time::sleep(pause.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
}
