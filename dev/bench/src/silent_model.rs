//! A model that accepts every call. While calls are held, it does not answer them until they are
//! released.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// The answer after the release: a stream of OpenAI's protocol.
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Questions were asked.\"},\"finish_reason\":\"stop\"}]}\n\n\
    data: [DONE]\n\n";

/// The model, which does not answer while calls are held.
pub(crate) struct SilentModel {
    address: SocketAddr,
    /// Whether calls are held: accepted, but not answered.
    holds: watch::Sender<bool>,
    /// Number of calls that wait for an answer.
    waiting: watch::Sender<usize>,
}

impl SilentModel {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (holds, _) = watch::channel(false);
        let (waiting, _) = watch::channel(0);
        let model = Self {
            address: listener.local_addr()?,
            holds: holds.clone(),
            waiting: waiting.clone(),
        };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer(socket, holds.subscribe(), waiting.clone()));
            }
        });
        Ok(model)
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds all further calls.
    pub(crate) fn hold(&self) {
        self.holds.send_replace(true);
    }

    /// Answers all further calls, and those that are waiting.
    pub(crate) fn release(&self) {
        self.holds.send_replace(false);
    }

    /// Number of waiting calls.
    pub(crate) fn waiting(&self) -> usize {
        *self.waiting.borrow()
    }

    /// Returns as soon as this many calls are waiting, or fails after a minute.
    pub(crate) async fn wait_for_calls(&self, calls: usize) -> anyhow::Result<()> {
        let mut waiting = self.waiting.subscribe();
        tokio::time::timeout(
            Duration::from_mins(1),
            waiting.wait_for(|waiting| *waiting >= calls),
        )
        .await??;
        Ok(())
    }
}

/// Handles one call: reads the beginning of the request, waits until calls are released or the
/// caller disconnects, and answers.
async fn answer(
    mut socket: TcpStream,
    mut holds: watch::Receiver<bool>,
    waiting: watch::Sender<usize>,
) {
    let mut request = vec![0; 256 * 1024];
    if !matches!(socket.read(&mut request).await, Ok(1..)) {
        return;
    }
    waiting.send_modify(|waiting| *waiting += 1);
    let released = async {
        let _ = holds.wait_for(|holds| !holds).await;
    };
    let disconnected = async { while matches!(socket.read(&mut request).await, Ok(1..)) {} };
    tokio::select! { () = released => {}, () = disconnected => {} }
    waiting.send_modify(|waiting| *waiting -= 1);
    let _ = socket.write_all(ANSWER.as_bytes()).await;
    let _ = socket.shutdown().await;
}
