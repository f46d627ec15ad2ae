//! What surrounds every call at both doors: its tab, its connection's place, and the bodies that come and go.

use std::{
    cell::Cell,
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
    Traffic,
    accounts::WEIGHT,
    coming::Coming,
    going::{Cut, Going},
};
use crate::{
    auth::OPEN,
    content::Reservation,
    listen::{Peer, Place},
    polls::{Polled, Watched},
    status::Failure,
};

/// The method that has room of its own for what comes (`server.concurrent_large_appends`).
const ROOM_OF_ITS_OWN: &str = "/anneal.v1.MessageService/AppendLargeMessage";
/// How long a request may take to come whole that anybody may make, and its bytes: it names a service.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
const OPEN_BYTES: u64 = 4 * 1024;
/// Such requests on one connection at once: one that has not come whole, or whose answer is not read, is memory that nobody's
/// account pays for. Whoever asks again and again has one at a time.
const OPEN_CALLS: u32 = 8;
/// What is asked after a process over HTTP; the answer is a word.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Counts what comes and goes, and keeps a connection while a call on it is under way.
pub(crate) struct TrafficLayer<A: Body> {
    pub(crate) traffic: Traffic,
    /// How this door says no.
    pub(crate) refuse: fn(Failure) -> Response<A>,
    /// How it ends an answer that is cut short.
    pub(crate) cut: Cut<A>,
}

impl<A: Body> Clone for TrafficLayer<A> {
    fn clone(&self) -> Self {
        Self { traffic: self.traffic.clone(), refuse: self.refuse, cut: self.cut }
    }
}

impl<S, A: Body> Layer<S> for TrafficLayer<A> {
    type Service = Counting<S, A>;

    fn layer(&self, inner: S) -> Counting<S, A> {
        Counting { layer: self.clone(), inner }
    }
}

/// How long a large answer may take to be read while others wait to read one, and in any case.
const LARGE_WITHIN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));

/// Closes the connection of a reader who takes too long to read an answer that keeps other large ones waiting.
async fn close_if_slow(place: Place, answer: Weak<Reservation>) {
    let (waited_for, most) = LARGE_WITHIN;
    let begun = Instant::now();
    let mut looks = tokio::time::interval(Duration::from_secs(1));
    loop {
        looks.tick().await;
        let Some(answer) = answer.upgrade() else { return };
        let took = begun.elapsed();
        if took > most || took > waited_for && answer.is_waited_for() {
            return place.close_for_stalling();
        }
    }
}

/// A service behind that layer.
pub(crate) struct Counting<S, A: Body> {
    layer: TrafficLayer<A>,
    inner: S,
}

impl<S: Clone, A: Body> Clone for Counting<S, A> {
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
        let (tab, refuse, cut) = (self.layer.traffic.tab(), self.layer.refuse, self.layer.cut);
        let place = request.extensions().get::<Peer>().map(|peer| peer.place.clone());
        let polled = Polled::of(&request);
        let path = request.uri().path();
        let (is_open, has_room) = (path.starts_with(OPEN), path == ROOM_OF_ITS_OWN);
        let open_on = place.clone().filter(|_| is_open);
        let open_call = place.as_ref().filter(|_| is_open).map(|place| place.begin_open_call(OPEN_CALLS));
        if let Some(None) = open_call {
            metrics::counter!("shed_total", "rpc" => "health").increment(1);
            let refused = refuse(Failure::Overloaded).map(|body| Going::new((body, cut), (tab, polled), None, false));
            return async move { Ok(refused) }.boxed();
        }
        // What anybody may ask keeps no connection, and its answer waits for nobody: a probe fails for no stranger's sake.
        let on = place.filter(|_| !is_open).map(|place| (place.clone(), place.occupy()));
        let is_counted = !is_open && !PROBES.contains(&path);
        let bounds = if is_open { (OPEN_WITHIN, Some(OPEN_BYTES)) } else { (tab.receive_within(), None) };
        request.extensions_mut().insert(tab.clone());
        let room = (!has_room).then(|| tab.request_room());
        if let Some(room) = &room {
            request.extensions_mut().insert(room.clone());
        }
        let held = room.clone();
        let coming = |body| Coming::new(body, tab.clone(), room, bounds).open_on(open_on);
        let answering = ENTRIES.scope(Cell::new(0), self.inner.call(request.map(coming)));
        async move {
            let mut answer = Watched::new(polled.clone(), answering).await?;
            drop(held);
            let reservation = answer.extensions_mut().remove::<Arc<Reservation>>();
            if let (Some(reservation), Some((place, _))) = (&reservation, &on)
                && reservation.is_large()
            {
                tokio::spawn(close_if_slow(place.clone(), Arc::downgrade(reservation)));
            }
            // An answer whose size is known before its head has gone can still be another one; a short one at that.
            let size = answer.body().size_hint().exact().filter(|_| is_counted);
            let refused = size.and_then(|size| tab.waiting().grow(size + WEIGHT).err());
            let (answer, is_counted) = match refused {
                None => (answer, is_counted),
                Some(failure) => (refuse(failure), false),
            };
            let going = |body| {
                Going::new((body, cut), (tab, polled), on, is_counted).within(reservation).during(open_call.flatten())
            };
            Ok(answer.map(going))
        }
        .boxed()
    }
}
