//! A call keeps its connection: from the request's head to the last byte of its answer.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tower::{Layer, Service};

use super::{Peer, seats::Occupied};
use crate::auth::OPEN;

/// Notes on its connection's place that a call is under way.
#[derive(Clone, Copy)]
pub(crate) struct OccupiedLayer;

impl<S> Layer<S> for OccupiedLayer {
    type Service = Occupying<S>;

    fn layer(&self, inner: S) -> Occupying<S> {
        Occupying(inner)
    }
}

/// A service behind that layer.
#[derive(Clone)]
pub(crate) struct Occupying<S>(S);

impl<S, B, A> Service<Request<B>> for Occupying<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = Response<Held<A>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // What anybody may ask keeps no connection.
        let keeps = !request.uri().path().starts_with(OPEN);
        let peer = request.extensions().get::<Peer>().filter(|_| keeps);
        let occupied = peer.map(|peer| peer.place.occupy());
        let answering = self.0.call(request);
        async move { answering.await.map(|answer| answer.map(|body| Held { body, _occupied: occupied })) }.boxed()
    }
}

/// An answer's body that holds its connection's place.
#[derive(Default)]
pub(crate) struct Held<B> {
    body: B,
    _occupied: Option<Occupied>,
}

impl<B: Body + Unpin> Body for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
