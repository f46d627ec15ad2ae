//! Attacks that hold connections, by a tenant and by clients without a credential. Other tenants
//! and health probes still get connections.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anneal_testkit::{
    Gate, Say, Script, ScriptedModel, SseEvent, SseStream,
    raw_http2::{frame, kind, request_head},
    text_of,
};
use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use tonic::transport::Endpoint;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::limits::attacked_server::{self, AttackedServer, flood_duration};

/// Connections of the attacker: the default limit of a server.
const CONNECTIONS: usize = 10_000;
/// Connections that the attacker opens at the same time.
const AT_ONCE: usize = 16;
/// Time limit to open all connections.
const OPENED_WITHIN: Duration = Duration::from_secs(15);
/// Deadline of a health check, including the connection.
const CHECK_WITHIN: Duration = Duration::from_secs(10);
/// The preface of HTTP/2 and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Whether this process may open the attacker's connections and 500 other files. Prints that the
/// test is skipped if not.
fn can_open_files(connections: usize) -> bool {
    let enough = anneal_process::open_files::raise_limit()
        .is_none_or(|most| most > connections as u64 + 500);
    if !enough {
        println!("skipped: this process may not have {connections} files open");
    }
    enough
}

/// Opens a connection and sends these bytes. The server may have closed it already.
async fn open(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let _ = stream.write_all(bytes).await;
    stream
}

/// Opens [`CONNECTIONS`] connections, sends these bytes on each, and holds them for
/// [`flood_duration`].
async fn open_and_hold(address: SocketAddr, bytes: &[u8]) {
    let opened = stream::iter(0..CONNECTIONS)
        .map(|_| open(address, bytes))
        .buffer_unordered(AT_ONCE);
    let held: Vec<TcpStream> = opened.collect().await;
    println!("{} connections are open", held.len());
    attacked_server::hold(held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_one_running_turn_leave_connections_to_others() {
    if !can_open_files(CONNECTIONS) {
        return;
    }
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| Script::says(asked, Say::texts(&["one ", "two"])).gated(&gate)
    })
    .await;
    let server = AttackedServer::start_with_model(&model, &[]).await;
    let turn = server.http_client().json(
        "POST",
        "/api/agents/a/chat",
        &json!({"message": "Tell me."}),
    );
    let mut events = SseStream::open(turn.header("authorization", &server.eve)).await;
    let id = events.take(1).await.remove(0).id;
    let join = format!(
        "POST /api/agents/a/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nLast-Event-ID: {id}\r\n\
         Content-Length: 0\r\n\r\n",
        server.eve
    );
    let (http, join) = (server.http, join.as_bytes());
    let attack = async {
        let opened = stream::iter(0..CONNECTIONS).map(|_| async {
            let mut stream = open(http, join).await;
            let _ = stream.read_exact(&mut [0; 12]).await;
            stream
        });
        let held: Vec<TcpStream> = opened.buffer_unordered(AT_ONCE).collect().await;
        println!("{} connections are open", held.len());
        attacked_server::hold(held).await;
        // The first reader was the tenant's oldest connection, so the server has closed it. The
        // turn runs on. It ends now and releases its memory; otherwise the time limit of the
        // model's call ends it, after a minute.
        gate.open_for_ever();
    };
    server
        .run_attack(
            "readers of one turn",
            OPENED_WITHIN + flood_duration(),
            attack,
        )
        .await;
    let refused = server.metric_value("anneal_shed_total").await;
    println!("{refused} readers were refused");
    assert!(
        refused >= 5_000.0,
        "a tenant may have 500 concurrent readers, but only {refused} of 10,000 were refused"
    );
    drop(events);
    let back = server
        .http_client()
        .request("POST", "/api/agents/a/chat")
        .header("authorization", &server.eve);
    let rest = SseStream::open(back.header("last-event-id", &id))
        .await
        .rest()
        .await;
    assert_eq!(
        (text_of(&rest).as_str(), rest.last().map(SseEvent::kind)),
        ("one two", Some("done"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_sent_requests_of_a_tenant_leave_connections_to_others() {
    if !can_open_files(CONNECTIONS) {
        return;
    }
    // Fewer connections than the 8,192 requests that a tenant may have waiting, so that the limit
    // on connections is reached first.
    let server = AttackedServer::start(&["server.connections=4000"]).await;
    let half = format!(
        "POST /api/agents/a/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{\"message\":",
        server.eve
    );
    server
        .run_attack(
            "half-sent requests over HTTP",
            OPENED_WITHIN + flood_duration(),
            open_and_hold(server.http, half.as_bytes()),
        )
        .await;
    let head = request_head(
        "/anneal.v1.ConversationService/ListConversations",
        &[("authorization", &server.eve)],
    );
    let half = [PREFACE, &frame(kind::HEADERS, kind::END_HEADERS, 1, &head)].concat();
    server
        .run_attack(
            "half-sent requests over gRPC",
            OPENED_WITHIN + flood_duration(),
            open_and_hold(server.grpc, &half),
        )
        .await;
    // The server serves a connection before it accepts the next one, so few are unauthenticated at
    // a time.
    let unauthenticated = server
        .metric_value("anneal_connections_closed_for_others_total{owner=\"unknown\"}")
        .await;
    assert!(
        unauthenticated < 100.0,
        "{unauthenticated} connections were closed before they were authenticated"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_http1_connections_leave_connections_to_tenants_and_probes() {
    if !can_open_files(CONNECTIONS) {
        return;
    }
    let server = AttackedServer::start(&[]).await;
    let long = format!(
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-More: {}",
        "x".repeat(60_000)
    );
    for (what, half) in [
        ("nothing at all", ""),
        ("half a line", "GET /heal"),
        ("half a long head", long.as_str()),
    ] {
        server
            .run_attack(
                what,
                OPENED_WITHIN + flood_duration(),
                open_and_hold(server.http, half.as_bytes()),
            )
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_http2_connections_leave_connections_to_tenants_and_probes() {
    if !can_open_files(CONNECTIONS) {
        return;
    }
    let server = AttackedServer::start(&[]).await;
    let head = request_head(
        "/grpc.health.v1.Health/Check",
        &[("x-more", &"x".repeat(15_000))],
    );
    let half = [PREFACE, &frame(kind::HEADERS, 0, 1, &head)].concat();
    server
        .run_attack(
            "half a head over HTTP/2",
            OPENED_WITHIN + flood_duration(),
            open_and_hold(server.grpc, &half),
        )
        .await;
    let head = request_head("/grpc.health.v1.Health/Check", &[]);
    // Twelve calls, of which a connection may have eight at once. Those of all connections are more
    // than unauthenticated callers may have waiting.
    let streams = (1..24)
        .step_by(2)
        .flat_map(|stream| frame(kind::HEADERS, kind::END_HEADERS, stream, &head));
    let calls = PREFACE.iter().copied().chain(streams).collect::<Vec<u8>>();
    let attack = async {
        tokio::select! {
            () = open_and_hold(server.grpc, &calls) => {}
            () = check_health(&server) => {}
        }
    };
    server
        .run_attack(
            "requests without a body over HTTP/2",
            OPENED_WITHIN + flood_duration(),
            attack,
        )
        .await;
}

/// Checks the server's health over gRPC until the future is dropped, each time on a new connection.
async fn check_health(server: &AttackedServer) {
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    loop {
        pace.tick().await;
        let channel = Endpoint::from_shared(format!("http://{}", server.grpc))
            .expect("an address")
            .connect_lazy();
        let ask = HealthCheckRequest {
            service: String::new(),
        };
        let begun = Instant::now();
        let answered =
            tokio::time::timeout(CHECK_WITHIN, HealthClient::new(channel).check(ask)).await;
        answered.expect("in time").expect("is answered");
        if begun.elapsed() > Duration::from_secs(1) {
            println!("a health check took {:?}", begun.elapsed());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_keys_on_every_stream_take_little_memory() {
    if !can_open_files(CONNECTIONS) {
        return;
    }
    let server = AttackedServer::start(&[]).await;
    let path = "/anneal.v1.ConversationService/ListConversations";
    let keys = AtomicU64::new(0);
    let calls_with_made_up_keys = || {
        // 128 streams, the limit of a connection.
        let streams = (1..256).step_by(2).flat_map(|stream| {
            let key = format!(
                "Bearer anneal_{:032x}_made-up",
                keys.fetch_add(1, Ordering::Relaxed)
            );
            frame(
                kind::HEADERS,
                kind::END_HEADERS,
                stream,
                &request_head(path, &[("authorization", &key)]),
            )
        });
        PREFACE.iter().copied().chain(streams).collect::<Vec<u8>>()
    };
    let attack = async {
        let opened = stream::iter(0..64)
            .map(|_| async { open(server.grpc, &calls_with_made_up_keys()).await });
        let held: Vec<TcpStream> = opened.buffer_unordered(AT_ONCE).collect().await;
        println!("{} connections are open", held.len());
        attacked_server::hold(held).await;
    };
    server
        .run_attack("made-up keys", OPENED_WITHIN + flood_duration(), attack)
        .await;
}
