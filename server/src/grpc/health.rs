//! The service `grpc.health.v1`, which needs no credentials. `traffic/layer.rs` limits the health
//! calls in flight on a connection, both `Check` and `Watch`. Watches are also limited here, per
//! connection and in all.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{Stream, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Response, Status};
use tonic_health::{
    pb::{
        HealthCheckRequest, HealthCheckResponse,
        health_server::{Health, HealthServer},
    },
    server::{HealthReporter, HealthService, WatchStream},
};

use crate::{
    failure::Failure,
    listen::{CountGuard, Peer},
};

/// Most concurrent `Watch` calls of one connection. A watch needs no credential and may never end.
const MAX_WATCHES_PER_CONNECTION: u32 = 4;
/// Most concurrent `Watch` calls of all connections.
const MAX_WATCHES: usize = 1_000;
/// Most bytes of a request's message, which holds only the name of a service.
const MAX_REQUEST_BYTES: usize = 1024;

/// The health service over this reporter's statuses.
pub(crate) fn service(reporter: HealthReporter) -> HealthServer<impl Health> {
    let health_service = HealthService::from_health_reporter(reporter);
    let bounded = BoundedHealth {
        health_service,
        watches: Arc::new(Semaphore::new(MAX_WATCHES)),
    };
    HealthServer::new(bounded).max_decoding_message_size(MAX_REQUEST_BYTES)
}

struct BoundedHealth {
    health_service: HealthService,
    watches: Arc<Semaphore>,
}

/// The stream of one `Watch` call. It counts against both limits until it is dropped.
struct CountedWatch {
    changes: WatchStream,
    _permit: OwnedSemaphorePermit,
    _connection_guard: Option<CountGuard>,
}

#[tonic::async_trait]
impl Health for BoundedHealth {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.health_service.check(request).await
    }

    type WatchStream = CountedWatch;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<CountedWatch>, Status> {
        let refuse = || {
            metrics::counter!("anneal_shed_total", "rpc" => "health_watch").increment(1);
            Status::from(Failure::Overloaded)
        };
        let connection_guard = match request.extensions().get::<Peer>() {
            Some(peer) => Some(
                peer.slot
                    .begin_unauthenticated_watch(MAX_WATCHES_PER_CONNECTION)
                    .ok_or_else(refuse)?,
            ),
            None => None,
        };
        let permit = Arc::clone(&self.watches)
            .try_acquire_owned()
            .map_err(|_| refuse())?;
        let changes = self.health_service.watch(request).await?;
        Ok(changes.map(|changes| CountedWatch {
            changes,
            _permit: permit,
            _connection_guard: connection_guard,
        }))
    }
}

impl Stream for CountedWatch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.changes.poll_next_unpin(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn watches_beyond_a_thousand_are_refused_and_checks_are_not() {
        let reporter = HealthReporter::new();
        let health_service = HealthService::from_health_reporter(reporter);
        let health = BoundedHealth {
            health_service,
            watches: Arc::new(Semaphore::new(MAX_WATCHES)),
        };
        let request = || {
            Request::new(HealthCheckRequest {
                service: String::new(),
            })
        };
        let mut watches = Vec::new();
        for _ in 0..MAX_WATCHES {
            watches.push(health.watch(request()).await.expect("is admitted"));
        }
        let refused = health
            .watch(request())
            .await
            .map(drop)
            .expect_err("too many");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        health.check(request()).await.expect("is answered");
        watches.pop();
        health.watch(request()).await.expect("one watch has ended");
    }
}
