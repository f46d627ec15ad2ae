//! A line between two processes: its near end stays where it is whatever becomes of the far one, and it can be cut, or go dead
//! (what was connected stays connected, and nothing comes through).

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Forwards connections; gone when dropped.
pub struct Line {
    port: u16,
    far: watch::Sender<u16>,
    ends: watch::Sender<End>,
}

/// What became of the connections that were open so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cut,
    Dead,
}

impl Line {
    /// A line to the database of this URL, and the URL through it.
    pub async fn to(url: &str) -> (Self, String) {
        let after_host = url.split("@127.0.0.1:").nth(1).expect("a test's database is on loopback");
        let port: u16 = after_host.split('/').next().and_then(|port| port.parse().ok()).expect("a port");
        let line = Self::to_port(port).await;
        let through = url.replace(&format!("@127.0.0.1:{port}/"), &format!("@127.0.0.1:{}/", line.port));
        (line, through)
    }

    /// A line to a port of this machine.
    pub async fn to_port(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("some port is free");
        let near = listener.local_addr().expect("it is bound").port();
        let line = Self { port: near, far: watch::Sender::new(port), ends: watch::Sender::new(End::Cut) };
        tokio::spawn(forward(listener, line.far.subscribe(), line.ends.subscribe()));
        line
    }

    /// Where it begins: the same for as long as it is there, whatever becomes of the far end.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// New connections lead to this port from now on.
    pub fn leads_to(&self, port: u16) {
        self.far.send_replace(port);
    }

    /// From now on nothing comes through the connections that are open, and nobody is told; new ones work.
    pub fn go_dead(&self) {
        self.ends.send_replace(End::Dead);
    }

    /// The connections that are open are lost; others may be made.
    pub fn cut(&self) {
        self.ends.send_replace(End::Cut);
    }
}

async fn forward(listener: TcpListener, far: watch::Receiver<u16>, ends: watch::Receiver<End>) {
    loop {
        let (mut near, _) = listener.accept().await.expect("accepts");
        let (far, mut ends) = (*far.borrow(), ends.clone());
        ends.mark_unchanged();
        tokio::spawn(async move {
            // Where nobody listens the caller is let go.
            let Ok(mut far) = TcpStream::connect(("127.0.0.1", far)).await else { return };
            tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => {}
                // Both sockets of a dead line stay open until it is cut, or gone.
                _ = ends.changed() => { let _ = ends.wait_for(|end| *end == End::Cut).await; }
            }
        });
    }
}
