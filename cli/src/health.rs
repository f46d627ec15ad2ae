//! `anneal health`: a health check for containers, which have no curl.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    command::{HealthArguments, Process},
    config::Config,
    output,
};

/// How long the process may take to answer.
const DEADLINE: Duration = Duration::from_secs(3);

/// Exit code 0 if the process answers `/healthz` with 200.
pub(crate) async fn run(config: &Config, arguments: HealthArguments) -> anyhow::Result<ExitCode> {
    let address = probe_address(config, arguments.process)?;
    let status_line = fetch_status_line(address).await;
    let is_healthy = is_healthy(&status_line);
    if arguments.json {
        let record = json(arguments.process, address, &status_line);
        output::print_json(&record.to_string());
    } else {
        let status_line = status_line?;
        output::print_line(if is_healthy {
            "ok"
        } else {
            status_line.as_str()
        });
    }
    Ok(if is_healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The address on which this process answers health checks.
fn probe_address(config: &Config, process: Process) -> anyhow::Result<SocketAddr> {
    let mut address = match process {
        Process::Server => match config.server.probe_address {
            Some(address) => address,
            None if config.server.tls_certificate_file.is_empty() => config.server.http_address,
            None => anyhow::bail!(
                "with TLS, the server answers health checks only on server.probe_address, which is not set"
            ),
        },
        Process::Worker => config.worker.http_address,
    };
    if address.ip().is_unspecified() {
        address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port());
    }
    Ok(address)
}

/// Asks for `/healthz`. Returns the first line of the answer.
async fn fetch_status_line(address: SocketAddr) -> anyhow::Result<String> {
    let answer = tokio::time::timeout(DEADLINE, request_health(address))
        .await
        .context("no answer in time")?;
    let answer = answer.with_context(|| format!("no process answers on {address}"))?;
    Ok(answer.lines().next().unwrap_or("no answer").to_owned())
}

async fn request_health(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn is_healthy(status_line: &anyhow::Result<String>) -> bool {
    status_line
        .as_ref()
        .is_ok_and(|line| line.starts_with("HTTP/1.1 200"))
}

/// The result as JSON. `answer` is the first line of the answer, `error` says why there is none; one
/// of the two is null.
fn json(
    process: Process,
    address: SocketAddr,
    status_line: &anyhow::Result<String>,
) -> serde_json::Value {
    let process = match process {
        Process::Server => "server",
        Process::Worker => "worker",
    };
    serde_json::json!({
        "process": process,
        "address": address.to_string(),
        "healthy": is_healthy(status_line),
        "answer": status_line.as_ref().ok(),
        "error": status_line.as_ref().err().map(|error| format!("{error:#}")),
    })
}
