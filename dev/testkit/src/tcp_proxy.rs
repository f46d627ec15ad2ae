//! A TCP proxy between two processes. Its own port stays the same when the target's port changes.
//! The test can close connections, or stall them: they stay open, but no byte passes, or no byte of
//! the answers.

use tokio::{
    io::{copy, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Forwards connections. Once this is dropped, open and new connections are closed.
pub struct TcpProxy {
    port: u16,
    target: watch::Sender<u16>,
    faults: watch::Sender<Fault>,
}

/// The fault of the connections that are open when the fault is sent. Connections that are
/// opened later have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Closed,
    Stalled,
    /// Only what the client sends passes.
    Muted,
}

impl TcpProxy {
    /// A proxy to the database of this URL, and the URL through the proxy.
    pub async fn to_database(url: &str) -> (Self, String) {
        let after_host = url
            .split("@127.0.0.1:")
            .nth(1)
            .expect("a test's database is on loopback");
        let port: u16 = after_host
            .split('/')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("a port");
        let proxy = Self::to_port(port).await;
        let through = url.replace(
            &format!("@127.0.0.1:{port}/"),
            &format!("@127.0.0.1:{}/", proxy.port),
        );
        (proxy, through)
    }

    /// A proxy to a port of this machine.
    pub async fn to_port(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("some port is free");
        let own_port = listener.local_addr().expect("the socket is bound").port();
        let proxy = Self {
            port: own_port,
            target: watch::Sender::new(port),
            faults: watch::Sender::new(Fault::Closed),
        };
        tokio::spawn(forward(
            listener,
            proxy.target.subscribe(),
            proxy.faults.subscribe(),
        ));
        proxy
    }

    /// The proxy's own port. It never changes.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Forwards new connections to this port.
    pub fn set_target(&self, port: u16) {
        self.target.send_replace(port);
    }

    /// Stalls the open connections: they stay open, but no byte passes. New connections work.
    pub fn stall(&self) {
        self.faults.send_replace(Fault::Stalled);
    }

    /// Stalls the answers of the open connections: the server gets what its clients send, and they
    /// get nothing any more. New connections work.
    pub fn mute_answers(&self) {
        self.faults.send_replace(Fault::Muted);
    }

    /// Closes the open connections. New connections work.
    pub fn close_connections(&self) {
        self.faults.send_replace(Fault::Closed);
    }
}

async fn forward(
    listener: TcpListener,
    target: watch::Receiver<u16>,
    faults: watch::Receiver<Fault>,
) {
    loop {
        let (mut client, _) = listener.accept().await.expect("a connection is accepted");
        let (port, mut faults) = (*target.borrow(), faults.clone());
        faults.mark_unchanged();
        tokio::spawn(async move {
            // If nothing listens on the target port, the connection is closed.
            let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else {
                return;
            };
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                _ = faults.changed() => {
                    let fault = *faults.borrow();
                    // Both sockets of a stalled connection stay open until it is closed.
                    let closed = async {
                        let _ = faults.wait_for(|fault| *fault == Fault::Closed).await;
                    };
                    if fault == Fault::Muted {
                        tokio::select! {
                            _ = copy(&mut client, &mut server) => {}
                            () = closed => {}
                        }
                    } else {
                        closed.await;
                    }
                }
            }
        });
    }
}
