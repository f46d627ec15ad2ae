//! A line between a server and its database that can go dead: what was connected stays connected, and nothing comes through.

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Forwards connections; gone when dropped.
pub struct Line {
    port: u16,
    deaths: watch::Sender<u32>,
}

impl Line {
    /// A line to the database of this URL, and the URL through it.
    pub async fn to(url: &str) -> (Self, String) {
        let after_host = url.split("@127.0.0.1:").nth(1).expect("a test's database is on loopback");
        let port: u16 = after_host.split('/').next().and_then(|port| port.parse().ok()).expect("a port");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("some port is free");
        let line = Self { port: listener.local_addr().expect("it is bound").port(), deaths: watch::Sender::new(0) };
        tokio::spawn(forward(listener, port, line.deaths.subscribe()));
        let through = url.replace(&format!("@127.0.0.1:{port}/"), &format!("@127.0.0.1:{}/", line.port));
        (line, through)
    }

    /// From now on nothing comes through the connections that are open, and nobody is told; new ones work.
    pub fn go_dead(&self) {
        self.deaths.send_modify(|deaths| *deaths += 1);
    }
}

async fn forward(listener: TcpListener, port: u16, deaths: watch::Receiver<u32>) {
    loop {
        let (mut near, _) = listener.accept().await.expect("accepts");
        let mut deaths = deaths.clone();
        deaths.mark_unchanged();
        tokio::spawn(async move {
            let mut far = TcpStream::connect(("127.0.0.1", port)).await.expect("the database listens");
            tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => {}
                // Both ends stay open for as long as the line is there.
                _ = deaths.changed() => while deaths.changed().await.is_ok() {},
            }
        });
    }
}
