//! The tower layer around every call of gRPC and HTTP: counts the bytes of requests and answers,
//! and the calls in flight on each connection. `accounting.rs` applies the rates once the caller is
//! known.

use std::{
    cell::Cell,
    pin::pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use anneal_proto::codec::ENTRIES;
use axum::body::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use http_body::Body;
use tower::{Layer, Service};

use super::{
    TrafficLimits,
    accounting::OVERHEAD_BYTES,
    request_body::RequestBody,
    response_body::{ResponseBody, Truncate},
};
use crate::{
    failure::Failure,
    limits::content_budget::Reservation,
    listen::{Peer, SlotRef},
    poll_watchdog::PollWatchdog,
    verbs::UNAUTHENTICATED_PATH_PREFIX,
};

/// The path of AppendLargeMessage. Its request bodies have a limit of their own
/// (`server.concurrent_large_appends`).
const LARGE_APPEND_PATH: &str = "/anneal.v1.MessageService/AppendLargeMessage";
/// Time within which a request of the health service must arrive. Such a request needs no
/// credential.
const UNAUTHENTICATED_RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of the body of a request of the health service, which only names a service. The
/// message in it has a lower limit (`server/src/grpc/health.rs`).
const UNAUTHENTICATED_MAX_BYTES: u64 = 4 * 1024;
/// Most requests of the health service in flight on one connection: their memory is charged to no
/// tenant. Health checkers send one request after the other.
const UNAUTHENTICATED_CALLS_PER_CONNECTION: u32 = 8;
/// Health probes over HTTP. Their answer is a single word.
const PROBE_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Charges the bytes that a call transfers to the account of its tenant, and counts the call as in
/// flight on its connection, so that idle connections are closed first.
pub(crate) struct TrafficLayer<A: Body> {
    pub(crate) limits: TrafficLimits,
    /// Makes the answer for a refusal, as gRPC or HTTP needs it.
    pub(crate) refuse: fn(Failure) -> Response<A>,
    /// Makes the last frame of an answer that is cut short.
    pub(crate) truncate: Truncate<A>,
}

impl<A: Body> Clone for TrafficLayer<A> {
    fn clone(&self) -> Self {
        Self {
            limits: self.limits.clone(),
            refuse: self.refuse,
            truncate: self.truncate,
        }
    }
}

impl<S, A: Body> Layer<S> for TrafficLayer<A> {
    type Service = TrafficService<S, A>;

    fn layer(&self, inner: S) -> TrafficService<S, A> {
        TrafficService {
            layer: self.clone(),
            inner,
        }
    }
}

/// How long a client may take to read a large answer.
const LARGE_READ_TIMEOUT: Duration = Duration::from_mins(5);
/// How long a client may take to read a large answer while other calls wait for its memory.
const CONTENDED_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Closes the connection of a client that takes too long to read a large answer: one whose
/// reservation holds the large slot (`limits/content_budget.rs`). Returns once the answer has been
/// sent or the connection is closed.
async fn close_slow_reader(connection: SlotRef, reservation: Weak<Reservation>) {
    let begun = Instant::now();
    let mut checks = tokio::time::interval(Duration::from_secs(1));
    loop {
        checks.tick().await;
        let Some(reservation) = reservation.upgrade() else {
            return;
        };
        let took = begun.elapsed();
        if took > LARGE_READ_TIMEOUT
            || took > CONTENDED_READ_TIMEOUT && reservation.large_slot_is_awaited()
        {
            return connection.close_for_stalling();
        }
    }
}

/// The service that [`TrafficLayer`] makes.
pub(crate) struct TrafficService<S, A: Body> {
    layer: TrafficLayer<A>,
    inner: S,
}

impl<S: Clone, A: Body> Clone for TrafficService<S, A> {
    fn clone(&self) -> Self {
        Self {
            layer: self.layer.clone(),
            inner: self.inner.clone(),
        }
    }
}

impl<S, B, A> Service<Request<B>> for TrafficService<S, A>
where
    S: Service<Request<RequestBody<B>>, Response = Response<A>>,
    S::Future: Send + 'static,
    A: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<ResponseBody<A>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let (accounting, refuse, truncate) = (
            self.layer.limits.accounting(),
            self.layer.refuse,
            self.layer.truncate,
        );
        let slot = request
            .extensions()
            .get::<Peer>()
            .map(|peer| peer.slot.clone());
        let watchdog = PollWatchdog::for_request(&request);
        let path = request.uri().path();
        let (is_unauthenticated, has_own_limit) = (
            path.starts_with(UNAUTHENTICATED_PATH_PREFIX),
            path == LARGE_APPEND_PATH,
        );
        let unauthenticated_connection = slot.as_ref().filter(|_| is_unauthenticated).cloned();
        let unauthenticated_call = slot
            .as_ref()
            .filter(|_| is_unauthenticated)
            .map(|slot| slot.begin_unauthenticated_call(UNAUTHENTICATED_CALLS_PER_CONNECTION));
        // `Some(None)`: it is a health check, and as many as allowed are in flight already.
        if let Some(None) = unauthenticated_call {
            metrics::counter!("anneal_shed_total", "rpc" => "health").increment(1);
            let refused = refuse(Failure::Overloaded).map(|body| {
                ResponseBody::new((body, truncate), (accounting, watchdog), None, false)
            });
            return async move { Ok(refused) }.boxed();
        }
        // A health check does not keep its connection from being closed, and its answer does not
        // count as waiting bytes: the load of unauthenticated callers must not make a probe fail.
        let on_connection = slot.filter(|_| !is_unauthenticated).map(|slot| {
            let in_flight = slot.begin_call();
            (slot, in_flight)
        });
        let is_counted = !is_unauthenticated && !PROBE_PATHS.contains(&path);
        let bounds = if is_unauthenticated {
            (
                UNAUTHENTICATED_RECEIVE_TIMEOUT,
                Some(UNAUTHENTICATED_MAX_BYTES),
            )
        } else {
            (accounting.receive_timeout(), None)
        };
        request.extensions_mut().insert(accounting.clone());
        let memory = (!has_own_limit).then(|| accounting.request_memory());
        if let Some(memory) = &memory {
            request.extensions_mut().insert(memory.clone());
        }
        // Keeps the request's memory reserved until the call answers, even if it drops the body.
        let held_memory = memory.clone();
        let request_body = |body| {
            RequestBody::new(body, accounting.clone(), memory, bounds)
                .with_unauthenticated_connection(unauthenticated_connection)
        };
        let answering = ENTRIES.scope(Cell::new(0), self.inner.call(request.map(request_body)));
        async move {
            let mut answer = watchdog.watch(pin!(answering)).await?;
            drop(held_memory);
            let reservation = answer.extensions_mut().remove::<Arc<Reservation>>();
            if let (Some(reservation), Some((slot, _))) = (&reservation, &on_connection)
                && reservation.is_large()
            {
                tokio::spawn(close_slow_reader(slot.clone(), Arc::downgrade(reservation)));
            }
            // While the headers are not sent yet, an answer of known size can still be replaced by
            // a short refusal. This only checks that its bytes are free: the response body reserves
            // them.
            let size = answer.body().size_hint().exact().filter(|_| is_counted);
            let refused = size.and_then(|size| {
                accounting
                    .waiting_bytes()
                    .reserve(size + OVERHEAD_BYTES)
                    .err()
            });
            let (answer, is_counted) = match refused {
                None => (answer, is_counted),
                Some(failure) => (refuse(failure), false),
            };
            let response_body = |body| {
                ResponseBody::new(
                    (body, truncate),
                    (accounting, watchdog),
                    on_connection,
                    is_counted,
                )
                .with_reservation(reservation)
                .with_unauthenticated_call(unauthenticated_call.flatten())
            };
            Ok(answer.map(response_body))
        }
        .boxed()
    }
}
