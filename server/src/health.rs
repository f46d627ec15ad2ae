//! grpc.health.v1. Anybody may ask, without a credential: `Check` as often as they like, `Watch` a few times.

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
    listen::{OpenCall, Peer},
    status::Failure,
};

/// Watches at once: on one connection, and on all together. A watch is a stream that nobody pays for and that may stay for ever.
const WATCHES_PER_CONNECTION: u32 = 4;
const WATCHES: usize = 1_000;
/// Bytes of a question: the name of a service.
const QUESTION_BYTES: usize = 1024;

/// The health service that tells what this reporter is told.
pub(crate) fn service(reporter: HealthReporter) -> HealthServer<impl Health> {
    let answering = HealthService::from_health_reporter(reporter);
    let bounded = BoundedHealth { answering, watches: Arc::new(Semaphore::new(WATCHES)) };
    HealthServer::new(bounded).max_decoding_message_size(QUESTION_BYTES)
}

struct BoundedHealth {
    answering: HealthService,
    watches: Arc<Semaphore>,
}

/// A watch, counted until it is dropped.
struct CountedWatch {
    changes: WatchStream,
    _of_all: OwnedSemaphorePermit,
    _of_connection: Option<OpenCall>,
}

#[tonic::async_trait]
impl Health for BoundedHealth {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        self.answering.check(request).await
    }

    type WatchStream = CountedWatch;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<CountedWatch>, Status> {
        let refused = || {
            metrics::counter!("shed_total", "rpc" => "health_watch").increment(1);
            Status::from(Failure::Overloaded)
        };
        let of_connection = match request.extensions().get::<Peer>() {
            Some(peer) => Some(peer.place.begin_open_watch(WATCHES_PER_CONNECTION).ok_or_else(refused)?),
            None => None,
        };
        let of_all = Arc::clone(&self.watches).try_acquire_owned().map_err(|_| refused())?;
        let changes = self.answering.watch(request).await?;
        Ok(changes.map(|changes| CountedWatch { changes, _of_all: of_all, _of_connection: of_connection }))
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
        let answering = HealthService::from_health_reporter(reporter);
        let health = BoundedHealth { answering, watches: Arc::new(Semaphore::new(WATCHES)) };
        let ask = || Request::new(HealthCheckRequest { service: String::new() });
        let mut watches = Vec::new();
        for _ in 0..WATCHES {
            watches.push(health.watch(ask()).await.expect("is let in"));
        }
        let refused = health.watch(ask()).await.map(drop).expect_err("too many");
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        health.check(ask()).await.expect("is answered");
        watches.pop();
        health.watch(ask()).await.expect("there is room again");
    }
}
