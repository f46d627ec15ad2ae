//! The body of an answer, sent in chunks. Bytes that the client has not read yet wait here, where
//! they are counted. The connection would buffer an answer of any size without counting it. The
//! call counts as in flight on its connection until the last chunk is read.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::accounting::{OVERHEAD_BYTES, RequestAccounting, WaitingBytes};
use crate::{
    failure::Failure,
    limits::content_budget::Reservation,
    listen::{CountGuard, InFlight, PendingWrite, SlotRef},
    poll_watchdog::PollWatchdog,
};

/// Most bytes of a chunk: the size of one HTTP/2 frame, unless the client allows larger ones.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;

/// Makes the last frame of an answer that is cut short.
pub(crate) type Truncate<B> = fn(Failure) -> Result<Frame<Bytes>, <B as Body>::Error>;

/// A body that reserves memory until it is read.
pub(crate) struct ResponseBody<B: Body> {
    body: B,
    /// The rest of the current frame of the inner body.
    rest: Bytes,
    accounting: RequestAccounting,
    watchdog: PollWatchdog,
    /// None: the bytes are not counted, because the answer is short: that of a probe or a health
    /// check, or a refusal.
    waiting: Option<WaitingBytes>,
    /// Memory that was reserved for the content of the answer. Only bytes beyond it are counted in
    /// `waiting`.
    reservation: Option<Arc<Reservation>>,
    /// Makes the last frame if the answer is cut short.
    truncate: Truncate<B>,
    /// Whether the answer was cut short: no frame follows.
    is_truncated: bool,
    /// The connection on which the call is in flight. None: a health check, or a call without a
    /// connection (fuzz targets).
    slot: Option<SlotRef>,
    pending_write: Option<PendingWrite>,
    _in_flight: Option<InFlight>,
    _unauthenticated_call: Option<CountGuard>,
    _stream: Option<CountGuard>,
}

impl<B: Body<Data = Bytes>> ResponseBody<B> {
    /// Wraps a body. `on_connection`: the connection on which the call is in flight, if any.
    /// `is_counted`: whether the body's bytes count as waiting.
    pub(super) fn new(
        (body, truncate): (B, Truncate<B>),
        (accounting, watchdog): (RequestAccounting, PollWatchdog),
        on_connection: Option<(SlotRef, InFlight)>,
        is_counted: bool,
    ) -> Self {
        let waiting = is_counted.then(|| accounting.waiting_bytes());
        let (slot, in_flight) = on_connection.unzip();
        Self {
            body,
            rest: Bytes::new(),
            accounting,
            watchdog,
            waiting,
            reservation: None,
            truncate,
            is_truncated: false,
            slot,
            pending_write: None,
            _in_flight: in_flight,
            _unauthenticated_call: None,
            _stream: None,
        }
    }

    /// Holds this reservation until the answer is sent. Its bytes are not counted again.
    pub(super) fn with_reservation(self, reservation: Option<Arc<Reservation>>) -> Self {
        Self {
            reservation,
            ..self
        }
    }

    /// Holds the count of an HTTP/2 stream until the answer is sent.
    pub(crate) fn with_stream(self, stream: CountGuard) -> Self {
        Self {
            _stream: Some(stream),
            ..self
        }
    }

    /// Holds the count of an unauthenticated call until the answer is sent.
    pub(super) fn with_unauthenticated_call(
        self,
        unauthenticated_call: Option<CountGuard>,
    ) -> Self {
        Self {
            _unauthenticated_call: unauthenticated_call,
            ..self
        }
    }

    /// Takes the next chunk off the rest, and records that it waits to be read.
    fn next_chunk(&mut self) -> Frame<Bytes> {
        let next_chunk = self.rest.split_to(self.rest.len().min(CHUNK_BYTES));
        self.pending_write = self.slot.as_ref().map(SlotRef::begin_write);
        Frame::data(next_chunk)
    }

    /// Makes a frame of the inner body the current one. Fails if no memory is left for it.
    fn buffer(&mut self, bytes: Bytes) -> Result<(), Failure> {
        self.accounting.charge_bytes(bytes.len());
        if let Some(waiting) = &mut self.waiting {
            let reserved = self
                .reservation
                .as_ref()
                .map_or(0, |reservation| reservation.bytes());
            waiting.reserve((bytes.len() as u64 + OVERHEAD_BYTES).saturating_sub(reserved))?;
        }
        self.rest = bytes;
        Ok(())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        // The connection polls for more once the previous chunk was taken.
        self.pending_write = None;
        // The memory of a frame is freed with its last chunk.
        let is_sent = self.rest.is_empty();
        if let Some(waiting) = self.waiting.as_mut().filter(|_| is_sent) {
            waiting.release_all();
        }
        if self.is_truncated {
            return Poll::Ready(None);
        }
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.next_chunk())));
        }
        let Self { body, watchdog, .. } = &mut *self;
        let frame = watchdog.poll(|| Pin::new(body).poll_frame(context));
        let Some(frame) = ready!(frame).transpose()? else {
            return Poll::Ready(None);
        };
        let bytes = match frame.into_data() {
            Ok(bytes) if bytes.is_empty() => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Ok(bytes) => bytes,
            Err(frame) => return Poll::Ready(Some(Ok(frame))),
        };
        if let Err(failure) = self.buffer(bytes) {
            self.is_truncated = true;
            return Poll::Ready(Some((self.truncate)(failure)));
        }
        Poll::Ready(Some(Ok(self.next_chunk())))
    }

    fn is_end_stream(&self) -> bool {
        self.is_truncated || self.rest.is_empty() && self.body.is_end_stream()
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
