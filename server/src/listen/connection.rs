//! One connection, plain or TLS, with timeouts. The client must send its first bytes within
//! [`FIRST_BYTES_TIMEOUT`]. While bytes wait for the client, it must read some of them every
//! [`WRITE_TIMEOUT`].

use std::{
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Sleep,
};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::{
    client_certificate::ClientCertificate,
    connection_limit::{ConnectionSlot, SlotRef},
    frames::{FrameCounter, PREFACE_BYTES},
    tls::Protocol,
};

/// How long a client may take to send its first bytes: the HTTP/2 preface, or the same number of
/// bytes of an HTTP/1.1 request.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may read nothing of what it is sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// An accepted connection. If it uses TLS, the handshake is complete.
pub(crate) struct Connection {
    io: Io,
    certificate: Option<ClientCertificate>,
    address: IpAddr,
    slot: ConnectionSlot,
    /// Counts the frames that an HTTP/2 client sends. None: HTTP/1.1.
    frames: Option<FrameCounter>,
    /// Bytes that the client still has to send before [`FIRST_BYTES_TIMEOUT`] is over.
    preface_bytes_left: usize,
    /// When the connection ends with a timeout, unless the client has sent its first bytes or has
    /// read something by then. None: nothing is waited for.
    deadline: Option<Pin<Box<Sleep>>>,
}

enum Io {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

/// The other end of the connection. An extension of every request.
#[derive(Clone)]
pub(crate) struct Peer {
    /// The certificate that the client has presented in its TLS handshake.
    pub(crate) certificate: Option<ClientCertificate>,
    /// The address of the client, or of the proxy before it.
    pub(crate) address: IpAddr,
    /// The slot of the connection, in which calls are counted.
    pub(crate) slot: SlotRef,
}

impl Connection {
    pub(super) fn plain(
        stream: TcpStream,
        address: IpAddr,
        slot: ConnectionSlot,
        protocol: Protocol,
    ) -> Self {
        Self::new(Io::Plain(stream), None, address, slot, protocol)
    }

    pub(super) fn secure(
        stream: TlsStream<TcpStream>,
        address: IpAddr,
        slot: ConnectionSlot,
        protocol: Protocol,
    ) -> Self {
        let certificate = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(ClientCertificate::parse);
        Self::new(
            Io::Secure(Box::new(stream)),
            certificate,
            address,
            slot,
            protocol,
        )
    }

    fn new(
        io: Io,
        certificate: Option<ClientCertificate>,
        address: IpAddr,
        slot: ConnectionSlot,
        protocol: Protocol,
    ) -> Self {
        let deadline = Some(Box::pin(tokio::time::sleep(FIRST_BYTES_TIMEOUT)));
        let frames = (protocol == Protocol::Http2).then(FrameCounter::new);
        Self {
            io,
            certificate,
            address,
            slot,
            frames,
            preface_bytes_left: PREFACE_BYTES,
            deadline,
        }
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer {
            certificate: self.certificate.clone(),
            address: self.address,
            slot: self.slot.reference(),
        }
    }

    /// Cancelled when the connection must be closed, even in the middle of a call.
    pub(crate) fn close_token(&self) -> CancellationToken {
        self.slot.close_token()
    }

    /// Fails with `TimedOut` once the deadline has passed.
    fn check_deadline(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let is_over = self
            .deadline
            .as_mut()
            .is_some_and(|deadline| deadline.as_mut().poll(context).is_ready());
        if is_over {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(())
        }
    }

    /// Updates the deadline after a write: sets it when the client reads nothing, and removes it
    /// when the client reads again. Until the client has sent its first bytes, the deadline for
    /// those stays.
    fn after_write<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(done) => {
                self.slot.touch();
                if self.preface_bytes_left == 0 {
                    self.deadline = None;
                }
                Poll::Ready(done)
            }
            Poll::Pending => {
                self.deadline
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_TIMEOUT)));
                self.check_deadline(context)?;
                Poll::Pending
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_deadline(context)?;
        let before = buffer.filled().len();
        let polled = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Io::Secure(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if polled.is_pending() {
            self.slot.note_read_drained();
        }
        ready!(polled)?;
        let read = buffer.filled().len() - before;
        if let Some(frames) = &mut self.frames {
            let counts = frames.read(&buffer.filled()[before..]);
            self.slot.note_frames(counts);
        }
        self.slot.touch();
        if self.preface_bytes_left > 0 {
            self.preface_bytes_left = self.preface_bytes_left.saturating_sub(read);
            if self.preface_bytes_left == 0 {
                self.deadline = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Io::Secure(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.after_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Io::Secure(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        };
        self.after_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(stream) => stream.is_write_vectored(),
            Io::Secure(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_flush(context),
            Io::Secure(stream) => Pin::new(stream).poll_flush(context),
        };
        self.after_write(context, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Io::Secure(stream) => Pin::new(stream).poll_shutdown(context),
        };
        self.after_write(context, written)
    }
}
