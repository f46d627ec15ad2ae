//! What surrounds every call at both doors: its tab, its connection's place, and the bodies that come and go.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use http_body::Body;
use tower::{Layer, Service};

use super::{Traffic, coming::Coming, going::Going};
use crate::{
    auth::OPEN,
    listen::{Peer, Place},
    status::Failure,
};

/// The method that has room of its own for what comes (`server.concurrent_large_appends`).
const ROOM_OF_ITS_OWN: &str = "/anneal.v1.MessageService/AppendLargeMessage";
/// How long a request may take to come whole that anybody may make.
const OPEN_WITHIN: Duration = Duration::from_secs(10);

/// Counts what comes and goes, and keeps a connection while a call on it is under way.
pub(crate) struct TrafficLayer<A> {
    pub(crate) traffic: Traffic,
    /// How this door says no.
    pub(crate) refuse: fn(Failure) -> Response<A>,
}

impl<A> Clone for TrafficLayer<A> {
    fn clone(&self) -> Self {
        Self { traffic: self.traffic.clone(), refuse: self.refuse }
    }
}

impl<S, A> Layer<S> for TrafficLayer<A> {
    type Service = Counting<S, A>;

    fn layer(&self, inner: S) -> Counting<S, A> {
        Counting { layer: self.clone(), inner }
    }
}

/// A service behind that layer.
pub(crate) struct Counting<S, A> {
    layer: TrafficLayer<A>,
    inner: S,
}

impl<S: Clone, A> Clone for Counting<S, A> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone(), inner: self.inner.clone() }
    }
}

impl<S, B, A> Service<Request<B>> for Counting<S, A>
where
    S: Service<Request<Coming<B>>, Response = Response<A>>,
    S::Future: Send + 'static,
    A: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<Going<A>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let (tab, refuse) = (self.layer.traffic.tab(), self.layer.refuse);
        let place = request.extensions().get::<Peer>().map(|peer| peer.place.clone());
        let path = request.uri().path();
        let (is_open, has_room) = (path.starts_with(OPEN), path == ROOM_OF_ITS_OWN);
        // What anybody may ask keeps no connection.
        let occupied = place.as_ref().filter(|_| !is_open).map(Place::occupy);
        let within = if is_open { OPEN_WITHIN } else { tab.receive_within() };
        request.extensions_mut().insert(tab.clone());
        let room = (!has_room).then(|| tab.waiting());
        let answering = self.inner.call(request.map(|body| Coming::new(body, tab.clone(), room, within)));
        async move {
            let answer = answering.await?;
            let mut room = tab.waiting();
            // An answer whose size is known before its head has gone can still be another one.
            let size = answer.body().size_hint().exact().unwrap_or(0);
            let answer = match room.grow(size) {
                Ok(()) => answer,
                Err(failure) => refuse(failure),
            };
            drop(room);
            Ok(answer.map(|body| Going::new(body, tab, place, occupied)))
        }
        .boxed()
    }
}
