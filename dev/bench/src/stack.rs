//! The system that is measured: the `anneal` binary in the same target folder as the benchmark,
//! with its own durable PostgreSQL.

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
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use crate::{database::Database, environment, process_log::read_log_field};

/// Server and worker processes, and how to reach them.
pub(crate) struct BenchStack {
    /// Stopped even if a measurement fails.
    postgres: StopOnDrop,
    folder: PathBuf,
    server: Child,
    /// `None` in a stack without a worker, where nothing is counted.
    worker: Option<Child>,
    address: String,
}

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

    /// Starts a stack without a worker: appended messages are not counted.
    pub(crate) async fn start_without_worker() -> anyhow::Result<Self> {
        Self::start_on("", &[], Worker::Absent).await
    }

    /// Starts a stack whose PostgreSQL logs every statement: for counting statements, not for
    /// timing.
    pub(crate) async fn start_logging() -> anyhow::Result<Self> {
        Self::start_on("", &[("log_statement", "all")], Worker::Runs).await
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
        migrate(anneal()?).await?;
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
        let address = format!("http://{}", read_log_field(&mut server, "grpc").await?);
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
        })
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.server.kill().await?;
        self.stop_worker().await?;
        self.postgres.stop(Stop::Fast).await?;
        let _ = std::fs::remove_dir_all(&self.folder);
        Ok(())
    }

    /// Counts the executed statements in PostgreSQL's log for which `wanted` returns true.
    pub(crate) fn count_statements(&self, wanted: impl Fn(&str) -> bool) -> anyhow::Result<usize> {
        let log = std::fs::read_to_string(self.postgres.log_path())?;
        let executed = log
            .split("LOG:  ")
            .filter(|entry| entry.starts_with("execute "));
        Ok(executed.filter(|entry| wanted(entry)).count())
    }

    /// The database, for statements outside the service.
    pub(crate) fn database(&self) -> anyhow::Result<Database> {
        Ok(Database::new(&self.postgres, binaries()?))
    }

    /// Creates a second database in this stack's PostgreSQL, with anneal's schema and no data.
    pub(crate) async fn create_database(&self, name: &str) -> anyhow::Result<Database> {
        let first = self.database()?;
        first.run(&format!("create database {name}")).await?;
        migrate(anneal(&self.postgres.url(name), &self.config())?).await?;
        Ok(first.with_name(name))
    }

    /// A command that runs the binary with the settings of this stack's processes.
    pub(crate) fn anneal(&self) -> anyhow::Result<Command> {
        anneal(&self.postgres.url("postgres"), &self.config())
    }

    fn config(&self) -> PathBuf {
        self.folder.join(CONFIG)
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

    /// Opens a new connection to the server.
    pub(crate) async fn channel(&self) -> anyhow::Result<Channel> {
        Ok(Endpoint::from_shared(self.address.clone())?
            .tcp_nodelay(true)
            .connect()
            .await?)
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

async fn migrate(mut anneal: Command) -> anyhow::Result<()> {
    let migrated = anneal.arg("migrate").stdout(Stdio::null()).status().await?;
    anyhow::ensure!(migrated.success(), "anneal migrate failed");
    Ok(())
}

/// A command that runs the binary in the same target folder as the benchmark.
fn anneal(url: &str, config: &Path) -> anyhow::Result<Command> {
    let binary = std::env::current_exe()?.with_file_name("anneal");
    anyhow::ensure!(
        binary.is_file(),
        "there is no {}: build anneal-cli with the same profile",
        binary.display()
    );
    let mut command = Command::new(binary);
    command
        .env("ANNEAL_DATABASE_URL", url)
        .env("ANNEAL_CONFIG", config)
        .kill_on_drop(true);
    Ok(command)
}

/// A user's text message.
pub(crate) fn user(text: String) -> pb::NewMessage {
    text_message(pb::Role::User, text)
}
