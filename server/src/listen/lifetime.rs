//! How long a connection lives: until its client leaves, the server stops, or it has had its time, so that clients spread over
//! servers that came later.

use std::{pin::pin, time::Duration};

use hyper_util::server::graceful::GracefulConnection;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::traffic::LimitSettings;

/// How long connections live. Each lives a tenth longer or shorter, or all would come back at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lifetime {
    /// None: for ever.
    age: Option<Duration>,
    grace: Duration,
}

impl Lifetime {
    /// As the settings say.
    pub(crate) fn new(settings: &LimitSettings) -> Self {
        let age = Duration::from_secs(settings.connection_age_seconds.into());
        let grace = Duration::from_secs(settings.connection_grace_seconds.into());
        Self { age: Some(age).filter(|age| !age.is_zero()), grace }
    }

    /// Serves a connection until it ends. When `leave` is cancelled, it is closed at once. When its time is up, or `stop` is
    /// cancelled, it takes no new call and ends with the last of its calls; those on one whose time was up have a grace.
    pub(crate) async fn live<C>(self, connection: C, leave: CancellationToken, stop: CancellationToken)
    where
        C: GracefulConnection,
        C::Error: std::fmt::Display,
    {
        if leave.run_until_cancelled(self.live_out(connection, stop)).await.is_none() {
            debug!("a connection was closed: its place is needed, or its readers read nothing");
        }
    }

    async fn live_out<C>(self, connection: C, stop: CancellationToken)
    where
        C: GracefulConnection,
        C::Error: std::fmt::Display,
    {
        let mut connection = pin!(connection);
        tokio::select! {
            ended = &mut connection => return end(ended),
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                return end(connection.await);
            }
            () = self.grows_old() => connection.as_mut().graceful_shutdown(),
        }
        metrics::counter!("connections_aged_total").increment(1);
        if let Ok(ended) = tokio::time::timeout(self.grace, connection).await {
            end(ended);
        } else {
            debug!("a connection's calls have not ended within its grace");
        }
    }

    async fn grows_old(self) {
        match self.age {
            Some(age) => tokio::time::sleep(spread(age, getrandom::u32().unwrap_or(u32::MAX / 2))).await,
            None => std::future::pending().await,
        }
    }
}

fn end(ended: Result<(), impl std::fmt::Display>) {
    if let Err(error) = ended {
        debug!("a connection has ended: {error}");
    }
}

/// From nine to eleven tenths of it, evenly.
fn spread(age: Duration, random: u32) -> Duration {
    age.mul_f64(0.9 + 0.2 * f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_spread_by_a_tenth_either_way() {
        let age = Duration::from_secs(10);
        assert_eq!(spread(age, 0), Duration::from_secs(9));
        assert_eq!(spread(age, u32::MAX), Duration::from_secs(11));
    }
}
