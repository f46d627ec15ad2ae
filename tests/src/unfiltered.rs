//! A line to the database on which the application's filter is gone: wherever a statement says whose rows it wants, it says
//! another tenant. What the session itself says of its tenant, for row-level security, stays as it is.

use tokio::{
    io::{AsyncWriteExt as _, copy},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};
use uuid::Uuid;

use crate::chaos::{Frame, first};

/// Forwards connections; statements that are given parameters for `from` are given `to` in its place, once both are known.
pub struct Unfiltered {
    tenants: watch::Sender<Option<Exchange>>,
}

/// One tenant for another.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    from: Uuid,
    to: Uuid,
}

impl Unfiltered {
    /// A line to the database of this URL, and the URL through it. It changes nothing before it is told what.
    pub async fn to(url: &str) -> (Self, String) {
        let after_host = url.split("@127.0.0.1:").nth(1).expect("a test's database is on loopback");
        let port: u16 = after_host.split('/').next().and_then(|port| port.parse().ok()).expect("a port");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("some port is free");
        let near = listener.local_addr().expect("it is bound").port();
        let tenants = watch::Sender::new(None);
        let exchange = tenants.subscribe();
        tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.expect("accepts");
                let far = TcpStream::connect(("127.0.0.1", port)).await.expect("the database is there");
                tokio::spawn(forward(near, far, exchange.clone()));
            }
        });
        (Self { tenants }, url.replace(&format!("@127.0.0.1:{port}/"), &format!("@127.0.0.1:{near}/")))
    }

    /// From now on every statement that asks for `from` asks for `to`.
    pub fn exchange(&self, from: Uuid, to: Uuid) {
        self.tenants.send_replace(Some(Exchange { from, to }));
    }
}

async fn forward(near: TcpStream, far: TcpStream, exchange: watch::Receiver<Option<Exchange>>) {
    let ((mut from_near, mut to_near), (mut from_far, mut to_far)) = (near.into_split(), far.into_split());
    let asked = ask(&mut from_near, &mut to_far, &exchange);
    let answered = copy(&mut from_far, &mut to_near);
    // Where one side ends, the other is let go.
    tokio::select! {
        _ = asked => {}
        _ = answered => {}
    }
}

async fn ask(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    exchange: &watch::Receiver<Option<Exchange>>,
) -> std::io::Result<()> {
    loop {
        let (bytes, again) = first(from).await?;
        to.write_all(&bytes).await?;
        if !again {
            break;
        }
    }
    loop {
        let frame = Frame::read(from).await?;
        let exchange = *exchange.borrow();
        match exchange {
            Some(exchange) if frame.binds() => to.write_all(&exchanged(frame.bytes(), exchange)).await?,
            _ => to.write_all(frame.bytes()).await?,
        }
    }
}

/// Parameters go over the wire as sixteen bytes, alone or in arrays.
fn exchanged(bytes: &[u8], Exchange { from, to }: Exchange) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let places: Vec<usize> =
        bytes.windows(16).enumerate().filter(|(_, window)| window == from.as_bytes()).map(|(place, _)| place).collect();
    for place in places {
        bytes[place..place + 16].copy_from_slice(to.as_bytes());
    }
    bytes
}
