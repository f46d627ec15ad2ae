//! Hostile handshakes, frames and creates of the WebSocket of responses. What breaks the protocol of
//! WebSockets ends the connection; what is no create is refused and the connection goes on.

use anneal_testkit::{MODEL, ScriptedModel, TestApp};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message};

use crate::hostile::{case, catalogue::assert_no_harm};

const TEXT: u8 = 1;
const BINARY_FRAME: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// A client that writes bytes as they are.
struct RawSocket(TcpStream);

impl RawSocket {
    /// Opens a connection with these headers beside those that every handshake has. Returns the
    /// status, too.
    async fn open(app: &TestApp, headers: &str) -> (Self, u16) {
        let mut stream = TcpStream::connect(app.addresses.http)
            .await
            .expect("connects");
        let head = format!("GET /v1/responses HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.expect("is sent");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).await.expect("is read") == 0 {
                break;
            }
            answer.push(byte[0]);
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (Self(stream), status.unwrap_or_else(|| panic!("{answer}")))
    }

    /// Sends these bytes. Returns whether the server ends the connection, and all bytes until then.
    async fn send_and_read_to_end(mut self, bytes: &[u8]) -> Vec<u8> {
        // The server may close the connection before all of it is sent.
        let _ = self.0.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = self.0.read_to_end(&mut answer).await;
        answer
    }
}

const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A frame whose payload is masked with zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(MASKED | length as u8),
        length @ 126..=0xffff => {
            bytes.push(MASKED | 0x7e);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(MASKED | 0x7f);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

/// Bytes that break the protocol of WebSockets.
fn broken_frames() -> Vec<(&'static str, Vec<u8>)> {
    let length = |first: u8, length: u64| {
        let mut bytes = vec![first, MASKED | 0x7f];
        bytes.extend(length.to_be_bytes());
        bytes.extend([0; 4]);
        bytes
    };
    let pieces = |count: usize| {
        let mut bytes = frame(TEXT, b"{");
        for _ in 0..count {
            bytes.extend(frame(0, &vec![b' '; 60_000]));
        }
        bytes
    };
    vec![
        ("an unmasked frame", vec![FINAL | TEXT, 2, b'{', b'}']),
        ("a reserved opcode", frame(FINAL | 0x3, b"")),
        ("a reserved opcode of control", frame(FINAL | 0xb, b"")),
        ("reserved bits", frame(FINAL | 0x70 | TEXT, b"{}")),
        (
            "a compressed frame",
            frame(FINAL | 0x40 | TEXT, b"\xaa\x56\x00"),
        ),
        ("a continuation of nothing", frame(FINAL, b"{}")),
        (
            "a second beginning",
            [frame(TEXT, b"{"), frame(FINAL | TEXT, b"}")].concat(),
        ),
        ("a ping in pieces", frame(PING, b"")),
        ("a ping of 126 bytes", frame(FINAL | PING, &[0; 126])),
        ("a close of one byte", frame(FINAL | CLOSE, &[3])),
        ("a close of no reason", frame(FINAL | CLOSE, &[0, 1])),
        (
            "a close that is not UTF-8",
            frame(FINAL | CLOSE, b"\x03\xe8\xff"),
        ),
        (
            "a text that is not UTF-8",
            frame(FINAL | TEXT, b"{\"type\":\"\xff\"}"),
        ),
        ("a length of 2^63", length(FINAL | TEXT, 1 << 63)),
        ("a length of 1 GiB", length(FINAL | TEXT, 1 << 30)),
        (
            "a binary length of 1 GiB",
            length(FINAL | BINARY_FRAME, 1 << 30),
        ),
        ("pieces of 6 MB", pieces(100)),
    ]
}

#[tokio::test]
async fn what_breaks_the_protocol_of_websockets_ends_the_connection_alone() {
    let panics = case::record_panics();
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    app.conversation().await.turns(1).await;
    let mut other = connect(&app).await;
    for (what, bytes) in broken_frames() {
        let (socket, status) = RawSocket::open(&app, HANDSHAKE).await;
        assert_eq!(status, 101, "{what}");
        let ended = socket.send_and_read_to_end(&bytes);
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), ended).await;
        let answer = ended.unwrap_or_else(|_| panic!("{what}: the connection is kept"));
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert!(!text.contains("response.created"), "{what}: {text}");
    }
    // Connections that are given up in the middle of a frame.
    let whole = frame(FINAL | TEXT, &create("a").to_string().into_bytes());
    for cut in (0..whole.len()).step_by(7) {
        let (mut socket, _) = RawSocket::open(&app, HANDSHAKE).await;
        socket.0.write_all(&whole[..cut]).await.expect("is sent");
    }
    assert!(model.requests().is_empty());
    assert_completes(&mut other).await;
    assert_no_harm(&app, &panics).await;
}

#[tokio::test]
async fn a_malformed_handshake_is_refused_in_the_shape_of_the_door() {
    let app = TestApp::start().await;
    for (what, headers, status) in [
        (
            "no key",
            HANDSHAKE.replace("Sec-WebSocket-Key", "X-Key"),
            400,
        ),
        ("another version", HANDSHAKE.replace("13", "8"), 426),
        (
            "no version",
            HANDSHAKE.replace("Sec-WebSocket-Version", "X-Version"),
            426,
        ),
        (
            "another protocol",
            HANDSHAKE.replace("websocket", "h2c"),
            426,
        ),
        ("no upgrade", String::new(), 426),
        (
            "an origin",
            format!("{HANDSHAKE}Origin: https://evil.example\r\n"),
            400,
        ),
        (
            "the origin null",
            format!("{HANDSHAKE}Origin: null\r\n"),
            400,
        ),
    ] {
        let (_, found) = RawSocket::open(&app, &headers).await;
        assert_eq!(found, status, "{what}");
    }
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn connect(app: &TestApp) -> Socket {
    let url = format!("ws://{}/v1/responses", app.addresses.http);
    connect_async(url).await.expect("connects").0
}

fn create(input: &str) -> Value {
    json!({"type": "response.create", "model": MODEL, "input": input, "store": false})
}

/// The next text frame.
async fn next(socket: &mut Socket) -> Value {
    loop {
        match socket.next().await.expect("goes on").expect("is read") {
            Message::Text(text) => return serde_json::from_str(&text).expect("is JSON"),
            Message::Close(reason) => panic!("{reason:?}"),
            _ => {}
        }
    }
}

/// Creates a response, which must complete.
async fn assert_completes(socket: &mut Socket) {
    let create = Message::text(create("a").to_string());
    socket.send(create).await.expect("is sent");
    loop {
        let frame = next(socket).await;
        assert_ne!(frame["type"], "error", "{frame}");
        if frame["type"] == "response.completed" {
            return;
        }
    }
}

/// Texts of frames that are no create that is answered; status, parameter and code of the refusal.
fn refused_frames() -> Vec<(String, u16, &'static str, &'static str)> {
    let with = |name: &str, value: Value| {
        let mut body = create("a");
        body[name] = value;
        body.to_string()
    };
    let no_response = format!("resp_{}", "0".repeat(32));
    vec![
        (String::new(), 400, "body", "invalid_json"),
        ("{".to_owned(), 400, "body", "invalid_json"),
        ("[]".to_owned(), 400, "body", "invalid_type"),
        ("null".to_owned(), 400, "body", "invalid_type"),
        ("\"a\"".to_owned(), 400, "body", "invalid_type"),
        ("{} {}".to_owned(), 400, "body", "invalid_json"),
        ("[".repeat(100_000), 400, "body", "invalid_json"),
        (
            format!("{{\"x\":{}", "[".repeat(100_000)),
            400,
            "body",
            "invalid_json",
        ),
        (
            "{\"type\":\"\\ud800\"}".to_owned(),
            400,
            "body",
            "invalid_json",
        ),
        (
            format!("[{}0]", "0,".repeat(300_000)),
            400,
            "body",
            "invalid_value",
        ),
        ("{}".to_owned(), 400, "type", "missing_required_parameter"),
        (json!({"type": 1}).to_string(), 400, "type", "invalid_type"),
        (
            json!({"type": "x".repeat(1 << 20)}).to_string(),
            400,
            "type",
            "invalid_value",
        ),
        (
            with("stream", json!(false)),
            400,
            "stream",
            "unsupported_parameter",
        ),
        (
            with("background", json!(false)),
            400,
            "background",
            "unsupported_parameter",
        ),
        (with("input", json!(1)), 400, "input", "invalid_type"),
        (with("input", json!([])), 400, "input", "empty_array"),
        (
            with(
                "input",
                json!(vec![json!({"role": "user", "content": "a"}); 10_001]),
            ),
            400,
            "input",
            "array_above_max_length",
        ),
        (
            with("model", json!("none")),
            404,
            "model",
            "model_not_found",
        ),
        (
            with("temperature", json!("warm")),
            400,
            "temperature",
            "invalid_type",
        ),
        (
            with("previous_response_id", json!(no_response)),
            404,
            "",
            "previous_response_not_found",
        ),
        (
            with("previous_response_id", json!("\0")),
            404,
            "",
            "previous_response_not_found",
        ),
    ]
}

#[tokio::test]
async fn a_frame_that_is_no_create_is_refused_once_and_the_connection_goes_on() {
    let panics = case::record_panics();
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    app.conversation().await.turns(1).await;
    let mut socket = connect(&app).await;
    for (text, status, param, code) in refused_frames() {
        let what: String = text.chars().take(80).collect();
        socket.send(Message::text(text)).await.expect("is sent");
        let frame = next(&mut socket).await;
        let error = &frame["error"];
        let found = (
            &frame["type"],
            &frame["status"],
            error["param"].as_str().unwrap_or_default(),
            &error["code"],
        );
        assert_eq!(
            found,
            (&json!("error"), &json!(status), param, &json!(code)),
            "{what}"
        );
        assert!(frame.to_string().len() < 2_048, "{what}");
    }
    let binary = Message::Binary(create("a").to_string().into_bytes().into());
    socket.send(binary).await.expect("is sent");
    assert_eq!(next(&mut socket).await["error"]["code"], "invalid_type");
    for _ in 0..1_000 {
        socket
            .send(Message::Ping(vec![0; 125].into()))
            .await
            .expect("is sent");
    }
    assert!(model.requests().is_empty());
    assert_completes(&mut socket).await;
    assert_no_harm(&app, &panics).await;
}
