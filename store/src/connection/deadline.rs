//! How long a call waits for the database, and how long it pauses between tries.

use std::{io, time::Duration};

use futures::{FutureExt as _, future::Either};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

/// The time until which a call waits for the database. A database that is gone may cause no error
/// on this side: the connection only stays silent. After the deadline the call fails with
/// [`StoreError::Unresponsive`](crate::StoreError::Unresponsive).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// No deadline.
    pub(crate) const NONE: Self = Self(None);

    /// The deadline of a call that begins now and may take this long.
    pub(crate) fn after(limit: Option<Duration>) -> Self {
        Self(limit.map(|limit| Instant::now() + limit))
    }

    /// Waits for `work` until the deadline.
    pub(crate) fn bound<T, E: From<sqlx::Error>>(
        self,
        work: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, E>> {
        // Not an async function: its future would hold `work` three times, and the `work` of taking
        // a connection has kilobytes.
        match self.0 {
            Some(until) => Either::Left(
                timeout_at(until, work)
                    .map(|answer| answer.unwrap_or_else(|_| Err(exceeded().into()))),
            ),
            None => Either::Right(work),
        }
    }

    /// Whether the deadline has passed.
    pub(super) fn has_passed(self) -> bool {
        self.0.is_some_and(|until| until <= Instant::now())
    }

    /// Sleeps until the deadline. None: there is no deadline.
    pub(super) fn sleep(self) -> Option<Sleep> {
        self.0.map(sleep_until)
    }
}

/// The error after the deadline: the same as of a socket whose other end does not answer.
pub(super) fn exceeded() -> sqlx::Error {
    sqlx::Error::Io(io::ErrorKind::TimedOut.into())
}

/// Pauses between tries to reach the database: 100 ms, doubled after every try, at most two
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
