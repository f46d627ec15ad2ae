//! A model that accepts every call, and answers it at once, or after a time. While calls are held,
//! it does not answer them until they are released. It notes the times of calls that have a mark.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// The answer after the release: a stream of OpenAI's protocol.
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Questions were asked.\"},\"finish_reason\":\"stop\"}]}\n\n\
    data: [DONE]\n\n";

/// Text before the number of a mark.
const MARK: &str = "Call number ";

/// Times of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallTimes {
    /// The first bytes of the request were read.
    pub(crate) arrived: Instant,
    /// The whole request was read.
    pub(crate) complete: Instant,
    /// The answer was sent, which is one piece.
    pub(crate) answered: Instant,
    /// Length of the request.
    pub(crate) bytes: usize,
}

/// A text by which the model recognizes a call, at the end of the call's last message.
pub(crate) fn mark(number: u64) -> String {
    format!("{MARK}{number}.")
}

/// The model, which does not answer while calls are held. A call that its caller ends does not wait
/// any more.
pub(crate) struct SilentModel {
    address: SocketAddr,
    /// Whether calls are held: accepted, but not answered.
    holds: watch::Sender<bool>,
    /// Number of calls that wait for an answer.
    waiting: watch::Sender<usize>,
    behavior: Arc<Mutex<Behavior>>,
}

/// How long the model takes, and the times of its calls.
#[derive(Default)]
struct Behavior {
    mean_delay: Duration,
    /// By the number of the mark.
    times: HashMap<u64, CallTimes>,
}

impl SilentModel {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (holds, _) = watch::channel(false);
        let (waiting, _) = watch::channel(0);
        let behavior = Arc::<Mutex<Behavior>>::default();
        let model = Self {
            address: listener.local_addr()?,
            holds: holds.clone(),
            waiting: waiting.clone(),
            behavior: Arc::clone(&behavior),
        };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let behavior = Arc::clone(&behavior);
                tokio::spawn(answer(socket, holds.subscribe(), waiting.clone(), behavior));
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

    /// Answers further calls after half of this time to one and a half times it.
    pub(crate) fn answer_after(&self, mean_delay: Duration) {
        lock(&self.behavior).mean_delay = mean_delay;
    }

    /// Returns the times of the call with this mark, and forgets them. None: it was not answered.
    pub(crate) fn take_times(&self, number: u64) -> Option<CallTimes> {
        lock(&self.behavior).times.remove(&number)
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
    behavior: Arc<Mutex<Behavior>>,
) {
    let mut request = Vec::new();
    let mut arrived = None;
    while !is_complete(&request) {
        if !matches!(socket.read_buf(&mut request).await, Ok(1..)) {
            return;
        }
        arrived.get_or_insert_with(Instant::now);
    }
    let complete = Instant::now();
    let delay = lock(&behavior).mean_delay.mul_f64(0.5 + fastrand::f64());
    let mut rest = [0; 64];
    waiting.send_modify(|waiting| *waiting += 1);
    let released = async {
        let _ = holds.wait_for(|holds| !holds).await;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    };
    let disconnected = async { while matches!(socket.read(&mut rest).await, Ok(1..)) {} };
    tokio::select! { () = released => {}, () = disconnected => {} }
    waiting.send_modify(|waiting| *waiting -= 1);
    if let Some(number) = find_mark(&request) {
        let answered = Instant::now();
        let times = CallTimes {
            arrived: arrived.unwrap_or(complete),
            complete,
            answered,
            bytes: request.len(),
        };
        lock(&behavior).times.insert(number, times);
    }
    let _ = socket.write_all(ANSWER.as_bytes()).await;
    let _ = socket.shutdown().await;
}

fn lock(behavior: &Mutex<Behavior>) -> MutexGuard<'_, Behavior> {
    behavior.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of the last mark in a request.
fn find_mark(request: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(request);
    let (_, number) = text.rsplit_once(MARK)?;
    number.split_once('.')?.0.parse().ok()
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

    #[test]
    fn the_last_mark_is_that_of_the_call() {
        let request = format!("{{\"messages\":[\"{}\",\"{}\"]}}", mark(7), mark(18));
        assert_eq!(find_mark(request.as_bytes()), Some(18));
        assert_eq!(find_mark(b"no mark"), None);
    }
}
