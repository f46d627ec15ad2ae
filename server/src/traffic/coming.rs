//! A request's body on its way in: counted, and not for ever.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::BoxError;
use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tonic::Status;

use super::accounts::{RequestRoom, Tab, WEIGHT};
use crate::{listen::Place, status::Failure};

/// Frames of a body, whatever their size, and bytes that those beyond must have on average: each costs more than what is in it.
const CRUMBS: u64 = 4_096;
const CRUMB_BYTES: u64 = 64;

/// What a byte of a request counts: it is there as it came, and decoded.
const WEIGHT_OF_BYTE: u64 = 2;

/// A body that takes room until its call has ended, and ends with a [`Status`] where it does not come in time or has no room.
pub(crate) struct Coming<B> {
    body: B,
    tab: Tab,
    /// None: what reads it has room of its own.
    room: Option<RequestRoom>,
    frames: u64,
    bytes: u64,
    /// Bytes of a body, if there is a bound beside those of whoever reads it.
    most: Option<u64>,
    /// The connection of a call that anybody may make.
    open_on: Option<Place>,
    until: Instant,
    /// Set once something has to be waited for.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<B> Coming<B> {
    /// A body that has so much time from now on, and so many bytes.
    pub(super) fn new(body: B, tab: Tab, room: Option<RequestRoom>, (within, most): (Duration, Option<u64>)) -> Self {
        let until = Instant::now() + within;
        Self { body, tab, room, frames: 0, bytes: 0, most, open_on: None, until, patience: None }
    }

    /// The same body of a call that anybody may make: where strangers have taken all that they may, the oldest of them goes.
    pub(super) fn open_on(self, place: Option<Place>) -> Self {
        Self { open_on: place, ..self }
    }

    /// Takes room for so many bytes. What anybody may ask is not refused for want of it: the oldest stranger who asks goes.
    fn grow(&mut self, bytes: u64) -> Result<(), Failure> {
        let Some(room) = &self.room else { return Ok(()) };
        match (room.grow(bytes), &self.open_on) {
            (Err(_), Some(place)) => {
                place.make_room_for_a_stranger();
                self.room = None;
                Ok(())
            }
            (grown, _) => grown,
        }
    }

    /// Notes that the rest is still to come.
    fn waits(&mut self, context: &mut Context<'_>) -> Result<(), Failure> {
        if self.patience.is_none() {
            self.grow(WEIGHT)?;
            self.patience = Some(Box::pin(tokio::time::sleep_until(self.until.into())));
        }
        let is_over = self.patience.as_mut().is_some_and(|patience| patience.as_mut().poll(context).is_ready());
        if is_over { Err(Failure::NotWhole) } else { Ok(()) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Coming<B>
where
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let refused = |failure| Poll::Ready(Some(Err(BoxError::from(Status::from(failure)))));
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            return match self.waits(context) {
                Ok(()) => Poll::Pending,
                Err(failure) => refused(failure),
            };
        };
        let Some(frame) = frame.transpose().map_err(Into::into)? else { return Poll::Ready(None) };
        if let Some(bytes) = frame.data_ref() {
            self.tab.passed(bytes.len());
            let bytes = bytes.len() as u64;
            self.frames += 1;
            self.bytes += bytes;
            if self.frames > CRUMBS + self.bytes / CRUMB_BYTES {
                return refused(Failure::malformed("it comes in too many pieces for its size"));
            }
            if let Some(most) = self.most.filter(|most| self.bytes > *most) {
                return refused(Failure::limit("request", most as usize, "bytes"));
            }
            if let Err(failure) = self.grow(bytes * WEIGHT_OF_BYTE) {
                return refused(failure);
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
