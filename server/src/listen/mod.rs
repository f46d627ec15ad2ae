//! The ports: who is let in, how long they may take to say something, and what they hold meanwhile. Both doors stand on this.

mod connection;
mod frames;
mod lifetime;
mod seats;
mod table;
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
    connection::{Connection, Peer},
    lifetime::Lifetime,
    seats::{Occupied, Offered, OpenCall, Place, Seat, Seats},
    tls::{Protocol, Tls},
};

/// Handshakes of a port that compute at once, each of which may cost milliseconds of a core: half of the cores, so that those
/// who come keep nobody waiting who is here.
fn handshakes() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}
/// How long a client may take for one.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// After an accept that failed: out of files, most likely, and the next one would fail at once.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// A port, and how those who come are let in.
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<Tls>,
    pub(crate) protocol: Protocol,
    pub(crate) seats: Seats,
}

impl Port {
    /// Its address.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The connections that were let in, until `stop` is cancelled.
    pub(crate) fn connections(self, stop: CancellationToken) -> impl Stream<Item = Connection> + Send + 'static {
        let (entered, entering) = mpsc::channel(1);
        tokio::spawn(stop.run_until_cancelled_owned(self.accept(entered)));
        futures::stream::unfold(entering, |mut entering| async move { Some((entering.recv().await?, entering)) })
            .boxed()
    }

    async fn accept(self, entered: mpsc::Sender<Connection>) {
        let Self { listener, tls, protocol, seats } = self;
        let tls = tls.map(|tls| Handshaker { tls, protocol, permits: Arc::new(Semaphore::new(handshakes())) });
        let tls = tls.map(Arc::new);
        loop {
            let (stream, address) = match listener.accept().await {
                Ok((stream, address)) => (stream, address.ip()),
                Err(error) => {
                    warn!("cannot take in a connection: {error}");
                    tokio::time::sleep(AFTER_FAILURE).await;
                    continue;
                }
            };
            // Without it an answer's last frame waits 40 ms for the acknowledgement of its first.
            if let Err(error) = stream.set_nodelay(true) {
                debug!("a connection was not let in: {error}");
                continue;
            }
            let seat = seats.take();
            let Some(tls) = &tls else {
                // Served before the next one is accepted: connections that wait here would be strangers, and the oldest of too
                // many strangers is closed, whatever it wants.
                let _ = entered.send(Connection::plain(stream, address, seat, protocol)).await;
                continue;
            };
            let (tls, entered) = (Arc::clone(tls), entered.clone());
            tokio::spawn(async move {
                match tls.shake_hands(stream, address, seat).await {
                    Ok(connection) => {
                        let _ = entered.send(connection).await;
                    }
                    Err(error) => debug!("a connection was not let in: {error}"),
                }
            });
        }
    }
}

/// Makes connections secure.
struct Handshaker {
    tls: Tls,
    protocol: Protocol,
    permits: Arc<Semaphore>,
}

impl Handshaker {
    async fn shake_hands(&self, stream: TcpStream, address: IpAddr, seat: Seat) -> io::Result<Connection> {
        let shaking = timeout(HANDSHAKE_WITHIN, self.tls.accept(stream, self.protocol, &self.permits));
        let shaken = seat.leave().run_until_cancelled_owned(shaking).await;
        let shaken = shaken.ok_or(io::ErrorKind::ConnectionAborted)?.map_err(|_| io::ErrorKind::TimedOut)?;
        Ok(Connection::secure(shaken?, address, seat, self.protocol))
    }
}
