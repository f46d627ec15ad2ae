//! Whole processes of the binary, each with settings of the test's own, in a folder of the test's own.

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

use crate::{Line, Web, eventually, postgres_binaries};

/// A folder that is gone when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// An empty folder.
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("anneal-test-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(&path).expect("a folder under the system's temporary one");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it, with this text.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("writes");
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

/// A durable PostgreSQL of the test's own, with a migrated database.
pub struct OwnPostgres {
    /// The database's URL; stays the same over restarts.
    pub url: String,
    line: Line,
    postgres: StopOnDrop,
    settings: Settings,
    _folder: Folder,
}

impl OwnPostgres {
    /// Makes and starts it.
    pub async fn start() -> Self {
        let folder = Folder::new();
        let settings = Settings::new(folder.path().join("postgres"), postgres_binaries());
        let postgres = LocalPostgres::start(settings.clone()).await.expect("a cluster of the test's own");
        create_database(&postgres.url("postgres"), "anneal", None).await.expect("a database");
        let (line, url) = Line::to(&postgres.url("anneal")).await;
        let mut migrations = Migrations::connect(&StoreSettings::at(&url)).await.expect("connects");
        migrations.run(std::time::Duration::from_secs(30)).await.expect("migrates");
        Self { url, line, postgres: postgres.stop_on_drop(), settings, _folder: folder }
    }

    /// The statements that it has logged, in order; there are some where `log_statement` is set.
    pub fn statements(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.postgres.log_path()).expect("PostgreSQL keeps a log");
        let entries =
            log.split("LOG:  ").filter(|entry| entry.starts_with("execute ") || entry.starts_with("statement: "));
        entries.map(str::to_owned).collect()
    }

    /// Stops it at once, as a crash would.
    pub async fn crash(&self) {
        self.postgres.stop(anneal_local_postgres::Stop::Immediate).await.expect("stops");
    }

    /// Starts it again. Another process may have taken its port meanwhile; the URL leads to the new one.
    pub async fn restart(&self) {
        let started = LocalPostgres::start(self.settings.clone()).await.expect("starts again");
        self.line.leads_to(started.port());
    }
}

/// How processes are started.
#[derive(Clone)]
pub struct Anneal {
    binary: &'static str,
    folder: PathBuf,
    url: String,
    environment: Vec<(&'static str, String)>,
    failpoints: String,
}

impl Anneal {
    /// The binary (`env!("CARGO_BIN_EXE_anneal-under-test")`), on this database of the test cluster, in this folder. That
    /// cluster may lose what it acknowledges, and the binary is allowed to start there.
    pub fn new(binary: &'static str, folder: &Folder, url: &str) -> Self {
        Self::on_durable(binary, folder, url).with_variable("ANNEAL_DATABASE_ALLOW_DATA_LOSS", "true")
    }

    /// The same on a database that loses nothing, without the allowance.
    pub fn on_durable(binary: &'static str, folder: &Folder, url: &str) -> Self {
        let (environment, failpoints) = (Vec::new(), String::new());
        Self { binary, folder: folder.path().to_owned(), url: url.to_owned(), environment, failpoints }
    }

    /// The same, with faults at named places: what the crate `fail` reads from `FAILPOINTS`.
    #[must_use]
    pub fn failing(&self, failpoints: &str) -> Self {
        Self { failpoints: failpoints.to_owned(), ..self.clone() }
    }

    /// The same processes on this database.
    #[must_use]
    pub fn at(mut self, url: &str) -> Self {
        url.clone_into(&mut self.url);
        self
    }

    /// The same processes with this variable set.
    #[must_use]
    pub fn with_variable(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.binary);
        let settings = std::env::vars_os().map(|(key, _)| key);
        for key in settings.filter(|key| key.to_string_lossy().starts_with("ANNEAL_")) {
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
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub async fn run(&self, arguments: &[&str]) -> Ran {
        let ran = self.command(arguments).output().await.expect("the binary runs");
        Ran::from(ran)
    }

    /// Runs a command to its end whose output nobody reads.
    pub async fn unheard(&self, arguments: &[&str]) -> Ran {
        let (nobody, output) = std::io::pipe().expect("a pipe");
        drop(nobody);
        let mut command = self.command(arguments);
        let child = command.stdout(output).stderr(Stdio::piped()).spawn().expect("the binary starts");
        Ran::from(child.wait_with_output().await.expect("the binary runs"))
    }

    /// Runs a command to its end, with this on its standard input.
    pub async fn fed(&self, arguments: &[&str], input: &str) -> Ran {
        let mut command = self.command(arguments);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("is piped");
        // Who has left before the end does not read it.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        Ran::from(child.wait_with_output().await.expect("the binary runs"))
    }

    /// Starts a command that stays; its lines are kept.
    pub fn start(&self, arguments: &[&str]) -> Process {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let said = Arc::<Mutex<Vec<String>>>::default();
        let out = keep(child.stdout.take().expect("is piped"), &said);
        let err = keep(child.stderr.take().expect("is piped"), &said);
        Process { child, said, readers: [out, err] }
    }

    /// Starts a server on any free port and waits until it serves. Returns it with its gRPC port.
    pub async fn server(&self) -> (Process, u16) {
        let started = self.try_server(&[]).await;
        started.unwrap_or_else(|ended| panic!("it ended without serving: {:#?}", ended.lines()))
    }

    /// The same with these settings beside; a process that has ended instead.
    pub async fn try_server(&self, more: &[&str]) -> Result<(Process, u16), Process> {
        let mut arguments = vec!["server"];
        let settings =
            ["server.grpc_address=127.0.0.1:0", "server.http_address=127.0.0.1:0", "server.drain_delay_ms=50"];
        arguments.extend(settings.iter().chain(more).flat_map(|setting| ["--set", *setting]));
        let server = self.start(&arguments);
        let address = server.says("\"grpc\":\"127.0.0.1:").await.unwrap_or_default();
        let after = address.split("\"grpc\":\"127.0.0.1:").nth(1).and_then(|rest| rest.split('"').next());
        match after.and_then(|port| port.parse().ok()) {
            Some(port) => Ok((server, port)),
            None => Err(server),
        }
    }

    /// Starts a worker and waits until it works.
    pub async fn worker(&self) -> Process {
        let worker = self.start(&["worker", "--set", "worker.http_address=127.0.0.1:0", "--set", "worker.poll_ms=100"]);
        worker.said("working as").await;
        worker
    }
}

fn keep(lines: impl AsyncRead + Unpin + Send + 'static, said: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let (mut lines, said) = (BufReader::new(lines).lines(), Arc::clone(said));
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            said.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    })
}

/// A command that has ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code.
    pub code: Option<i32>,
    /// What it printed.
    pub out: String,
    /// What it said on standard error.
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// The most memory that this process has held since it began, in MiB; None when it is gone. The pages of its program file are
/// not counted: they are the system's to drop, and an unoptimised build has three times as many.
fn memory(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let figure = |name: &str| {
        let figure = status.lines().find_map(|line| line.strip_prefix(name))?;
        figure.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    Some(figure("VmHWM:")?.saturating_sub(figure("RssFile:")?) / 1_024)
}

/// A process that stays until it is told to go; killed when dropped.
pub struct Process {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
    readers: [JoinHandle<()>; 2],
}

impl Process {
    /// Everything that it has said.
    pub fn lines(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line with these words; fails with what was said when it ends without them.
    pub async fn said(&self, words: &str) -> String {
        self.says(words).await.unwrap_or_else(|| panic!("it ended without saying {words}: {:#?}", self.lines()))
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it was started").is_some()
    }

    /// Its HTTP door, once it has said where that is.
    pub async fn door(&self) -> Web {
        let said = self.said("\"http\":\"127.0.0.1:").await;
        let address = said.split("\"http\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an address");
        Web::at(address.parse().expect("an address"))
    }

    /// From now on nobody reads what it says: its pipes are closed.
    pub async fn stop_listening(&mut self) {
        for reader in &mut self.readers {
            reader.abort();
            let _ = reader.await;
        }
    }

    /// Its number among the system's processes; None when it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// kill -9, and waits until it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("kills");
    }

    /// The most memory that it has held since it began, in MiB, as Linux says.
    pub fn most_memory(&self) -> u64 {
        memory(self.child.id().expect("it runs")).expect("Linux says it")
    }

    /// The most memory that it has taken so far, in MiB; None where the system does not say, or it has ended.
    pub fn memory(&self) -> Option<u64> {
        self.child.id().and_then(memory)
    }

    /// Waits for its end; its exit code, and the most memory that was seen until shortly before, in MiB.
    pub async fn ended_with_memory(mut self) -> (Option<i32>, u64) {
        let mut most = 0;
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
        loop {
            tokio::select! {
                ended = self.child.wait() => return (ended.expect("ends").code(), most),
                _ = looks.tick() => most = self.child.id().and_then(memory).unwrap_or(most),
            }
        }
    }

    /// Sends SIGTERM.
    pub async fn terminate(&self) {
        self.signal("TERM").await;
    }

    /// Sends a signal by its name: STOP and CONT make it stand still for a while.
    pub async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().await.expect("kill is there");
        assert!(sent.success());
    }

    /// Waits for a line with these words; None when it ends without them.
    pub async fn says(&self, words: &str) -> Option<String> {
        let ended = || self.readers.iter().all(JoinHandle::is_finished);
        eventually(words, async || ended() || self.lines().iter().any(|line| line.contains(words))).await;
        self.lines().into_iter().find(|line| line.contains(words))
    }

    /// Waits for its end; its exit code, None when a signal ended it.
    pub async fn ended(mut self) -> Option<i32> {
        self.child.wait().await.expect("ends").code()
    }
}
