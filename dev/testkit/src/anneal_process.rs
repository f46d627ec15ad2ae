//! Processes of the `anneal` binary. Each test chooses their settings and gives them their own
//! folder.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anneal_local_postgres::{LocalPostgres, Settings, StopOnDrop};
use anneal_store::{Migrations, StoreSettings, create_database};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
    task::JoinHandle,
};
use uuid::Uuid;

use crate::{HttpClient, TcpProxy, eventually, postgres_binaries};

/// A temporary folder, deleted on drop.
pub struct Folder(PathBuf);

impl Folder {
    /// An empty folder.
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("anneal-test-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(&path).expect("a folder under the system's temporary one");
        Self(path)
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file with this text into the folder and returns its path.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the file is written");
        path
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A durable PostgreSQL cluster for one test, with a migrated database.
pub struct OwnPostgres {
    /// The database's URL. It stays the same across restarts.
    pub url: String,
    /// Between the URL and PostgreSQL, whose port may change at a restart.
    proxy: TcpProxy,
    postgres: StopOnDrop,
    settings: Settings,
    _folder: Folder,
}

impl OwnPostgres {
    /// Creates and starts the cluster.
    pub async fn start() -> Self {
        let folder = Folder::new();
        let settings = Settings::new(folder.path().join("postgres"), postgres_binaries());
        let postgres = LocalPostgres::start(settings.clone())
            .await
            .expect("a cluster of the test's own");
        create_database(&postgres.url("postgres"), "anneal", None)
            .await
            .expect("a database");
        let (proxy, url) = TcpProxy::to_database(&postgres.url("anneal")).await;
        let mut migrations = Migrations::connect(&StoreSettings::at(&url))
            .await
            .expect("the connection succeeds");
        migrations
            .run(std::time::Duration::from_secs(30))
            .await
            .expect("the migrations are applied");
        Self {
            url,
            proxy,
            postgres: postgres.stop_on_drop(),
            settings,
            _folder: folder,
        }
    }

    /// The statements in PostgreSQL's log, in order. Empty unless `log_statement` is set.
    pub fn statements(&self) -> Vec<String> {
        let log =
            std::fs::read_to_string(self.postgres.log_path()).expect("PostgreSQL keeps a log");
        let entries = log
            .split("LOG:  ")
            .filter(|entry| entry.starts_with("execute ") || entry.starts_with("statement: "));
        entries.map(str::to_owned).collect()
    }

    /// Stops PostgreSQL immediately, as a crash would.
    pub async fn crash(&self) {
        self.postgres
            .stop(anneal_local_postgres::Stop::Immediate)
            .await
            .expect("PostgreSQL stops");
    }

    /// Starts PostgreSQL again, on a new port if another process has taken the old one. The URL is
    /// valid in both cases.
    pub async fn restart(&self) {
        let started = LocalPostgres::start(self.settings.clone())
            .await
            .expect("PostgreSQL starts again");
        self.proxy.set_target(started.port());
    }
}

/// How processes of the binary are started: path, folder, database, environment, failpoints.
#[derive(Clone)]
pub struct AnnealBinary {
    binary: &'static str,
    folder: PathBuf,
    /// The database's URL. Empty: the process gets none.
    url: String,
    environment: Vec<(&'static str, String)>,
    failpoints: String,
}

impl AnnealBinary {
    /// The binary (`env!("CARGO_BIN_EXE_anneal-under-test")`) in this folder, on this database of
    /// the shared test cluster. That cluster may lose acknowledged writes, so the binary is allowed
    /// to start on it.
    pub fn new(binary: &'static str, folder: &Folder, url: &str) -> Self {
        Self::on_durable(binary, folder, url)
            .with_variable("ANNEAL_DATABASE_ALLOW_DATA_LOSS", "true")
    }

    /// The binary in this folder, on a durable database, without the permission to lose data.
    pub fn on_durable(binary: &'static str, folder: &Folder, url: &str) -> Self {
        let (environment, failpoints) = (Vec::new(), String::new());
        Self {
            binary,
            folder: folder.path().to_owned(),
            url: url.to_owned(),
            environment,
            failpoints,
        }
    }

    /// This binary with these failpoints, in the format that the crate `fail` reads from
    /// `FAILPOINTS`.
    #[must_use]
    pub fn with_failpoints(&self, failpoints: &str) -> Self {
        Self {
            failpoints: failpoints.to_owned(),
            ..self.clone()
        }
    }

    /// This binary with another database URL.
    #[must_use]
    pub fn on_database(mut self, url: &str) -> Self {
        url.clone_into(&mut self.url);
        self
    }

    /// This binary with this environment variable.
    #[must_use]
    pub fn with_variable(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.binary);
        // Settings in the environment of the test run must not reach the process, except for those
        // that choose PostgreSQL and the grouping of appends for the whole run.
        let settings = std::env::vars_os().map(|(key, _)| key);
        // `OTEL_…` names a collector of traces.
        let is_setting = |name: &str| name.starts_with("ANNEAL_") || name.starts_with("OTEL_");
        for key in settings.filter(|key| is_setting(&key.to_string_lossy())) {
            if key != "ANNEAL_PG_BIN" && key != "ANNEAL_APPEND_GROUPING" {
                command.env_remove(key);
            }
        }
        if !self.url.is_empty() {
            command.env("ANNEAL_DATABASE_URL", &self.url);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if self.failpoints.is_empty() {
            command.env_remove("FAILPOINTS");
        } else {
            command.env("FAILPOINTS", &self.failpoints);
        }
        command
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub async fn run(&self, arguments: &[&str]) -> CommandOutput {
        let ran = self
            .command(arguments)
            .output()
            .await
            .expect("the binary runs");
        CommandOutput::from(ran)
    }

    /// Runs a command to its end. Nothing reads its standard output: the pipe is closed.
    pub async fn run_with_closed_output(&self, arguments: &[&str]) -> CommandOutput {
        let (reader, output) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = self.command(arguments);
        let child = command
            .stdout(output)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        CommandOutput::from(child.wait_with_output().await.expect("the binary runs"))
    }

    /// Runs a command to its end, with this text on its standard input.
    pub async fn run_with_input(&self, arguments: &[&str], input: &str) -> CommandOutput {
        let mut command = self.command(arguments);
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("the stream is piped");
        // A process that exits early does not read its input to the end.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        CommandOutput::from(child.wait_with_output().await.expect("the binary runs"))
    }

    /// Starts a long-running command and collects its output lines.
    pub fn start(&self, arguments: &[&str]) -> Process {
        let mut command = self.command(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let out = collect_lines(child.stdout.take().expect("the stream is piped"), &lines);
        let err = collect_lines(child.stderr.take().expect("the stream is piped"), &lines);
        Process {
            child,
            lines,
            readers: [out, err],
        }
    }

    /// Starts a server on free ports and waits until it serves. Returns the process and its gRPC
    /// port.
    pub async fn server(&self) -> (Process, u16) {
        let started = self.try_server(&[]).await;
        started.unwrap_or_else(|ended| {
            panic!("the server exited before it served: {:#?}", ended.lines())
        })
    }

    /// Starts a server as [`Self::server`] does, with the settings `more`, each given to `--set`.
    /// Err holds a process that exited before it served.
    pub async fn try_server(&self, more: &[&str]) -> Result<(Process, u16), Process> {
        let mut arguments = vec!["server"];
        let settings = [
            "server.grpc_address=127.0.0.1:0",
            "server.http_address=127.0.0.1:0",
            "server.drain_delay_ms=50",
        ];
        arguments.extend(
            settings
                .iter()
                .chain(more)
                .flat_map(|setting| ["--set", *setting]),
        );
        let server = self.start(&arguments);
        let line = server
            .find_line("\"grpc\":\"127.0.0.1:")
            .await
            .unwrap_or_default();
        let port = line
            .split("\"grpc\":\"127.0.0.1:")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        match port.and_then(|port| port.parse().ok()) {
            Some(port) => Ok((server, port)),
            None => Err(server),
        }
    }

    /// Starts a worker and waits until it has logged its name.
    pub async fn worker(&self) -> Process {
        let worker = self.start(&[
            "worker",
            "--set",
            "worker.http_address=127.0.0.1:0",
            "--set",
            "worker.poll_ms=100",
        ]);
        worker.wait_for_line("working as").await;
        worker
    }
}

fn collect_lines(
    lines: impl AsyncRead + Unpin + Send + 'static,
    collected: &Arc<Mutex<Vec<String>>>,
) -> JoinHandle<()> {
    let (mut lines, collected) = (BufReader::new(lines).lines(), Arc::clone(collected));
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            collected
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
        }
    })
}

/// The exit code and the output of a command that has ended.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// The exit code; None when a signal ended the command.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

/// The peak memory of a process in MiB; None when the process is gone, or the system has no
/// `/proc`. Pages of mapped files, most of them of the program file, are not counted: the system
/// can drop them, and an unoptimized build has three times as many.
fn peak_memory_of(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let figure = |name: &str| {
        let figure = status.lines().find_map(|line| line.strip_prefix(name))?;
        figure.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    Some(figure("VmHWM:")?.saturating_sub(figure("RssFile:")?) / 1_024)
}

/// A long-running process, killed on drop.
pub struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: [JoinHandle<()>; 2],
}

impl Process {
    /// All lines that the process has printed so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for a line that contains these words. Panics with the output if the process ends
    /// without printing one.
    pub async fn wait_for_line(&self, words: &str) -> String {
        self.find_line(words).await.unwrap_or_else(|| {
            panic!(
                "the process ended without printing {words}: {:#?}",
                self.lines()
            )
        })
    }

    /// Whether the process has exited.
    pub fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("the process was started")
            .is_some()
    }

    /// A client of the process's HTTP port, once the process has logged its address.
    pub async fn http_client(&self) -> HttpClient {
        let line = self.wait_for_line("\"http\":\"127.0.0.1:").await;
        let address = line
            .split("\"http\":\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .expect("a valid address");
        HttpClient::at(address.parse().expect("a valid address"))
    }

    /// Closes the pipes of the process's output: nothing reads it any more.
    pub async fn close_pipes(&mut self) {
        for reader in &mut self.readers {
            reader.abort();
            let _ = reader.await;
        }
    }

    /// The process id; None once this handle has seen the process end.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("the process is killed");
    }

    /// The peak memory of the process in MiB, as Linux reports it.
    pub fn peak_memory(&self) -> u64 {
        peak_memory_of(self.child.id().expect("it runs")).expect("Linux reports the memory")
    }

    /// The peak memory of the process so far in MiB; None where the system does not report it, or
    /// the process has ended.
    pub fn try_peak_memory(&self) -> Option<u64> {
        self.child.id().and_then(peak_memory_of)
    }

    /// Waits until the process exits. Returns its exit code, and the last sample of its peak memory
    /// in MiB before the exit.
    pub async fn wait_for_exit_with_memory(mut self) -> (Option<i32>, u64) {
        let mut peak = 0;
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(5));
        loop {
            tokio::select! {
                ended = self.child.wait() => return (ended.expect("the process ends").code(), peak),
                _ = ticks.tick() => peak = self.child.id().and_then(peak_memory_of).unwrap_or(peak),
            }
        }
    }

    /// Sends SIGTERM.
    pub async fn terminate(&self) {
        self.signal("TERM").await;
    }

    /// Sends a signal by its name. STOP and CONT pause and resume the process.
    pub async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status()
            .await
            .expect("`kill` is installed");
        assert!(sent.success());
    }

    /// Waits for a line that contains these words. None if the process ends without printing one.
    pub async fn find_line(&self, words: &str) -> Option<String> {
        let ended = || self.readers.iter().all(JoinHandle::is_finished);
        eventually(words, async || {
            ended() || self.lines().iter().any(|line| line.contains(words))
        })
        .await;
        self.lines().into_iter().find(|line| line.contains(words))
    }

    /// Waits until the process exits. Returns its exit code; None when a signal ended it.
    pub async fn wait_for_exit(mut self) -> Option<i32> {
        self.child.wait().await.expect("the process ends").code()
    }
}
