//! Attacks with health checks, which need no credential.

use std::time::Duration;

use anneal_testkit::{
    gate_or_nightly,
    raw_http2::{RawHttp2, kind, unary},
};
use futures::{StreamExt as _, stream};
use tonic::{Code, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::limits::attacked_server::{AttackedServer, flood_duration, hold};

/// Connections of the attacker at night: nearly the limit of a server.
const CONNECTIONS: usize = 9_900;
/// Streams on each connection: the limit of a connection.
const STREAMS: u32 = 128;
/// Connections of the attacker in the gate (`cargo xtask ci`). With [`STREAMS`] each, they make
/// 256,000 calls.
const CONNECTIONS_IN_GATE: usize = 2_000;
/// Connections that the attacker opens at the same time.
const AT_ONCE: usize = 4;
/// Time limit to open all connections.
const OPENED_WITHIN: Duration = Duration::from_secs(30);

fn connections() -> usize {
    gate_or_nightly(CONNECTIONS_IN_GATE, CONNECTIONS)
}

/// Calls this method on every stream of every connection, reads nothing, and holds the connections
/// for [`flood_duration`].
async fn call_on_every_stream(server: &AttackedServer, method: &str, settings: &[(u16, u32)]) {
    let path = format!("/grpc.health.v1.Health/{method}");
    let asked: Vec<u8> = (0..STREAMS)
        .flat_map(|n| unary(2 * n + 1, &path, &[], &[]))
        .collect();
    let opened = stream::iter(0..connections()).map(|_| async {
        let mut client = RawHttp2::connect(server.grpc, settings).await;
        let _ = client.send(&asked).await;
        client
    });
    let held: Vec<RawHttp2> = opened.buffer_unordered(AT_ONCE).collect().await;
    println!("{} connections are open", held.len());
    hold(held).await;
}

/// Whether this process may open the attacker's connections and 500 other files. Prints that the
/// test is skipped if not.
fn can_open_files() -> bool {
    let enough = anneal_process::open_files::raise_limit()
        .is_none_or(|most| most > connections() as u64 + 500);
    if !enough {
        println!(
            "skipped: this process may not have {} files open",
            connections()
        );
    }
    enough
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_watches_on_every_stream_take_little_memory() {
    if !can_open_files() {
        return;
    }
    let server = AttackedServer::start(&[]).await;
    server
        .run_attack(
            "watches of health",
            OPENED_WITHIN + flood_duration(),
            call_on_every_stream(&server, "Watch", &[]),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_health_answers_take_little_memory() {
    if !can_open_files() {
        return;
    }
    let server = AttackedServer::start(&[]).await;
    let no_window = [(kind::INITIAL_WINDOW_SIZE, 0)];
    server
        .run_attack(
            "unread checks of health",
            OPENED_WITHIN + flood_duration(),
            call_on_every_stream(&server, "Check", &no_window),
        )
        .await;
}

#[tokio::test]
async fn a_connection_may_have_four_health_watches_and_any_number_of_checks() {
    let server = AttackedServer::start(&[]).await;
    let channel = Endpoint::from_shared(format!("http://{}", server.grpc))
        .expect("an address")
        .connect_lazy();
    let ask = || HealthCheckRequest {
        service: String::new(),
    };
    let mut watches = Vec::new();
    let refused = loop {
        match HealthClient::new(channel.clone()).watch(ask()).await {
            Ok(watch) => watches.push(watch.into_inner()),
            Err(refused) => break refused,
        }
    };
    assert_eq!(
        (watches.len(), refused.code()),
        (4, Code::ResourceExhausted),
        "{refused:?}"
    );
    for _ in 0..100 {
        HealthClient::new(channel.clone())
            .check(ask())
            .await
            .expect("is answered");
    }
    drop(watches.pop());
    anneal_testkit::eventually("another watch is accepted", async || {
        HealthClient::new(channel.clone())
            .watch(ask())
            .await
            .is_ok()
    })
    .await;
}
