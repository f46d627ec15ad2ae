//! An answer's body on its way out: in pieces, so that what its reader does not take waits here, where it is counted, and not
//! in the connection, which would take an answer of any size at once. Its connection is kept until the last piece is taken.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::accounts::{Tab, WEIGHT, Waiting};
use crate::{
    content::Reservation,
    listen::{Occupied, Offered, OpenCall, Place},
    polls::Polled,
    status::Failure,
};

/// Bytes of a piece: one frame of HTTP/2, unless the client wants larger ones.
pub(crate) const PIECE: usize = 16 * 1024;

/// How an answer ends of which the rest is not told.
pub(crate) type Cut<B> = fn(Failure) -> Result<Frame<Bytes>, <B as Body>::Error>;

/// A body that takes room until it is read.
pub(crate) struct Going<B: Body> {
    body: B,
    /// What is left of a frame of the body.
    rest: Bytes,
    tab: Tab,
    polled: Polled,
    /// None: what is said is little, and anybody may hear it.
    room: Option<Waiting>,
    /// What the answer was made of: its bytes count there, and only those beyond it in `room`.
    reservation: Option<Arc<Reservation>>,
    /// How this door ends an answer that is cut short.
    cut: Cut<B>,
    /// Whether the answer was cut short: nothing comes behind that.
    is_over: bool,
    place: Option<Place>,
    offered: Option<Offered>,
    _occupied: Option<Occupied>,
    _open_call: Option<OpenCall>,
    _stream: Option<OpenCall>,
}

impl<B: Body<Data = Bytes>> Going<B> {
    /// A body and how it ends when it is cut short, on the connection that it occupies if it keeps one; counted where it
    /// takes room.
    pub(super) fn new(
        (body, cut): (B, Cut<B>),
        (tab, polled): (Tab, Polled),
        on: Option<(Place, Occupied)>,
        is_counted: bool,
    ) -> Self {
        let room = is_counted.then(|| tab.waiting());
        let (place, occupied) = on.unzip();
        Self {
            body,
            rest: Bytes::new(),
            tab,
            polled,
            room,
            reservation: None,
            cut,
            is_over: false,
            place,
            offered: None,
            _occupied: occupied,
            _open_call: None,
            _stream: None,
        }
    }

    /// The same body, whose bytes count in this reservation until it has gone.
    pub(super) fn within(self, reservation: Option<Arc<Reservation>>) -> Self {
        Self { reservation, ..self }
    }

    /// The same answer, on this stream until it has gone.
    pub(crate) fn on_stream(self, stream: OpenCall) -> Self {
        Self { _stream: Some(stream), ..self }
    }

    /// The same answer; this call lasts until it has gone.
    pub(super) fn during(self, open_call: Option<OpenCall>) -> Self {
        Self { _open_call: open_call, ..self }
    }

    /// The next piece of what is left.
    fn piece(&mut self) -> Frame<Bytes> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        self.offered = self.place.as_ref().map(Place::offer);
        Frame::data(piece)
    }

    /// Takes in a frame of the body.
    fn take(&mut self, bytes: Bytes) -> Result<(), Failure> {
        self.tab.passed(bytes.len());
        if let Some(room) = &mut self.room {
            let reserved = self.reservation.as_ref().map_or(0, |reservation| reservation.bytes());
            room.grow((bytes.len() as u64 + WEIGHT).saturating_sub(reserved))?;
        }
        self.rest = bytes;
        Ok(())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Going<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        // Who asks for more has taken what there was.
        self.offered = None;
        // All of a frame stays in memory until its last piece has gone.
        let is_taken = self.rest.is_empty();
        if let Some(room) = self.room.as_mut().filter(|_| is_taken) {
            room.clear();
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        let Self { body, polled, .. } = &mut *self;
        let frame = polled.poll(|| Pin::new(body).poll_frame(context));
        let Some(frame) = ready!(frame).transpose()? else {
            return Poll::Ready(None);
        };
        let bytes = match frame.into_data() {
            Ok(bytes) if bytes.is_empty() => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Ok(bytes) => bytes,
            Err(frame) => return Poll::Ready(Some(Ok(frame))),
        };
        if let Err(failure) = self.take(bytes) {
            self.is_over = true;
            return Poll::Ready(Some((self.cut)(failure)));
        }
        Poll::Ready(Some(Ok(self.piece())))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
