//! Servers are replaced one by one under load, and callers who follow proto/service_config.json see nothing of it. The caller is
//! Python's gRPC, which reads that file itself.

use std::{net::Ipv4Addr, path::Path, process::Stdio};

use anneal_tests::{Anneal, Folder, House, Process, eventually, python_path};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::BINARY;

/// Times that each server is replaced, unless `ANNEAL_ROLLING_RESTARTS` says otherwise.
const RESTARTS: usize = 10;
const SERVERS: u8 = 2;
/// From NOT_SERVING to the closed door: the time in which a client's health check notices.
const DRAIN: &str = "server.drain_delay_ms=300";

fn restarts() -> usize {
    std::env::var("ANNEAL_ROLLING_RESTARTS").ok().and_then(|times| times.parse().ok()).unwrap_or(RESTARTS)
}

/// An address that stays ours while nobody listens there: on loopback addresses of this process alone, because a port of
/// 127.0.0.1 that is free for a moment is taken by whoever connects.
async fn address(place: u8) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ours = Ipv4Addr::new(127, 1 + high % 250, low, 1 + place);
    let listener = TcpListener::bind((ours, 0)).await.expect("all of 127.0.0.0/8 is this machine");
    listener.local_addr().expect("it is bound").to_string()
}

async fn serve(anneal: &Anneal, address: &str) -> Process {
    let grpc = format!("server.grpc_address={address}");
    let settings = ["server", "--set", &grpc, "--set", "server.http_address=127.0.0.1:0", "--set", DRAIN];
    let server = anneal.start(&settings);
    server.said("serving gRPC on").await;
    server
}

/// Waits until callers have come to this server.
async fn is_called(server: &Process) {
    let door = server.door().await;
    eventually("callers come to the new server", async || {
        door.get("/metrics").await.text.contains("rpc=\"append_messages\"")
    })
    .await;
}

/// The load, under way.
struct Load {
    running: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Load {
    async fn start(addresses: &[String], talks: &[String]) -> Option<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("python3");
        command.arg(here.join("tests/operations/rolling_client.py")).arg(addresses.join(","));
        command.arg(here.join("../proto/service_config.json")).args(talks);
        command.env("PYTHONPATH", python_path()?).env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
        let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 runs");
        let stdin = running.stdin.take().expect("is piped");
        let mut stdout = BufReader::new(running.stdout.take().expect("is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).await.expect("it says so");
        assert_eq!(line, "under way\n");
        Some(Self { running, stdin, stdout })
    }

    /// Lets it end what it has begun; what came of it.
    async fn end(mut self) -> Value {
        drop(self.stdin);
        let mut told = String::new();
        self.stdout.read_to_string(&mut told).await.expect("it ends");
        assert!(self.running.wait().await.expect("ends").success());
        serde_json::from_str(&told).expect("it tells what came of it")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_rolling_restarts_under_load_fail_no_call_of_who_follows_the_service_config() {
    if std::env::var_os("ANNEAL_PG_BIN").is_some() && std::env::var_os("ANNEAL_FAULTS").is_none() {
        println!(
            "skipped: servers are replaced on the installed PostgreSQL; ANNEAL_FAULTS=1 replaces them on this one"
        );
        return;
    }
    let (house, folder) = (House::start().await, Folder::new());
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    let (mut addresses, mut servers, mut talks) = (Vec::new(), Vec::new(), Vec::new());
    for place in 0..SERVERS {
        let address = address(place).await;
        servers.push(serve(&anneal, &address).await);
        addresses.push(address);
    }
    for _ in 0..4 {
        talks.push(house.conversation().await);
    }
    let ids: Vec<String> = talks.iter().map(|talk| talk.id.clone()).collect();
    let Some(load) = Load::start(&addresses, &ids).await else { return };
    for server in &servers {
        is_called(server).await;
    }
    for _ in 0..restarts() {
        for address in &addresses {
            // The oldest: those that were started since stand behind it.
            let server = servers.remove(0);
            server.terminate().await;
            assert_eq!(server.ended().await, Some(0), "a server stops in good order");
            let server = serve(&anneal, address).await;
            is_called(&server).await;
            servers.push(server);
        }
    }
    let told = load.end().await;
    println!("{} rolling restarts of {SERVERS} servers: {told}", restarts());
    assert_eq!(told["failed"], serde_json::json!([]), "calls that failed");
    for talk in &talks {
        let appended = told["appended"][&talk.id].as_u64().expect("it was appended to");
        let said: Vec<String> = talk.said().await.into_iter().map(|(_, text)| text).collect();
        assert_eq!(said, (0..appended).map(|number| format!("said {number}")).collect::<Vec<_>>(), "once each");
        talk.verify().await;
    }
    for talk in &talks[..2] {
        assert_eq!(told["watched"][&talk.id], told["appended"][&talk.id], "told once each, in order");
    }
    assert!(told["resumed"].as_u64() >= Some(1), "watches were ended by servers that stopped");
}
