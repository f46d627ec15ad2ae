//! Cases of the catalogue that are bytes on the wire: frames with false lengths, malformed
//! protobuf, odd headers, and bytes that are not valid HTTP.

use anneal_testkit::{StatusDetails, TestApp, status_details};
use tonic::{Code, Status};

use crate::hostile::case::{LIMIT, MALFORMED, Refusal};

/// A gRPC frame: the compressed flag, the stated length, and the bytes.
fn frame(compressed: u8, length: u32, bytes: &[u8]) -> Vec<u8> {
    [&[compressed], &length.to_be_bytes()[..], bytes].concat()
}

/// A frame with the true length.
pub(crate) fn valid_frame(bytes: &[u8]) -> Vec<u8> {
    frame(0, bytes.len() as u32, bytes)
}

/// A case of the catalogue as an HTTP/2 request.
pub(crate) struct WireCase {
    pub(crate) name: &'static str,
    path: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
    expected: Expected,
}

/// The expected outcome.
enum Expected {
    /// This refusal.
    Refused(Refusal),
    /// UNIMPLEMENTED. It comes from the gRPC library, so its reason is not compared.
    NotServed,
    Answered,
}

const LIST: &str = "/anneal.v1.ConversationService/ListConversations";
const GRPC: &str = "application/grpc";

fn post(name: &'static str, path: &str, body: Vec<u8>, expected: Expected) -> WireCase {
    let headers = vec![("content-type", GRPC.into()), ("te", "trailers".into())];
    WireCase {
        name,
        path: path.to_owned(),
        headers,
        body,
        expected,
    }
}

/// A request to [`LIST`] with this body. It is refused as malformed, unless
/// [`WireCase::refused_with`] or [`WireCase::answered`] changes what is expected.
fn list(name: &'static str, body: Vec<u8>) -> WireCase {
    post(name, LIST, body, Expected::Refused(MALFORMED))
}

/// A valid request to [`LIST`] with this header, which replaces the usual one of its name.
fn with_header(name: &'static str, header: (&'static str, &[u8]), expected: Expected) -> WireCase {
    let mut case = post(name, LIST, valid_frame(b""), expected);
    case.headers.retain(|(known, _)| *known != header.0);
    case.headers.push((header.0, header.1.to_vec()));
    case
}

/// Frames and protobuf that are malformed or unusual, and paths that do not exist.
pub(crate) fn frames_and_paths() -> Vec<WireCase> {
    // Each field contains the next one. 0x22 is field 4 with bytes. AppendMessages has a number in
    // that field.
    let nested = (0..200).fold(Vec::new(), |inner: Vec<u8>, _| {
        let length = inner.len();
        let varint = if length < 128 {
            vec![length as u8]
        } else {
            vec![(length & 127) as u8 | 128, (length >> 7) as u8]
        };
        [vec![0x22], varint, inner].concat()
    });
    // 0x0b begins a group of field 1, and 0x0c ends it.
    let groups = [[0x0b].repeat(60_000), [0x0c].repeat(60_000)].concat();
    vec![
        list("no message", Vec::new()),
        list("half a frame header", vec![0, 0, 0]),
        list("a frame header without its message", frame(0, 10, b"")),
        list("half a message", frame(0, 10, b"\x0a\x03abc")),
        list("4 GiB that are not sent", frame(0, u32::MAX, b"")).refused_with(LIMIT),
        list("a message above 4 MiB", valid_frame(&vec![0; 5 << 20])).refused_with(LIMIT),
        list("compressed without an encoding", frame(1, 2, b"\x0a\x00")),
        list("an unknown flag", frame(7, 2, b"\x0a\x00")),
        list(
            "two messages",
            [valid_frame(b""), valid_frame(b"")].concat(),
        )
        .answered(),
        list("a field that breaks off", valid_frame(b"\x0a\x7fa")),
        list(
            "a field of 2^64 - 1 bytes",
            valid_frame(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ),
        list(
            "a varint of 11 bytes",
            valid_frame(&[0x28, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ),
        list("field 0", valid_frame(b"\x02\x00")),
        list("wire type 7", valid_frame(b"\x0f")),
        list("a string as a number", valid_frame(b"\x08\x01")),
        list("a number as a string", valid_frame(b"\x2a\x01a")),
        list(
            "a string that is not UTF-8",
            valid_frame(b"\x0a\x02\xff\xfe"),
        ),
        list(
            "half a surrogate pair in UTF-8",
            valid_frame(b"\x0a\x03\xed\xa0\x80"),
        ),
        list("NUL in two bytes", valid_frame(b"\x0a\x02\xc0\x80")),
        list("a group without its end", valid_frame(b"\x0b")),
        list("a group's end alone", valid_frame(b"\x0c")),
        list("60,000 nested groups", valid_frame(&groups)),
        list(
            "unknown fields",
            valid_frame(b"\x92\xfa\x01\x03abc\x98\xfa\x01\x7f"),
        )
        .answered(),
        list("a field twice", valid_frame(b"\x0a\x01a\x0a\x01b")).answered(),
        list(
            "an enum of 64 bits",
            valid_frame(b"\x18\x81\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        )
        .answered(),
        post(
            "200 nested fields where a number belongs",
            "/anneal.v1.MessageService/AppendMessages",
            valid_frame(&nested),
            Expected::Refused(MALFORMED),
        ),
        post(
            "no such method",
            "/anneal.v1.ConversationService/Nothing",
            valid_frame(b""),
            Expected::NotServed,
        ),
        post(
            "no such service",
            "/anneal.v2.ConversationService/GetConversation",
            valid_frame(b""),
            Expected::NotServed,
        ),
        post(
            "a path upwards",
            "/anneal.v1.ConversationService/../../etc/passwd",
            valid_frame(b""),
            Expected::NotServed,
        ),
        post(
            "a path of %00",
            "/anneal.v1.ConversationService/%00",
            valid_frame(b""),
            Expected::NotServed,
        ),
    ]
}

/// Headers that are malformed, unusual or not supported.
pub(crate) fn headers() -> Vec<WireCase> {
    let accepted = |name, header| with_header(name, header, Expected::Answered);
    vec![
        accepted(
            "a content type that is not checked",
            ("content-type", b"application/json"),
        ),
        accepted("an empty content type", ("content-type", b"")),
        accepted(
            "a content type of 0xff",
            ("content-type", b"application/grpc\xff"),
        ),
        with_header(
            "gzip, which is not supported",
            ("grpc-encoding", b"gzip"),
            Expected::NotServed,
        ),
        with_header(
            "zstd, which is not supported",
            ("grpc-encoding", b"zstd"),
            Expected::NotServed,
        ),
        with_header(
            "an encoding of 0xff",
            ("grpc-encoding", b"\xff"),
            Expected::NotServed,
        ),
        accepted("a timeout above the range", ("grpc-timeout", b"99999999H")),
        accepted("a timeout of nine digits", ("grpc-timeout", b"999999999S")),
        accepted("a negative timeout", ("grpc-timeout", b"-1S")),
        accepted("a timeout of 0xff", ("grpc-timeout", b"\xff\xfe")),
        accepted("metadata of 0xff", ("x-odd", b"\x80\xff\xfe")),
        accepted("malformed binary metadata", ("x-odd-bin", b"!!!")),
        accepted("a malformed trace", ("traceparent", b"00-zz-zz-\xff")),
        accepted(
            "a credential that is not needed",
            ("authorization", b"Bearer \xff\xfe"),
        ),
        accepted(
            "the encoding identity, which means none",
            ("grpc-encoding", b"identity"),
        ),
    ]
}

impl WireCase {
    fn refused_with(self, refusal: Refusal) -> Self {
        Self {
            expected: Expected::Refused(refusal),
            ..self
        }
    }

    fn answered(self) -> Self {
        Self {
            expected: Expected::Answered,
            ..self
        }
    }

    /// Sends the request. Err: how the answer differs from the expected one.
    pub(crate) async fn run(&self, app: &TestApp, client: &reqwest::Client) -> Result<(), String> {
        let mut request = client
            .post(format!("http://{}{}", app.addresses.grpc, self.path))
            .body(self.body.clone());
        for (name, value) in &self.headers {
            request = request.header(*name, value.as_slice());
        }
        let response = request
            .send()
            .await
            .map_err(|error| format!("{}: {error:?}", self.name))?;
        let http = response.status().as_u16();
        let status = Status::from_header_map(response.headers());
        let details = status.as_ref().map(status_details);
        let wrong = |expected: &dyn std::fmt::Debug| {
            Err(format!(
                "{}: not {expected:?}, but {http} {status:?}",
                self.name
            ))
        };
        match (&self.expected, &details) {
            (Expected::Answered, None) if http == 200 => Ok(()),
            (
                Expected::NotServed,
                Some(StatusDetails {
                    code: Code::Unimplemented,
                    ..
                }),
            ) => Ok(()),
            (Expected::Refused(refusal), Some(details))
                if (details.code, details.reason.as_str()) == *refusal =>
            {
                Ok(())
            }
            (Expected::Answered, _) => wrong(&"an answer"),
            (Expected::NotServed, _) => wrong(&"UNIMPLEMENTED"),
            (Expected::Refused(refusal), _) => wrong(refusal),
        }
    }
}

/// An HTTP/2 client that sends requests unchanged.
pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .http2_prior_knowledge()
        .no_proxy()
        .build()
        .expect("a client")
}

/// The server must close a connection within this time after its client has stopped sending.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(20);

/// Sends these bytes to both ports. The server must close the connections.
pub(crate) async fn send_noise(app: &TestApp, bytes: &[u8]) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    for address in [app.addresses.grpc, app.addresses.http] {
        let mut stream = tokio::net::TcpStream::connect(address)
            .await
            .expect("connects");
        // The server may close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        assert!(
            tokio::time::timeout(DEADLINE, read).await.is_ok(),
            "the server closes the connection"
        );
    }
}

/// Bytes that are not valid HTTP. The last two begin as HTTP/2 and then violate it.
pub(crate) fn noise() -> Vec<Vec<u8>> {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        vec![0; 100_000],
        vec![0xff; 100_000],
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        preface[..12].to_vec(),
        [preface.as_slice(), &[0xff; 1_000]].concat(),
        [
            preface.as_slice(),
            b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
            &b"\x00\x00\x00\x00\x01\x00\x00\x00\x01".repeat(10_000),
        ]
        .concat(),
    ]
}
