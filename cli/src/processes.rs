//! `anneal server` and `anneal worker`.

use std::{num::NonZeroU32, process::ExitCode, sync::Arc, time::Duration};

use anneal_llm::{Extractive, ModelAccess, provider::Model};
use anneal_process::{
    files,
    http::{self, Readiness},
    shutdown, telemetry,
};
use anneal_server::{ServerSettings, serve};
use anneal_store::{Migrations, Store, Weakness};
use anneal_worker::Worker;
use anyhow::Context as _;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::config::Config;

/// Calls and jobs under way get this long after the first signal.
const PATIENCE: Duration = Duration::from_secs(25);

/// Runs the server until it is asked to stop.
pub(crate) async fn server(mut config: Config) -> anyhow::Result<ExitCode> {
    let metrics = telemetry::start(&config.log)?;
    let stop = shutdown::on_signals()?;
    let models = config.model_access()?;
    fit_connections_to_files(&mut config.server);
    let store = open(&config).await?;
    let (open, _) = oneshot::channel();
    let mut serving = std::pin::pin!(serve(store, config.setup(models), metrics, open, stop.clone()));
    tokio::select! {
        served = &mut serving => served?,
        () = async { stop.cancelled().await; tokio::time::sleep(PATIENCE).await } => {
            warn!("some calls did not end in {} s, leaving them", PATIENCE.as_secs());
        }
    }
    info!("stopped serving");
    Ok(ExitCode::SUCCESS)
}

/// Files beside connections of callers and of models: the database's, probes', logs, certificates.
const OTHER_FILES: u64 = 384;

/// Allows as many files as the system does. Where they are too few for `server.connections`, fewer connections are taken:
/// without files to spare nobody could choose which of them to close, and every new one would be refused.
pub(crate) fn fit_connections_to_files(server: &mut ServerSettings) {
    let Some(most) = files::allow_many() else { return };
    let wanted = server.connections;
    let fitting = connections_within(most, server);
    if fitting < wanted {
        server.connections = fitting;
        warn!(
            most,
            connections = fitting,
            "this process may have {most} files open: it takes {fitting} connections, fewer than server.connections \
             ({wanted}); raise the limit (ulimit -n)"
        );
    }
}

/// As many connections as the settings say, or as so many files allow beside those of turns, each of which has one to its model.
fn connections_within(files: u64, server: &ServerSettings) -> NonZeroU32 {
    let others = OTHER_FILES + u64::from(server.concurrent_turns.get());
    let left = u32::try_from(files.saturating_sub(others)).unwrap_or(u32::MAX);
    // A quarter is left for callers, however few files there are.
    let least = u32::try_from(files / 4).unwrap_or(u32::MAX);
    NonZeroU32::new(left.max(least)).unwrap_or(NonZeroU32::MIN).min(server.connections)
}

/// Runs a worker until it is asked to stop.
pub(crate) async fn worker(config: Config) -> anyhow::Result<ExitCode> {
    let metrics = telemetry::start(&config.log)?;
    let stop = shutdown::on_signals()?;
    let access = config.model_access()?;
    let model = config.summarizer_model(&access)?;
    let store = open(&config).await?;
    let listener = http::bind(config.worker.http_address)
        .with_context(|| format!("cannot listen on {}", config.worker.http_address))?;
    let address = listener.local_addr().context("the HTTP port has no address")?;
    info!(http = %address, "serving HTTP on {address}");
    let readiness = Readiness::default();
    let check = {
        let store = store.clone();
        move || {
            let store = store.clone();
            async move { store.ping().await.is_ok() }
        }
    };
    let changed = |ready| info!(ready, "the database {}", if ready { "answers" } else { "does not answer" });
    tokio::spawn(readiness.clone().watch(check, changed, stop.clone()));
    let web = tokio::spawn(http::serve(listener, http::router(readiness, metrics), stop.clone()));
    worker_on(store, &config, access, model).run(stop).await;
    web.await?.context("the HTTP port failed")?;
    Ok(ExitCode::SUCCESS)
}

/// A worker whose summaries the model writes, or the built-in summariser.
pub(crate) fn worker_on(store: Store, config: &Config, access: Arc<ModelAccess>, model: Option<Arc<Model>>) -> Worker {
    let worker = Worker::new(store, Arc::new(Extractive), config.worker.clone(), config.summarizer.clone());
    match model {
        Some(model) => {
            info!(model = model.name(), "summaries are written by {}", model.name());
            worker.with_model(access, model)
        }
        None => worker,
    }
}

/// The store, once the schema is known to fit and the database to keep what it acknowledges.
pub(crate) async fn open(config: &Config) -> anyhow::Result<Store> {
    config.database_url()?;
    let pending = Migrations::reach(&config.database).await.context("cannot reach the database")?.pending().await?;
    anyhow::ensure!(
        pending.is_empty(),
        "the database lacks {} migrations, the first is {}: run `anneal migrate`",
        pending.len(),
        pending[0].name
    );
    let store = Store::new(config.database.clone(), config.append, config.rules())?;
    check_durability(&store, config).await?;
    check_row_security(&store, config).await?;
    Ok(store)
}

/// Refuses sessions that row-level security holds nothing back from, unless the settings name no role.
async fn check_row_security(store: &Store, config: &Config) -> anyhow::Result<()> {
    let wanted = &config.database.role;
    if wanted.is_empty() {
        warn!(
            "database.role is empty: row-level security stands behind the tenant filters only as far as the login is no owner"
        );
    }
    let unsecured = store.unsecured().await.context("cannot read the role of the database's sessions")?;
    match unsecured {
        None => Ok(()),
        Some(found) => anyhow::bail!(
            "sessions work as {}, for whom row-level security holds nothing back, instead of as {wanted} (database.role): a \
             pooler may have dropped the options that sessions set (docs/operations.md, Poolers)",
            found.role
        ),
    }
}

/// Refuses a database that may lose in a crash what it has acknowledged; where that is allowed, warns.
async fn check_durability(store: &Store, config: &Config) -> anyhow::Result<()> {
    let weaknesses = store.weaknesses().await.with_context(|| match config.database.role.as_str() {
        "" => "cannot read the settings of the database".to_owned(),
        role => format!("cannot work in the database as {role} (database.role): is the login a member of that role?"),
    })?;
    if weaknesses.is_empty() {
        return Ok(());
    }
    let list = |said: fn(&Weakness) -> String| weaknesses.iter().map(said).collect::<Vec<_>>().join(", ");
    let settings = list(Weakness::to_string);
    anyhow::ensure!(
        config.database.allow_data_loss,
        "{settings} in the database's sessions: a crash may cost messages that were acknowledged. To keep them: {}. \
         To start all the same, on a database that may be lost, set database.allow_data_loss",
        list(Weakness::remedy)
    );
    warn!(
        settings,
        "THE DATABASE MAY LOSE WHAT IT ACKNOWLEDGES: {settings}; started all the same, because database.allow_data_loss \
         is set"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_everything_else() {
        let server = ServerSettings::default();
        let within = |files| connections_within(files, &server).get();
        assert_eq!((within(1 << 20), within(10_640), within(4_096)), (10_000, 10_000, 3_456));
        assert_eq!((within(1_024), within(256), within(0)), (384, 64, 1));
    }
}
