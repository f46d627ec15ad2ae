//! One connection of the scripted provider: HTTP/1.1 with one request and one answer.

use std::{collections::HashMap, sync::Arc};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
};

use super::{ModelRequest, Shared, script::Step};

/// Accepts connections until the task is aborted. Its connections are aborted with it.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(serve(socket, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(socket: TcpStream, shared: Arc<Shared>) {
    // Each piece goes out when it is written, without Nagle's delay.
    socket
        .set_nodelay(true)
        .expect("a fresh socket takes the option");
    let (mut reader, mut writer) = socket.into_split();
    let Some(mut asked) = read_request(&mut reader).await else {
        return;
    };
    let script = {
        let mut all = shared
            .requests
            .lock()
            .expect("no thread panics while holding the lock");
        asked.nth = all.len();
        if shared.keeps_requests {
            all.push(asked.clone());
        }
        (shared.respond)(&asked)
    };
    let _open = OpenCall::new(&shared);
    let mut byte = [0];
    tokio::select! {
        played = play(&mut writer, script.steps) => {
            if played.is_err() {
                shared.counts.send_modify(|counts| counts.closed_by_client += 1);
            }
        }
        // A client sends nothing after its request, so a completed read means that it has closed
        // the connection.
        _ = reader.read(&mut byte) => shared.counts.send_modify(|counts| counts.closed_by_client += 1),
    }
}

/// Counts the arrival of a call, and the call as open until this is dropped.
struct OpenCall<'a>(&'a Shared);

impl<'a> OpenCall<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.counts.send_modify(|counts| {
            counts.arrived += 1;
            counts.open += 1;
            counts.most_open = counts.most_open.max(counts.open);
        });
        Self(shared)
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.0.counts.send_modify(|counts| counts.open -= 1);
    }
}

/// Performs the steps of a script. An error means that the client has closed the connection.
async fn play(writer: &mut OwnedWriteHalf, steps: Vec<Step>) -> std::io::Result<()> {
    for step in steps {
        match step {
            Step::Raw(bytes) => writer.write_all(&bytes).await?,
            Step::Chunk(bytes) => writer.write_all(&encode_chunk(&bytes)).await?,
            Step::Flood(bytes) => {
                let filler = vec![b'x'; 64 * 1024];
                for start in (0..bytes).step_by(filler.len()) {
                    writer
                        .write_all(&filler[..filler.len().min(bytes - start)])
                        .await?;
                }
            }
            Step::Wait(gate) => gate.pass().await,
            Step::Hang => std::future::pending().await,
            Step::Endless(bytes) => loop {
                writer.write_all(&encode_chunk(&bytes)).await?;
            },
        }
    }
    writer.shutdown().await
}

/// Encodes a chunk of a chunked body.
fn encode_chunk(bytes: &[u8]) -> Vec<u8> {
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    framed
}

/// Reads a request. None if the client closes the connection before it is complete.
async fn read_request(reader: &mut OwnedReadHalf) -> Option<ModelRequest> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        read_more(reader, &mut bytes).await?;
    };
    let text = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = text.split("\r\n");
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .map_or(Some(0), |length| length.parse().ok())?;
    while bytes.len() < head_end + 4 + length {
        read_more(reader, &mut bytes).await?;
    }
    let raw = String::from_utf8_lossy(&bytes[head_end + 4..]).into_owned();
    let body = serde_json::from_str(&raw).unwrap_or_default();
    Some(ModelRequest {
        path,
        headers,
        body,
        raw,
        nth: 0,
    })
}

/// Reads further bytes from the socket. None if the client has closed the connection.
async fn read_more(reader: &mut OwnedReadHalf, bytes: &mut Vec<u8>) -> Option<()> {
    let read = reader.read_buf(bytes).await.ok()?;
    (read > 0).then_some(())
}
