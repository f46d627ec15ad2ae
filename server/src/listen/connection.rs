//! One connection: plain or TLS, with an end to patience. A client has to begin within some seconds, and has to take what it
//! is sent.

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
    frames::{FrameCounter, PREFACE_BYTES},
    seats::{Place, Seat},
    tls::Protocol,
};
use crate::auth::Certificate;

/// How long a client may take to send its first bytes: the preface of HTTP/2, or a request.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may take no byte of what it is sent.
const TAKE_WITHIN: Duration = Duration::from_secs(30);

/// A connection that was let in.
pub(crate) struct Connection {
    io: Io,
    certificate: Option<Certificate>,
    address: IpAddr,
    seat: Seat,
    /// What its client sends of HTTP/2; None: it speaks HTTP/1.1.
    frames: Option<FrameCounter>,
    /// Bytes that it may still take its time to send: the preface of HTTP/2, or as much of a request.
    to_begin: usize,
    /// Until when it has to have begun, or to have taken something.
    patience: Option<Pin<Box<Sleep>>>,
}

enum Io {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

/// Who is at the other end: an extension of every request.
#[derive(Clone)]
pub(crate) struct Peer {
    /// The certificate that the client has shown.
    pub(crate) certificate: Option<Certificate>,
    /// Where the connection comes from: the client, or the proxy before it.
    pub(crate) address: IpAddr,
    /// The connection's place, which a call occupies.
    pub(crate) place: Place,
}

impl Connection {
    pub(super) fn plain(stream: TcpStream, address: IpAddr, seat: Seat, protocol: Protocol) -> Self {
        Self::new(Io::Plain(stream), None, address, seat, protocol)
    }

    pub(super) fn secure(stream: TlsStream<TcpStream>, address: IpAddr, seat: Seat, protocol: Protocol) -> Self {
        let certificate = stream.get_ref().1.peer_certificates().and_then(Certificate::read);
        Self::new(Io::Secure(Box::new(stream)), certificate, address, seat, protocol)
    }

    fn new(io: Io, certificate: Option<Certificate>, address: IpAddr, seat: Seat, protocol: Protocol) -> Self {
        let patience = Some(Box::pin(tokio::time::sleep(BEGIN_WITHIN)));
        let frames = (protocol == Protocol::Http2).then(FrameCounter::new);
        Self { io, certificate, address, seat, frames, to_begin: PREFACE_BYTES, patience }
    }

    /// Who is at the other end.
    pub(crate) fn peer(&self) -> Peer {
        Peer { certificate: self.certificate.clone(), address: self.address, place: self.seat.place() }
    }

    /// Cancelled when the connection has to go, whatever it waits for.
    pub(crate) fn leave(&self) -> CancellationToken {
        self.seat.leave()
    }

    /// Whether the client's time is up.
    fn must_end(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let has_ended = self.patience.as_mut().is_some_and(|patience| patience.as_mut().poll(context).is_ready());
        if has_ended { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    /// What a write has come to: patience begins when nothing is taken, and ends when something is.
    fn wrote<T>(&mut self, context: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match wrote {
            Poll::Ready(done) => {
                self.seat.heard();
                if self.to_begin == 0 {
                    self.patience = None;
                }
                Poll::Ready(done)
            }
            Poll::Pending => {
                self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(TAKE_WITHIN)));
                self.must_end(context)?;
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
        self.must_end(context)?;
        let before = buffer.filled().len();
        let polled = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Io::Secure(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if polled.is_pending() {
            self.seat.read_all();
        }
        ready!(polled)?;
        let read = buffer.filled().len() - before;
        if let Some(frames) = &mut self.frames {
            let frames = frames.read(&buffer.filled()[before..]);
            self.seat.announce(frames);
        }
        self.seat.heard();
        if self.to_begin > 0 {
            self.to_begin = self.to_begin.saturating_sub(read);
            if self.to_begin == 0 {
                self.patience = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Io::Secure(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.wrote(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Io::Secure(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        };
        self.wrote(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(stream) => stream.is_write_vectored(),
            Io::Secure(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wrote = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_flush(context),
            Io::Secure(stream) => Pin::new(stream).poll_flush(context),
        };
        self.wrote(context, wrote)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wrote = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Io::Secure(stream) => Pin::new(stream).poll_shutdown(context),
        };
        self.wrote(context, wrote)
    }
}
