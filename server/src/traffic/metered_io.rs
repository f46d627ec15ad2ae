//! Counts the bytes of a connection that HTTP has handed over, such as that of a WebSocket. What has
//! arrived reserves memory until its reader takes it over with a whole message.

use std::{
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use anneal_core::caller::TenantId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    accounting::{RequestAccounting, RequestMemory},
    request_body::MEMORY_PER_BYTE,
};
use crate::failure::Failure;

/// A connection whose bytes are counted. Reading fails if no memory is left.
pub(crate) struct MeteredIo<T> {
    io: T,
    meter: Meter,
}

/// The account that a connection is charged to. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Meter {
    accounting: RequestAccounting,
    /// The memory of what has arrived since the last message was taken over.
    unread: Arc<Mutex<RequestMemory>>,
}

impl Meter {
    /// The meter of a connection. `accounting` is that of the request which it came from.
    pub(crate) fn new(accounting: RequestAccounting) -> Self {
        Self {
            unread: Arc::new(Mutex::new(accounting.request_memory())),
            accounting,
        }
    }

    /// Charges a call to the tenant. Fails if the tenant calls too often or has transferred too
    /// many bytes.
    pub(crate) fn admit_call(&self, tenant: TenantId) -> Result<(), Failure> {
        self.accounting.admit_call(tenant)
    }

    /// Takes over the memory of what has arrived since the last call of this function.
    pub(crate) fn take_memory(&self) -> RequestMemory {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        mem::replace(&mut unread, self.accounting.request_memory())
    }

    /// Reserves memory for something that stays between messages. Fails if it is not free.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<RequestMemory, Failure> {
        let memory = self.accounting.request_memory();
        memory.reserve(bytes as u64).map(|()| memory)
    }

    fn count_read(&self, bytes: usize) -> Result<(), Failure> {
        self.accounting.charge_bytes(bytes);
        let unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        unread.reserve(bytes as u64 * MEMORY_PER_BYTE)
    }
}

impl<T> MeteredIo<T> {
    pub(crate) const fn new(io: T, meter: Meter) -> Self {
        Self { io, meter }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for MeteredIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        let counted = self.meter.count_read(read);
        Poll::Ready(counted.map_err(|failure| io::Error::other(failure.to_string())))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for MeteredIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(context, bytes))?;
        self.meter.accounting.charge_bytes(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
