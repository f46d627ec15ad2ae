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
    let mut address = match arguments.process {
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
    let answer = tokio::time::timeout(DEADLINE, request_health(address))
        .await
        .context("no answer in time")?;
    let answer = answer.with_context(|| format!("no process answers on {address}"))?;
    let healthy = answer.starts_with("HTTP/1.1 200");
    output::print_line(if healthy {
        "ok"
    } else {
        answer.lines().next().unwrap_or("no answer")
    });
    Ok(if healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn request_health(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
