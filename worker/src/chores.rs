//! Work without input that every worker does now and then: freeing jobs whose worker died.

use std::time::Duration;

use anneal_core::job::LEASE_SECONDS;
use anneal_store::Store;
use tracing::{info, warn};

use crate::run::jitter;

/// Jobs freed in one round.
const RESCUED: i64 = 100;

/// Frees orphaned jobs every quarter of a lease, until the future is dropped.
pub(crate) async fn rescue(store: &Store) {
    let pause = Duration::from_secs(u64::from(LEASE_SECONDS)) / 4;
    loop {
        tokio::time::sleep(pause.mul_f64(0.75 + 0.5 * jitter())).await;
        rescue_once(store).await;
    }
}

/// One round.
pub(crate) async fn rescue_once(store: &Store) {
    match store.rescue_jobs(RESCUED).await {
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
