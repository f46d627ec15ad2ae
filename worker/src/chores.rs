//! Work without input that every worker does now and then: freeing jobs whose worker died, forgetting what nobody needs.

use std::time::Duration;

use anneal_core::job::LEASE_SECONDS;
use anneal_store::Store;
use tracing::{debug, info, warn};

use crate::{clock::DatabaseClock, patience::answered, run::jitter};

/// Jobs freed in one round.
const RESCUED: i64 = 100;

/// Frees orphaned jobs every fifth of a lease, so that a job runs again within 20 s whenever its worker died, until the future is dropped; those too whose leases end late because the
/// database's clock was set back.
pub(crate) async fn rescue(store: &Store) {
    let pause = Duration::from_secs(u64::from(LEASE_SECONDS)) / 5;
    let mut clock = DatabaseClock::default();
    loop {
        clock.look(store).await;
        tokio::time::sleep(pause.mul_f64(0.75 + 0.5 * jitter())).await;
        rescue_once(store).await;
    }
}

/// Days that finished parts of a summary wait for somebody to go on with it.
const PARTS_DAYS: i32 = 7;
/// Parts forgotten in one round.
const FORGOTTEN: i64 = 1_000;

/// Forgets parts of summaries that nobody has gone on with, every hour, until the future is dropped.
pub(crate) async fn forget(store: &Store) {
    loop {
        tokio::time::sleep(Duration::from_hours(1).mul_f64(0.75 + 0.5 * jitter())).await;
        match answered(store.forget_old_parts(PARTS_DAYS, FORGOTTEN)).await {
            Ok(0) => {}
            Ok(forgotten) => info!("forgot {forgotten} parts of summaries that were given up"),
            Err(error) => warn!("could not forget old parts of summaries: {error}"),
        }
    }
}

/// Between two looks at the queues.
const LOOK: Duration = Duration::from_secs(15);

/// Shows how long the queues are, and how old, until the future is dropped. Every worker shows those of all.
pub(crate) async fn show_queues(store: &Store) {
    loop {
        match answered(store.queue_figures()).await {
            Ok(queues) => {
                for queue in queues {
                    let kind = queue.kind.name();
                    metrics::gauge!("jobs_waiting", "kind" => kind).set(queue.waiting as f64);
                    metrics::gauge!("jobs_running", "kind" => kind).set(queue.running as f64);
                    metrics::gauge!("jobs_dead", "kind" => kind).set(queue.dead as f64);
                    let oldest = queue.oldest_ready_us as f64 / 1_000_000.0;
                    metrics::gauge!("jobs_oldest_ready_seconds", "kind" => kind).set(oldest);
                }
            }
            Err(error) => debug!("could not look at the queues: {error}"),
        }
        tokio::time::sleep(LOOK.mul_f64(0.75 + 0.5 * jitter())).await;
    }
}

/// One round of freeing.
pub(crate) async fn rescue_once(store: &Store) {
    match answered(store.rescue_jobs(RESCUED)).await {
        Ok(rescued) => {
            metrics::counter!("jobs_rescued_total").increment(rescued.waiting.unsigned_abs());
            metrics::counter!("jobs_dead_total").increment(rescued.dead.unsigned_abs());
            if rescued.waiting + rescued.dead > 0 {
                info!("freed {} jobs of workers that went away, gave up {}", rescued.waiting, rescued.dead);
            }
        }
        Err(error) => warn!("could not look for orphaned jobs: {error}"),
    }
}
