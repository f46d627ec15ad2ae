//! Servers are replaced one by one under load. Callers that follow proto/service_config.json see no
//! failure. The caller is Python's gRPC, which follows that file itself.

use std::{net::Ipv4Addr, path::Path, process::Stdio};

use anneal_testkit::{AnnealBinary, Folder, Process, TestApp, eventually, python_path};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::BINARY;

/// Restarts of each server. `ANNEAL_ROLLING_RESTARTS` overrides it.
const RESTARTS: usize = 10;
const SERVERS: u8 = 2;
/// The setting of the time between NOT_SERVING and the closed listener. In this time the health
/// checks of clients find out that the server stops.
const DRAIN: &str = "server.drain_delay_ms=300";

fn restarts() -> usize {
    std::env::var("ANNEAL_ROLLING_RESTARTS")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(RESTARTS)
}

/// Chooses an address that no other process takes while the server restarts. Its IP is a loopback
/// address that depends on the id of this process, because outgoing connections may take a free
/// port of 127.0.0.1.
async fn choose_address(server: u8) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let own_ip = Ipv4Addr::new(127, 1 + high % 250, low, 1 + server);
    let listener = TcpListener::bind((own_ip, 0))
        .await
        .expect("all of 127.0.0.0/8 is this machine");
    listener.local_addr().expect("it is bound").to_string()
}

async fn start_server(anneal: &AnnealBinary, address: &str) -> Process {
    let grpc = format!("server.grpc_address={address}");
    let settings = [
        "server",
        "--set",
        &grpc,
        "--set",
        "server.http_address=127.0.0.1:0",
        "--set",
        DRAIN,
    ];
    let server = anneal.start(&settings);
    server.wait_for_line("serving gRPC on").await;
    server
}

/// Waits until this server has received calls.
async fn wait_for_calls(server: &Process) {
    let client = server.http_client().await;
    eventually("the new server receives calls", async || {
        client
            .get("/metrics")
            .await
            .text
            .contains("rpc=\"append_messages\"")
    })
    .await;
}

/// A running `rolling_client.py`, which calls the servers.
struct Load {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Load {
    /// Starts the load. None: gRPC for Python is not installed.
    async fn start(addresses: &[String], conversations: &[String]) -> Option<Self> {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("python3");
        command
            .arg(crate_folder.join("tests/operations/rolling_client.py"))
            .arg(addresses.join(","));
        command
            .arg(crate_folder.join("../proto/service_config.json"))
            .args(conversations);
        command
            .env("PYTHONPATH", python_path()?)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .kill_on_drop(true);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let stdin = process.stdin.take().expect("is piped");
        let mut stdout = BufReader::new(process.stdout.take().expect("is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).await.expect("it has started");
        assert_eq!(line, "under way\n");
        Some(Self {
            process,
            stdin,
            stdout,
        })
    }

    /// Stops the load. Returns its report.
    async fn stop(mut self) -> Value {
        drop(self.stdin);
        let mut report = String::new();
        self.stdout
            .read_to_string(&mut report)
            .await
            .expect("it ends");
        assert!(self.process.wait().await.expect("ends").success());
        serde_json::from_str(&report).expect("its report")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restarts_under_load_fail_no_call_that_follows_the_service_config() {
    if std::env::var_os("ANNEAL_PG_BIN").is_some() && std::env::var_os("ANNEAL_FAULTS").is_none() {
        println!(
            "skipped: rolling restarts are tested on the installed PostgreSQL only; set ANNEAL_FAULTS=1 to test them on that of ANNEAL_PG_BIN"
        );
        return;
    }
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let (mut addresses, mut servers, mut conversations) = (Vec::new(), Vec::new(), Vec::new());
    for server in 0..SERVERS {
        let address = choose_address(server).await;
        servers.push(start_server(&anneal, &address).await);
        addresses.push(address);
    }
    for _ in 0..4 {
        conversations.push(app.conversation().await);
    }
    let ids: Vec<String> = conversations
        .iter()
        .map(|conversation| conversation.id.clone())
        .collect();
    let Some(load) = Load::start(&addresses, &ids).await else {
        return;
    };
    for server in &servers {
        wait_for_calls(server).await;
    }
    for _ in 0..restarts() {
        for address in &addresses {
            // The oldest server is first.
            let server = servers.remove(0);
            server.terminate().await;
            assert_eq!(
                server.wait_for_exit().await,
                Some(0),
                "the server stops gracefully"
            );
            let server = start_server(&anneal, address).await;
            wait_for_calls(&server).await;
            servers.push(server);
        }
    }
    let report = load.stop().await;
    println!(
        "{} rolling restarts of {SERVERS} servers: {report}",
        restarts()
    );
    assert_eq!(report["failed"], serde_json::json!([]), "calls that failed");
    for conversation in &conversations {
        let appended = report["appended"][&conversation.id]
            .as_u64()
            .expect("it was appended to");
        let texts: Vec<String> = conversation
            .texts_by_role()
            .await
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        assert_eq!(
            texts,
            (0..appended)
                .map(|number| format!("said {number}"))
                .collect::<Vec<_>>(),
            "each message is stored once, in order"
        );
        conversation.verify().await;
    }
    // `rolling_client.py` watches the first two conversations.
    for conversation in &conversations[..2] {
        assert_eq!(
            report["watched"][&conversation.id], report["appended"][&conversation.id],
            "each watch received each message once, in order"
        );
    }
    assert!(
        report["resumed"].as_u64() >= Some(1),
        "no watch was resumed, although the servers ended watches when they stopped"
    );
}
