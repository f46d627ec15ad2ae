//! Further servers and workers on a house's database, each started for one figure.

use std::process::Stdio;

use anyhow::Context as _;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};
use tonic::transport::{Channel, Endpoint};

use crate::house::House;

/// A process of the binary that has begun its work.
pub(crate) struct Process {
    child: Child,
    /// What it said when it began: a server its address, a worker its name.
    said: String,
}

/// A process's memory in MiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) now: f64,
    /// Resident at most since it started.
    pub(crate) peak: f64,
}

impl Process {
    /// A server; returns when it listens.
    pub(crate) async fn server(house: &House) -> anyhow::Result<Self> {
        let free = ["--set", "server.grpc_address=127.0.0.1:0", "--set", "server.http_address=127.0.0.1:0"];
        Self::start(house, &free, "server", "grpc").await
    }

    /// A worker; returns when it works.
    pub(crate) async fn worker(house: &House) -> anyhow::Result<Self> {
        Self::start(house, &["--set", "worker.http_address=127.0.0.1:0"], "worker", "worker").await
    }

    /// Starts a command, and waits until it says this field.
    async fn start(house: &House, settings: &[&str], command: &str, field: &str) -> anyhow::Result<Self> {
        let mut child = house.anneal()?.args(settings).arg(command).stderr(Stdio::piped()).spawn()?;
        let said = said(&mut child, field).await?;
        Ok(Self { child, said })
    }

    /// A connection of its own, to a server.
    pub(crate) async fn channel(&self) -> anyhow::Result<Channel> {
        Ok(Endpoint::from_shared(format!("http://{}", self.said))?.tcp_nodelay(true).connect().await?)
    }

    /// What it holds, as Linux says.
    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        memory(self.child.id().context("the process has ended")?)
    }

    /// Ends it at once.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// What a process holds, as Linux says.
pub(crate) fn memory(id: u32) -> anyhow::Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).context("memory is read from /proc")?;
    Ok(Memory { now: mebibytes(&status, "VmRSS:")?, peak: mebibytes(&status, "VmHWM:")? })
}

/// Reads the log of a process that has just been started until an entry has the field, and returns it; the rest is read and
/// dropped.
pub(crate) async fn said(child: &mut Child, field: &str) -> anyhow::Result<String> {
    let mut lines = BufReader::new(child.stderr.take().context("the process's log")?).lines();
    while let Some(line) = lines.next_line().await? {
        let entry: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(said) = entry.get(field).and_then(Value::as_str) {
            let said = said.to_owned();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(said);
        }
    }
    anyhow::bail!("the process ended before it began its work")
}

fn mebibytes(status: &str, field: &str) -> anyhow::Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("a line of memory")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes / 1_024.0)
}
