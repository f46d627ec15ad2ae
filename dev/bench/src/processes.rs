//! Additional servers and workers on a stack's database, each started for one figure.

use std::{path::Path, process::Stdio};

use anyhow::Context as _;
use tokio::process::{Child, Command};

use crate::{
    connection::{self, Channel, Credential},
    process_log::read_log_field,
    stack::{self, BenchStack},
};

/// Settings by which a server listens on ports that no other process uses.
const ANY_FREE_PORTS: [&str; 4] = [
    "--set",
    "server.grpc_address=127.0.0.1:0",
    "--set",
    "server.http_address=127.0.0.1:0",
];
/// Units of processor time in a second, in Linux's files (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// A server or worker process that has finished starting.
pub(crate) struct Process {
    child: Child,
    /// What the process logs when it is ready: the address of a server, or the name of a worker.
    identity: String,
    credential: Credential,
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
        Self::start(stack, &ANY_FREE_PORTS, "server", "grpc").await
    }

    /// Starts a server that refuses every call, as one does whose concurrency limit is reached.
    pub(crate) async fn start_refusing_server(stack: &BenchStack) -> anyhow::Result<Self> {
        Self::start_server_with(stack, "server.concurrent_calls=0").await
    }

    /// Starts a server that counts no tokens: workers count all messages.
    pub(crate) async fn start_server_without_counting(stack: &BenchStack) -> anyhow::Result<Self> {
        Self::start_server_with(stack, "append.count_bytes=0").await
    }

    async fn start_server_with(stack: &BenchStack, setting: &str) -> anyhow::Result<Self> {
        let settings = [&ANY_FREE_PORTS[..], &["--set", setting][..]].concat();
        Self::start(stack, &settings, "server", "grpc").await
    }

    /// Starts a server of another build on a new database of this name, in the same PostgreSQL.
    /// That build migrates the database, so the schema may be older than this build's.
    pub(crate) async fn start_server_of_build(
        stack: &BenchStack,
        binary: &Path,
        database: &str,
    ) -> anyhow::Result<Self> {
        let anneal = || stack.anneal_of_build(binary, database);
        let sql = format!("create database {database}");
        stack.database()?.run(&sql).await?;
        stack::run(anneal(), &["migrate"]).await?;
        let credential = stack::create_key(anneal(), "default").await?;
        let mut server = anneal();
        server.args(ANY_FREE_PORTS).arg("server");
        Self::spawn(server, "grpc", credential).await
    }

    /// Starts a worker; returns when it is ready.
    pub(crate) async fn start_worker(stack: &BenchStack) -> anyhow::Result<Self> {
        Self::start_worker_with(stack, &[]).await
    }

    /// Starts a worker with these settings (`section.key=value`); returns when it is ready.
    pub(crate) async fn start_worker_with(
        stack: &BenchStack,
        settings: &[&str],
    ) -> anyhow::Result<Self> {
        let mut arguments = vec!["--set", "worker.http_address=127.0.0.1:0"];
        for &setting in settings {
            arguments.extend(["--set", setting]);
        }
        Self::start(stack, &arguments, "worker", "worker").await
    }

    /// Starts a command on the stack's database and waits until it logs this field.
    async fn start(
        stack: &BenchStack,
        settings: &[&str],
        name: &str,
        field: &str,
    ) -> anyhow::Result<Self> {
        let mut command = stack.anneal()?;
        command.args(settings).arg(name);
        Self::spawn(command, field, stack.credential().clone()).await
    }

    /// Starts a command and waits until it logs this field. Calls of the process have this
    /// credential.
    async fn spawn(
        mut command: Command,
        field: &str,
        credential: Credential,
    ) -> anyhow::Result<Self> {
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let identity = read_log_field(&mut child, field).await?;
        Ok(Self {
            child,
            identity,
            credential,
        })
    }

    /// Opens a new connection to a server.
    pub(crate) async fn channel(&self) -> anyhow::Result<Channel> {
        connection::connect(&self.identity, &self.credential).await
    }

    /// The process's id.
    pub(crate) fn id(&self) -> anyhow::Result<u32> {
        self.child.id().context("the process has ended")
    }

    /// Memory of the process, as reported by Linux.
    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        memory(self.id()?)
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

/// Processor time of a process so far, in seconds: its own, and that of its children that have
/// ended.
pub(crate) fn cpu_seconds(id: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))
        .context("processor time is read from /proc")?;
    // The name of the program is in parentheses and may contain spaces. The four times (user and
    // system, of the process and of its children) are fields 14 to 17; the name is field 2.
    let (_, fields) = stat.rsplit_once(')').context("the process has a name")?;
    let times = fields.split_whitespace().skip(11).take(4);
    let ticks: f64 = times.map(str::parse::<f64>).sum::<Result<_, _>>()?;
    Ok(ticks / TICKS_PER_SECOND)
}

/// Processor time of a process and of all its children so far, in seconds.
pub(crate) fn family_cpu_seconds(id: u32) -> anyhow::Result<f64> {
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))
        .context("children are read from /proc")?;
    let mut seconds = cpu_seconds(id)?;
    for child in children.split_whitespace() {
        // A child that ends here counts at the next call, as one that has ended.
        seconds += cpu_seconds(child.parse()?).unwrap_or_default();
    }
    Ok(seconds)
}

fn mebibytes(status: &str, field: &str) -> anyhow::Result<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .with_context(|| format!("the process's status has no line {field}"))?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes / 1_024.0)
}
