//! Floods and malformed requests over HTTP/1.1.

use anneal_testkit::HttpClient;
use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::limits::attacked_server::{AttackedServer, flood_duration};

/// Concurrent connections of the attacker.
const CONNECTIONS: usize = 4;

/// The head of a chat request of the attacker, with these headers added.
fn head(server: &AttackedServer, more: &str) -> String {
    format!(
        "POST /api/agents/a/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\
         Content-Type: application/json\r\n{more}\r\n",
        server.eve
    )
}

/// Sends a head and then the same bytes again and again, until the server closes the connection.
/// Reads nothing.
async fn flood(server: &AttackedServer, head: &str, repeated: &[u8]) {
    let mut stream = TcpStream::connect(server.http).await.expect("connects");
    let mut sent = stream.write_all(head.as_bytes()).await;
    while sent.is_ok() {
        sent = stream.write_all(repeated).await;
    }
}

/// Sends these bytes, closes the sending side, and reads the answer until the server closes.
async fn send_and_read(server: &AttackedServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.http).await.expect("connects");
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_chunks_and_pipelined_requests_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    let chunked = head(&server, "Transfer-Encoding: chunked\r\n");
    let tiny_chunks = b"1\r\nx\r\n".repeat(1_000);
    let extensions = format!("1;{}\r\nx\r\n", "x=y;".repeat(200))
        .repeat(10)
        .into_bytes();
    let pipelined = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    let floods = [
        ("tiny chunks", chunked.as_str(), tiny_chunks),
        ("chunk extensions", &chunked, extensions),
        ("pipelined requests with unread answers", "", pipelined),
        (
            "endless headers",
            "GET / HTTP/1.1\r\n",
            b"X-More: and more\r\n".repeat(100),
        ),
        (
            "an endless header",
            "GET / HTTP/1.1\r\nX-More: ",
            vec![b'x'; 16_000],
        ),
        ("an endless request line", "GET /", vec![b'x'; 16_000]),
    ];
    for (what, head, repeated) in &floods {
        let attacks = (0..CONNECTIONS).map(|_| flood(&server, head, repeated));
        server
            .run_attack(what, flood_duration(), async {
                drop(join_all(attacks).await);
            })
            .await;
    }
    let slow = async {
        let slow_head = head(&server, "Content-Length: 1000000\r\n");
        let streams = join_all((0..500).map(|_| async {
            let mut stream = TcpStream::connect(server.http).await.expect("connects");
            stream
                .write_all(slow_head.as_bytes())
                .await
                .expect("is sent");
            stream
        }));
        let mut streams = streams.await;
        let mut interval = tokio::time::interval(std::time::Duration::from_millis(100));
        loop {
            interval.tick().await;
            for stream in &mut streams {
                let _ = stream.write_all(b"x").await;
            }
        }
    };
    server
        .run_attack("slowly sent bodies", flood_duration(), slow)
        .await;
}

#[tokio::test]
async fn a_request_of_ambiguous_length_is_refused_or_read_by_its_chunks() {
    let server = AttackedServer::start(&[]).await;
    let hidden = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (what, more) in [
        (
            "two lengths",
            format!("Content-Length: 0\r\nContent-Length: {}\r\n", hidden.len()),
        ),
        (
            "a list of lengths",
            format!("Content-Length: 0, {}\r\n", hidden.len()),
        ),
        (
            "a length with a sign",
            format!("Content-Length: +{}\r\n", hidden.len()),
        ),
        ("a negative length", "Content-Length: -1\r\n".to_owned()),
        (
            "an unknown coding",
            "Transfer-Encoding: xchunked\r\n".to_owned(),
        ),
        (
            "chunked is not the last coding",
            "Transfer-Encoding: chunked, gzip\r\n".to_owned(),
        ),
        (
            "a blank before the colon",
            "Transfer-Encoding : chunked\r\n".to_owned(),
        ),
        (
            "a folded header",
            "X-Folded: a\r\n Transfer-Encoding: chunked\r\n".to_owned(),
        ),
    ] {
        let answer = send_and_read(
            &server,
            format!("{}{hidden}", head(&server, &more)).as_bytes(),
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: {answer}");
    }
    for (what, chunk) in [
        ("a chunk size that is not a number", "xyz"),
        ("a chunk size that overflows", "fffffffffffffffff"),
    ] {
        let bytes = format!(
            "{}{chunk}\r\n{hidden}",
            head(&server, "Transfer-Encoding: chunked\r\n")
        );
        let answer = send_and_read(&server, bytes.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: {answer}");
    }
    // With both headers, the server follows the chunks and ignores the length (RFC 9112). The
    // length is that of `hidden` and of the last chunk, which has five bytes.
    let both = format!(
        "Content-Length: {}\r\nTransfer-Encoding: chunked\r\n",
        hidden.len() + 5
    );
    let answer = send_and_read(
        &server,
        format!("{}0\r\n\r\n{hidden}", head(&server, &both)).as_bytes(),
    )
    .await;
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("INVALID_FIELD"),
        "the first request has no body: {answer}"
    );
}

#[tokio::test]
async fn oversized_heads_tiny_chunks_and_content_codings_are_refused() {
    let server = AttackedServer::start(&[]).await;
    let many = "X-Many: y\r\n".repeat(200);
    let answer = send_and_read(&server, head(&server, &many).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = send_and_read(
        &server,
        head(&server, &format!("X-Large: {}\r\n", "y".repeat(1_000_000))).as_bytes(),
    )
    .await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let tiny_chunks = "1\r\n \r\n".repeat(5_000);
    let chunked = head(&server, "Transfer-Encoding: chunked\r\n");
    let answer = send_and_read(
        &server,
        format!("{chunked}{tiny_chunks}0\r\n\r\n").as_bytes(),
    )
    .await;
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("too many pieces"),
        "{answer}"
    );
    let web = HttpClient::at(server.http);
    for coding in ["gzip", "deflate", "br", "zstd", "identity, gzip"] {
        let asked = web
            .request("POST", "/api/agents/a/chat")
            .header("authorization", &server.eve);
        let asked = asked
            .header("content-type", "application/json")
            .header("content-encoding", coding);
        let refused = anneal_testkit::HttpResponse::send(asked.body(r#"{"message":"hi"}"#)).await;
        refused.assert_problem(415, "MALFORMED_REQUEST", "");
    }
}
