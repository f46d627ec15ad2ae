//! Questions after the server's health by strangers, who need no credential to ask.

use std::time::Duration;

use anneal_tests::{RawHttp2, kind, unary};
use futures::{StreamExt as _, stream};
use tonic::{Code, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::besieged::Besieged;

/// Connections of the attacker, and streams on each: as many as a server takes.
const CONNECTIONS: usize = 9_900;
const STREAMS: u32 = 128;
/// Connections that the attacker opens at the same time.
const AT_ONCE: usize = 4;
/// How long each attack goes on, the time to open all connections included.
const LASTS: Duration = Duration::from_secs(30);

/// Asks this on every stream of every connection, reads nothing, and holds all until the future is dropped.
async fn ask_everywhere(server: &Besieged, method: &str, settings: &[(u16, u32)]) {
    let path = format!("/grpc.health.v1.Health/{method}");
    let asked: Vec<u8> = (0..STREAMS).flat_map(|n| unary(2 * n + 1, &path, &[], &[])).collect();
    let opened = stream::iter(0..CONNECTIONS).map(|_| async {
        let mut client = RawHttp2::connect(server.grpc, settings).await;
        let _ = client.send(&asked).await;
        client
    });
    let held: Vec<RawHttp2> = opened.buffer_unordered(AT_ONCE).collect().await;
    println!("{} connections are open", held.len());
    std::future::pending::<()>().await;
    drop(held);
}

fn has_files() -> bool {
    let enough = anneal_process::files::allow_many().is_none_or(|most| most > CONNECTIONS as u64 + 500);
    if !enough {
        println!("skipped: this process may not have {CONNECTIONS} files open");
    }
    enough
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_strangers_on_every_stream_take_little() {
    if !has_files() {
        return;
    }
    let server = Besieged::start(&[]).await;
    server.endures("watches of health", LASTS, ask_everywhere(&server, "Watch", &[])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_strangers_that_nobody_reads_take_little() {
    if !has_files() {
        return;
    }
    let server = Besieged::start(&[]).await;
    let no_window = [(kind::INITIAL_WINDOW_SIZE, 0)];
    server.endures("unread checks of health", LASTS, ask_everywhere(&server, "Check", &no_window)).await;
}

#[tokio::test]
async fn a_connection_watches_a_few_services_and_asks_as_often_as_it_likes() {
    let server = Besieged::start(&[]).await;
    let channel = Endpoint::from_shared(format!("http://{}", server.grpc)).expect("an address").connect_lazy();
    let ask = || HealthCheckRequest { service: String::new() };
    let mut watches = Vec::new();
    let refused = loop {
        match HealthClient::new(channel.clone()).watch(ask()).await {
            Ok(watch) => watches.push(watch.into_inner()),
            Err(refused) => break refused,
        }
    };
    assert_eq!((watches.len(), refused.code()), (4, Code::ResourceExhausted), "{refused:?}");
    for _ in 0..100 {
        HealthClient::new(channel.clone()).check(ask()).await.expect("is answered");
    }
    drop(watches.pop());
    anneal_tests::eventually("there is room again", async || {
        HealthClient::new(channel.clone()).watch(ask()).await.is_ok()
    })
    .await;
}
