//! `anneal dev`: server and worker in one process, on a private PostgreSQL in a folder.

use std::{
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anneal_local_postgres::{Binaries, LocalPostgres, Settings, Stop};
use anneal_process::{
    exporter::MetricsExporter,
    shutdown,
    telemetry::{self, Telemetry},
};
use anneal_proto::v1 as pb;
use anneal_server::{Addresses, serve};
use anneal_store::{Migrations, StoreSettings, create_database};
use anyhow::Context as _;
use indicatif::ProgressBar;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Client, failed_call},
    command::DevArguments,
    config::Config,
    context,
    environment::log_service_links,
    import, output, processes,
    server_arguments::ServerArguments,
    session_index::LastIndex,
    verify::{self, MissingConversation},
};

/// The name of the database.
const DATABASE: &str = "anneal";

/// Runs until Ctrl-C. With `--once`: imports, waits for the worker, prints the contexts, verifies
/// and ends.
pub(crate) async fn run(mut config: Config, arguments: DevArguments) -> anyhow::Result<ExitCode> {
    config.log.format = telemetry::LogFormat::Text;
    // With reflection, grpcurl and similar tools need no .proto files.
    config.server.reflection = true;
    config.web.enabled.get_or_insert(true);
    if arguments.once {
        // Logs would mix with the result. Free ports let another `anneal dev` run at the same time.
        config.log.filter = "warn".into();
        config.server.grpc_address.set_port(0);
        config.server.http_address.set_port(0);
    }
    let Telemetry {
        metrics, traces, ..
    } = telemetry::start(&config.log, &config.metrics, &config.tracing)?;
    log_service_links(&config.service_links);
    let stop = shutdown::cancel_on_signals()?;
    let folder = std::path::absolute(&arguments.folder)?;
    let folder_lock = FolderLock::try_lock(&folder)?;
    let (postgres, settings) = start_postgres(&arguments, &folder).await?;
    let outcome = run_on_postgres(&postgres, settings, config, arguments, metrics, stop).await;
    traces.shut_down().await;
    let folder_lock = match folder_lock {
        Some(lock) => Some(lock),
        None => FolderLock::try_lock(&folder)?,
    };
    if folder_lock.is_some() {
        postgres.stop(Stop::Fast).await?;
    }
    outcome
}

/// The lock of one `anneal dev` in a folder. The process that holds it stops PostgreSQL at its end.
/// Another `anneal dev` starts PostgreSQL again if it goes on, and takes the lock at its own end.
/// The operating system releases the lock when the process ends.
struct FolderLock {
    _lock: std::fs::File,
}

impl FolderLock {
    /// None if another `anneal dev` holds the lock.
    fn try_lock(folder: &Path) -> anyhow::Result<Option<Self>> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", display(folder)))?;
        let lock = std::fs::File::create(folder.join("dev.lock"))
            .context("cannot create the lock file")?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { _lock: lock })),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => {
                Err(error).context("cannot lock the folder")
            }
        }
    }
}

/// Runs server and worker on this PostgreSQL. Starts it again if its process ends.
async fn run_on_postgres(
    postgres: &LocalPostgres,
    settings: Settings,
    mut config: Config,
    arguments: DevArguments,
    metrics: MetricsExporter,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    config.database.url = migrate_database(postgres).await?;
    processes::fit_connections_to_files(&mut config.server);
    let store = processes::open_store(&config).await?;
    let access = config.model_access()?;
    let model = config.summarizer_model(&access)?;
    let has_page = config.web.is_on(&config.auth);
    let (addresses_sender, addresses_receiver) = oneshot::channel();
    let server = tokio::spawn({
        let (store, stop, setup) = (
            store.clone(),
            stop.clone(),
            config.setup(Arc::clone(&access)),
        );
        async move { serve(store, setup, metrics, addresses_sender, stop).await }
    });
    let worker = processes::build_worker(store, &config, access, model);
    let worker = tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    // Boxed, because `select!` would hold this large future twice.
    let work = Box::pin(async {
        match addresses_receiver.await {
            Ok(addresses) => {
                import_and_wait(postgres, arguments, (addresses, has_page), &stop).await
            }
            // The server ended before it listened. If it failed, its error is returned below.
            Err(_) => Ok(ExitCode::FAILURE),
        }
    });
    let outcome = tokio::select! {
        outcome = work => outcome,
        Err(error) = keep_postgres_running(postgres, settings, &stop) => Err(error),
    };
    stop.cancel();
    worker.await.context("the worker panicked")?;
    server.await.context("the server panicked")??;
    outcome
}

/// If PostgreSQL ends this often within [`ENDS_INTERVAL`], it is not started again.
const MAX_ENDS: usize = 3;
const ENDS_INTERVAL: Duration = Duration::from_mins(1);

/// Starts PostgreSQL again, on its port, each time its process ends. Returns when `stop` is
/// cancelled; an error if PostgreSQL cannot be started again, or ends again and again.
async fn keep_postgres_running(
    postgres: &LocalPostgres,
    settings: Settings,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    // Server and worker connect to this port again.
    let settings = Settings {
        port: Some(postgres.port()),
        ..settings
    };
    let log = postgres.log_path();
    let cannot_start = || {
        format!(
            "PostgreSQL cannot be started again; see its log {}, remove the cause, and run `anneal dev` again: the \
             data stays",
            display(&log)
        )
    };
    let mut ends: Vec<Instant> = Vec::new();
    while let Some(ended) = stop.run_until_cancelled(postgres.wait_for_end()).await {
        ended?;
        // The service manager may have sent the signal to stop to both processes.
        if stop.is_cancelled() {
            break;
        }
        ends.retain(|end| end.elapsed() < ENDS_INTERVAL);
        ends.push(Instant::now());
        if ends.len() >= MAX_ENDS {
            let error = anyhow::anyhow!("it has ended {MAX_ENDS} times within a minute");
            return Err(error.context(cannot_start()));
        }
        output::print_note(format_args!(
            "anneal: PostgreSQL has ended and is started again; its log is {}",
            display(&log)
        ));
        // In a new folder, PostgreSQL would have another password and no data.
        anyhow::ensure!(
            postgres.password_path().exists(),
            "PostgreSQL cannot be started again, because {} was removed; run `anneal dev` again to start without data",
            display(postgres.folder())
        );
        LocalPostgres::start(settings.clone())
            .await
            .with_context(cannot_start)?;
    }
    Ok(())
}

/// Imports the files, then waits for a signal. With `--once` waits for the worker instead, prints
/// the contexts and verifies the conversations.
async fn import_and_wait(
    postgres: &LocalPostgres,
    arguments: DevArguments,
    (addresses, has_page): (Addresses, bool),
    stop: &CancellationToken,
) -> anyhow::Result<ExitCode> {
    let server = ServerArguments::at(format!("http://{}", addresses.grpc));
    if !arguments.once {
        print_welcome(postgres, addresses, has_page);
    }
    let client = Client::connect(&server).await?;
    let mut imported = Vec::new();
    let options = import::ImportOptions {
        policy: arguments.policy.clone(),
        ..import::ImportOptions::default()
    };
    let mut report = import::Report::default();
    let index = LastIndex::default();
    for file in &arguments.import {
        let ids = import::import_file(&client, file, (&options, &index), &mut report).await?;
        imported.extend(ids.iter().map(ToString::to_string));
    }
    output::print(&report.remarks());
    if !arguments.once {
        stop.cancelled().await;
        return Ok(ExitCode::SUCCESS);
    }
    wait_for_jobs(&client, stop).await?;
    for conversation in &imported {
        context::print_outline(&client, conversation).await?;
    }
    verify::check_conversations(&client, &imported, MissingConversation::IsError).await
}

async fn start_postgres(
    arguments: &DevArguments,
    folder: &Path,
) -> anyhow::Result<(LocalPostgres, Settings)> {
    let pg_bin = arguments.pg_bin.as_deref();
    #[cfg(feature = "download")]
    let binaries = Binaries::find_or_download(pg_bin, &folder.join("download")).await?;
    #[cfg(not(feature = "download"))]
    let binaries = Binaries::find(pg_bin)?;
    let settings = Settings::new(folder.join("postgres"), binaries);
    let postgres = LocalPostgres::start(settings.clone())
        .await
        .with_context(|| format!("cannot start PostgreSQL in {}", display(folder)))?;
    Ok((postgres, settings))
}

fn display(folder: &Path) -> std::path::Display<'_> {
    folder.display()
}

/// Creates and migrates the database. Returns its URL.
async fn migrate_database(postgres: &LocalPostgres) -> anyhow::Result<String> {
    create_database(&postgres.url("postgres"), DATABASE, None).await?;
    let url = postgres.url(DATABASE);
    Migrations::connect(&StoreSettings::at(&url))
        .await?
        .run(Duration::from_secs(30))
        .await
        .with_context(|| {
            format!(
                "the schema cannot be brought up to date; to start without data, remove {}",
                display(postgres.folder())
            )
        })?;
    Ok(url)
}

fn print_welcome(postgres: &LocalPostgres, addresses: Addresses, has_page: bool) {
    let running_note = if postgres.adopted() {
        ", was already running"
    } else {
        ""
    };
    output::print_line("anneal is up. Ctrl-C stops it; the data stays.\n");
    if has_page {
        output::print_line(format_args!("  page        http://{}/", addresses.http));
    }
    output::print_line(format_args!(
        "  gRPC        {}  (reflection is on)",
        addresses.grpc
    ));
    output::print_line(format_args!(
        "  HTTP        http://{0}/healthz  http://{0}/readyz  http://{0}/metrics",
        addresses.http
    ));
    output::print_line(format_args!(
        "  PostgreSQL  {}  ({}{running_note})",
        shell_url(postgres),
        postgres.version()
    ));
    output::print_line(format_args!("  data        {}", display(postgres.folder())));
    output::print_line(format_args!(
        "  log         {}\n",
        display(&postgres.log_path())
    ));
    output::print_line("  anneal import FILE          imports a conversation");
    output::print_line(
        "  anneal context CONVERSATION shows what would be sent to the model next\n",
    );
}

/// The URL of the database with a shell expression for the password: `--database-url "…"`.
fn shell_url(postgres: &LocalPostgres) -> String {
    let file = display(&postgres.password_path())
        .to_string()
        .replace('\'', r"'\''");
    postgres
        .url(DATABASE)
        .replace(postgres.password(), &format!("$(cat '{file}')"))
}

/// Failed attempts of one job after which [`wait_for_jobs`] gives up.
const MAX_FAILED_ATTEMPTS: i32 = 3;

/// Waits until no job is left. An error if a job fails repeatedly, or if `stop` comes before.
async fn wait_for_jobs(client: &Client, stop: &CancellationToken) -> anyhow::Result<()> {
    let progress = ProgressBar::new_spinner().with_message("waiting for the worker");
    while !stop.is_cancelled() {
        progress.tick();
        let ask = pb::ListJobsRequest {
            page_size: 500,
            ..Default::default()
        };
        let jobs = client
            .operators()
            .list_jobs(ask)
            .await
            .map_err(|status| failed_call(&status))?
            .into_inner()
            .jobs;
        let failing = jobs
            .iter()
            .find(|job| job.attempts >= MAX_FAILED_ATTEMPTS && !job.last_error.is_empty());
        if let Some(job) = failing {
            anyhow::bail!(
                "a job of {} keeps failing: {}",
                job.conversation_id,
                job.last_error
            );
        }
        if jobs.is_empty() {
            progress.finish_and_clear();
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("stopped before the jobs were done")
}
