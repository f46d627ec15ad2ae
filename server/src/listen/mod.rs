//! The listening sockets and their connections, for gRPC and HTTP alike.
//!
//! - `client_certificate`: the names and the expiry in a client's certificate
//! - `connection`: one connection, its write and first-byte timeouts
//! - `connection_limit`: limits the open connections; closes one to make room for another, and
//!   those whose clients do not read their answers
//! - `connection_table`: decides which connection is closed
//! - `frames`: what an HTTP/2 client makes a connection hold in memory
//! - `max_connection_age`: when a connection is closed because of its age
//! - `tls`: handshakes and certificates

mod client_certificate;
mod connection;
mod connection_limit;
mod connection_table;
mod frames;
mod max_connection_age;
mod tls;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt as _};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

pub use self::tls::TlsError;
pub(crate) use self::{
    client_certificate::ClientCertificate,
    connection::{Connection, Peer},
    connection_limit::{
        ConnectionLimit, ConnectionSlot, CountGuard, InFlight, PendingWrite, SlotRef,
    },
    max_connection_age::MaxConnectionAge,
    tls::{Protocol, Tls},
};

/// Most TLS handshakes of one listener that compute at the same time. Each costs milliseconds of a
/// core. Those of one listener get half of the cores, rounded up, so that new clients do not slow
/// down connected ones.
fn concurrent_handshakes() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}
/// How long a client may take for its TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after a failed accept. Most likely the process has no file descriptors left, and the next
/// accept would fail at once.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A listening socket, and the protocol, TLS and limit of its connections.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: Option<Tls>,
    pub(crate) protocol: Protocol,
    pub(crate) connection_limit: ConnectionLimit,
}

impl Listener {
    /// The address that the socket is bound to. Fails if the system does not say.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts connections until `stop` is cancelled. With TLS the stream yields them after their
    /// handshake.
    pub(crate) fn accept_connections(
        self,
        stop: CancellationToken,
    ) -> impl Stream<Item = Connection> + Send + 'static {
        let (accepted, incoming) = mpsc::channel(1);
        tokio::spawn(stop.run_until_cancelled_owned(self.accept(accepted)));
        futures::stream::unfold(incoming, |mut incoming| async move {
            Some((incoming.recv().await?, incoming))
        })
        .boxed()
    }

    async fn accept(self, accepted: mpsc::Sender<Connection>) {
        let Self {
            socket,
            tls,
            protocol,
            connection_limit,
        } = self;
        let handshaker = tls.map(|tls| Handshaker {
            tls,
            protocol,
            permits: Arc::new(Semaphore::new(concurrent_handshakes())),
        });
        let handshaker = handshaker.map(Arc::new);
        loop {
            let (stream, address) = match socket.accept().await {
                Ok((stream, address)) => (stream, address.ip()),
                Err(error) => {
                    warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            };
            // Without TCP_NODELAY the last frame of an answer waits 40 ms for the acknowledgement
            // of its first.
            if let Err(error) = stream.set_nodelay(true) {
                debug!("a connection was not accepted: {error}");
                continue;
            }
            let slot = connection_limit.acquire();
            let Some(handshaker) = &handshaker else {
                // While two connections wait to be served, no further one is accepted. A connection
                // that waits here counts as unauthenticated, and the oldest of too many
                // unauthenticated connections is closed, whatever it sends.
                let _ = accepted
                    .send(Connection::plain(stream, address, slot, protocol))
                    .await;
                continue;
            };
            let (handshaker, accepted) = (Arc::clone(handshaker), accepted.clone());
            tokio::spawn(async move {
                match handshaker.handshake(stream, address, slot).await {
                    Ok(connection) => {
                        let _ = accepted.send(connection).await;
                    }
                    Err(error) => debug!("a connection was not accepted: {error}"),
                }
            });
        }
    }
}

/// Makes TLS handshakes. `permits` limits how many compute at the same time.
struct Handshaker {
    tls: Tls,
    protocol: Protocol,
    permits: Arc<Semaphore>,
}

impl Handshaker {
    async fn handshake(
        &self,
        stream: TcpStream,
        address: IpAddr,
        slot: ConnectionSlot,
    ) -> io::Result<Connection> {
        let handshake = timeout(
            HANDSHAKE_TIMEOUT,
            self.tls.accept(stream, self.protocol, &self.permits),
        );
        let done = slot
            .close_token()
            .run_until_cancelled_owned(handshake)
            .await;
        let done = done
            .ok_or(io::ErrorKind::ConnectionAborted)?
            .map_err(|_| io::ErrorKind::TimedOut)?;
        Ok(Connection::secure(done?, address, slot, self.protocol))
    }
}
