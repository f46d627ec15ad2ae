//! `anneal dev`: a private PostgreSQL in a folder, migrated; server and worker in this process.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use anneal_local_postgres::{Binaries, LocalPostgres, Settings, Stop};
use anneal_process::{shutdown, telemetry};
use anneal_proto::v1 as pb;
use anneal_server::{Addresses, serve};
use anneal_store::{Migrations, StoreSettings, create_database};
use anyhow::Context as _;
use indicatif::ProgressBar;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Client, refusal},
    command::{DevArguments, ServerArguments},
    config::Config,
    context, import, output, processes, verify,
};

const DATABASE: &str = "anneal";

/// Runs until Ctrl-C; with `--once` imports, waits for the worker, shows, checks, and leaves.
pub(crate) async fn run(mut config: Config, arguments: DevArguments) -> anyhow::Result<ExitCode> {
    config.log.format = telemetry::LogFormat::Text;
    // For grpcurl and its like: who tries things out has no .proto files at hand.
    config.server.reflection = true;
    if arguments.once {
        // What is shown here is the result; the ports are whatever is free, so that another `anneal dev` may run beside.
        config.log.filter = "warn".into();
        config.server.grpc_address.set_port(0);
        config.server.http_address.set_port(0);
    }
    let metrics = telemetry::start(&config.log)?;
    let stop = shutdown::on_signals()?;
    let folder = std::path::absolute(&arguments.folder)?;
    let first = FirstHere::try_lock(&folder)?;
    let postgres = start_postgres(&arguments, &folder).await?;
    let outcome = on_postgres(&postgres, config, arguments, metrics, stop).await;
    if first.is_some() {
        postgres.stop(Stop::Fast).await?;
    }
    outcome
}

/// Whoever runs first in a folder stops its PostgreSQL when it leaves; another `anneal dev` beside it only uses it. The lock
/// goes with the process, however that ends.
struct FirstHere {
    _lock: std::fs::File,
}

impl FirstHere {
    fn try_lock(folder: &Path) -> anyhow::Result<Option<Self>> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", show(folder)))?;
        let lock = std::fs::File::create(folder.join("dev.lock")).context("cannot make the lock file")?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { _lock: lock })),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(error).context("cannot lock the folder"),
        }
    }
}

/// Server and worker on a PostgreSQL that runs.
async fn on_postgres(
    postgres: &LocalPostgres,
    mut config: Config,
    arguments: DevArguments,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    config.database.url = database(postgres).await?;
    processes::fit_connections_to_files(&mut config.server);
    let store = processes::open(&config).await?;
    let access = config.model_access()?;
    let model = config.summarizer_model(&access)?;
    let (open, opened) = oneshot::channel();
    let server = tokio::spawn({
        let (store, stop, setup) = (store.clone(), stop.clone(), config.setup(Arc::clone(&access)));
        async move { serve(store, setup, metrics, open, stop).await }
    });
    let worker = processes::worker_on(store, &config, access, model);
    let worker = tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    let outcome = match opened.await {
        Ok(addresses) => work(postgres, arguments, addresses, &stop).await,
        Err(_) => Ok(ExitCode::FAILURE),
    };
    stop.cancel();
    worker.await.context("the worker panicked")?;
    server.await.context("the server panicked")??;
    outcome
}

/// What happens between start and stop.
async fn work(
    postgres: &LocalPostgres,
    arguments: DevArguments,
    addresses: Addresses,
    stop: &CancellationToken,
) -> anyhow::Result<ExitCode> {
    let server = ServerArguments::at(format!("http://{}", addresses.grpc));
    if !arguments.once {
        greet(postgres, addresses);
    }
    let client = Client::connect(&server).await?;
    let mut imported = Vec::new();
    let ask = import::Ask { policy: arguments.policy.clone(), ..import::Ask::default() };
    let mut report = import::Report::default();
    for file in &arguments.import {
        let ids = import::file(&client, file, &ask, &mut report).await?;
        imported.extend(ids.iter().map(ToString::to_string));
    }
    output::text(&report.remarks());
    if !arguments.once {
        stop.cancelled().await;
        return Ok(ExitCode::SUCCESS);
    }
    settle(&client, stop).await?;
    for conversation in &imported {
        context::outline(&client, conversation).await?;
    }
    verify::check(&client, &imported, false).await
}

async fn start_postgres(arguments: &DevArguments, folder: &Path) -> anyhow::Result<LocalPostgres> {
    let wanted = arguments.pg_bin.as_deref();
    #[cfg(feature = "download")]
    let binaries = Binaries::find_or_download(wanted, &folder.join("download")).await?;
    #[cfg(not(feature = "download"))]
    let binaries = Binaries::find(wanted)?;
    let settings = Settings::new(folder.join("postgres"), binaries);
    LocalPostgres::start(settings).await.with_context(|| format!("no PostgreSQL in {}", show(folder)))
}

fn show(folder: &Path) -> std::path::Display<'_> {
    folder.display()
}

/// The URL of the migrated database.
async fn database(postgres: &LocalPostgres) -> anyhow::Result<String> {
    create_database(&postgres.url("postgres"), DATABASE, None).await?;
    let url = postgres.url(DATABASE);
    Migrations::connect(&StoreSettings::at(&url)).await?.run(Duration::from_secs(30)).await.with_context(|| {
        format!("the schema cannot be brought up to date; to begin anew, remove {}", show(postgres.folder()))
    })?;
    Ok(url)
}

fn greet(postgres: &LocalPostgres, addresses: Addresses) {
    let adopted = if postgres.adopted() { ", was running already" } else { "" };
    output::line("anneal is up. Ctrl-C stops it; the data stays.\n");
    output::line(format_args!("  gRPC        {}  (reflection is on)", addresses.grpc));
    output::line(format_args!(
        "  HTTP        http://{0}/healthz  http://{0}/readyz  http://{0}/metrics",
        addresses.http
    ));
    output::line(format_args!("  PostgreSQL  {}  ({}{adopted})", for_a_shell(postgres), postgres.version()));
    output::line(format_args!("  data        {}", show(postgres.folder())));
    output::line(format_args!("  log         {}\n", show(&postgres.log_path())));
    output::line("  anneal import FILE          imports a conversation");
    output::line("  anneal context CONVERSATION shows what would be sent to the model next\n");
}

/// The database's URL, its password for a shell to fill in: `--database-url "…"`.
fn for_a_shell(postgres: &LocalPostgres) -> String {
    let file = show(&postgres.password_path()).to_string().replace('\'', r"'\''");
    postgres.url(DATABASE).replace(postgres.password(), &format!("$(cat '{file}')"))
}

/// Starts after which a job that still fails ends the waiting.
const TRIES: i32 = 3;

/// Waits until no job is left to run, or one fails again and again.
async fn settle(client: &Client, stop: &CancellationToken) -> anyhow::Result<()> {
    let progress = ProgressBar::new_spinner().with_message("waiting for the worker");
    while !stop.is_cancelled() {
        progress.tick();
        let ask = pb::ListJobsRequest { page_size: 500, ..Default::default() };
        let jobs = client.operators().list_jobs(ask).await.map_err(|status| refusal(&status))?.into_inner().jobs;
        let failing = jobs.iter().find(|job| job.attempts >= TRIES && !job.last_error.is_empty());
        if let Some(job) = failing {
            anyhow::bail!("a job of {} keeps failing: {}", job.conversation_id, job.last_error);
        }
        if jobs.is_empty() {
            progress.finish_and_clear();
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("stopped before the jobs were done")
}
