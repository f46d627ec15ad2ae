//! Limits the age of connections (gRPC calls this MAX_CONNECTION_AGE). Clients of older connections
//! are asked to reconnect, so that they spread over servers that were added later. Idle connections
//! are not closed here: HTTP/1.1 closes them in `http/serve.rs`, and the keep-alive pings of gRPC
//! close those whose client is gone.

use std::{
    fmt::Display,
    pin::{Pin, pin},
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::settings::LimitSettings;

/// The maximum age of connections and the grace for their calls. Each connection gets an age that
/// is up to a tenth longer or shorter, so that clients do not all reconnect at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MaxConnectionAge {
    /// None: no maximum.
    age: Option<Duration>,
    grace: Duration,
}

impl MaxConnectionAge {
    /// Reads `connection_age_seconds` (0: no maximum) and `connection_grace_seconds`.
    pub(crate) fn new(settings: &LimitSettings) -> Self {
        let age = Duration::from_secs(settings.connection_age_seconds.into());
        let grace = Duration::from_secs(settings.connection_grace_seconds.into());
        Self {
            age: Some(age).filter(|age| !age.is_zero()),
            grace,
        }
    }

    /// Serves a connection until it ends. Closes it at once when `close` is cancelled. Shuts it
    /// down gracefully at its maximum age or when `stop` is cancelled: it takes no new calls, and
    /// ends with the last call in flight. After the maximum age those calls get the grace period.
    /// `shut_down` begins the graceful shutdown of the connection.
    pub(crate) async fn serve<C, E>(
        self,
        connection: C,
        shut_down: fn(Pin<&mut C>),
        close: CancellationToken,
        stop: CancellationToken,
    ) where
        C: Future<Output = Result<(), E>>,
        E: Display,
    {
        if close
            .run_until_cancelled(self.serve_gracefully(connection, shut_down, stop))
            .await
            .is_none()
        {
            debug!("a connection was closed: its slots are needed, or its answers are not read");
        }
    }

    async fn serve_gracefully<C, E>(
        self,
        connection: C,
        shut_down: fn(Pin<&mut C>),
        stop: CancellationToken,
    ) where
        C: Future<Output = Result<(), E>>,
        E: Display,
    {
        let mut connection = pin!(connection);
        tokio::select! {
            result = &mut connection => return log_failure(result),
            () = stop.cancelled() => {
                shut_down(connection.as_mut());
                return log_failure(connection.await);
            }
            () = self.wait_for_age() => shut_down(connection.as_mut()),
        }
        metrics::counter!("anneal_connections_aged_total").increment(1);
        if let Ok(result) = tokio::time::timeout(self.grace, connection).await {
            log_failure(result);
        } else {
            debug!("a connection's calls have not ended within its grace");
        }
    }

    async fn wait_for_age(self) {
        match self.age {
            Some(age) => {
                tokio::time::sleep(jittered(age, fastrand::f64())).await;
            }
            None => std::future::pending().await,
        }
    }
}

fn log_failure(result: Result<(), impl Display>) {
    if let Err(error) = result {
        debug!("a connection has ended: {error}");
    }
}

/// A duration between 0.9 and 1.1 times `age`, evenly distributed over `random` from 0 to 1.
fn jittered(age: Duration, random: f64) -> Duration {
    age.mul_f64(0.9 + 0.2 * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_vary_by_a_tenth_in_both_directions() {
        let age = Duration::from_secs(10);
        assert_eq!(jittered(age, 0.0), Duration::from_secs(9));
        assert_eq!(jittered(age, 1.0), Duration::from_secs(11));
    }
}
