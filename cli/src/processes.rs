//! `anneal server`, `anneal worker`, and `anneal config --check`, which checks settings as they do.

use std::{num::NonZeroU32, process::ExitCode, sync::Arc, time::Duration};

use anneal_llm::{Extractive, ModelAccess, provider::Model};
use anneal_process::{
    http::{self, Readiness},
    open_files, shutdown,
    telemetry::{self, Telemetry},
};
use anneal_server::{ServerSettings, serve};
use anneal_store::{Migrations, NonDurableSetting, Store};
use anneal_worker::Worker;
use anyhow::Context as _;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::{
    command::{ConfigArguments, Process, SettingsArguments},
    config::Config,
    environment::log_service_links,
    output,
    reload::{self, Reloader},
    url_secrets::without_secrets,
};

/// How long calls that are running at the first signal may continue.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(25);

/// Runs the server until a signal stops it.
pub(crate) async fn run_server(
    mut config: Config,
    arguments: &SettingsArguments,
) -> anyhow::Result<ExitCode> {
    let Telemetry {
        metrics,
        traces,
        log_filter,
    } = telemetry::start(&config.log, &config.metrics, &config.tracing)?;
    log_service_links(&config.service_links);
    let stop = shutdown::cancel_on_signals()?;
    let hangups = reload::listen_for_hangups()?;
    let models = config.model_access()?;
    // The reloader compares new settings with the configured ones, which have the value of
    // `server.connections` before it is reduced.
    let configured = Arc::new(config.clone());
    fit_connections_to_files(&mut config.server);
    let store = open_store(&config).await?;
    let setup = config.setup(models);
    let replace_settings = {
        let (current, store) = (setup.current.clone(), store.clone());
        move |config: &Config, models, _: Option<Arc<Model>>| {
            current.replace(config.reloadable_settings(models));
            store.replace_session(config.session_settings());
        }
    };
    let reloader = Reloader::new(
        Process::Server,
        arguments,
        configured,
        log_filter,
        replace_settings,
    );
    tokio::spawn(
        stop.clone()
            .run_until_cancelled_owned(reloader.run(hangups)),
    );
    let (addresses_sender, _) = oneshot::channel();
    let mut serving = std::pin::pin!(serve(store, setup, metrics, addresses_sender, stop.clone()));
    let served = tokio::select! {
        served = &mut serving => served,
        () = async { stop.cancelled().await; tokio::time::sleep(SHUTDOWN_GRACE).await } => {
            warn!("stopping although some calls did not end within {} s", SHUTDOWN_GRACE.as_secs());
            Ok(())
        }
    };
    traces.shut_down().await;
    served?;
    info!("stopped serving");
    Ok(ExitCode::SUCCESS)
}

/// Open files besides the connections of callers and of models: database connections, probes, logs,
/// certificates.
const OTHER_FILES: u64 = 384;

/// Raises this process's limit of open files to the system's maximum. If it is still too low for
/// `server.connections`, reduces that setting. A server without spare files cannot accept a new
/// connection, not even to close an idle one for it.
pub(crate) fn fit_connections_to_files(server: &mut ServerSettings) {
    let Some(most) = open_files::raise_limit() else {
        return;
    };
    let wanted = server.connections;
    let allowed = connections_within(most, server);
    if allowed < wanted {
        server.connections = allowed;
        warn!(
            most,
            connections = allowed,
            "this process may open {most} files, so it takes only {allowed} connections instead of server.connections \
             ({wanted}); raise the limit (ulimit -n)"
        );
    }
}

/// The number of connections that this many files allow, at most `server.connections`. Each chat
/// turn uses one more file, for its connection to the model.
fn connections_within(files: u64, server: &ServerSettings) -> NonZeroU32 {
    let others = OTHER_FILES + u64::from(server.concurrent_turns.get());
    let left = u32::try_from(files.saturating_sub(others)).unwrap_or(u32::MAX);
    // At least a quarter of the files is for callers, however low the limit is.
    let least = u32::try_from(files / 4).unwrap_or(u32::MAX);
    NonZeroU32::new(left.max(least))
        .unwrap_or(NonZeroU32::MIN)
        .min(server.connections)
}

/// Runs the worker until a signal stops it.
pub(crate) async fn run_worker(
    config: Config,
    arguments: &SettingsArguments,
) -> anyhow::Result<ExitCode> {
    let Telemetry {
        metrics,
        traces,
        log_filter,
    } = telemetry::start(&config.log, &config.metrics, &config.tracing)?;
    log_service_links(&config.service_links);
    let stop = shutdown::cancel_on_signals()?;
    let hangups = reload::listen_for_hangups()?;
    let access = config.model_access()?;
    let model = config.summarizer_model(&access)?;
    let store = open_store(&config).await?;
    let listener = http::bind(config.worker.http_address)
        .with_context(|| format!("cannot listen on {}", config.worker.http_address))?;
    let address = listener
        .local_addr()
        .context("the HTTP port has no address")?;
    info!(http = %address, "serving HTTP on {address}");
    let readiness = Readiness::default();
    let check = {
        let store = store.clone();
        move || {
            let store = store.clone();
            async move { store.ping().await.is_ok() }
        }
    };
    let changed = |ready| {
        if ready {
            info!(ready, "the database answers");
        } else {
            warn!(ready, "the database does not answer");
        }
    };
    tokio::spawn(readiness.clone().watch(check, changed, stop.clone()));
    let web = tokio::spawn(http::serve(
        listener,
        http::router(readiness, metrics),
        stop.clone(),
    ));
    let worker = build_worker(store.clone(), &config, access, model);
    let replace_settings = {
        let worker = worker.clone();
        move |config: &Config, models, model| {
            worker.replace_summarizer(config.summarizer.clone(), models, model);
            worker.replace_retention(&config.retention);
            store.replace_session(config.session_settings());
        }
    };
    let reloader = Reloader::new(
        Process::Worker,
        arguments,
        Arc::new(config),
        log_filter,
        replace_settings,
    );
    tokio::spawn(
        stop.clone()
            .run_until_cancelled_owned(reloader.run(hangups)),
    );
    worker.run(stop).await;
    let served = web.await;
    traces.shut_down().await;
    served?.context("the HTTP port failed")?;
    Ok(ExitCode::SUCCESS)
}

/// A worker with this model as its summarizer, or with the built-in one. Logs the model's name.
pub(crate) fn build_worker(
    store: Store,
    config: &Config,
    access: Arc<ModelAccess>,
    model: Option<Arc<Model>>,
) -> Worker {
    let worker = Worker::new(
        store,
        Arc::new(Extractive),
        config.worker.clone(),
        config.summarizer.clone(),
    );
    if let Some(model) = &model {
        info!(
            model = model.name(),
            "summaries are written by {}",
            model.name()
        );
    }
    worker.replace_summarizer(config.summarizer.clone(), access, model);
    worker.replace_retention(&config.retention);
    worker
}

/// Checks the settings as the start of the named process does. Without a name it checks them for
/// both processes.
pub(crate) fn check_settings(
    config: &Config,
    arguments: &ConfigArguments,
) -> anyhow::Result<ExitCode> {
    // The checks of a server include all those of a worker.
    config.check_for(arguments.process.unwrap_or(Process::Server))?;
    output::print_line("the configuration is valid");
    Ok(ExitCode::SUCCESS)
}

/// Opens the store. Checks that the schema is current, that the database is durable, and that
/// row-level security applies.
pub(crate) async fn open_store(config: &Config) -> anyhow::Result<Store> {
    let store = config.create_store()?;
    let pending = Migrations::connect_as_process(&config.database)
        .await
        .with_context(|| {
            format!(
                "cannot reach the database {}",
                without_secrets(&config.database.url)
            )
        })?
        .list_pending()
        .await?;
    anyhow::ensure!(
        pending.is_empty(),
        "the database lacks {} migrations, the first of them {}: run `anneal migrate`",
        pending.len(),
        pending[0].name
    );
    check_durability(&store, config).await?;
    check_row_security(&store, config).await?;
    Ok(store)
}

/// Refuses database sessions that bypass row-level security, unless `database.role` is empty.
async fn check_row_security(store: &Store, config: &Config) -> anyhow::Result<()> {
    let wanted = &config.database.role;
    if wanted.is_empty() {
        warn!(
            "database.role is empty: row-level security backs the tenant filters only if the login does not own the tables"
        );
    }
    let unsecured = store
        .check_row_security()
        .await
        .context("cannot read the role of the database's sessions")?;
    match unsecured {
        None => Ok(()),
        Some(found) => anyhow::bail!(
            "database sessions have the role {}, to which row-level security does not apply, instead of {wanted} \
             (database.role): a pooler may have dropped the options of the sessions (docs/operations.md, Poolers)",
            found.role
        ),
    }
}

/// Refuses a database that may lose acknowledged writes in a crash. Only warns if
/// `database.allow_data_loss` is set.
async fn check_durability(store: &Store, config: &Config) -> anyhow::Result<()> {
    let weaknesses = store.find_non_durable_settings().await.with_context(|| match config.database.role.as_str() {
        "" => "cannot read the settings of the database".to_owned(),
        role => format!("cannot work in the database as {role} (database.role): is the login a member of that role?"),
    })?;
    if weaknesses.is_empty() {
        return Ok(());
    }
    let list = |text_of: fn(&NonDurableSetting) -> String| {
        weaknesses
            .iter()
            .map(text_of)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let settings = list(NonDurableSetting::to_string);
    anyhow::ensure!(
        config.database.allow_data_loss,
        "{settings} in the database's sessions: a crash may cost messages that were acknowledged. To keep them: {}. \
         To start nevertheless, on a database whose data may be lost, set database.allow_data_loss",
        list(NonDurableSetting::remedy)
    );
    warn!(
        settings,
        "THE DATABASE MAY LOSE WHAT IT ACKNOWLEDGES: {settings}; started nevertheless, because database.allow_data_loss \
         is set"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_other_uses() {
        // By default 384 files are for other uses and 256 for chat turns. The rest are for callers:
        // at least a quarter of all files, at most 10,000 (`server.connections`).
        let server = ServerSettings::default();
        let within = |files| connections_within(files, &server).get();
        assert_eq!(
            (within(1 << 20), within(10_640), within(4_096)),
            (10_000, 10_000, 3_456)
        );
        assert_eq!((within(1_024), within(256), within(0)), (384, 64, 1));
    }
}
