//! Repeats calls that end a response, while the database is unavailable or the server is overloaded.

use std::time::Duration;

/// Pauses between the tries of one call.
const RETRY_PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// Makes a call, again after each of [`RETRY_PAUSES`] as long as its failure may pass.
pub(super) async fn retry<T, E, F>(
    mut call: impl FnMut() -> F,
    may_pass: impl Fn(&E) -> bool,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    for pause in RETRY_PAUSES {
        match call().await {
            Err(error) if may_pass(&error) => tokio::time::sleep(pause).await,
            outcome => return outcome,
        }
    }
    call().await
}
