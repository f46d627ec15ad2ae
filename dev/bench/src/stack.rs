//! The system that is measured: the `anneal` binary in the same target folder as the benchmark,
//! with its own durable PostgreSQL. Everything that protects a service is on: API keys, row-level
//! security, limits, the audit log.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anneal_local_postgres::{Binaries, LocalPostgres, Settings, Stop, StopOnDrop};
use anneal_proto::{
    convert::message::text_message,
    v1::{
        self as pb, context_service_client::ContextServiceClient,
        conversation_service_client::ConversationServiceClient,
        message_service_client::MessageServiceClient,
        operator_service_client::OperatorServiceClient,
    },
};
use anyhow::Context as _;
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::{
    connection::{self, Channel, Credential},
    database::Database,
    environment,
    process_log::read_log_fields,
    statement_log::{StatementTimes, sum_statements},
};

/// Server and worker processes, and how to reach them.
pub(crate) struct BenchStack {
    /// Stopped even if a measurement fails.
    postgres: StopOnDrop,
    folder: PathBuf,
    server: Child,
    /// `None` in a stack without a worker, where nothing is counted.
    worker: Option<Child>,
    address: String,
    http_address: String,
    /// Of the tenant `default`, for every call.
    credential: Credential,
}

/// Settings of all processes of a stack, as variables. Callers need keys. Rates and quotas are
/// checked, and are higher than any measurement reaches. Most measurements have one tenant, which
/// may use all of a limit.
const SETTINGS: [(&str, &str); 8] = [
    ("ANNEAL_AUTH_API_KEYS", "true"),
    ("ANNEAL_LIMITS_CALLS_PER_SECOND", "1000000000"),
    ("ANNEAL_LIMITS_CALLS_BURST", "1000000000"),
    ("ANNEAL_LIMITS_BYTES_PER_SECOND", "1000000000000"),
    ("ANNEAL_LIMITS_BYTES_BURST", "1000000000000"),
    ("ANNEAL_LIMITS_TENANT_MESSAGES", "1000000000000"),
    ("ANNEAL_LIMITS_TENANT_CONTENT_BYTES", "1000000000000000"),
    ("ANNEAL_LIMITS_TENANT_SHARE_PERCENT", "100"),
];

/// Settings of a PostgreSQL that logs statements: all of them, without the values of their
/// parameters.
const LOGGING: [(&str, &str); 2] = [
    ("log_min_duration_statement", "0"),
    ("log_parameter_max_length", "0"),
];

/// Name of the settings file of a stack's processes, in the stack's folder.
const CONFIG: &str = "anneal.toml";

/// Whether a worker process is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worker {
    Runs,
    Absent,
}

impl BenchStack {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::start_with("").await
    }

    /// Starts a stack whose processes use a settings file with this content.
    pub(crate) async fn start_with(config_text: &str) -> anyhow::Result<Self> {
        Self::start_on(config_text, &[], Worker::Runs).await
    }

    /// Starts a stack without a worker: only the server counts messages, and no job runs.
    pub(crate) async fn start_without_worker() -> anyhow::Result<Self> {
        Self::start_without_worker_with("").await
    }

    /// Starts a stack without a worker, whose processes use a settings file with this content.
    pub(crate) async fn start_without_worker_with(config_text: &str) -> anyhow::Result<Self> {
        Self::start_on(config_text, &[], Worker::Absent).await
    }

    /// Starts a stack whose PostgreSQL logs every statement with its time. The log slows calls
    /// down: it is for statements, not for the latencies of calls.
    pub(crate) async fn start_logging() -> anyhow::Result<Self> {
        Self::start_on("", &LOGGING, Worker::Runs).await
    }

    /// Starts such a stack without a worker, whose processes use a settings file with this content.
    pub(crate) async fn start_logging_without_worker_with(
        config_text: &str,
    ) -> anyhow::Result<Self> {
        Self::start_on(config_text, &LOGGING, Worker::Absent).await
    }

    /// Starts a stack. `extra` are PostgreSQL's settings beyond those of every stack.
    async fn start_on(
        config_text: &str,
        extra: &[(&str, &str)],
        worker: Worker,
    ) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("anneal-bench-{}", Uuid::new_v4().simple()));
        let mut settings = Settings::new(folder.join("postgres"), binaries()?);
        let of_every_stack = [
            ("shared_buffers", "512MB"),
            ("max_wal_size", "4GB"),
            // Enough for pgbench's clients, the server and the worker.
            ("max_connections", "200"),
        ];
        settings.extra = of_every_stack
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        settings.extra.extend(
            extra
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        let postgres = LocalPostgres::start(settings).await?.stop_on_drop();
        let url = postgres.url("postgres");
        environment::record_postgres_settings(&Database::new(&postgres, binaries()?)).await?;
        let config = folder.join(CONFIG);
        std::fs::write(&config, config_text)?;
        let anneal = || anneal(&url, &config);
        run(anneal()?, &["migrate"]).await?;
        let credential = create_key(anneal()?, "default").await?;
        let mut server = anneal()?
            .args([
                "--set",
                "server.grpc_address=127.0.0.1:0",
                "--set",
                "server.http_address=127.0.0.1:0",
                "server",
            ])
            .stderr(Stdio::piped())
            .spawn()?;
        let [address, http_address] = read_log_fields(&mut server, ["grpc", "http"]).await?;
        let arguments = [
            "--set",
            "worker.http_address=127.0.0.1:0",
            "--set",
            "log.filter=error",
            "worker",
        ];
        let worker = match worker {
            Worker::Runs => Some(anneal()?.args(arguments).spawn()?),
            Worker::Absent => None,
        };
        Ok(Self {
            postgres,
            folder,
            server,
            worker,
            address,
            http_address,
            credential,
        })
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.server.kill().await?;
        self.stop_worker().await?;
        self.postgres.stop(Stop::Fast).await?;
        let _ = std::fs::remove_dir_all(&self.folder);
        Ok(())
    }

    /// The end of PostgreSQL's log, for [`Self::statements_since`].
    pub(crate) fn log_end(&self) -> anyhow::Result<usize> {
        Ok(std::fs::metadata(self.postgres.log_path())?.len() as usize)
    }

    /// The statements that PostgreSQL has logged since this end of its log, and for which `wanted`
    /// returns true.
    pub(crate) fn statements_since(
        &self,
        log_end: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> anyhow::Result<StatementTimes> {
        let log = std::fs::read(self.postgres.log_path())?;
        let new = log.get(log_end..).context("PostgreSQL's log got shorter")?;
        Ok(sum_statements(&String::from_utf8_lossy(new), wanted))
    }

    /// The database, for statements outside the service.
    pub(crate) fn database(&self) -> anyhow::Result<Database> {
        Ok(Database::new(&self.postgres, binaries()?))
    }

    /// A command that runs the binary with the settings of this stack's processes.
    pub(crate) fn anneal(&self) -> anyhow::Result<Command> {
        anneal(&self.postgres.url("postgres"), &self.folder.join(CONFIG))
    }

    /// A command that runs the binary of another build on another database of this PostgreSQL, with
    /// the same settings.
    pub(crate) fn anneal_of_build(&self, binary: &Path, database: &str) -> Command {
        command(
            binary,
            &self.postgres.url(database),
            &self.folder.join(CONFIG),
        )
    }

    /// Stops the worker, if there is one. Nothing is counted afterwards.
    pub(crate) async fn stop_worker(&mut self) -> anyhow::Result<()> {
        match self.worker.take() {
            Some(mut worker) => Ok(worker.kill().await?),
            None => Ok(()),
        }
    }

    /// A folder for temporary files of this stack.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Process id of the server.
    pub(crate) fn server_id(&self) -> anyhow::Result<u32> {
        self.server.id().context("the server has ended")
    }

    /// The server's gRPC address, without a scheme.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The server's HTTP address, without a scheme.
    pub(crate) fn http_address(&self) -> &str {
        &self.http_address
    }

    /// The credential of the tenant `default`.
    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Process id of PostgreSQL, the parent of its sessions.
    pub(crate) fn postgres_id(&self) -> anyhow::Result<u32> {
        let file = self.postgres.folder().join("data/postmaster.pid");
        let text = std::fs::read_to_string(file)?;
        let first_line = text.lines().next().unwrap_or_default();
        Ok(first_line.parse()?)
    }

    /// Opens a new connection to the server, for calls of the tenant `default`.
    pub(crate) async fn channel(&self) -> anyhow::Result<Channel> {
        connection::connect(&self.address, &self.credential).await
    }

    /// Creates a tenant, and opens a new connection for its calls.
    pub(crate) async fn channel_of_new_tenant(&self, name: &str) -> anyhow::Result<Channel> {
        run(self.anneal()?, &["tenants", "create", name]).await?;
        let credential = create_key(self.anneal()?, name).await?;
        connection::connect(&self.address, &credential).await
    }

    /// Creates an empty conversation and returns its id.
    pub(crate) async fn create_conversation(
        &self,
        channel: &Channel,
        policy: Option<pb::Policy>,
    ) -> anyhow::Result<String> {
        let ask = pb::CreateConversationRequest {
            policy,
            ..Default::default()
        };
        let made = ConversationServiceClient::new(channel.clone())
            .create_conversation(ask)
            .await?;
        Ok(made.into_inner().conversation_id)
    }

    pub(crate) fn message_client(channel: &Channel) -> MessageServiceClient<Channel> {
        MessageServiceClient::new(channel.clone())
    }

    pub(crate) fn context_client(channel: &Channel) -> ContextServiceClient<Channel> {
        ContextServiceClient::new(channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Waits until the worker has no jobs left.
    pub(crate) async fn wait_until_idle(&self, channel: &Channel) -> anyhow::Result<()> {
        self.wait_until_empty(channel, |_| true).await
    }

    /// Waits until every message is counted.
    pub(crate) async fn wait_for_counts(&self, channel: &Channel) -> anyhow::Result<()> {
        self.wait_until_empty(channel, |kind| kind == pb::JobKind::CountTokens)
            .await
    }

    /// Number of waiting and running jobs of this kind.
    pub(crate) async fn queue_length(
        &self,
        channel: &Channel,
        kind: pb::JobKind,
    ) -> anyhow::Result<i64> {
        Ok(queues(channel)
            .await?
            .iter()
            .filter(|queue| queue.kind() == kind)
            .map(length)
            .sum())
    }

    /// Waits until there are no jobs of the kinds for which `of_these` is true.
    async fn wait_until_empty(
        &self,
        channel: &Channel,
        of_these: impl Fn(pb::JobKind) -> bool,
    ) -> anyhow::Result<()> {
        while queues(channel)
            .await?
            .iter()
            .any(|queue| of_these(queue.kind()) && length(queue) > 0)
        {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

async fn queues(channel: &Channel) -> anyhow::Result<Vec<pb::QueueStats>> {
    let stats = OperatorServiceClient::new(channel.clone())
        .get_queue_stats(pb::GetQueueStatsRequest {})
        .await?;
    Ok(stats.into_inner().queues)
}

fn length(queue: &pb::QueueStats) -> i64 {
    queue.waiting + queue.running
}

/// The PostgreSQL installation in use.
fn binaries() -> anyhow::Result<Binaries> {
    let wanted = std::env::var_os("ANNEAL_PG_BIN").map(PathBuf::from);
    Ok(Binaries::find(wanted.as_deref())?)
}

/// Runs a command of the binary, and returns what it prints.
pub(crate) async fn run(mut anneal: Command, arguments: &[&str]) -> anyhow::Result<String> {
    let ran = anneal.args(arguments).output().await?;
    anyhow::ensure!(
        ran.status.success(),
        "anneal {} failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&ran.stderr).trim()
    );
    Ok(String::from_utf8(ran.stdout)?.trim_end().to_owned())
}

/// Creates a key of a tenant that allows every call.
pub(crate) async fn create_key(anneal: Command, tenant: &str) -> anyhow::Result<Credential> {
    let arguments = [
        "keys",
        "create",
        "--name=benchmark",
        "--verbs=read,append,admin,operator",
        "--tenant",
        tenant,
    ];
    Credential::of_key(&run(anneal, &arguments).await?)
}

/// A command that runs the binary in the same target folder as the benchmark.
fn anneal(url: &str, config: &Path) -> anyhow::Result<Command> {
    let binary = std::env::current_exe()?.with_file_name("anneal");
    anyhow::ensure!(
        binary.is_file(),
        "there is no {}: build anneal-cli with the same profile",
        binary.display()
    );
    Ok(command(&binary, url, config))
}

/// A command that runs a binary on a database, with the settings of all processes.
fn command(binary: &Path, url: &str, config: &Path) -> Command {
    let mut command = Command::new(binary);
    command
        .env("ANNEAL_DATABASE_URL", url)
        .env("ANNEAL_CONFIG", config)
        .envs(SETTINGS)
        .kill_on_drop(true);
    command
}

/// A user's text message.
pub(crate) fn user(text: String) -> pb::NewMessage {
    text_message(pb::Role::User, text)
}
