//! What is measured: the `anneal` binary beside this one, on a durable PostgreSQL of its own.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anneal_local_postgres::{Binaries, LocalPostgres, Settings, Stop};
use anneal_proto::v1::{
    self as pb, context_service_client::ContextServiceClient, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient,
};
use anyhow::Context as _;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

/// Server and worker processes, and the way to them.
pub(crate) struct House {
    postgres: LocalPostgres,
    folder: PathBuf,
    server: Child,
    worker: Child,
    address: String,
}

impl House {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::start_with("").await
    }

    /// A house whose processes read this settings file.
    pub(crate) async fn start_with(file: &str) -> anyhow::Result<Self> {
        Self::start_on(file, &[]).await
    }

    /// A house whose PostgreSQL logs every statement: for counting, not for timing.
    pub(crate) async fn start_logging() -> anyhow::Result<Self> {
        Self::start_on("", &[("log_statement", "all")]).await
    }

    async fn start_on(file: &str, extra: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("anneal-bench-{}", Uuid::new_v4().simple()));
        let wanted = std::env::var_os("ANNEAL_PG_BIN").map(PathBuf::from);
        let mut settings = Settings::new(folder.join("postgres"), Binaries::find(wanted.as_deref())?);
        settings.extra = vec![("shared_buffers".into(), "512MB".into()), ("max_wal_size".into(), "4GB".into())];
        settings.extra.extend(extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let postgres = LocalPostgres::start(settings).await?;
        let url = postgres.url("postgres");
        let config = folder.join("anneal.toml");
        std::fs::write(&config, file)?;
        let anneal = || anneal(&url, &config);
        let migrated = anneal()?.arg("migrate").stdout(Stdio::null()).status().await?;
        anyhow::ensure!(migrated.success(), "anneal migrate failed");
        let mut server = anneal()?
            .args(["--set", "server.grpc_address=127.0.0.1:0", "--set", "server.http_address=127.0.0.1:0", "server"])
            .stderr(Stdio::piped())
            .spawn()?;
        let address = format!("http://{}", grpc_address(&mut server).await?);
        let worker = anneal()?
            .args(["--set", "worker.http_address=127.0.0.1:0", "--set", "log.filter=warn", "worker"])
            .spawn()?;
        Ok(Self { postgres, folder, server, worker, address })
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.server.kill().await?;
        self.worker.kill().await?;
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
        loop {
            let stats =
                OperatorServiceClient::new(channel.clone()).get_queue_stats(pb::GetQueueStatsRequest {}).await?;
            if stats.into_inner().queues.iter().all(|queue| queue.waiting + queue.running == 0) {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}

/// The binary that was built beside this one.
fn anneal(url: &str, config: &Path) -> anyhow::Result<Command> {
    let beside = std::env::current_exe()?.with_file_name("anneal");
    anyhow::ensure!(beside.is_file(), "there is no {}: build anneal-cli with the same profile", beside.display());
    let mut command = Command::new(beside);
    command.env("ANNEAL_DATABASE_URL", url).env("ANNEAL_CONFIG", config).kill_on_drop(true);
    Ok(command)
}

/// Reads the server's log until it says where it listens; the rest is read and dropped.
async fn grpc_address(server: &mut Child) -> anyhow::Result<String> {
    let mut lines = BufReader::new(server.stderr.take().context("the server's log")?).lines();
    while let Some(line) = lines.next_line().await? {
        let entry: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(address) = entry.get("grpc").and_then(serde_json::Value::as_str) {
            let address = address.to_owned();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(address);
        }
    }
    anyhow::bail!("the server ended before it listened")
}

/// A user's text message.
pub(crate) fn user(text: String) -> pb::NewMessage {
    let part = pb::part::Part::Text(pb::TextPart { text });
    pb::NewMessage { role: pb::Role::User.into(), parts: vec![pb::Part { part: Some(part) }], ..Default::default() }
}
