//! HTTP/2 by hand: a client that may do what no client should.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Kinds of frames, flags and settings, as RFC 9113 numbers them.
pub mod kind {
    /// Bytes of a request or an answer.
    pub const DATA: u8 = 0;
    /// The head of a request or an answer.
    pub const HEADERS: u8 = 1;
    /// The end of a stream before its end.
    pub const RST_STREAM: u8 = 3;
    /// Settings of this end.
    pub const SETTINGS: u8 = 4;
    /// A question whether the other end is there.
    pub const PING: u8 = 6;
    /// The end of the connection.
    pub const GOAWAY: u8 = 7;
    /// Leave to send more.
    pub const WINDOW_UPDATE: u8 = 8;
    /// More of a head.
    pub const CONTINUATION: u8 = 9;
    /// A flag: the last frame of its stream.
    pub const END_STREAM: u8 = 1;
    /// A flag of settings and pings: an answer.
    pub const ACK: u8 = 1;
    /// A flag: the last frame of its head.
    pub const END_HEADERS: u8 = 4;
    /// A setting: how many streams the other end may have open.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// A setting: how much a stream may send before it is given leave.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
}

/// A frame that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0: the connection.
    pub stream: u32,
    /// What is in it.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The code that a GOAWAY gives.
    pub fn goaway_code(&self) -> Option<u32> {
        let code = self.payload.get(4..8).filter(|_| self.kind == kind::GOAWAY)?;
        Some(u32::from_be_bytes(code.try_into().ok()?))
    }
}

/// A connection.
pub struct RawHttp2 {
    stream: TcpStream,
    /// The server's settings, as they came.
    settings: Vec<u8>,
}

impl RawHttp2 {
    /// Connects, sends the preface and these settings, and takes those of the server.
    pub async fn connect(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        Self::try_connect(address, settings).await.expect("the server takes a connection and has settings")
    }

    /// The same; None: the server has closed the connection before, or taken none.
    pub async fn try_connect(address: SocketAddr, settings: &[(u16, u32)]) -> Option<Self> {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let pairs = settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        let hello =
            [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(kind::SETTINGS, 0, 0, &pairs.collect::<Vec<_>>())];
        stream.write_all(&hello.concat()).await.ok()?;
        let mut client = Self { stream, settings: Vec::new() };
        client.settings = client.next_of(kind::SETTINGS).await?.payload;
        // From then on they hold: its window, above all.
        client.send(&frame(kind::SETTINGS, kind::ACK, 0, &[])).await.ok()?;
        Some(client)
    }

    /// Sends bytes as they are; an error: the server has closed the connection.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// This end's address.
    pub fn address(&self) -> SocketAddr {
        self.stream.local_addr().expect("is connected")
    }

    /// What the server has set this to; None: it has not.
    pub fn setting(&self, id: u16) -> Option<u32> {
        let (settings, _) = self.settings.as_chunks::<6>();
        let [.., a, b, c, d] = settings.iter().find(|setting| setting[..2] == id.to_be_bytes())?;
        Some(u32::from_be_bytes([*a, *b, *c, *d]))
    }

    /// The next frame; None: the server has closed the connection.
    pub async fn next(&mut self) -> Option<Frame> {
        next_frame(&mut self.stream).await
    }

    /// The next frame of this kind, those before it left unread; None: the connection was closed before.
    pub async fn next_of(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// Reads until the connection is closed; the code of its GOAWAY, if there was one.
    pub async fn closed(mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next().await {
            code = frame.goaway_code().or(code);
        }
        code
    }

    /// Both directions, to read while something else writes.
    pub fn parted(self) -> (tokio::net::tcp::OwnedReadHalf, tokio::net::tcp::OwnedWriteHalf) {
        self.stream.into_split()
    }
}

/// The next frame; None: the connection is closed.
pub async fn next_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.ok()?;
    let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
    Some(Frame { kind: head[3], flags: head[4], stream: id, payload })
}

/// A frame as bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header for a head, as it is and not to be remembered.
pub fn literal(name: &str, value: &str) -> Vec<u8> {
    [&[0][..], &text(name), &text(value)].concat()
}

/// The head of a gRPC request with these headers beside.
pub fn request_head(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let own = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    own.iter().chain(headers).flat_map(|(name, value)| literal(name, value)).collect()
}

/// A unary request of gRPC on a stream: its head with these headers beside, and its message as one frame.
pub fn unary(stream: u32, path: &str, headers: &[(&str, &str)], message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    let (head, body) = (request_head(path, headers), [&[0][..], &length, message].concat());
    [frame(kind::HEADERS, kind::END_HEADERS, stream, &head), frame(kind::DATA, kind::END_STREAM, stream, &body)]
        .concat()
}

/// A text of HPACK: its length, in as many bytes as that takes, and itself.
fn text(text: &str) -> Vec<u8> {
    let mut coded = Vec::new();
    if text.len() < 127 {
        coded.push(text.len() as u8);
    } else {
        coded.push(127);
        let mut rest = text.len() - 127;
        while rest >= 128 {
            coded.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        coded.push(rest as u8);
    }
    coded.extend_from_slice(text.as_bytes());
    coded
}
