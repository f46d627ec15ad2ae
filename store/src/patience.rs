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

/// How long the database is left alone after it could not take something: 100 ms, twice as long after every other time, two
/// seconds at most.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(Duration::from_millis(100))
    }
}

impl Pauses {
    /// The one before the next try.
    pub fn take(&mut self) -> Duration {
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
        let mut pauses = Pauses::default();
        let taken: Vec<u128> = (0..7).map(|_| pauses.take().as_millis()).collect();
        assert_eq!(taken, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
    }
}
