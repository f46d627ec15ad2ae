//! Connections that are silent, stalled or not read. They are closed, take little memory and do not
//! block others.

use std::{net::SocketAddr, num::NonZeroU32, time::Duration};

use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{AnnealBinary, Folder, TestApp, eventually, pb, user};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{Code, transport::Endpoint};

use crate::isolation::{
    BINARY,
    tls::{Authority, list},
};

/// Waits until the server closes the connection. False: it stayed open for a minute.
async fn wait_for_close(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    matches!(
        tokio::time::timeout(Duration::from_mins(1), stream.read_to_end(&mut rest)).await,
        Ok(Ok(_) | Err(_))
    )
}

#[tokio::test]
async fn silent_and_incomplete_connections_are_closed() {
    let app = TestApp::start().await;
    let connections = [
        (app.addresses.grpc, &b""[..]),
        (app.addresses.grpc, b"PRI * HTTP/2.0"),
        (app.addresses.grpc, b"\x16\x03\x01\x02\x00garbage"),
        (app.addresses.http, b""),
        (app.addresses.http, b"GET /healthz HT"),
        (
            app.addresses.http,
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        ),
    ]
    .map(|(address, bytes)| async move {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(bytes).await.expect("is sent");
        assert!(
            wait_for_close(&mut stream).await,
            "{}",
            String::from_utf8_lossy(bytes)
        );
    });
    futures::future::join_all(connections).await;
    list(app.channel()).await.expect("others are answered");
}

#[tokio::test]
async fn silent_handshakes_do_not_block_others() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let app = TestApp::with_auth(
        authority.write_server_certificate(&folder),
        AuthSettings {
            api_keys: true,
            ..Default::default()
        },
    )
    .await;
    let mut silent = Vec::new();
    // Far more than the handshakes that the server computes at the same time (half as many as it
    // has cores). After 5 s the server closes a connection that has not completed its handshake.
    for _ in 0..600 {
        silent.push(
            TcpStream::connect(app.addresses.grpc)
                .await
                .expect("connects"),
        );
    }
    let channel = tokio::time::timeout(
        Duration::from_secs(4),
        authority.channel(app.addresses.grpc, None),
    )
    .await;
    let channel = channel
        .expect("before the silent ones are closed")
        .expect("completes the handshake");
    assert_eq!(
        list(channel).await.expect_err("no credential").code(),
        Code::Unauthenticated
    );
    assert!(wait_for_close(&mut silent[0]).await);
}

#[tokio::test]
async fn stalled_handshakes_do_not_block_others() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let app = TestApp::with_auth(
        authority.write_server_certificate(&folder),
        AuthSettings {
            api_keys: true,
            ..Default::default()
        },
    )
    .await;
    // Records the first bytes of a real client's handshake.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let recording = async {
        let (mut stream, mut greeting) = (
            listener.accept().await.expect("a client connects").0,
            vec![0; 4_096],
        );
        let bytes = stream.read(&mut greeting).await.expect("reads");
        greeting.truncate(bytes);
        greeting
    };
    let greeting = tokio::select! {
        greeting = recording => greeting,
        _ = authority.channel(listener.local_addr().expect("an address"), None) => panic!("the listener never answers"),
    };
    // Far more than the handshakes that the server computes at the same time.
    let mut stalled = Vec::new();
    for _ in 0..400 {
        let mut stream = TcpStream::connect(app.addresses.grpc)
            .await
            .expect("connects");
        stream.write_all(&greeting).await.expect("is sent");
        stalled.push(stream);
    }
    let answered = stalled[0].read(&mut [0; 64]).await.expect("is answered");
    assert!(answered > 0, "the server answers the greeting");
    let channel = tokio::time::timeout(
        Duration::from_secs(4),
        authority.channel(app.addresses.grpc, None),
    )
    .await;
    let channel = channel
        .expect("before the stalled ones are closed")
        .expect("completes the handshake");
    assert_eq!(
        list(channel).await.expect_err("no credential").code(),
        Code::Unauthenticated
    );
}

#[tokio::test]
async fn at_the_connection_limit_an_idle_connection_is_closed() {
    let connections = NonZeroU32::new(20).expect("not 0");
    let settings = ServerSettings {
        connections,
        ..Default::default()
    };
    let app = TestApp::with_auth(settings, AuthSettings::default()).await;
    list(app.channel()).await.expect("is answered");
    let mut idle = Vec::new();
    for _ in 0..19 {
        let mut stream = TcpStream::connect(app.addresses.grpc)
            .await
            .expect("connects");
        // The preface of HTTP/2 and empty settings.
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await
            .expect("is sent");
        idle.push(stream);
    }
    // The 19 connections and the active one reach the limit. The next connection waits until one of
    // the 19 has been idle for long enough to be closed.
    let endpoint =
        Endpoint::from_shared(format!("http://{}", app.addresses.grpc)).expect("an address");
    eventually("another connection is accepted", async || {
        list(app.channel())
            .await
            .expect("an active connection stays");
        match endpoint.connect().await {
            Ok(channel) => list(channel).await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
    let mut closed = 0;
    for stream in &mut idle {
        let mut rest = [0; 4096];
        loop {
            match tokio::time::timeout(Duration::from_millis(20), stream.read(&mut rest)).await {
                Ok(Ok(0) | Err(_)) => {
                    closed += 1;
                    break;
                }
                Ok(Ok(_)) => {}
                Err(_) => break,
            }
        }
    }
    assert!(closed >= 1, "an idle connection was closed");
}

/// Whether the server's end of this connection is still open, according to `/proc/net/tcp`.
#[cfg(target_os = "linux")]
fn is_open(server: SocketAddr, client: SocketAddr) -> bool {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let end = |address: SocketAddr| format!(":{:04X}", address.port());
    let mut rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.any(|row| {
        row.len() > 3
            && row[1].ends_with(&end(server))
            && row[2].ends_with(&end(client))
            && row[3] == ESTABLISHED
    })
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    const BYTES: usize = 24 * 1024 * 1024;
    let app = TestApp::start().await;
    let ask = pb::CreateConversationRequest {
        agent_id: "a".into(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    for _ in 0..8 {
        conversation
            .append_all(vec![user(&"x".repeat(BYTES / 8))])
            .await;
    }
    let path = format!("/api/agents/a/sessions/{}", conversation.id);
    assert!(
        app.http_client().get(&path).await.text.len() > BYTES,
        "more than the socket buffers hold"
    );
    let mut stream = TcpStream::connect(app.addresses.http)
        .await
        .expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("is sent");
    let (server, client) = (app.addresses.http, stream.local_addr().expect("an address"));
    // The server closes the connection half a minute after the socket buffers are full.
    let mut interval = tokio::time::interval(Duration::from_millis(100));
    let closed = async {
        while is_open(server, client) {
            interval.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(3), closed)
        .await
        .expect("the connection is closed");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(
        !rest.is_empty() && rest.len() < BYTES,
        "{} bytes came",
        rest.len()
    );
    list(app.channel()).await.expect("others are answered");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_take_little_memory_and_do_not_block_others() {
    const CONNECTIONS: usize = 10_000;
    if anneal_process::open_files::raise_limit().is_some_and(|most| most < CONNECTIONS as u64 + 500)
    {
        println!("skipped: this process may not have {CONNECTIONS} files open");
        return;
    }
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let (server, port) = anneal.server().await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("connects");
        // The preface of HTTP/2 and empty settings.
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await
            .expect("is sent");
        idle.push(stream);
    }
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address");
    eventually("others are answered", async || {
        match endpoint.connect().await {
            Ok(channel) => list(channel).await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
    let memory = server.try_peak_memory().expect("Linux reports it");
    println!("{CONNECTIONS} idle connections: {memory} MiB");
    assert!(memory <= 512, "{memory} MiB");
}
