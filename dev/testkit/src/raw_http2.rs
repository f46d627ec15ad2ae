//! HTTP/2 frames by hand, for clients that break the rules.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Frame types, flags and settings, numbered as in RFC 9113.
pub mod kind {
    /// The body of a request or an answer.
    pub const DATA: u8 = 0;
    /// The header block of a request or an answer.
    pub const HEADERS: u8 = 1;
    /// Aborts a stream.
    pub const RST_STREAM: u8 = 3;
    /// Settings of the sender.
    pub const SETTINGS: u8 = 4;
    /// A liveness check of the connection.
    pub const PING: u8 = 6;
    /// Shutdown of the connection.
    pub const GOAWAY: u8 = 7;
    /// Allows the receiver to send more bytes.
    pub const WINDOW_UPDATE: u8 = 8;
    /// The rest of a header block.
    pub const CONTINUATION: u8 = 9;
    /// Flag: the last frame of the stream.
    pub const END_STREAM: u8 = 1;
    /// Flag of SETTINGS and PING: an acknowledgement.
    pub const ACK: u8 = 1;
    /// Flag: the last frame of the header block.
    pub const END_HEADERS: u8 = 4;
    /// Setting: how many concurrent streams the other side may open.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Setting: the initial flow-control window of a stream, in bytes.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The frame type.
    pub kind: u8,
    /// The frame's flags.
    pub flags: u8,
    /// The stream id; 0 is the connection.
    pub stream: u32,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of a GOAWAY frame.
    pub fn goaway_code(&self) -> Option<u32> {
        let code = self
            .payload
            .get(4..8)
            .filter(|_| self.kind == kind::GOAWAY)?;
        Some(u32::from_be_bytes(code.try_into().ok()?))
    }
}

/// A client connection.
pub struct RawHttp2 {
    socket: TcpStream,
    /// The payload of the server's SETTINGS frame.
    settings: Vec<u8>,
}

impl RawHttp2 {
    /// Connects, sends the preface and these settings, and reads the server's settings.
    pub async fn connect(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        Self::try_connect(address, settings)
            .await
            .expect("the server accepts a connection and sends settings")
    }

    /// Connects as [`Self::connect`] does. None if the server closes or refuses the connection.
    pub async fn try_connect(address: SocketAddr, settings: &[(u16, u32)]) -> Option<Self> {
        let mut socket = TcpStream::connect(address).await.ok()?;
        let pairs = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        let hello = [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            &frame(kind::SETTINGS, 0, 0, &pairs.collect::<Vec<_>>()),
        ];
        socket.write_all(&hello.concat()).await.ok()?;
        let mut client = Self {
            socket,
            settings: Vec::new(),
        };
        client.settings = client.next_of(kind::SETTINGS).await?.payload;
        // The acknowledgement makes the server's settings take effect, above all its window.
        client
            .send(&frame(kind::SETTINGS, kind::ACK, 0, &[]))
            .await
            .ok()?;
        Some(client)
    }

    /// Sends raw bytes. An error means that the server has closed the connection.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await
    }

    /// The local address.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("the socket is connected")
    }

    /// The server's value of this setting; None if the server does not set it.
    pub fn setting(&self, id: u16) -> Option<u32> {
        let (settings, _) = self.settings.as_chunks::<6>();
        let [.., a, b, c, d] = settings
            .iter()
            .find(|setting| setting[..2] == id.to_be_bytes())?;
        Some(u32::from_be_bytes([*a, *b, *c, *d]))
    }

    /// Waits for the next frame. None when the connection is closed.
    pub async fn next(&mut self) -> Option<Frame> {
        next_frame(&mut self.socket).await
    }

    /// Waits for the next frame of this type and discards others. None when the connection is
    /// closed.
    pub async fn next_of(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// Reads until the connection is closed. Returns the code of the server's GOAWAY, if there was
    /// one.
    pub async fn read_to_close(mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next().await {
            code = frame.goaway_code().or(code);
        }
        code
    }

    /// Splits the connection, so that one task reads while another writes.
    pub fn into_split(
        self,
    ) -> (
        tokio::net::tcp::OwnedReadHalf,
        tokio::net::tcp::OwnedWriteHalf,
    ) {
        self.socket.into_split()
    }
}

/// Waits for the next frame. None when the connection is closed.
pub async fn next_frame(reader: &mut (impl AsyncRead + Unpin)) -> Option<Frame> {
    let mut head = [0; 9];
    reader.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    reader.read_exact(&mut payload).await.ok()?;
    // The highest bit of the stream id is reserved.
    let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
    Some(Frame {
        kind: head[3],
        flags: head[4],
        stream: id,
        payload,
    })
}

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .expect("a frame is short")
        .to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header field in HPACK, encoded literally and without indexing.
pub fn literal(name: &str, value: &str) -> Vec<u8> {
    [&[0][..], &encode_text(name), &encode_text(value)].concat()
}

/// The header block of a gRPC request, with these further headers.
pub fn request_head(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let grpc_headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    grpc_headers
        .iter()
        .chain(headers)
        .flat_map(|(name, value)| literal(name, value))
        .collect()
}

/// A unary gRPC request on this stream: its header block with these further headers, and its
/// message as one frame.
pub fn unary(stream: u32, path: &str, headers: &[(&str, &str)], message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len())
        .expect("a short message")
        .to_be_bytes();
    // gRPC's prefix of a message: a zero byte, because it is not compressed, and its length.
    let (head, body) = (
        request_head(path, headers),
        [&[0][..], &length, message].concat(),
    );
    [
        frame(kind::HEADERS, kind::END_HEADERS, stream, &head),
        frame(kind::DATA, kind::END_STREAM, stream, &body),
    ]
    .concat()
}

/// An HPACK string: its length as a variable-length integer, then its bytes (RFC 7541, section 5).
/// The highest bit of the first byte is 0: no Huffman coding. A length below 127 fits into the
/// other seven bits. Otherwise these are all ones, and the rest follows in groups of seven bits,
/// the lowest first; the highest bit of a byte says that another one follows.
fn encode_text(text: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    if text.len() < 127 {
        encoded.push(text.len() as u8);
    } else {
        encoded.push(127);
        let mut rest = text.len() - 127;
        while rest >= 128 {
            encoded.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        encoded.push(rest as u8);
    }
    encoded.extend_from_slice(text.as_bytes());
    encoded
}
