//! Additional servers and workers on a stack's database, each started for one figure.

use std::process::Stdio;

use anyhow::Context as _;
use tokio::process::Child;
use tonic::transport::{Channel, Endpoint};

use crate::{process_log::read_log_field, stack::BenchStack};

/// A server or worker process that has finished starting.
pub(crate) struct Process {
    child: Child,
    /// What the process logs when it is ready: the address of a server, or the name of a worker.
    identity: String,
}

/// A process's memory in MiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Current resident memory.
    pub(crate) now: f64,
    /// Maximum resident memory since the start of the process.
    pub(crate) peak: f64,
}

impl Process {
    /// Starts a server; returns when it is listening.
    pub(crate) async fn start_server(stack: &BenchStack) -> anyhow::Result<Self> {
        let any_free_ports = [
            "--set",
            "server.grpc_address=127.0.0.1:0",
            "--set",
            "server.http_address=127.0.0.1:0",
        ];
        Self::start(stack, &any_free_ports, "server", "grpc").await
    }

    /// Starts a worker; returns when it is ready.
    pub(crate) async fn start_worker(stack: &BenchStack) -> anyhow::Result<Self> {
        Self::start(
            stack,
            &["--set", "worker.http_address=127.0.0.1:0"],
            "worker",
            "worker",
        )
        .await
    }

    /// Starts a command and waits until it logs this field.
    async fn start(
        stack: &BenchStack,
        settings: &[&str],
        command: &str,
        field: &str,
    ) -> anyhow::Result<Self> {
        let mut child = stack
            .anneal()?
            .args(settings)
            .arg(command)
            .stderr(Stdio::piped())
            .spawn()?;
        let identity = read_log_field(&mut child, field).await?;
        Ok(Self { child, identity })
    }

    /// Opens a new connection to a server.
    pub(crate) async fn channel(&self) -> anyhow::Result<Channel> {
        Ok(Endpoint::from_shared(format!("http://{}", self.identity))?
            .tcp_nodelay(true)
            .connect()
            .await?)
    }

    /// Memory of the process, as reported by Linux.
    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        memory(self.child.id().context("the process has ended")?)
    }

    /// Kills the process.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// Memory of a process, as reported by Linux.
pub(crate) fn memory(id: u32) -> anyhow::Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))
        .context("memory is read from /proc")?;
    Ok(Memory {
        now: mebibytes(&status, "VmRSS:")?,
        peak: mebibytes(&status, "VmHWM:")?,
    })
}

fn mebibytes(status: &str, field: &str) -> anyhow::Result<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .with_context(|| format!("the process's status has no line {field}"))?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes / 1_024.0)
}
