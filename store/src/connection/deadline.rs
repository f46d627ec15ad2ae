//! How long a caller waits for the database. A connection can be dead without an error on this
//! side.

use std::time::Duration;

use tokio::time::timeout;

use crate::error::StoreError;

/// Limits how long a call of the store may take. After `most` the connection is closed and the call
/// fails with [`StoreError::Unresponsive`]; the next try gets another connection. The statement may
/// or may not have been executed.
pub fn within<T>(
    most: Duration,
    asked: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    // Boxed: futures of statements are large and nested in other futures.
    let asked = Box::pin(asked);
    async move {
        timeout(most, asked)
            .await
            .unwrap_or(Err(StoreError::Unresponsive))
    }
}

/// Pauses between tries after the database refused: 100 ms, doubled after every try, at most two
/// seconds.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(Duration::from_millis(100))
    }
}

impl Backoff {
    /// The pause before the next try.
    pub fn next_pause(&mut self) -> Duration {
        let longest = Duration::from_secs(2);
        let longer = (self.0 * 2).min(longest);
        std::mem::replace(&mut self.0, longer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_two_seconds() {
        let mut backoff = Backoff::default();
        let taken: Vec<u128> = (0..7).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(taken, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
    }
}
