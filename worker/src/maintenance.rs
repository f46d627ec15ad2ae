//! Periodic work, which every worker does: frees jobs whose worker died, repairs stored times after
//! the database's clock was set back, deletes partial summaries that no job continues and sessions
//! of the page that have expired, and reports the length of the queues, the state of the models'
//! breakers, and the figures of the database.

use std::time::Duration;

use anneal_core::{admission::Breaker, job::LEASE_SECONDS};
use anneal_store::{DatabaseFigures, Store};
use tracing::{debug, info, warn};

use crate::{clock_skew::DatabaseClock, pause::sleep_about, summarize::Summarizers};

/// Most jobs of each kind that one round frees.
const MAX_RESCUED: i64 = 100;

/// Frees orphaned jobs until the future is dropped. A round comes about every fifth of a lease's
/// length (3 s, varied by a quarter, so that workers do not work all at once). So a job runs again
/// within 20 s after its worker died. Before each round, repairs stored times if the database's
/// clock was set back.
pub(crate) async fn run_rescue_loop(store: &Store) {
    let pause = Duration::from_secs(u64::from(LEASE_SECONDS)) / 5;
    let mut clock = DatabaseClock::default();
    loop {
        clock.check(store).await;
        sleep_about(pause).await;
        rescue_orphaned_jobs(store).await;
    }
}

/// Days that a partial summary is kept for a job to continue with.
const PART_RETENTION_DAYS: i32 = 7;
/// Most partial summaries deleted in one round.
const MAX_DELETED_PARTS: i64 = 1_000;

/// Most expired sessions of the page deleted in one round.
const MAX_DELETED_SESSIONS: i64 = 10_000;

/// Deletes old partial summaries and expired sessions every hour, until the future is dropped.
pub(crate) async fn run_cleanup_loop(store: &Store) {
    loop {
        sleep_about(Duration::from_hours(1)).await;
        match store
            .delete_old_partial_summaries(PART_RETENTION_DAYS, MAX_DELETED_PARTS)
            .await
        {
            Ok(0) => {}
            Ok(deleted) => info!("deleted {deleted} partial summaries that no job continued"),
            Err(error) => store.log_failure(&error, || {
                warn!("could not delete old partial summaries: {error}");
            }),
        }
        match store
            .delete_expired_web_sessions(MAX_DELETED_SESSIONS)
            .await
        {
            Ok(deleted) => debug!("deleted {deleted} expired sessions of the page"),
            Err(error) => store.log_failure(&error, || {
                warn!("could not delete expired sessions of the page: {error}");
            }),
        }
    }
}

/// Time between two reads of the queues, and between two of the breakers.
const METRICS_INTERVAL: Duration = Duration::from_secs(15);

/// Sets the metrics of queue length and age, until the future is dropped. All workers share the
/// queues, so every worker reports the same figures.
pub(crate) async fn run_queue_metrics_loop(store: &Store) {
    loop {
        match store.read_queue_figures().await {
            Ok(queues) => {
                for queue in queues {
                    let kind = queue.kind.name();
                    metrics::gauge!("anneal_jobs_waiting", "kind" => kind)
                        .set(queue.waiting as f64);
                    metrics::gauge!("anneal_jobs_running", "kind" => kind)
                        .set(queue.running as f64);
                    metrics::gauge!("anneal_jobs_dead", "kind" => kind).set(queue.dead as f64);
                    let oldest = queue.oldest_ready_us as f64 / 1_000_000.0;
                    metrics::gauge!("anneal_jobs_oldest_ready_seconds", "kind" => kind).set(oldest);
                }
            }
            Err(error) => debug!("could not read the length of the queues: {error}"),
        }
        sleep_about(METRICS_INTERVAL).await;
    }
}

/// Sets the metrics of the breakers of the configured models, until the future is dropped. All
/// processes share the breakers, so every worker reports the same figures. The metrics of a model
/// that a reload has removed are then no number, because a metric cannot be taken back.
pub(crate) async fn run_breaker_metrics_loop(store: &Store, summarizers: &Summarizers) {
    let mut reported = Vec::new();
    loop {
        let setup = summarizers.setup();
        for removed in replace_reported(&mut reported, &setup.reported_models) {
            metrics::gauge!("anneal_model_breaker_state", "model" => removed.clone()).set(f64::NAN);
            metrics::gauge!("anneal_model_tenant_breakers_open", "model" => removed).set(f64::NAN);
        }
        if !setup.reported_models.is_empty() {
            report_breakers(store, &setup.reported_models).await;
        }
        sleep_about(METRICS_INTERVAL).await;
    }
}

/// Replaces the models of the last round by those of this one. Returns those that were removed.
fn replace_reported(reported: &mut Vec<String>, models: &[String]) -> Vec<String> {
    let mut removed = std::mem::replace(reported, models.to_vec());
    removed.retain(|model| !models.contains(model));
    removed
}

/// Time between two reads of the figures of the database: PostgreSQL looks at every file of the
/// database for its size.
const DATABASE_METRICS_INTERVAL: Duration = Duration::from_mins(1);

/// Sets the metrics of the database's size, tables and standbys, until the future is dropped. Every
/// worker reports the same figures.
pub(crate) async fn run_database_metrics_loop(store: &Store) {
    let mut reports_lag = false;
    loop {
        match store.read_database_figures().await {
            Ok(figures) => set_database_metrics(figures, &mut reports_lag),
            Err(error) => debug!("could not read the figures of the database: {error}"),
        }
        sleep_about(DATABASE_METRICS_INTERVAL).await;
    }
}

/// A figure that is unknown has no metric. A lag that was known before is then no number, because a
/// metric cannot be taken back.
fn set_database_metrics(figures: DatabaseFigures, reports_lag: &mut bool) {
    if let Some(bytes) = figures.size_bytes {
        metrics::gauge!("anneal_db_size_bytes").set(bytes as f64);
    }
    if let Some(standbys) = figures.standbys {
        metrics::gauge!("anneal_db_standbys").set(standbys as f64);
    }
    *reports_lag |= figures.replication_lag_seconds.is_some();
    if *reports_lag {
        let lag = figures.replication_lag_seconds.unwrap_or(f64::NAN);
        metrics::gauge!("anneal_db_replication_lag_seconds").set(lag);
    }
    for table in figures.tables {
        if let Some(bytes) = table.size_bytes {
            metrics::gauge!("anneal_db_table_bytes", "table" => table.name.clone())
                .set(bytes as f64);
        }
        if let Some(rows) = table.rows {
            metrics::gauge!("anneal_db_table_rows", "table" => table.name).set(rows);
        }
    }
}

async fn report_breakers(store: &Store, models: &[String]) {
    let breakers = match store.read_breaker_figures(models).await {
        Ok(breakers) => breakers,
        Err(error) => {
            debug!("could not read the breakers of the models: {error}");
            return;
        }
    };
    for figures in breakers {
        let state = match figures.breaker {
            Breaker {
                open_for: Some(_), ..
            } => 2.0,
            Breaker {
                is_half_open: true, ..
            } => 1.0,
            Breaker { .. } => 0.0,
        };
        let open_tenant_breakers = figures.open_tenant_breakers as f64;
        metrics::gauge!("anneal_model_breaker_state", "model" => figures.model.clone()).set(state);
        metrics::gauge!("anneal_model_tenant_breakers_open", "model" => figures.model)
            .set(open_tenant_breakers);
    }
}

/// Frees jobs whose lease has ended: one round of [`run_rescue_loop`].
pub(crate) async fn rescue_orphaned_jobs(store: &Store) {
    match store.rescue_jobs(MAX_RESCUED).await {
        Ok(rescued) => {
            metrics::counter!("anneal_jobs_rescued_total")
                .increment(rescued.waiting.unsigned_abs());
            metrics::counter!("anneal_jobs_dead_total").increment(rescued.dead.unsigned_abs());
            if rescued.waiting + rescued.dead > 0 {
                info!(
                    "freed {} jobs whose worker died or hangs, gave up {}",
                    rescued.waiting, rescued.dead
                );
            }
        }
        Err(error) => store.log_failure(&error, || {
            warn!("could not look for orphaned jobs: {error}");
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_was_removed_is_named_once() {
        let names =
            |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
        let mut reported = Vec::new();
        for (models, removed) in [
            (names(&["a", "b"]), names(&[])),
            (names(&["b", "c"]), names(&["a"])),
            (names(&["b", "c"]), names(&[])),
            (names(&[]), names(&["b", "c"])),
        ] {
            assert_eq!(replace_reported(&mut reported, &models), removed);
        }
    }
}
