//! Bytes that are no request: frames that lie about their length, protobuf that breaks off, headers that nobody sends.

use anneal_tests::{House, Refusal, refusal};
use tonic::{Code, Status};

use crate::case::{LIMIT, MALFORMED, Why};

/// A gRPC message as it goes over the wire: whether it is compressed, how long it says it is, its bytes.
fn frame(compressed: u8, length: u32, bytes: &[u8]) -> Vec<u8> {
    [&[compressed], &length.to_be_bytes()[..], bytes].concat()
}

/// A message that says how long it is.
pub(crate) fn whole(bytes: &[u8]) -> Vec<u8> {
    frame(0, bytes.len() as u32, bytes)
}

/// A call as HTTP/2 carries it.
pub(crate) struct Posted {
    pub(crate) name: &'static str,
    path: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
    wanted: Wanted,
}

/// What must come of it.
enum Wanted {
    /// This refusal.
    Refused(Why),
    /// What gRPC says itself of what it does not serve: no reason of ours.
    NotServed,
    /// An answer.
    Answered,
}

const LIST: &str = "/anneal.v1.ConversationService/ListConversations";
const GRPC: &str = "application/grpc";

fn posted(name: &'static str, path: &str, body: Vec<u8>, wanted: Wanted) -> Posted {
    let headers = vec![("content-type", GRPC.into()), ("te", "trailers".into())];
    Posted { name, path: path.to_owned(), headers, body, wanted }
}

fn list(name: &'static str, body: Vec<u8>) -> Posted {
    posted(name, LIST, body, Wanted::Refused(MALFORMED))
}

fn with(name: &'static str, header: (&'static str, &[u8]), wanted: Wanted) -> Posted {
    let mut posted = posted(name, LIST, whole(b""), wanted);
    posted.headers.retain(|(known, _)| *known != header.0);
    posted.headers.push((header.0, header.1.to_vec()));
    posted
}

/// Frames and protobuf.
pub(crate) fn broken() -> Vec<Posted> {
    let nested = (0..200).fold(Vec::new(), |inner: Vec<u8>, _| {
        let length = inner.len();
        let varint =
            if length < 128 { vec![length as u8] } else { vec![(length & 127) as u8 | 128, (length >> 7) as u8] };
        [vec![0x22], varint, inner].concat()
    });
    let groups = [[0x0b].repeat(60_000), [0x0c].repeat(60_000)].concat();
    vec![
        list("no message", Vec::new()),
        list("half a head", vec![0, 0, 0]),
        list("a head without its message", frame(0, 10, b"")),
        list("half a message", frame(0, 10, b"\x0a\x03abc")),
        list("4 GiB that do not come", frame(0, u32::MAX, b"")).instead(LIMIT),
        list("a message above 4 MiB", whole(&vec![0; 5 << 20])).instead(LIMIT),
        list("compressed by nobody", frame(1, 2, b"\x0a\x00")),
        list("a flag that is none", frame(7, 2, b"\x0a\x00")),
        list("two messages", [whole(b""), whole(b"")].concat()).answered(),
        list("a field that breaks off", whole(b"\x0a\x7fa")),
        list("a field of 2^64 bytes", whole(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")),
        list("a varint of 11 bytes", whole(&[0x28, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1])),
        list("field 0", whole(b"\x02\x00")),
        list("wire type 7", whole(b"\x0f")),
        list("a string as a number", whole(b"\x08\x01")),
        list("a number as a string", whole(b"\x2a\x01a")),
        list("a string that is not UTF-8", whole(b"\x0a\x02\xff\xfe")),
        list("half a pair in UTF-8", whole(b"\x0a\x03\xed\xa0\x80")),
        list("NUL in two bytes", whole(b"\x0a\x02\xc0\x80")),
        list("a group without its end", whole(b"\x0b")),
        list("a group's end alone", whole(b"\x0c")),
        list("60,000 groups in each other", whole(&groups)),
        list("unknown fields", whole(b"\x92\xfa\x01\x03abc\x98\xfa\x01\x7f")).answered(),
        list("a field twice", whole(b"\x0a\x01a\x0a\x01b")).answered(),
        list("an enum of 64 bits", whole(b"\x18\x81\x80\x80\x80\x80\x80\x80\x80\x80\x01")).answered(),
        posted(
            "fields in each other",
            "/anneal.v1.MessageService/AppendMessages",
            whole(&nested),
            Wanted::Refused(MALFORMED),
        ),
        posted("no such method", "/anneal.v1.ConversationService/Nothing", whole(b""), Wanted::NotServed),
        posted("no such service", "/anneal.v2.ConversationService/GetConversation", whole(b""), Wanted::NotServed),
        posted("a path upwards", "/anneal.v1.ConversationService/../../etc/passwd", whole(b""), Wanted::NotServed),
        posted("a path of %00", "/anneal.v1.ConversationService/%00", whole(b""), Wanted::NotServed),
    ]
}

/// Headers.
pub(crate) fn headers() -> Vec<Posted> {
    let taken = |name, header| with(name, header, Wanted::Answered);
    vec![
        taken("a type that is not looked at", ("content-type", b"application/json")),
        taken("no type", ("content-type", b"")),
        taken("a type of 0xff", ("content-type", b"application/grpc\xff")),
        with("gzip that nobody takes", ("grpc-encoding", b"gzip"), Wanted::NotServed),
        with("zstd that nobody takes", ("grpc-encoding", b"zstd"), Wanted::NotServed),
        with("an encoding of 0xff", ("grpc-encoding", b"\xff"), Wanted::NotServed),
        taken("no time at all", ("grpc-timeout", b"99999999H")),
        taken("nine digits", ("grpc-timeout", b"999999999S")),
        taken("less than no time", ("grpc-timeout", b"-1S")),
        taken("a time of 0xff", ("grpc-timeout", b"\xff\xfe")),
        taken("metadata of 0xff", ("x-odd", b"\x80\xff\xfe")),
        taken("binary metadata that is none", ("x-odd-bin", b"!!!")),
        taken("a trace that is none", ("traceparent", b"00-zz-zz-\xff")),
        taken("a credential nobody asked for", ("authorization", b"Bearer \xff\xfe")),
        taken("no encoding, by its name", ("grpc-encoding", b"identity")),
    ]
}

impl Posted {
    fn instead(self, why: Why) -> Self {
        Self { wanted: Wanted::Refused(why), ..self }
    }

    fn answered(self) -> Self {
        Self { wanted: Wanted::Answered, ..self }
    }

    /// Sends it; what is not as it should be.
    pub(crate) async fn play(&self, house: &House, client: &reqwest::Client) -> Result<(), String> {
        let mut request = client.post(format!("http://{}{}", house.addresses.grpc, self.path)).body(self.body.clone());
        for (name, value) in &self.headers {
            request = request.header(*name, value.as_slice());
        }
        let response = request.send().await.map_err(|error| format!("{}: {error:?}", self.name))?;
        let http = response.status().as_u16();
        let status = Status::from_header_map(response.headers());
        let said = status.as_ref().map(refusal);
        let wrong = |wanted: &dyn std::fmt::Debug| Err(format!("{}: not {wanted:?}, but {http} {status:?}", self.name));
        match (&self.wanted, &said) {
            (Wanted::Answered, None) if http == 200 => Ok(()),
            (Wanted::NotServed, Some(Refusal { code: Code::Unimplemented, .. })) => Ok(()),
            (Wanted::Refused(why), Some(said)) if (said.code, said.reason.as_str()) == *why => Ok(()),
            (Wanted::Answered, _) => wrong(&"an answer"),
            (Wanted::NotServed, _) => wrong(&"UNIMPLEMENTED"),
            (Wanted::Refused(why), _) => wrong(why),
        }
    }
}

/// A client that says what it is told, over HTTP/2.
pub(crate) fn client() -> reqwest::Client {
    reqwest::Client::builder().http2_prior_knowledge().no_proxy().build().expect("a client")
}

/// Longest that a connection may stay which nobody speaks on any more.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// Sends this to the ports as it is; the connection is then closed.
pub(crate) async fn blurt(house: &House, bytes: &[u8]) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    for address in [house.addresses.grpc, house.addresses.http] {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("connects");
        // Who is refused need not be listened to.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut heard = Vec::new();
        let heard = stream.read_to_end(&mut heard);
        assert!(tokio::time::timeout(PATIENCE, heard).await.is_ok(), "whoever talks nonsense and is done is let go");
    }
}

/// What is neither HTTP/1 nor HTTP/2.
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
