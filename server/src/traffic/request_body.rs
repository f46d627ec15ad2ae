//! The body of a request: limits its time, size and number of frames, and reserves memory for it.
//! The size of one gRPC message is limited elsewhere: `REQUEST_BYTES` (`core/src/limits.rs`), set
//! in `grpc/server.rs`.

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

use super::accounting::{OVERHEAD_BYTES, RequestAccounting, RequestMemory};
use crate::{failure::Failure, listen::SlotRef};

/// A body may have this many frames of any size.
const FREE_FRAMES: u64 = 4_096;
/// A body may have one further frame for each 64 bytes of its size. Handling a frame costs more
/// than handling a few bytes.
const MIN_MEAN_FRAME_BYTES: u64 = 64;

/// Bytes of memory for each byte of a request, which exists as received and as decoded.
pub(super) const MEMORY_PER_BYTE: u64 = 2;

/// A body that reserves memory until its call has ended. It ends with a [`Status`] if it does not
/// arrive in time, is too large, has too many frames, or if no memory is left.
pub(crate) struct RequestBody<B> {
    body: B,
    accounting: RequestAccounting,
    /// None: the RPC that reads the body limits the memory (AppendLargeMessage), or the call needs
    /// no credential and such calls have used up their memory.
    memory: Option<RequestMemory>,
    frames: u64,
    bytes: u64,
    /// Most bytes of the body of a call that needs no credential. None for other calls, whose
    /// decoder limits the size.
    max_bytes: Option<u64>,
    /// The connection of a call that needs no credential. None for other calls.
    unauthenticated_connection: Option<SlotRef>,
    deadline: Instant,
    /// Runs until `deadline`. None: nothing had to be waited for yet.
    timeout: Option<Pin<Box<Sleep>>>,
}

impl<B> RequestBody<B> {
    /// A body that must arrive within `receive_timeout` from now, with at most `max_bytes`.
    pub(super) fn new(
        body: B,
        accounting: RequestAccounting,
        memory: Option<RequestMemory>,
        (receive_timeout, max_bytes): (Duration, Option<u64>),
    ) -> Self {
        let deadline = Instant::now() + receive_timeout;
        Self {
            body,
            accounting,
            memory,
            frames: 0,
            bytes: 0,
            max_bytes,
            unauthenticated_connection: None,
            deadline,
            timeout: None,
        }
    }

    /// Sets the connection of a call that needs no credential; None for other calls. If such calls
    /// have used up their memory, the oldest other connection with such a call is closed, and this
    /// call is not refused.
    pub(super) fn with_unauthenticated_connection(self, connection: Option<SlotRef>) -> Self {
        Self {
            unauthenticated_connection: connection,
            ..self
        }
    }

    /// Reserves memory. For a call that needs no credential it never fails: the oldest other
    /// connection with such a call is closed instead.
    fn reserve(&mut self, bytes: u64) -> Result<(), Failure> {
        let Some(memory) = &self.memory else {
            return Ok(());
        };
        match (memory.reserve(bytes), &self.unauthenticated_connection) {
            (Err(_), Some(slot)) => {
                slot.close_oldest_unauthenticated_caller();
                self.memory = None;
                Ok(())
            }
            (reserved, _) => reserved,
        }
    }

    /// Called when the rest of the body is still to come. The first call reserves the memory of an
    /// incomplete request and starts the timeout. Fails if the memory is not free, or once the
    /// timeout is over.
    fn note_pending(&mut self, context: &mut Context<'_>) -> Result<(), Failure> {
        if self.timeout.is_none() {
            self.reserve(OVERHEAD_BYTES)?;
            self.timeout = Some(Box::pin(tokio::time::sleep_until(self.deadline.into())));
        }
        let is_over = self
            .timeout
            .as_mut()
            .is_some_and(|timeout| timeout.as_mut().poll(context).is_ready());
        if is_over {
            Err(Failure::RequestIncomplete)
        } else {
            Ok(())
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RequestBody<B>
where
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let refused = |failure| Poll::Ready(Some(Err(BoxError::from(Status::from(failure)))));
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            return match self.note_pending(context) {
                Ok(()) => Poll::Pending,
                Err(failure) => refused(failure),
            };
        };
        let Some(frame) = frame.transpose().map_err(Into::into)? else {
            return Poll::Ready(None);
        };
        if let Some(bytes) = frame.data_ref() {
            self.accounting.charge_bytes(bytes.len());
            let bytes = bytes.len() as u64;
            self.frames += 1;
            self.bytes += bytes;
            if self.frames > FREE_FRAMES + self.bytes / MIN_MEAN_FRAME_BYTES {
                return refused(Failure::malformed(
                    "it comes in too many pieces for its size",
                ));
            }
            if let Some(max_bytes) = self.max_bytes.filter(|max_bytes| self.bytes > *max_bytes) {
                return refused(Failure::limit("request", max_bytes as usize, "bytes"));
            }
            if let Err(failure) = self.reserve(bytes * MEMORY_PER_BYTE) {
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
