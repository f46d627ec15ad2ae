//! Floods and tricks over HTTP/1.1.

use anneal_tests::Web;
use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::besieged::{Besieged, flood_lasts};

const ATTACKERS: usize = 4;

/// The head of a chat's request, as the attacker would send it.
fn head(server: &Besieged, more: &str) -> String {
    format!(
        "POST /api/agents/a/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\
         Content-Type: application/json\r\n{more}\r\n",
        server.eve
    )
}

/// Sends a head and then the same bytes again and again, and reads nothing, until the connection is closed.
async fn send(server: &Besieged, head: &str, again: &[u8]) {
    let mut stream = TcpStream::connect(server.http).await.expect("connects");
    let mut sent = stream.write_all(head.as_bytes()).await;
    while sent.is_ok() {
        sent = stream.write_all(again).await;
    }
}

/// What a server answers to these bytes, until it closes the connection; nothing is sent behind them.
async fn said_to(server: &Besieged, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.http).await.expect("connects");
    // A server may answer and close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_in_crumbs_and_requests_by_the_thousand_keep_nobody_waiting() {
    let server = Besieged::start(&[]).await;
    let chunked = head(&server, "Transfer-Encoding: chunked\r\n");
    let crumbs = b"1\r\nx\r\n".repeat(1_000);
    let extensions = format!("1;{}\r\nx\r\n", "x=y;".repeat(200)).repeat(10).into_bytes();
    let pipelined = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    let floods = [
        ("tiny chunks", chunked.as_str(), crumbs),
        ("extensions of chunks", &chunked, extensions),
        ("pipelined requests whose answers nobody reads", "", pipelined),
        ("headers without end", "GET / HTTP/1.1\r\n", b"X-More: and more\r\n".repeat(100)),
        ("a header without end", "GET / HTTP/1.1\r\nX-More: ", vec![b'x'; 16_000]),
        ("a line without end", "GET /", vec![b'x'; 16_000]),
    ];
    for (what, head, again) in &floods {
        let attacks = (0..ATTACKERS).map(|_| send(&server, head, again));
        server.endures(what, flood_lasts(), async { drop(join_all(attacks).await) }).await;
    }
    let slow = async {
        let begun = head(&server, "Content-Length: 1000000\r\n");
        let streams = join_all((0..500).map(|_| async {
            let mut stream = TcpStream::connect(server.http).await.expect("connects");
            stream.write_all(begun.as_bytes()).await.expect("is taken");
            stream
        }));
        let mut streams = streams.await;
        let mut drops = tokio::time::interval(std::time::Duration::from_millis(100));
        loop {
            drops.tick().await;
            for stream in &mut streams {
                let _ = stream.write_all(b"x").await;
            }
        }
    };
    server.endures("bodies that drip", flood_lasts(), slow).await;
}

#[tokio::test]
async fn a_request_whose_end_is_in_doubt_is_refused_or_is_one_request() {
    let server = Besieged::start(&[]).await;
    let hidden = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (what, more) in [
        ("two lengths", format!("Content-Length: 0\r\nContent-Length: {}\r\n", hidden.len())),
        ("a list of lengths", format!("Content-Length: 0, {}\r\n", hidden.len())),
        ("a length with a sign", format!("Content-Length: +{}\r\n", hidden.len())),
        ("a length below nothing", "Content-Length: -1\r\n".to_owned()),
        ("a coding that is not known", "Transfer-Encoding: xchunked\r\n".to_owned()),
        ("chunks that are not the last coding", "Transfer-Encoding: chunked, gzip\r\n".to_owned()),
        ("a blank before the colon", "Transfer-Encoding : chunked\r\n".to_owned()),
        ("a folded header", "X-Folded: a\r\n Transfer-Encoding: chunked\r\n".to_owned()),
    ] {
        let said = said_to(&server, format!("{}{hidden}", head(&server, &more)).as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 400"), "{what}: {said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{what}: {said}");
    }
    for (what, chunk) in [("a size that is none", "xyz"), ("a size beyond all bounds", "fffffffffffffffff")] {
        let bytes = format!("{}{chunk}\r\n{hidden}", head(&server, "Transfer-Encoding: chunked\r\n"));
        let said = said_to(&server, bytes.as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 400"), "{what}: {said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{what}: {said}");
    }
    // Chunks beside a length: the chunks hold, as RFC 9112 has it, and the length is not looked at.
    let both = format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", hidden.len() + 5);
    let said = said_to(&server, format!("{}0\r\n\r\n{hidden}", head(&server, &both)).as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("INVALID_FIELD"), "the first has no body: {said}");
}

#[tokio::test]
async fn heads_that_are_too_large_bodies_in_crumbs_and_codings_are_refused() {
    let server = Besieged::start(&[]).await;
    let many = "X-Many: y\r\n".repeat(200);
    let said = said_to(&server, head(&server, &many).as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 431"), "{said}");
    let said = said_to(&server, head(&server, &format!("X-Large: {}\r\n", "y".repeat(1_000_000))).as_bytes()).await;
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 431"), "{said}");
    let crumbs = "1\r\n \r\n".repeat(5_000);
    let chunked = head(&server, "Transfer-Encoding: chunked\r\n");
    let said = said_to(&server, format!("{chunked}{crumbs}0\r\n\r\n").as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("too many pieces"), "{said}");
    let web = Web::at(server.http);
    for coding in ["gzip", "deflate", "br", "zstd", "identity, gzip"] {
        let asked = web.request("POST", "/api/agents/a/chat").header("authorization", &server.eve);
        let asked = asked.header("content-type", "application/json").header("content-encoding", coding);
        let refused = anneal_tests::Answered::to(asked.body(r#"{"message":"hi"}"#)).await;
        refused.assert_problem(415, "MALFORMED_REQUEST", "");
    }
}
