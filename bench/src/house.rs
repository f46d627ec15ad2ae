//! What is measured: the `anneal` binary beside this one, on a durable PostgreSQL of its own.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anneal_local_postgres::{Binaries, LocalPostgres, Settings, Stop, StopOnDrop};
use anneal_proto::v1::{
    self as pb, context_service_client::ContextServiceClient, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient,
};
use anyhow::Context as _;
use tokio::process::{Child, Command};
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use crate::{database::Database, processes, surroundings};

/// Server and worker processes, and the way to them.
pub(crate) struct House {
    /// Stopped also where a measurement fails.
    postgres: StopOnDrop,
    folder: PathBuf,
    server: Child,
    /// None in a house where nobody counts.
    worker: Option<Child>,
    address: String,
}

/// The settings file of a house's processes, in its folder.
const CONFIG: &str = "anneal.toml";

/// Whether a worker process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worker {
    Runs,
    Absent,
}

impl House {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::start_with("").await
    }

    /// A house whose processes read this settings file.
    pub(crate) async fn start_with(file: &str) -> anyhow::Result<Self> {
        Self::start_on(file, &[], Worker::Runs).await
    }

    /// A house without a worker: what is appended is not counted.
    pub(crate) async fn start_without_worker() -> anyhow::Result<Self> {
        Self::start_on("", &[], Worker::Absent).await
    }

    /// A house whose PostgreSQL logs every statement: for counting, not for timing.
    pub(crate) async fn start_logging() -> anyhow::Result<Self> {
        Self::start_on("", &[("log_statement", "all")], Worker::Runs).await
    }

    async fn start_on(file: &str, extra: &[(&str, &str)], worker: Worker) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("anneal-bench-{}", Uuid::new_v4().simple()));
        let mut settings = Settings::new(folder.join("postgres"), binaries()?);
        // So many connections that pgbench's clients find room beside the server's and the worker's.
        let own = [("shared_buffers", "512MB"), ("max_wal_size", "4GB"), ("max_connections", "200")];
        settings.extra = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        settings.extra.extend(extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let postgres = LocalPostgres::start(settings).await?.stop_on_drop();
        let url = postgres.url("postgres");
        surroundings::note(&Database::new(&postgres, binaries()?)).await?;
        let config = folder.join(CONFIG);
        std::fs::write(&config, file)?;
        let anneal = || anneal(&url, &config);
        migrate(anneal()?).await?;
        let mut server = anneal()?
            .args(["--set", "server.grpc_address=127.0.0.1:0", "--set", "server.http_address=127.0.0.1:0", "server"])
            .stderr(Stdio::piped())
            .spawn()?;
        let address = format!("http://{}", processes::said(&mut server, "grpc").await?);
        let arguments = ["--set", "worker.http_address=127.0.0.1:0", "--set", "log.filter=error", "worker"];
        let worker = match worker {
            Worker::Runs => Some(anneal()?.args(arguments).spawn()?),
            Worker::Absent => None,
        };
        Ok(Self { postgres, folder, server, worker, address })
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.server.kill().await?;
        self.stop_worker().await?;
        self.postgres.stop(Stop::Fast).await?;
        let _ = std::fs::remove_dir_all(&self.folder);
        Ok(())
    }

    /// How many of the executed statements in PostgreSQL's log are `wanted`, by their texts.
    pub(crate) fn statements(&self, wanted: impl Fn(&str) -> bool) -> anyhow::Result<usize> {
        let log = std::fs::read_to_string(self.postgres.log_path())?;
        let executed = log.split("LOG:  ").filter(|entry| entry.starts_with("execute "));
        Ok(executed.filter(|entry| wanted(entry)).count())
    }

    /// The database, for statements that are not the service's.
    pub(crate) fn database(&self) -> anyhow::Result<Database> {
        Ok(Database::new(&self.postgres, binaries()?))
    }

    /// A second, empty database of this house's PostgreSQL, with anneal's schema.
    pub(crate) async fn second_database(&self, name: &str) -> anyhow::Result<Database> {
        let first = self.database()?;
        first.run(&format!("create database {name}")).await?;
        migrate(anneal(&self.postgres.url(name), &self.config())?).await?;
        Ok(first.beside(name))
    }

    /// The binary with the settings of this house's processes.
    pub(crate) fn anneal(&self) -> anyhow::Result<Command> {
        anneal(&self.postgres.url("postgres"), &self.config())
    }

    fn config(&self) -> PathBuf {
        self.folder.join(CONFIG)
    }

    /// Ends the worker, where there is one: from then on nobody counts.
    pub(crate) async fn stop_worker(&mut self) -> anyhow::Result<()> {
        match self.worker.take() {
            Some(mut worker) => Ok(worker.kill().await?),
            None => Ok(()),
        }
    }

    /// A folder for what is written while the house stands.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server's process.
    pub(crate) fn server_id(&self) -> anyhow::Result<u32> {
        self.server.id().context("the server has ended")
    }

    /// A connection of its own.
    pub(crate) async fn channel(&self) -> anyhow::Result<Channel> {
        Ok(Endpoint::from_shared(self.address.clone())?.tcp_nodelay(true).connect().await?)
    }

    /// An empty conversation.
    pub(crate) async fn conversation(&self, channel: &Channel, policy: Option<pb::Policy>) -> anyhow::Result<String> {
        let ask = pb::CreateConversationRequest { policy, ..Default::default() };
        let made = ConversationServiceClient::new(channel.clone()).create_conversation(ask).await?;
        Ok(made.into_inner().conversation_id)
    }

    pub(crate) fn messages(channel: &Channel) -> MessageServiceClient<Channel> {
        MessageServiceClient::new(channel.clone())
    }

    pub(crate) fn contexts(channel: &Channel) -> ContextServiceClient<Channel> {
        ContextServiceClient::new(channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Waits until the worker has nothing left to do.
    pub(crate) async fn settle(&self, channel: &Channel) -> anyhow::Result<()> {
        self.drained(channel, |_| true).await
    }

    /// Waits until every message is counted.
    pub(crate) async fn counted(&self, channel: &Channel) -> anyhow::Result<()> {
        self.drained(channel, |kind| kind == pb::JobKind::CountTokens).await
    }

    /// Jobs of this kind that wait or run.
    pub(crate) async fn queued(&self, channel: &Channel, kind: pb::JobKind) -> anyhow::Result<i64> {
        Ok(queues(channel).await?.iter().filter(|queue| queue.kind() == kind).map(length).sum())
    }

    async fn drained(&self, channel: &Channel, of_these: impl Fn(pb::JobKind) -> bool) -> anyhow::Result<()> {
        while queues(channel).await?.iter().any(|queue| of_these(queue.kind()) && length(queue) > 0) {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

async fn queues(channel: &Channel) -> anyhow::Result<Vec<pb::QueueStats>> {
    let stats = OperatorServiceClient::new(channel.clone()).get_queue_stats(pb::GetQueueStatsRequest {}).await?;
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

/// The binary that was built beside this one.
fn anneal(url: &str, config: &Path) -> anyhow::Result<Command> {
    let beside = std::env::current_exe()?.with_file_name("anneal");
    anyhow::ensure!(beside.is_file(), "there is no {}: build anneal-cli with the same profile", beside.display());
    let mut command = Command::new(beside);
    command.env("ANNEAL_DATABASE_URL", url).env("ANNEAL_CONFIG", config).kill_on_drop(true);
    Ok(command)
}

/// A user's text message.
pub(crate) fn user(text: String) -> pb::NewMessage {
    let part = pb::part::Part::Text(pb::TextPart { text });
    pb::NewMessage { role: pb::Role::User.into(), parts: vec![pb::Part { part: Some(part) }], ..Default::default() }
}
