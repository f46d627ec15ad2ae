//! A model that accepts every call, and answers it at once. While calls are held, it does not
//! answer them until they are released.

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

/// The model, which does not answer while calls are held. A call that its caller ends does not wait
/// any more.
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

    /// Returns as soon as at most this many calls are waiting, or fails after a minute.
    pub(crate) async fn wait_for_ends(&self, left: usize) -> anyhow::Result<()> {
        let mut waiting = self.waiting.subscribe();
        tokio::time::timeout(
            Duration::from_mins(1),
            waiting.wait_for(|waiting| *waiting <= left),
        )
        .await??;
        Ok(())
    }
}

/// Handles one call: reads the request, waits until calls are released or the caller disconnects,
/// and answers.
async fn answer(
    mut socket: TcpStream,
    mut holds: watch::Receiver<bool>,
    waiting: watch::Sender<usize>,
) {
    let mut request = Vec::new();
    while !is_complete(&request) {
        if !matches!(socket.read_buf(&mut request).await, Ok(1..)) {
            return;
        }
    }
    let mut rest = [0; 64];
    waiting.send_modify(|waiting| *waiting += 1);
    let released = async {
        let _ = holds.wait_for(|holds| !holds).await;
    };
    let disconnected = async { while matches!(socket.read(&mut rest).await, Ok(1..)) {} };
    tokio::select! { () = released => {}, () = disconnected => {} }
    waiting.send_modify(|waiting| *waiting -= 1);
    let _ = socket.write_all(ANSWER.as_bytes()).await;
    let _ = socket.shutdown().await;
}

/// Whether a request has come to its end: its head says how long its body is.
fn is_complete(request: &[u8]) -> bool {
    const HEAD_END: &[u8] = b"\r\n\r\n";
    let Some(head) = request
        .windows(HEAD_END.len())
        .position(|bytes| bytes == HEAD_END)
    else {
        return false;
    };
    let text = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let body: usize = length
        .and_then(|length| length.trim().parse().ok())
        .unwrap_or(0);
    request.len() >= head + HEAD_END.len() + body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_complete_with_its_whole_body() {
        let head = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 4\r\n\r\n";
        let with_body = |body: &[u8]| is_complete(&[head, body].concat());
        assert!(!is_complete(&head[..head.len() - 1]));
        assert!(!with_body(b"{\"a"));
        assert!(with_body(b"{\"a\""));
    }
}
