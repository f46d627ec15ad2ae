//! A proxy in front of the database that disables the application's tenant filter: it replaces the
//! tenant id in the parameters of every statement by another tenant's id. The session's own tenant,
//! which row-level security reads, stays as it is.

use tokio::{
    io::{AsyncWriteExt as _, copy},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};
use uuid::Uuid;

use crate::chaos::{Frame, read_startup_message};

/// Forwards connections. After [`Self::swap_tenants`] it replaces one tenant id by another in the
/// parameters of statements.
pub struct TenantSwapProxy {
    swap: watch::Sender<Option<TenantSwap>>,
}

/// A tenant id and its replacement.
#[derive(Debug, Clone, Copy)]
struct TenantSwap {
    from: Uuid,
    to: Uuid,
}

impl TenantSwapProxy {
    /// A proxy to the database of this URL, and the URL through the proxy. It changes nothing until
    /// [`Self::swap_tenants`] is called.
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
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("some port is free");
        let own_port = listener.local_addr().expect("the socket is bound").port();
        let swap = watch::Sender::new(None);
        let receiver = swap.subscribe();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("a connection is accepted");
                let server = TcpStream::connect(("127.0.0.1", port))
                    .await
                    .expect("the database is reachable");
                tokio::spawn(forward(client, server, receiver.clone()));
            }
        });
        (
            Self { swap },
            url.replace(
                &format!("@127.0.0.1:{port}/"),
                &format!("@127.0.0.1:{own_port}/"),
            ),
        )
    }

    /// From now on replaces `from` by `to` in every statement's parameters.
    pub fn swap_tenants(&self, from: Uuid, to: Uuid) {
        self.swap.send_replace(Some(TenantSwap { from, to }));
    }
}

async fn forward(client: TcpStream, server: TcpStream, swap: watch::Receiver<Option<TenantSwap>>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let requests = forward_requests(&mut from_client, &mut to_server, &swap);
    let answers = copy(&mut from_server, &mut to_client);
    // When one direction ends, the other is closed too.
    tokio::select! {
        _ = requests => {}
        _ = answers => {}
    }
}

async fn forward_requests(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    swap: &watch::Receiver<Option<TenantSwap>>,
) -> std::io::Result<()> {
    loop {
        let (bytes, asks_for_encryption) = read_startup_message(from).await?;
        to.write_all(&bytes).await?;
        if !asks_for_encryption {
            break;
        }
    }
    loop {
        let frame = Frame::read(from).await?;
        let swap = *swap.borrow();
        match swap {
            Some(swap) if frame.binds() => {
                to.write_all(&swap_bytes(frame.bytes(), swap)).await?;
            }
            _ => to.write_all(frame.bytes()).await?,
        }
    }
}

/// Replaces the bytes of one tenant id by those of the other. On the wire a UUID parameter is
/// sixteen bytes, alone or in an array.
fn swap_bytes(bytes: &[u8], TenantSwap { from, to }: TenantSwap) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let places: Vec<usize> = bytes
        .windows(16)
        .enumerate()
        .filter(|(_, window)| window == from.as_bytes())
        .map(|(place, _)| place)
        .collect();
    for place in places {
        bytes[place..place + 16].copy_from_slice(to.as_bytes());
    }
    bytes
}
